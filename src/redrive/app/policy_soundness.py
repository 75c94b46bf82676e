"""Whether a policy changed what it was given, and which events are judged twice whatever it says.

Knows events and states as bytes. Must not know what a policy answered.

Source: DESIGN.md §7 "Purity": every fire and a seeded 1 % are judged twice.
"""

import zlib
from itertools import pairwise

import msgspec

from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import State

RECHECK_SHARE = 100
_encode = msgspec.json.Encoder().encode


class Print(msgspec.Struct, frozen=True, gc=False):
    """State and event as bytes."""

    state: bytes
    event: bytes


def print_of(state: State, event: PolicyEvent) -> Print:
    """Write state and event down, to see whether a policy changed them."""
    own = repr(sorted(state.own.items())) if state.own else ""
    try:
        standard = _encode(state.standard)
    except (TypeError, ValueError, OverflowError):  # an inferred value that JSON has no form for
        standard = repr(state.standard).encode("utf-8", "backslashreplace")
    return Print(standard + own.encode("utf-8", "backslashreplace"), _encode(event))


def find_change(prints: tuple[Print | None, ...]) -> str | None:
    """Name what changed between prints that follow each other: `event`, `state` or nothing."""
    known = [seen for seen in prints if seen is not None]
    for first, second in pairwise(known):
        if first != second:
            return "event" if first.event != second.event else "state"
    return None


def drawn_seqs(session_id: str, count: int) -> frozenset[int]:
    """Draw one of each hundred of a session's events, by its name and their places alone."""
    seed = zlib.crc32(session_id.encode("utf-8", "backslashreplace"))
    return frozenset(
        block + zlib.crc32(block.to_bytes(8, "big"), seed) % RECHECK_SHARE
        for block in range(0, count, RECHECK_SHARE)
    )
