import pytest

from redrive import canonical
from redrive.audit.gaps import InputClass, make_gap
from redrive.audit.report import (
    FORMAT_HINTS,
    ClosureReport,
    recommendations,
    sum_up,
    with_gaps,
)

SEED = make_gap("no_seed", "seed")
CLOCK = make_gap("clock_not_captured", "clock", state="unknown")
RESULT = make_gap("missing_result", "tool_result:c1", tool="t")


def step(number: int, *missing: object) -> ClosureReport:
    closed = ClosureReport(number, number, f"n{number}", "closed", True, "vouched", (), ())
    return with_gaps(closed, missing)  # type: ignore[arg-type]


def test_the_closed_prefix_ends_before_the_first_open_step() -> None:
    report = sum_up("s:1", "main", (step(1), step(2, SEED), step(3), step(4, SEED, CLOCK)), ())
    assert (report.status, report.closed_until, report.is_closed) == ("open", 1, False)
    first = report.first_open()
    assert first is not None
    assert first.step == 2
    assert report.by_class == {
        "input": 0,
        "environment": 0,
        "sampling": 2,
        "clock": 1,
        "prng": 0,
    }


def test_a_trajectory_of_closed_steps_is_closed() -> None:
    report = sum_up("s:1", "main", (step(1), step(2)), ("note",))
    assert (report.status, report.closed_until, report.first_open()) == ("closed", 2, None)


def test_a_trajectory_without_a_decision_is_open() -> None:
    assert sum_up("s:1", "main", (), ()).status == "open"


def test_added_gaps_are_sorted_by_class_and_open_the_step() -> None:
    opened = with_gaps(step(1, CLOCK), (SEED, RESULT))
    assert opened.status == "open"
    assert [gap.cause for gap in opened.missing] == [
        "missing_result",
        "no_seed",
        "clock_not_captured",
    ]


def test_the_report_has_the_keys_of_the_contract() -> None:
    written = canonical.decode_value(canonical.encode(sum_up("s:1", "main", (step(1, SEED),), ())))
    assert {"session_id", "status", "closed_until", "steps", "by_class", "notes"} <= set(written)
    keys = {"step", "node_id", "status", "decision_closed", "basis", "missing", "notes"}
    assert keys <= set(written["steps"][0])
    assert {"class", "what", "reason", "hint"} <= set(written["steps"][0]["missing"][0])


def test_recommendations_rank_by_the_steps_they_open_then_by_class() -> None:
    second = make_gap("missing_result", "tool_result:c9", tool="t")
    steps = (step(1, SEED), step(2, RESULT, second, SEED), step(3, CLOCK, RESULT), step(4, RESULT))
    ranked = recommendations(sum_up("codex:1", "main", steps, ()))
    assert [(r.cause, r.steps, r.first_step, r.example) for r in ranked] == [
        ("missing_result", 3, 2, "tool_result:c1"),
        ("no_seed", 2, 1, "seed"),
        ("clock_not_captured", 1, 3, "clock"),
    ]
    assert [r.format_hint for r in ranked] == [
        "",
        FORMAT_HINTS["codex", InputClass.SAMPLING],
        "no transcript holds clock reads: record the agent itself",
    ]


def test_a_closed_report_recommends_nothing() -> None:
    assert recommendations(sum_up("s:1", "main", (step(1),), ())) == ()


@pytest.mark.parametrize("key", FORMAT_HINTS)
def test_every_format_hint_says_something(key: tuple[str, InputClass]) -> None:
    assert FORMAT_HINTS[key]
