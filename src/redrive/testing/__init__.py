"""Checks that a plug-in's or writer's own tests can run; each raises `ConformanceError`."""

from redrive.testing.graders import check_grader
from redrive.testing.importers import ConformanceError, MemorySource, check_importer
from redrive.testing.interchange import check_interchange

__all__ = [
    "ConformanceError",
    "MemorySource",
    "check_grader",
    "check_importer",
    "check_interchange",
]
