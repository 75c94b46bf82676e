"""The release gate: may the challenger be shipped, as far as these tasks can tell?

Knows mean scores of tasks, for two variants. Must not know runs, graders or exit codes.

Source: DESIGN.md §6 "Gate: the lower bound of the paired difference above −margin".
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from redrive.compare.mean_bound import lowest_weight, mean_low
from redrive.errors import UsageError, quote

METHOD = "gaffke bound of the mean paired difference"
DEFAULT_LEVEL = 0.95
_GATE = re.compile(r"\s*(?P<one>\S+)\s+(?:within\s+(?P<margin>\S+)\s+of|beats)\s+(?P<other>\S+)\s*")
_MARGIN = re.compile(r"[0-9]*\.?[0-9]+", re.ASCII)
_HINT = "such as: challenger within 0.05 of incumbent, or: challenger beats incumbent"

GateStatus = Literal["passed", "failed", "inconclusive"]


class Gate(msgspec.Struct, frozen=True):
    """What must be shown of one side against the other.

    Attributes:
        one, other: a role (`challenger`, `incumbent`) or a variant's label.
        margin: how much lower the mean score of `one` may be, 0 to 1.
        must_beat: it must be higher; the margin is 0.
    """

    one: str
    other: str
    margin: float = 0.0
    must_beat: bool = False


class GateResult(msgspec.Struct, frozen=True):
    """What the tasks say of a gate.

    Attributes:
        status: `passed`: the difference is shown to be above −margin; `failed`: it is shown to be
            below; `inconclusive`: the tasks cannot show either.
        one, other: labels.
        difference: mean over tasks of the score of `one` minus that of `other`; `None` without
            tasks.
        low, high: its bounds; each holds with the level for itself.
        margin: see `Gate`.
        must_beat: see `Gate`.
        n_tasks: tasks in which both have a score.
        left_out: tasks in which one has none, sorted: missing is never failed.
        smallest_margin: the smallest one that this number of tasks can show if no score differs;
            `None` without tasks.
        level: of each bound.
    """

    status: GateStatus
    one: str
    other: str
    difference: float | None
    low: float
    high: float
    margin: float
    must_beat: bool
    n_tasks: int
    left_out: tuple[str, ...]
    smallest_margin: float | None
    level: float
    method: str = METHOD


def parse_gate(text: str) -> Gate:
    """Read a gate: `A within X of B`, or `A beats B`.

    Raises:
        UsageError: it is neither, both sides are the same, or X is no number from 0 to 1.
    """
    found = _GATE.fullmatch(text)
    if found is None:
        raise UsageError(f"no gate: {quote(text)}", hint=_HINT)
    one, margin, other = found["one"], found["margin"], found["other"]
    if one == other:
        raise UsageError(f"a gate of {quote(one)} against itself", hint=_HINT)
    if margin is None:
        return Gate(one, other, must_beat=True)
    if not _MARGIN.fullmatch(margin) or float(margin) > 1:
        raise UsageError(f"a margin of {quote(margin)}: expected 0 to 1", hint=_HINT)
    return Gate(one, other, float(margin))


def find_sides(gate: Gate, variants: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Resolve both sides to labels.

    Args:
        gate: as parsed.
        variants: label and role of each; a label counts before a role.

    Raises:
        UsageError: a side is no variant, or a role that several have, or both are the same one.
    """
    one, other = (_find_side(side, variants) for side in (gate.one, gate.other))
    if one == other:
        raise UsageError(f"a gate of {quote(one)} against itself: {gate.one}, {gate.other}")
    return one, other


def _find_side(side: str, variants: Sequence[tuple[str, str]]) -> str:
    labels = [label for label, _ in variants]
    if side in labels:
        return side
    found = [label for label, role in variants if role == side]
    if len(found) == 1:
        return found[0]
    what = f"{len(found)} variants: {', '.join(found)}" if found else "no variant"
    raise UsageError(
        f"the gate's {quote(side)} is {what}", hint=f"name one of: {', '.join(labels)}"
    )


def judge_gate(
    gate: Gate,
    sides: tuple[str, str],
    scores: Mapping[str, tuple[float | None, float | None]],
    level: float = DEFAULT_LEVEL,
) -> GateResult:
    """Judge a gate by the paired differences of tasks.

    Args:
        gate: what must be shown.
        sides: labels of `one` and `other`.
        scores: task id → mean scores of `one` and `other`, 0 to 1; `None` where there is none.
        level: of each bound, above 0.5 and below 1.

    Raises:
        ValueError: a score or the level is out of its range.

    Cost: O(n²) for n tasks; see `mean_bound.mean_low`.
    """
    if not 0.5 < level < 1:
        raise ValueError(f"a level of {level}: expected above 0.5 and below 1")
    known = [(a, b) for a, b in scores.values() if a is not None and b is not None]
    if any(not 0 <= score <= 1 for pair in known for score in pair):
        raise ValueError("a score outside 0 to 1")
    differences = [one - other for one, other in known]
    low, high = -1.0, 1.0
    if differences:
        low = mean_low(differences, -1.0, 1 - level)
        high = -mean_low([-value for value in differences], -1.0, 1 - level)
    return GateResult(
        status=_status(gate, low, high) if differences else "inconclusive",
        one=sides[0],
        other=sides[1],
        difference=math.fsum(differences) / len(differences) if differences else None,
        low=low,
        high=high,
        margin=gate.margin,
        must_beat=gate.must_beat,
        n_tasks=len(differences),
        left_out=tuple(sorted(task for task, pair in scores.items() if None in pair)),
        smallest_margin=smallest_margin(len(differences), level) if differences else None,
        level=level,
    )


def _status(gate: Gate, low: float, high: float) -> GateStatus:
    if low > 0 if gate.must_beat else low >= -gate.margin:
        return "passed"
    return "failed" if high < -gate.margin else "inconclusive"


def smallest_margin(n_tasks: int, level: float = DEFAULT_LEVEL) -> float:
    """Give the smallest margin that n tasks can show if the two sides never differ.

    With it, and with no smaller one, `judge_gate` passes scores that are all equal: a difference of
    −1 in a share of the tasks could have gone unseen. It is about 3 / n.

    Args:
        n_tasks: at least 1.
        level: as for `judge_gate`.
    """
    return lowest_weight(n_tasks, 1 - level)
