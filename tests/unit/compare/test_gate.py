"""A gate says what it asks, passes only what the tasks show, and fails only what they refute."""

import pytest

from redrive.compare.gate import Gate, find_sides, judge_gate, parse_gate, smallest_margin
from redrive.errors import UsageError

VARIANTS = (("a@1", "incumbent"), ("a@2", "challenger"), ("b@1", ""))


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("challenger within 0.05 of incumbent", Gate("challenger", "incumbent", 0.05)),
        ("  a@2  within .5 of\ta@1 ", Gate("a@2", "a@1", 0.5)),
        ("x within 0 of y", Gate("x", "y", 0.0)),
        ("x within 1 of y", Gate("x", "y", 1.0)),
        ("challenger beats incumbent", Gate("challenger", "incumbent", must_beat=True)),
    ],
)
def test_a_gate_is_read(text, gate):
    assert parse_gate(text) == gate


@pytest.mark.parametrize(
    "text",
    [
        "",
        "challenger",
        "x within 0.05 y",
        "x within of y",
        "x beats",
        "x beats y z",
        "x within -1 of y",
        "x within 1.01 of y",
        "x within nan of y",
        "x within 5% of y",
        "x within 1e-2 of y",
        "x within \u0660 of y",
        "x beats x",
        "x within 0.1 of x",
    ],
)
def test_what_is_no_gate_is_refused(text):
    with pytest.raises(UsageError, match=r"gate|margin"):
        parse_gate(text)


def test_sides_are_labels_or_roles():
    assert find_sides(Gate("challenger", "incumbent"), VARIANTS) == ("a@2", "a@1")
    assert find_sides(Gate("b@1", "incumbent"), VARIANTS) == ("b@1", "a@1")
    assert find_sides(Gate("challenger", "c"), (("challenger", ""), ("c", "challenger"))) == (
        "challenger",
        "c",
    )


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        (Gate("nobody", "incumbent"), "no variant"),
        (Gate("a@1", "incumbent"), "against itself"),
    ],
)
def test_sides_that_are_not_two_variants_are_refused(gate, message):
    with pytest.raises(UsageError, match=message):
        find_sides(gate, VARIANTS)


def test_a_role_that_several_have_is_refused_by_name():
    variants = (("a", "challenger"), ("b", "challenger"), ("c", "incumbent"))
    with pytest.raises(UsageError, match="2 variants: a, b"):
        find_sides(Gate("challenger", "incumbent"), variants)


def judge(ones, others, gate="x within 0.05 of y", **options):
    scores = {f"t{n}": pair for n, pair in enumerate(zip(ones, others, strict=True))}
    return judge_gate(parse_gate(gate), ("x", "y"), scores, **options)


def test_equal_scores_of_few_tasks_are_inconclusive():
    result = judge([1.0] * 8, [1.0] * 8)
    assert (result.status, result.difference) == ("inconclusive", 0.0)
    assert result.low == -result.high == -result.smallest_margin == -smallest_margin(8)
    assert result.smallest_margin == pytest.approx(0.312344, abs=1e-6)


def test_equal_scores_of_enough_tasks_pass():
    assert judge([1.0] * 58, [1.0] * 58).status == "inconclusive"
    assert judge([1.0] * 59, [1.0] * 59).status == "passed"


def test_a_challenger_that_loses_everywhere_fails():
    result = judge([0.0] * 8, [1.0] * 8)
    assert (result.status, result.difference, result.low) == ("failed", -1.0, -1.0)
    assert -1 < result.high < -0.3


def test_a_challenger_that_wins_everywhere_beats():
    assert judge([1.0] * 8, [0.0] * 8, "x beats y").status == "passed"
    assert judge([0.0] * 8, [1.0] * 8, "x beats y").status == "failed"


def test_equal_scores_beat_nobody_however_many():
    assert judge([1.0] * 300, [1.0] * 300, "x beats y").status == "inconclusive"
    assert judge([1.0] * 8, [1.0] * 8, "x within 1 of y").status == "passed"


def test_both_sides_see_the_same_interval():
    ones, others = [1.0, 0.0, 0.5, 1.0, 0.25], [0.0, 0.0, 0.75, 1.0, 0.0]
    here, there = judge(ones, others), judge(others, ones)
    assert (here.low, here.high) == (-there.high, -there.low)
    assert here.low < here.difference < here.high


def test_a_task_without_a_score_is_left_out_and_never_failed():
    result = judge([1.0, None, None], [1.0, 0.5, None])
    assert (result.n_tasks, result.left_out) == (1, ("t1", "t2"))


def test_without_tasks_nothing_is_shown():
    result = judge([None], [1.0])
    assert (result.status, result.difference, result.smallest_margin) == (
        "inconclusive",
        None,
        None,
    )
    assert (result.low, result.high) == (-1.0, 1.0)
    assert judge([], [], "x within 1 of y").status == "inconclusive"


def test_a_stricter_level_needs_more():
    assert judge([1.0] * 59, [1.0] * 59, level=0.975).status == "inconclusive"


@pytest.mark.parametrize("level", [0.5, 1.0, 0.0])
def test_a_level_that_is_none_is_refused(level):
    with pytest.raises(ValueError, match="a level of"):
        judge([1.0], [1.0], level=level)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan")])
def test_a_score_outside_its_range_is_refused(score):
    with pytest.raises(ValueError, match="outside 0 to 1"):
        judge([score], [1.0])
