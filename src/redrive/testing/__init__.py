"""Checks that a plug-in's own tests can run; each raises `ConformanceError` and says what broke."""

from redrive.testing.importers import ConformanceError, MemorySource, check_importer

__all__ = ["ConformanceError", "MemorySource", "check_importer"]
