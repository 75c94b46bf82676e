"""Precision of a policy from labels: which fires are labelled, and what the labels prove.

Knows draws, labels and agreement. Must not know reports, raters' screens or where
labels lie. All figures are of the sessions that were replayed; there is no recall without the name
of a set of places where the policy should have fired.

Source: DESIGN.md §7 "Annotation". Agreement: Gwet (2008), doi:10.1348/000711006X126600.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from redrive import canonical
from redrive.compare.interval import METHOD, clopper_pearson
from redrive.compare.resampling import draw_below

CATEGORIES = ("true", "false", "unsure")
_DRAW = "policy.sample"


class Label(msgspec.Struct, frozen=True):
    """What one rater said of one fire: `true`, `false` or `unsure`."""

    event_ref: str
    rater: str
    label: str


class Drawn(msgspec.Struct, frozen=True):
    """A sample as the figures need it: `drawn` of `population` fires; without an id, none yet."""

    policy: str
    version: str
    sample: str | None
    population: int
    drawn: int


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
        sample: id of the sample; absent where none was drawn.
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
    sample: str | None
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
        other = place + draw_below(draws, len(pool) - place)
        pool[place], pool[other] = pool[other], pool[place]
    return tuple(pool[:count])


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


def judge_precision(labels: Sequence[Label], sample: Drawn, confidence: float = 0.95) -> Precision:
    """Say what the labels of one sample say of a policy.

    Args:
        labels: oldest first; of one rater on one fire the last one counts.
        sample: what was labelled.
        confidence: of the interval.
    """
    said, changed = _newest(labels)
    settled = Counter(settle(list(by_rater.values())) for by_rater in said.values())
    k, n = settled["true"], settled["true"] + settled["false"]
    low, high = clopper_pearson(k, n, confidence) if n else (None, None)
    both = _two_raters(said)
    pairs = _double_labels(said, both)
    return Precision(
        policy=sample.policy,
        version=sample.version,
        sample=sample.sample,
        population=sample.population,
        drawn=sample.drawn,
        raters=tuple(sorted({rater for by_rater in said.values() for rater in by_rater})),
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
        notes=_notes(settled, len(said), sample, changed),
    )


def _newest(labels: Sequence[Label]) -> tuple[dict[str, dict[str, str]], int]:
    """Map event ref → rater → newest label, and count the labels that their rater changed."""
    said: dict[str, dict[str, str]] = {}
    changed = 0
    for label in labels:
        by_rater = said.setdefault(label.event_ref, {})
        changed += by_rater.get(label.rater, label.label) != label.label
        by_rater[label.rater] = label.label
    return said, changed


def _at_gate(k: int, n: int, confidence: float) -> GateBound | None:
    return GateBound(k, n, clopper_pearson(k, n, confidence)[0]) if n else None


def _two_raters(said: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Name the two raters who labelled most; none where there is only one.

    A third rater who settles what two disagree on would make the agreement look worse than it is.
    """
    counts = Counter(rater for by_rater in said.values() for rater in by_rater)
    most = sorted(counts, key=lambda rater: (-counts[rater], rater))[:2]
    return tuple(sorted(most)) if len(most) == 2 else ()


def _double_labels(
    said: Mapping[str, Mapping[str, str]], raters: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Give both labels of each fire that both raters labelled."""
    if not raters:
        return []
    one, two = raters
    return [(by[one], by[two]) for by in said.values() if one in by and two in by]


def _notes(
    settled: "Counter[str | None]", n_labelled: int, sample: Drawn, changed: int
) -> tuple[str, ...]:
    population, drawn = sample.population, sample.drawn
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
        notes.append(f"labels that their rater changed: {changed}; the newest counts")
    return tuple(notes)


def labels_needed(minimum: float, confidence: float = 0.95) -> int:
    """Give the fewest labels, all of them true, whose lower bound reaches a precision.

    Args:
        minimum: the precision to reach, 0 to below 1.
        confidence: of the interval.
    """
    if minimum <= 0:
        return 1
    count = max(1, int(math.log((1 - confidence) / 2) / math.log(minimum)))
    while clopper_pearson(count, count, confidence)[0] < minimum:
        count += 1
    return count


def judge_gate(found: Precision, minimum: float | None) -> str:
    """Say whether a precision is proven.

    Args:
        found: what the labels say.
        minimum: what the lower bound at a gate must reach; absent: nothing is asked.

    Returns:
        `measured` (nothing was asked), `met`, `missed`, or `inconclusive`: there is no label, or
        so few that not even true ones alone could have met it, though it may hold all the same.
    """
    gate = found.at_gate
    if gate is None:
        return "inconclusive"
    if minimum is None:
        return "measured"
    if gate.low >= minimum:
        return "met"
    high = clopper_pearson(gate.k, gate.n, found.confidence)[1]
    is_open = gate.n < labels_needed(minimum, found.confidence) and high >= minimum
    return "inconclusive" if is_open else "missed"


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
