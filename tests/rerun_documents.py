"""Documents of reruns, made without a store."""

import json
from collections.abc import Sequence
from typing import Any

from redrive.compare.rerun_decisions import LiveDecision
from redrive.compare.rerun_document import (
    AgentEnd,
    RerunDocument,
    RerunFacts,
    describe_rerun,
    dump_rerun,
)
from tests.rerun_agents import Again
from tests.schemas import check


def document_of(
    again: Again, decisions: Sequence[LiveDecision] = (), **facts: Any
) -> RerunDocument:
    """Describe a rerun, and hold its document to the schema that ships."""
    known = RerunFacts(**{"head": "0" * 64, "agent": AgentEnd("returned")} | facts)
    document = describe_rerun(again.backend.state, again.found, known, decisions)
    check(json.loads(dump_rerun(document)), "rerun")
    return document
