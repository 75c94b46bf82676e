"""Precision from labels: how raters combine, what a gate counts, and what the notes admit."""

import pytest

from redrive.compare.interval import clopper_pearson
from redrive.compare.precision import (
    Drawn,
    GateBound,
    Label,
    Precision,
    draw_sample,
    gwet_ac1,
    judge_gate,
    judge_precision,
    labels_needed,
    raw_agreement,
    recall,
    settle,
)

REFS = tuple(f"test:a#e{number}" for number in range(20))


def labels(rater: str, said: str, start: int = 0) -> list[Label]:
    """Write labels as letters, one a fire; a dot leaves its fire out."""
    words = {"t": "true", "f": "false", "u": "unsure"}
    return [
        Label(REFS[start + place], rater, words[letter])
        for place, letter in enumerate(said)
        if letter != "."
    ]


def judge(*parts: list[Label], population: int = 20, drawn: int = 10) -> Precision:
    return judge_precision(
        [label for part in parts for label in part], Drawn("p", "1", "s", population, drawn)
    )


# --- the sample


def test_a_sample_is_the_same_whatever_the_order_of_the_fires():
    drawn = draw_sample(REFS, 7, "seed")
    assert drawn == draw_sample(reversed(REFS), 7, "seed") == draw_sample([*REFS, *REFS], 7, "seed")
    assert len(set(drawn)) == 7
    assert set(drawn) <= set(REFS)
    assert drawn != draw_sample(REFS, 7, "another seed")


def test_a_sample_is_this_one_for_ever():
    assert draw_sample("abcdefgh", 4, "1") == ("e", "a", "c", "g")


def test_a_larger_sample_begins_with_the_smaller_one():
    assert draw_sample(REFS, 12, "seed")[:5] == draw_sample(REFS, 5, "seed")


def test_of_a_small_population_all_are_drawn():
    assert sorted(draw_sample(REFS, 99, "seed")) == sorted(REFS)
    assert draw_sample((), 3, "seed") == draw_sample(REFS, 0, "seed") == ()


def test_a_negative_sample_is_refused():
    with pytest.raises(ValueError, match="a sample of -1"):
        draw_sample(REFS, -1, "seed")


# --- agreement


def test_agreement_of_no_pair_is_absent():
    assert raw_agreement([]) is None
    assert gwet_ac1([]) is None


def test_agreement_is_the_share_of_equal_labels():
    assert raw_agreement([("true", "true"), ("true", "false")]) == 0.5


def test_ac1_by_hand():
    pairs = [("true", "true")] * 8 + [("true", "false"), ("unsure", "unsure")]
    shares = (17 / 20, 1 / 20, 2 / 20)
    chance = sum(share * (1 - share) for share in shares) / 2
    assert gwet_ac1(pairs) == pytest.approx((0.9 - chance) / (1 - chance))


def test_ac1_of_equal_labels_is_one_where_kappa_would_be_undefined():
    assert gwet_ac1([("true", "true")] * 30) == 1.0


def test_ac1_stays_high_where_one_label_prevails():
    pairs = [("true", "true")] * 95 + [("true", "false")] * 3 + [("false", "true")] * 2
    assert raw_agreement(pairs) == 0.95
    assert gwet_ac1(pairs) > 0.94


# --- how raters combine


@pytest.mark.parametrize(
    ("said", "settled"),
    [
        ("t", "true"),
        ("tt", "true"),
        ("tf", None),
        ("tu", None),
        ("tft", "true"),
        ("tfu", None),
        ("uuf", "unsure"),
        ("ttff", None),
    ],
)
def test_two_agree_or_three_decide(said, settled):
    words = {"t": "true", "f": "false", "u": "unsure"}
    assert settle([words[letter] for letter in said]) == settled


def test_one_rater_s_labels_are_the_precision_with_its_exact_interval():
    found = judge(labels("ann", "ttttfttttt"))
    assert (found.n_true, found.n_false, found.n_labelled) == (9, 1, 10)
    assert found.precision == 0.9
    assert (found.low, found.high) == clopper_pearson(9, 10)
    assert (found.raters, found.n_double, found.agreement_of) == (("ann",), 0, ())
    assert (found.agreement_raw, found.agreement_ac1) == (None, None)
    assert found.method == "clopper-pearson"


