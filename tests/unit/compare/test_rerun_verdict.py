"""The table of what a first difference means."""

import pytest

from redrive.compare.rerun_verdict import (
    EXIT_CODES,
    MEANINGS,
    NOTES,
    CodeDigests,
    CodeState,
    Finding,
    judge_miss,
)
from redrive.replay.rerun_exchange import Miss, What
from redrive.replay.rerun_items import Lack


def miss(what: What, **fields: object) -> Miss:
    return Miss(what, "main", 1, None, None, **fields)  # type: ignore[arg-type]


def test_every_difference_and_finding_has_its_row():
    assert set(MEANINGS) == set(What)
    assert set(EXIT_CODES) == set(Finding)


@pytest.mark.parametrize("code", CodeState)
def test_nothing_that_differs_is_identical(code):
    assert judge_miss(None, code) is Finding.IDENTICAL


@pytest.mark.parametrize(
    ("what", "code", "finding"),
    [
        (What.PROMPT, CodeState.EQUAL, Finding.UNKNOWN_INPUT),
        (What.PROMPT, CodeState.CHANGED, Finding.DIVERGENCE),
        (What.PROMPT, CodeState.UNKNOWN, Finding.DIVERGENCE),
        (What.ARGUMENT, CodeState.EQUAL, Finding.UNKNOWN_INPUT),
        (What.ORDER, CodeState.EQUAL, Finding.DIVERGENCE),
        (What.DERIVATION, CodeState.EQUAL, Finding.DIVERGENCE),
        (What.UNSERVABLE, CodeState.CHANGED, Finding.GAP),
    ],
)
def test_a_difference_means_what_its_row_says(what, code, finding):
    assert judge_miss(miss(what), code) is finding


@pytest.mark.parametrize("code", CodeState)
def test_an_unrecorded_read_is_a_gap_and_never_a_change_of_the_code(code):
    found = judge_miss(miss(What.CLOCK, is_unrecorded=True), code)
    assert found is Finding.GAP
    assert EXIT_CODES[found] == 3
    assert (found, code) not in NOTES


def test_what_the_record_cannot_answer_is_a_gap():
    assert judge_miss(miss(What.PROMPT, lack=Lack.MASKED), CodeState.CHANGED) is Finding.GAP
    assert judge_miss(miss(What.CALL), CodeState.CHANGED, is_live=True) is Finding.GAP


def test_only_changed_code_is_mentioned_as_changed():
    mentions = {key for key, text in NOTES.items() if "is not the code" in text}
    assert mentions == {(Finding.DIVERGENCE, CodeState.CHANGED)}


@pytest.mark.parametrize(
    ("recorded", "now", "state"),
    [
        ("a", "a", CodeState.EQUAL),
        ("a", "b", CodeState.CHANGED),
        (None, "b", CodeState.UNKNOWN),
        ("a", None, CodeState.UNKNOWN),
    ],
)
def test_code_is_compared_where_both_digests_are_known(recorded, now, state):
    assert CodeDigests(recorded, now).state is state
