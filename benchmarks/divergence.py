"""P7 and P8: the first divergence of two long paths, and how far their tool sequences are apart.

Goals: P7 at most 2 × `list == list`; P8 at most 0.10 × plain rapidfuzz where at most 1 % was
edited, and never more than 1.1 ×. Floors are run in the same rounds, in CPU time.
"""

import random
from collections.abc import Iterator, Sequence

from rapidfuzz.distance import Levenshtein

from benchmarks.paired import Figure, measure
from redrive.compare.divergence import first_difference, sequence_edits
from redrive.record.signature import EMPTY_TEXT, CallSignature, DecisionSignature, sha256

N = 100_000
TOOLS = tuple(f"tool_{number}" for number in range(40))


def signatures(seed: int, n: int = N) -> list[DecisionSignature]:
    """Make n decisions of one call each; equal seeds give equal, not identical, values."""
    dice = random.Random(seed)
    return [
        DecisionSignature(
            EMPTY_TEXT,
            (CallSignature(dice.choice(TOOLS), sha256(str(number % 5000).encode())),),
            is_final=False,
        )
        for number in range(n)
    ]


def edited(tools: Sequence[str], share: float, dice: random.Random) -> list[str]:
    """Replace, drop and add `share` of the tools."""
    out: list[str] = []
    for tool in tools:
        move = dice.random() / share if share else 9.0
        if move >= 1:
            out.append(tool)
        elif move < 1 / 3:
            out.append(dice.choice(TOOLS))
        elif move < 2 / 3:
            out.extend((tool, dice.choice(TOOLS)))
    return out


def measure_first_divergence() -> Figure:
    """P7: the paths agree to the end, which is the longest search."""
    left, right = signatures(1), signatures(1)
    return measure(
        "P7",
        "first divergence / list == list (100k equal signatures)",
        lambda: first_difference(left, right),
        lambda: left == right,
        goal=2.0,
        inner=20,
    )


def measure_distance(share: float, goal: float) -> Figure:
    """P8: the exact distance after `share` of the sequence was edited."""
    dice = random.Random(7)
    left = [dice.choice(TOOLS) for _ in range(N)]
    right = edited(left, share, dice)
    numbers = {tool: number for number, tool in enumerate(TOOLS)}
    ours, theirs = [numbers[t] for t in left], [numbers[t] for t in right]
    assert sequence_edits(left, right) == Levenshtein.distance(ours, theirs)
    return measure(
        "P8",
        f"tool-sequence distance / plain rapidfuzz (100k, {share:.2%} edited)",
        lambda: sequence_edits(left, right),
        lambda: Levenshtein.distance(ours, theirs),
        goal=goal,
    )


def figures(*, is_quick: bool) -> Iterator[Figure]:  # noqa: ARG001 - P8 is a goal at this length
    """Measure P7 and P8."""
    yield measure_first_divergence()
    yield measure_distance(0.0005, 0.10)
    yield measure_distance(0.01, 0.10)
    yield measure_distance(0.3, 1.1)