def test_unsure_is_outside_the_figure_and_false_at_a_gate():
    found = judge(labels("ann", "tttttttuuu"))
    assert (found.precision, found.n_unsure) == (1.0, 3)
    assert found.at_gate == GateBound(7, 10, clopper_pearson(7, 10)[0])
    assert "3 unsure: outside the figure; at a gate false" in found.notes


def test_a_disagreement_is_not_settled_until_a_third_label():
    ann, bob = labels("ann", "ttttt"), labels("bob", "ttttf")
    found = judge(ann, bob)
    assert (found.n_true, found.n_false, found.n_disagree, found.n_labelled) == (4, 0, 1, 5)
    assert found.at_gate is not None
    assert (found.at_gate.k, found.at_gate.n) == (4, 5)
    assert any(note.startswith("raters disagree on 1") for note in found.notes)
    third = judge(ann, bob, labels("cy", "f", start=4))
    assert (third.n_true, third.n_false, third.n_disagree) == (4, 1, 0)
    assert third.agreement_of == ("ann", "bob"), "who settled is not who agreed"
    assert third.agreement_raw == found.agreement_raw == 0.8


def test_agreement_is_over_what_both_labelled():
    found = judge(labels("ann", "tttt"), labels("bob", "..tfff"))
    assert (found.n_double, found.agreement_raw) == (2, 0.5)
    assert found.agreement_ac1 == gwet_ac1([("true", "true"), ("true", "false")])


def test_the_newest_label_of_a_rater_counts_and_the_change_is_told():
    found = judge(labels("ann", "ff"), labels("ann", "tf"))
    assert (found.n_true, found.n_false) == (1, 1)
    assert "labels that their rater changed: 1; the newest counts" in found.notes


def test_no_label_is_no_figure():
    found = judge()
    assert (found.precision, found.low, found.high, found.at_gate) == (None, None, None, None)
    assert found.notes == ("10 of the 10 fires drawn have no label yet",)


def test_unsure_alone_is_no_figure_but_fails_a_gate():
    found = judge(labels("ann", "uu"))
    assert found.precision is None
    assert found.at_gate == GateBound(0, 2, 0.0)


def test_a_population_that_is_labelled_whole_is_told():
    found = judge(labels("ann", "tttf"), population=4, drawn=4)
    assert found.precision == 0.75
    assert found.notes == (
        "all 4 fires are labelled: on these sessions the figure is exact, and the interval is of"
        " other sessions like these",
    )


def test_a_part_of_the_population_is_told():
    found = judge(labels("ann", "tttttttttt"))
    assert len(found.notes) == 1
    assert found.notes[0].startswith("10 of 20 fires are labelled, drawn at random")


# --- a bound that decides


@pytest.mark.parametrize(
    ("minimum", "expected"), [(0, 1), (0.1, 2), (0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368)]
)
def test_the_fewest_labels_that_can_prove_a_precision(minimum, expected):
    assert labels_needed(minimum) == expected
    assert clopper_pearson(expected, expected)[0] >= minimum


def test_rounding_never_gives_one_label_too_few():
    for n in range(1, 60):
        low = clopper_pearson(n, n)[0]
        assert labels_needed(low) == n or clopper_pearson(n - 1, n - 1)[0] >= low


@pytest.mark.parametrize(
    ("said", "minimum", "expected"),
    [
        ("tttttttttttttttttttt", None, "measured"),
        ("", None, "inconclusive"),
        ("", 0.5, "inconclusive"),
        ("tttttttttttttttttttt", 0.8, "met"),
        ("tttttttttttttttttttu", 0.8, "missed"),
        ("ttt", 0.8, "inconclusive"),
        ("ttf", 0.8, "inconclusive"),
        ("fff", 0.8, "missed"),
    ],
)
def test_a_precision_is_met_missed_or_not_to_be_told(said, minimum, expected):
    assert judge_gate(judge(labels("ann", said)), minimum) == expected


# --- recall


def test_recall_is_of_a_named_set():
    found = recall("places.jsonl", ["a#1", "a#2", "a#2", "b#1"], ["a#2", "c#9", "b#1"])
    assert (found.name, found.k, found.n, found.missed) == ("places.jsonl", 2, 3, ("a#1",))
    assert (found.low, found.high) == clopper_pearson(2, 3)


def test_recall_of_an_empty_set_says_nothing():
    found = recall("none", [], ["a#1"])
    assert (found.k, found.n, found.low, found.high) == (0, 0, 0.0, 1.0)
