"""The exit codes, as one table; the docs and the tests are made from it.

Source: DESIGN.md §8.
"""

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """What a verb's exit code says."""

    DONE = 0
    FINDING = 1
    USAGE = 2
    OPEN = 3
    INELIGIBLE = 4
    CEILING = 5
    UNUSABLE = 6
    VIOLATED = 7
    INTERRUPTED = 130


MEANINGS = {
    Exit.DONE: "done; nothing found that the verb is there to find",
    Exit.FINDING: "a finding: a divergence, an unequal diff, a policy that fires under"
    " --fail-on-fire, a failed gate",
    Exit.USAGE: "usage: no such file, a folder without sessions, unknown format, ambiguous prefix,"
    " bad spec",
    Exit.OPEN: "open trajectory, insufficient evidence, inconclusive",
    Exit.INELIGIBLE: "ineligible workflow",
    Exit.CEILING: "ceiling reached",
    Exit.UNUSABLE: "unreadable, empty or foreign file named by the user; store newer, locked,"
    " damaged or read-only; model refused, failed or half an answer; plug-in or policy fault",
    Exit.VIOLATED: "containment or invariant violated, fault of a gate, tampering found",
    Exit.INTERRUPTED: "interrupted; what was done so far is stored",
}
PRECEDENCE = (
    Exit.INTERRUPTED,
    Exit.VIOLATED,
    Exit.UNUSABLE,
    Exit.CEILING,
    Exit.INELIGIBLE,
    Exit.OPEN,
    Exit.USAGE,
    Exit.FINDING,
    Exit.DONE,
)


def worst(codes: Iterable[int]) -> Exit:
    """Choose the code to exit with where several apply; none is `DONE`."""
    present = set(codes)
    return next((code for code in PRECEDENCE if code in present), Exit.DONE)
