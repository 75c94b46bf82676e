"""A preview rests on what recorded runs used, and on the load check."""

from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.app.trial_preview import preview_plan, recorded_run
from redrive.audit.workflow import Grants, ToolSpec, WorkflowSpec
from redrive.compare.trial_preview import JudgingBound, RecordedRun
from redrive.errors import UsageError
from redrive.stores.port import SessionRow
from tests.trial_plans import CEILINGS, HEAD, MODEL, no_store, plan_of


def row(usage=None, first=None, last=None) -> SessionRow:
    summary = {} if usage is None else {"usage": usage}
    return SessionRow("s", "s", 1, "f", 1, 1, "h", first, last, summary)


def test_a_recorded_run_says_what_it_used_as_far_as_its_record_tells() -> None:
    assert recorded_run(row()) == RecordedRun()
    assert recorded_run(row({"output_tokens": 0})) == RecordedRun(output_tokens=0)
    used = {"input_tokens": 100, "output_tokens": 5, "cache_read_tokens": 80}
    assert recorded_run(row(used, 10**9, 3 * 10**9)) == RecordedRun(100, 5, 2.0)
    apart = used | {"cache_read_tokens": 900, "cache_write_tokens": 50}
    assert recorded_run(row(apart)).input_tokens == 1050
    assert recorded_run(row(used, 5, 5)).duration_s is None


def test_tasks_from_sessions_give_an_estimate(tmp_path: Path, recorded, decision) -> None:
    usage = {"input_tokens": 1_000_000, "output_tokens": 100_000}
    lines = [decision("d", text="x", usage=usage, ts="2026-01-01T00:00:00Z")]
    lines += [{"type": "end", "id": "e", "status": "success", "ts": "2026-01-01T00:00:04Z"}]
    store, _ = recorded({"type": "session", "id": "s", "task": "t"}, *lines)

    @contextmanager
    def opened():
        yield store

    text = HEAD + '[tasks]\nsessions = ["s"]\nno_workspace = true\n' + MODEL + CEILINGS
    plan = plan_of(tmp_path, text, open_store=opened)
    judging = JudgingBound(3, Decimal("0.01"))
    found = preview_plan(replace(plan, parallel=2), opened, level="landlock", judging=judging)
    assert (found.costs[0].estimate_usd, found.costs[0].basis) == ("0.28", "recorded")
    assert (found.time.wall_s, found.time.parallel) == (4.0, 2)
    assert (found.judge_calls, found.isolation) == (3, "landlock")
    assert found.smallest_margin is None


def test_what_is_refused_and_what_is_simulated_is_named(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    mail = ToolSpec("mail", "unsafe", Grants(), simulator="function")
    spec = WorkflowSpec("w", "1", uses=("mail",), tools=(mail,))
    plan = replace(plan, workflows=(replace(plan.workflows[0], spec=spec), plan.workflows[1]))
    nothing = JudgingBound()
    found = preview_plan(plan, no_store, level="bubblewrap", judging=nothing)
    assert [variant.eligible for variant in found.variants] == [False, True]
    assert found.variants[0].refusals[0].tool == "mail"
    assert found.smallest_margin is not None
    assert found.time.parallel >= 1
    simulating = replace(plan, simulate=("mail",))
    found = preview_plan(simulating, no_store, level="bubblewrap", judging=nothing)
    assert found.is_eligible
    assert found.variants[0].simulated == ("mail",)
    with pytest.raises(UsageError, match="no tool 'push' to simulate"):
        preview_plan(replace(plan, simulate=("push",)), no_store, level="", judging=nothing)
