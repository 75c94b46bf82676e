"""pass@k and pass^k are the exact estimators, undefined beyond the attempts made."""

from fractions import Fraction
from itertools import combinations

import pytest

from redrive.compare.passes import EXACT, RESAMPLED, average_passes, pass_all, pass_at


@pytest.mark.parametrize("n", range(1, 7))
def test_both_are_the_share_of_all_choices_of_attempts(n):
    for c in range(n + 1):
        attempts = [place < c for place in range(n)]
        for k in range(1, n + 1):
            chosen = list(combinations(attempts, k))
            assert pass_at(n, c, k) == Fraction(sum(map(any, chosen)), len(chosen))
            assert pass_all(n, c, k) == Fraction(sum(map(all, chosen)), len(chosen))


def test_both_are_unbiased():
    share, n, k = Fraction(1, 3), 5, 2
    chances = [
        Fraction(comb * 1) * share**c * (1 - share) ** (n - c)
        for c, comb in enumerate((1, 5, 10, 10, 5, 1))
    ]
    mean_at = sum(p * pass_at(n, c, k) for c, p in enumerate(chances))
    mean_all = sum(p * pass_all(n, c, k) for c, p in enumerate(chances))
    assert mean_at == 1 - (1 - share) ** k
    assert mean_all == share**k


def test_more_attempts_than_were_made_are_undefined_and_not_zero():
    assert pass_at(2, 0, 3) is None
    assert pass_all(2, 2, 3) is None


@pytest.mark.parametrize(("n", "c", "k"), [(1, 2, 1), (1, -1, 1), (1, 1, 0)])
@pytest.mark.parametrize("estimate", [pass_at, pass_all])
def test_counts_that_cannot_be_are_refused(estimate, n, c, k):
    with pytest.raises(ValueError, match="successes of"):
        estimate(n, c, k)


def test_one_attempt_each_has_the_exact_interval_of_a_proportion():
    rate = average_passes({"a": (1, 1), "b": (1, 0), "c": (1, 1), "d": (1, 1)}, 1, pass_at, seed=1)
    assert (rate.value, rate.n_tasks, rate.method) == (0.75, 4, EXACT)
    assert (rate.low, rate.high) == (
        pytest.approx(0.194120, abs=1e-6),
        pytest.approx(0.993691, abs=1e-6),
    )


def test_several_attempts_are_resampled_over_tasks():
    counts = {"a": (3, 3), "b": (3, 1), "c": (3, 0), "d": (3, 2)}
    rate = average_passes(counts, 2, pass_all, seed=1, resamples=400)
    assert rate.value == pytest.approx((1 + 0 + 0 + 1 / 3) / 4)
    assert rate.method == RESAMPLED
    assert 0 <= rate.low < rate.value < rate.high <= 1
    assert rate == average_passes(
        dict(reversed(counts.items())), 2, pass_all, seed=1, resamples=400
    )


def test_tasks_that_all_agree_are_no_certainty():
    rate = average_passes({f"t{n}": (2, 1) for n in range(8)}, 1, pass_at, seed=1, resamples=400)
    assert rate.value == 0.5
    assert rate.low < 0.5 < rate.high


def test_tasks_with_too_few_attempts_are_left_out_and_named():
    rate = average_passes({"b": (1, 1), "a": (0, 0), "c": (2, 2)}, 2, pass_all, seed=1)
    assert (rate.value, rate.n_tasks, rate.left_out) == (1.0, 1, ("a", "b"))


def test_without_enough_attempts_anywhere_nothing_is_said():
    rate = average_passes({"a": (1, 1)}, 2, pass_at, seed=1)
    assert (rate.value, rate.low, rate.high, rate.n_tasks) == (None, None, None, 0)
    assert rate.left_out == ("a",)
