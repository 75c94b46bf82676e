"""A report names every planned run, whatever became of it, and adds up what they cost."""

from decimal import Decimal

import pytest
from msgspec import UNSET, Raw
from msgspec.structs import replace

from redrive.compare.trial_environment import NOT_ATTRIBUTED
from redrive.compare.trial_preview import MOST_EXPENSIVE
from redrive.compare.trial_report import (
    MAX_FILES,
    MAX_OUTPUT_BYTES,
    RunFacts,
    SpendFacts,
    StopFacts,
    TrialFacts,
    report_trial,
)
from redrive.replay.trial_plan import plan_runs
from redrive.replay.trial_values import (
    DeniedCall,
    EpisodeEnd,
    Outcome,
    OutputFile,
    Purpose,
    RunKey,
)
from tests.trial_reports import plan_of_size, report_of_size

KEY = RunKey("triage@1", f"{1:016x}")


def report_of(*runs: RunFacts, **facts):
    return report_trial(plan_of_size(2, 2), TrialFacts("t-1", runs, **facts))


def ended(outcome: Outcome = Outcome.COMPLETE, **fields) -> RunFacts:
    end = EpisodeEnd(outcome, isolation="landlock", wall_s=1.0, **fields)
    return RunFacts(KEY, 1, end)


def test_a_trial_that_never_began_names_every_run() -> None:
    report = report_of()
    assert (report.planned, report.started, report.finished) == (4, 0, 0)
    assert report.not_run == tuple(str(run.key) for run in plan_runs(plan_of_size(2, 2)))
    assert {run.outcome for run in report.runs} == {"not_started"}
    assert (report.isolation, report.is_complete, report.grading) == ("", False, None)
    assert report.notes[0] == MOST_EXPENSIVE
    assert "4 of 4 runs did not finish" in report.notes[1]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_an_end_that_stands_counts_as_finished(outcome: Outcome) -> None:
    report = report_of(ended(outcome))
    is_open = outcome in (Outcome.MODEL, Outcome.CEILING, Outcome.CANCELLED)
    assert report.finished == (0 if is_open else 1)
    assert (str(KEY) in report.not_run) is is_open
    assert report.started == 1
    assert report.runs[0].outcome == outcome.value


def test_a_run_that_was_begun_and_never_ended_is_interrupted() -> None:
    report = report_of(RunFacts(KEY, 1, reserved_usd=Decimal("0.05")))
    run = report.runs[0]
    assert (run.outcome, run.is_finished, run.duration_s) == ("interrupted", False, None)
    assert (run.reserved_usd, run.cost_usd) == ("0.05", "0.00")
    assert str(KEY) in report.not_run


def test_a_run_begun_again_is_said_to_be() -> None:
    report = report_of(replace(ended(), execution=2))
    assert any("1 run was begun again" in note for note in report.notes)


def test_runs_stand_in_the_plan_s_order_whatever_order_they_came_in() -> None:
    plan = plan_of_size(2, 2)
    keys = [run.key for run in plan_runs(plan)]
    runs = tuple(RunFacts(key, 1, EpisodeEnd(Outcome.COMPLETE)) for key in reversed(keys))
    report = report_trial(plan, TrialFacts("t", runs))
    assert [run.key for run in report.runs] == [str(key) for key in keys]
    assert report.not_run == ()
    assert report.is_complete
    assert [run.seed for run in report.runs] == [run.seed for run in plan_runs(plan)]


def test_money_adds_up_exactly_by_variant_and_purpose() -> None:
    runs = [
        replace(ended(), key=RunKey("triage@1", f"{n:016x}"), spent_usd=Decimal("0.1"))
        for n in (1, 2)
    ]
    spend = {
        Purpose.REPLAY: SpendFacts(Decimal("0.3"), Decimal("0.05"), Decimal("0.2"), 7, 1),
        Purpose.JUDGING: SpendFacts(Decimal(0), Decimal(0), Decimal("0.1")),
    }
    report = report_of(*runs, spend=spend)
    assert [entry.cost_usd for entry in report.variants] == ["0.20", "0.00"]
    replay = report.spend["replay"]
    assert (replay.ceiling_usd, replay.left_usd, replay.calls) == ("0.30", "0.05", 7)
    assert report.spend["judging"].left_usd == "0.00"
    assert list(report.spend) == ["judging", "replay"]


def test_outputs_are_whole_or_left_out() -> None:
    assert report_of(ended(output=Raw(b'{"a":[1,"x"]}'))).runs[0].output == {"a": [1, "x"]}
    assert report_of(ended(output=Raw(b"null"))).runs[0].output is None
    assert report_of(ended()).runs[0].output is UNSET
    long = report_of(ended(output=Raw(b'"' + b"x" * MAX_OUTPUT_BYTES + b'"'))).runs[0]
    assert (long.output, long.output_bytes) == (UNSET, MAX_OUTPUT_BYTES + 2)


def test_denied_simulated_and_changed_files_are_listed() -> None:
    files = tuple(OutputFile(f"{n}", "file") for n in range(MAX_FILES + 1))
    denied = (DeniedCall("push", "not granted"), DeniedCall("model:x", "not planned"))
    run = ended(Outcome.DENIED, denied=denied, simulated=("mail",), files=files, notes=("n",))
    report = report_of(run)
    view = report.runs[0]
    assert (view.denied, view.simulated) == (denied, ("mail",))
    assert (view.n_files, len(view.files)) == (MAX_FILES + 1, MAX_FILES)
    assert (report.denied, report.is_simulated, view.notes) == (2, True, ("n",))
    assert report.variants[0].denied == 2
    assert report.variants[0].simulated == ("mail",)
    assert any("simulated: mail" in note for note in report.notes)


def test_a_run_in_another_environment_names_each_field() -> None:
    plan = plan_of_size(1, 1)
    task = replace(plan.tasks[0], environment=Raw(b'{"name":"a","commands":["make"]}'))
    plan = replace(plan, tasks=(task,), environment=Raw(b'{"name":"b"}'))
    report = report_trial(plan, TrialFacts("t", (replace(ended(), key=KEY),)))
    run = report.runs[0]
    assert run.environment == "differs"
    assert [note.split(":")[1].strip() for note in run.notes[:-1]] == ["commands", "name"]
    assert run.notes[-1] == NOT_ATTRIBUTED
    assert [found.field for found in report.tasks[0].environment.differences] == [
        "commands",
        "name",
    ]


def test_all_levels_that_runs_ran_at_are_named() -> None:
    other = EpisodeEnd(Outcome.COMPLETE, isolation="bubblewrap")
    runs = (ended(), RunFacts(RunKey("triage@2", KEY.task_id), 1, other))
    assert report_of(*runs).isolation == "bubblewrap, landlock"


def test_what_was_billed_above_its_reservation_is_said() -> None:
    report = report_of(overrun_usd=Decimal("0.01"), stops=(StopFacts("full", "replay"),))
    assert any("USD 0.01 more than was reserved" in note for note in report.notes)
    assert report.stopped == (StopFacts("full", "replay"),)


def test_a_whole_trial_is_summed_up_by_variant() -> None:
    report = report_of_size(3, 8)
    assert [entry.outcomes for entry in report.variants] == [
        {"complete": 4, "failed": 4},
        {"complete": 4, "denied": 4},
        {"complete": 4, "timeout": 4},
    ]
    assert [entry.role for entry in report.variants] == ["incumbent", "challenger", ""]
    assert report.variants[0].duration_s == 1.75
    assert report_of().variants[0].duration_s is None
