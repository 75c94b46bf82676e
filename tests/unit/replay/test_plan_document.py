"""A plan that was written is read back as it was."""

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from redrive.audit.workflow import Grants, ToolSpec, WorkflowSpec
from redrive.errors import RecordError
from redrive.replay.plan_document import dump_plan, parse_plan
from redrive.replay.trial_plan import PlannedWorkflow, TrialPlan
from redrive.replay.trial_values import Purpose, TrialTask, Workspace
from tests.trial_plans import WHOLE, plan_of


def test_a_plan_is_read_back_as_it_was(tmp_path: Path) -> None:
    text = WHOLE + 'words = ["a", 1, 0.5]\n[environment]\nname = "image"\n[limits]\nwall_s = 1.5\n'
    plan = plan_of(tmp_path, text)
    assert parse_plan(dump_plan(plan)) == plan
    assert dump_plan(parse_plan(dump_plan(plan))) == dump_plan(plan)


def test_values_of_recordings_stay_byte_for_byte() -> None:
    tool = ToolSpec("t", "pure", Grants(("a",)), parameters=Raw(b'{"type":"object"}'))
    sub = WorkflowSpec("sub", "1", tools=(tool,))
    spec = WorkflowSpec("w", "1", workflows={"sub": sub})
    task = TrialTask(
        "0" * 16,
        "n",
        Raw(b'["\\ud800",18446744073709551617]'),
        Workspace("git", "/w", "d" * 64, "abc"),
        Raw(b"null"),
        "s",
        Raw(b'{"x":"\\udfff"}'),
        "f:1",
    )
    workflow = PlannedWorkflow("w.py:w", spec, "e" * 64, "challenger")
    plan = TrialPlan("t", (workflow,), (task,), (), {Purpose.REPLAY: Decimal("0.10")})
    assert parse_plan(dump_plan(plan)) == plan


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff"])
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError, match="a stored plan cannot be read"):
        parse_plan(data)


def test_another_version_is_refused(tmp_path: Path) -> None:
    fields = msgspec.json.decode(dump_plan(plan_of(tmp_path)))
    for change in ({"schema_version": 2}, {"schema": "redrive.other"}):
        with pytest.raises(RecordError, match="no plan of version 1"):
            parse_plan(msgspec.json.encode(fields | change))
