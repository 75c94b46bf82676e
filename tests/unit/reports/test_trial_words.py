"""Figures read alike in every form of a report, and none claims more than it knows."""

import pytest
from msgspec.structs import replace

from redrive.compare.trial_report import INTERRUPTED, NOT_STARTED
from redrive.replay.trial_values import Outcome, Purpose
from redrive.reports.trial_words import (
    MEANINGS,
    OUTCOMES,
    PURPOSES,
    gate_line,
    gate_text,
    interval,
    percent,
    seconds,
)
from tests.trial_reports import report_of_size


def test_every_outcome_and_purpose_has_its_words() -> None:
    assert set(OUTCOMES) == set(MEANINGS) == {*map(str, Outcome), NOT_STARTED, INTERRUPTED}
    assert set(PURPOSES) == set(map(str, Purpose))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0s"), (9.96, "10.0s"), (12.4, "12s"), (200, "3m20s"), (7500, "2h05m")],
)
def test_durations_are_short(value: float, text: str) -> None:
    assert seconds(value) == text


def test_what_is_no_certainty_is_not_written_as_one() -> None:
    assert [percent(x) for x in (0, 0.001, 0.5, 0.999, 1)] == ["0%", "<1%", "50%", ">99%", "100%"]
    assert interval(None, None, None) == "not defined"
    assert interval(0.5, None, None) == "50%"
    assert interval(0.5, 0.25, 0.75) == "50% [25%, 75%]"


def test_a_gate_says_what_it_asks_and_what_the_tasks_can_show() -> None:
    report = report_of_size()
    assert report.grading is not None
    gate = report.grading.gate
    assert gate is not None
    assert gate_text(replace(gate, must_beat=True)) == "triage@2 beats triage@1"
    assert "8 tasks can show 0.312 at best" in gate_line(gate)
    assert "at best" not in gate_line(replace(gate, smallest_margin=None))
    assert gate_line(replace(gate, difference=None)).endswith("no task has both scores")
