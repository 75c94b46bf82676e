"""Precision of a policy from labels: which fires are labelled, and what the labels prove.

Knows draws, labels, exact intervals and agreement. Must not know reports, raters' screens or where
labels lie. All figures are of the sessions that were replayed; there is no recall without the name
of a set of places where the policy should have fired.

Source: DESIGN.md §7 "Annotation". Intervals: Clopper and Pearson (1934); agreement: Gwet (2008).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from redrive import canonical

METHOD = "clopper-pearson"
CATEGORIES = ("true", "false", "unsure")
_DRAW = "policy.sample"
_TINY = 1e-300
_SETTLED = 1e-15


class Label(msgspec.Struct, frozen=True):
    """What one rater said of one fire: `true`, `false` or `unsure`."""

    event_ref: str
    rater: str
    label: str


class GateBound(msgspec.Struct, frozen=True):
    """Precision where a bound decides: k true of n labelled; what is not settled counts as false.

    Attributes:
        low: lower bound of the two-sided interval.
    """

    k: int
    n: int
    low: float


class Precision(msgspec.Struct, frozen=True):
    """What the labels of one sample say of a policy, on the sessions that were replayed.

    Attributes:
        sample: id of the sample.
        population: fires that it was drawn from.
        drawn: fires in it.
        raters: who labelled, sorted.
        n_labelled: fires with at least one label = n_true + n_false + n_unsure + n_disagree.
        n_disagree: raters contradict each other, and no majority of three or more settles it.
        precision: n_true / (n_true + n_false); absent where nothing is settled.
        low, high: its exact interval.
        agreement_of: the two raters who labelled most; empty where there are none.
        agreement_raw, agreement_ac1: of these two, over the `n_double` fires that both labelled;
            absent where there is none.
        at_gate: the same where a bound decides; absent where nothing is labelled.
        notes: what a reader must know of the figures.
    """

    policy: str
    version: str
    sample: str
    population: int
    drawn: int
    raters: tuple[str, ...]
    n_labelled: int
    n_true: int
    n_false: int
    n_unsure: int
    n_disagree: int
    precision: float | None
    low: float | None
    high: float | None
    confidence: float
    agreement_of: tuple[str, ...]
    agreement_raw: float | None
    agreement_ac1: float | None
    n_double: int
    at_gate: GateBound | None
    notes: tuple[str, ...] = ()
    method: str = METHOD


class Recall(msgspec.Struct, frozen=True):
    """How many of a named set of places a policy fired at: k of n, with the exact interval.

    Attributes:
        name: of the set; there is no recall without it.
        missed: event refs of the set at which it did not fire, sorted.
    """

    name: str
    k: int
    n: int
    low: float
    high: float
    confidence: float
    missed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    method: str = METHOD


# --- the sample


def draw_sample(refs: Iterable[str], size: int, seed: str) -> tuple[str, ...]:
    """Draw a simple random sample without replacement.

    Args:
        refs: the population; order and repetition do not matter.
        size: how many to draw; of a smaller population all are drawn.
        seed: equal seeds draw equally from equal populations.

    Returns:
        Unique refs in the order drawn, so that each beginning of it is a simple random sample too.

    Raises:
        ValueError: `size` is negative.
    """
    if size < 0:
        raise ValueError(f"a sample of {size}")
    pool = sorted(set(refs))
    draws = canonical.stream(seed, _DRAW)
    count = min(size, len(pool))
    for place in range(count):
        other = place + _below(draws, len(pool) - place)
        pool[place], pool[other] = pool[other], pool[place]
    return tuple(pool[:count])


def _below(draws: Iterable[int], limit: int) -> int:
    """Draw an integer in [0, limit), each equally likely: what would favour some is drawn again."""
    fair = 2**64 - 2**64 % limit
    return next(draw for draw in draws if draw < fair) % limit


# --- the interval


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Give the exact two-sided interval of a proportion.

    Args:
        k: successes, 0 to n.
        n: trials; with none nothing is known: (0, 1).
        confidence: above 0 and below 1; each side is left out with half of the rest.

    Raises:
        ValueError: an argument is out of its range.
    """
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no proportion")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence}: expected above 0 and below 1")
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else _quantile(k, n - k + 1, tail)
    high = 1.0 if k == n else 1 - _quantile(n - k, k + 1, tail)
    return low, high


def _quantile(a: int, b: int, share: float) -> float:
    """Find x with I_x(a, b) = share, by bisection to the last bit that matters."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if _beta(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return middle


def _beta(x: float, a: int, b: int) -> float:
    """Compute the regularised incomplete beta function I_x(a, b), for 0 < x < 1."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x))
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: int, b: int) -> float:
    """Evaluate the continued fraction of I_x(a, b) by Lentz's method; O(√(a + b)) terms."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value = d
    m, change = 0, 0.0
    while abs(change - 1) > _SETTLED:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            change = c * d
            value *= change
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


# --- agreement


def raw_agreement(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Give the share of pairs whose two labels are equal; `None` without pairs."""
    if not pairs:
        return None
    return sum(one == two for one, two in pairs) / len(pairs)


