"""What the first difference of a rerun means, as one table.

Knows kinds of differences, and whether the agent's code is the recorded one. Must not know where a
difference lies (`rerun_difference`).

The order of the rules: what the record cannot answer is a gap of the record, whatever the code.
A read or derivation that passed an intercepted name and is not in the record is a gap of its class.
Where something else differs although the code is the same and no read differed, an input that is
not recorded reached it: its class is not known. Only where the code's digests differ does a finding
mention the code, and then as evidence, not as the cause.

Source: DESIGN.md §4 "audit first, then diff"; issue "The recorder", "Must hold".
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from redrive.replay.rerun_exchange import Miss, What


class Finding(StrEnum):
    """What a rerun came to."""

    IDENTICAL = "identical"
    DIVERGENCE = "divergence"
    GAP = "provenance gap"
    UNKNOWN_INPUT = "unrecorded input, class unknown"


class CodeState(StrEnum):
    """Whether the agent's code is the code that was recorded."""

    EQUAL = "equal"
    CHANGED = "changed"
    UNKNOWN = "unknown"


EXIT_CODES: Mapping[Finding, int] = {
    Finding.IDENTICAL: 0,
    Finding.DIVERGENCE: 1,
    Finding.GAP: 3,
    Finding.UNKNOWN_INPUT: 3,
}

_UNKNOWN, _DIVERGENCE, _GAP = Finding.UNKNOWN_INPUT, Finding.DIVERGENCE, Finding.GAP

# What differs → what it means while the code is equal, and what it means else.
MEANINGS: Mapping[What, tuple[Finding, Finding]] = {
    What.PROMPT: (_UNKNOWN, _DIVERGENCE),
    What.REQUEST: (_UNKNOWN, _DIVERGENCE),
    What.ARGUMENT: (_UNKNOWN, _DIVERGENCE),
    What.CALL: (_UNKNOWN, _DIVERGENCE),
    What.EARLY: (_UNKNOWN, _DIVERGENCE),
    What.BEYOND: (_UNKNOWN, _DIVERGENCE),
    What.CLOCK: (_DIVERGENCE, _DIVERGENCE),
    What.PRNG: (_DIVERGENCE, _DIVERGENCE),
    What.ORDER: (_DIVERGENCE, _DIVERGENCE),
    What.INPUT: (_DIVERGENCE, _DIVERGENCE),
    What.VALUE: (_DIVERGENCE, _DIVERGENCE),
    What.DERIVATION: (_DIVERGENCE, _DIVERGENCE),
    What.UNSERVABLE: (_GAP, _GAP),
}

NOTES: Mapping[tuple[Finding, CodeState], str] = {
    (Finding.DIVERGENCE, CodeState.CHANGED): "the agent's code is not the code that was recorded",
    (Finding.DIVERGENCE, CodeState.EQUAL): "the agent's code is the code that was recorded",
    (Finding.DIVERGENCE, CodeState.UNKNOWN): (
        "whether the agent's code is the code that was recorded is not known"
    ),
    (Finding.UNKNOWN_INPUT, CodeState.EQUAL): (
        "the code is equal and no recorded read differs: something that is not recorded reached it"
    ),
}


class CodeDigests(msgspec.Struct, frozen=True):
    """The digest of the agent's code as recorded, and now; absent where it is not known."""

    recorded: str | None = None
    now: str | None = None

    @property
    def state(self) -> CodeState:
        """Compare both."""
        if self.recorded is None or self.now is None:
            return CodeState.UNKNOWN
        return CodeState.EQUAL if self.recorded == self.now else CodeState.CHANGED


def judge_miss(miss: Miss | None, code: CodeState, *, is_live: bool = False) -> Finding:
    """Say what the first difference means; none is `IDENTICAL`.

    With a live model other decisions are expected, and what they ask for may not be in the record.
    """
    if miss is None:
        return Finding.IDENTICAL
    if is_live or miss.is_unrecorded or miss.lack is not None:
        return Finding.GAP
    while_equal, otherwise = MEANINGS[miss.what]
    return while_equal if code is CodeState.EQUAL else otherwise