def gwet_ac1(pairs: Sequence[tuple[str, str]]) -> float | None:
    """Give Gwet's AC1 of two raters over the three labels; `None` without pairs.

    Unlike Cohen's kappa it stays meaningful where nearly all labels are equal, which is what a good
    policy's labels are.
    """
    raw = raw_agreement(pairs)
    if raw is None:
        return None
    said = Counter(label for pair in pairs for label in pair)
    shares = [said[label] / (2 * len(pairs)) for label in CATEGORIES]
    chance = sum(share * (1 - share) for share in shares) / (len(CATEGORIES) - 1)
    return (raw - chance) / (1 - chance)


# --- what the labels say


def settle(labels: Collection[str]) -> str | None:
    """Combine what several raters said of one fire; `None` where they are not settled.

    One label stands; two stand where they are equal; of three or more the one that more than half
    of the raters gave.
    """
    label, count = Counter(labels).most_common(1)[0]
    return label if 2 * count > len(labels) else None


def judge_precision(
    labels: Sequence[Label],
    *,
    policy: str,
    version: str,
    sample: str,
    population: int,
    drawn: int,
    confidence: float = 0.95,
) -> Precision:
    """Say what the labels of one sample say of a policy.

    Args:
        labels: oldest first; of one rater on one fire the last one counts.
        policy: which policy fired.
        version: of the policy.
        sample: id of the sample.
        population: fires that the sample was drawn from.
        drawn: fires in the sample.
        confidence: of the interval.
    """
    newest = {(label.event_ref, label.rater): label.label for label in labels}
    said: dict[str, dict[str, str]] = {}
    for (ref, rater), label in newest.items():
        said.setdefault(ref, {})[rater] = label
    settled = Counter(settle(list(by_rater.values())) for by_rater in said.values())
    k, n = settled["true"], settled["true"] + settled["false"]
    low, high = clopper_pearson(k, n, confidence) if n else (None, None)
    both = _two_raters(said)
    pairs = _double_labels(said, both)
    return Precision(
        policy=policy,
        version=version,
        sample=sample,
        population=population,
        drawn=drawn,
        raters=tuple(sorted({rater for _, rater in newest})),
        n_labelled=len(said),
        n_true=k,
        n_false=settled["false"],
        n_unsure=settled["unsure"],
        n_disagree=settled[None],
        precision=k / n if n else None,
        low=low,
        high=high,
        confidence=confidence,
        agreement_of=both,
        agreement_raw=raw_agreement(pairs),
        agreement_ac1=gwet_ac1(pairs),
        n_double=len(pairs),
        at_gate=_at_gate(k, len(said), confidence),
        notes=_notes(settled, len(said), population, drawn, len(labels) - len(newest)),
    )


def _at_gate(k: int, n: int, confidence: float) -> GateBound | None:
    return GateBound(k, n, clopper_pearson(k, n, confidence)[0]) if n else None


def _two_raters(said: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Name the two raters who labelled most; none where there is only one.

    A third rater who settles what two disagree on would make the agreement look worse than it is.
    """
    counts = Counter(rater for by_rater in said.values() for rater in by_rater)
    most = sorted(counts, key=lambda rater: (-counts[rater], rater))[:2]
    return tuple(most) if len(most) == 2 else ()


def _double_labels(
    said: Mapping[str, Mapping[str, str]], raters: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Give both labels of each fire that both raters labelled."""
    if not raters:
        return []
    one, two = raters
    return [(by[one], by[two]) for by in said.values() if one in by and two in by]


def _notes(
    settled: "Counter[str | None]", n_labelled: int, population: int, drawn: int, changed: int
) -> tuple[str, ...]:
    notes = []
    if n_labelled and n_labelled == population:
        notes.append(
            f"all {population} fires are labelled: on these sessions the figure is exact, and the"
            " interval is of other sessions like these"
        )
    elif n_labelled:
        notes.append(
            f"{n_labelled} of {population} fires are labelled, drawn at random: the interval is of"
            " precision on these sessions, and wider than need be where most are labelled"
        )
    if n_labelled < drawn:
        notes.append(f"{drawn - n_labelled} of the {drawn} fires drawn have no label yet")
    if settled[None]:
        notes.append(
            f"raters disagree on {settled[None]}: not settled until a third label; at a gate they"
            " count as false"
        )
    if settled["unsure"]:
        notes.append(f"{settled['unsure']} unsure: outside the figure; at a gate false")
    if changed:
        notes.append(f"{changed} labels were replaced by their rater; the newest counts")
    return tuple(notes)


def recall(
    name: str, should_have_fired: Iterable[str], fired: Iterable[str], confidence: float = 0.95
) -> Recall:
    """Say at how many of a named set of places a policy fired.

    Args:
        name: of the set.
        should_have_fired: event refs; each counts once.
        fired: event refs of the policy's fires.
        confidence: of the interval.
    """
    wanted, found = set(should_have_fired), set(fired)
    missed = tuple(sorted(wanted - found))
    k, n = len(wanted) - len(missed), len(wanted)
    low, high = clopper_pearson(k, n, confidence)
    return Recall(name, k, n, low, high, confidence, missed)
