"""Whether a policy changed what it was given, and which events are judged twice whatever it says.

Knows events and states as bytes. Must not know what a policy answered.

Source: DESIGN.md §7 "Purity": every fire and a seeded 1 % are judged twice.
"""

import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from redrive import canonical
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import StandardState
from redrive.replay.standard_fold import snapshot

RECHECK_SHARE = 100
_encode = msgspec.json.Encoder().encode


class Print(msgspec.Struct, frozen=True, gc=False):
    """State and event as bytes."""

    state: bytes
    event: bytes


def print_of(standard: StandardState, own: str, event: PolicyEvent) -> Print:
    """Write state and event down, to see whether a policy changed them.

    Args:
        standard: the standard state.
        own: the values of the policy's own reducers, as Python writes them.
        event: the event.
    """
    written = own.encode("utf-8", "backslashreplace")
    return Print(_write(snapshot(standard)) + written, _write(event))


def _write(value: Any) -> bytes:
    """Write a value so that another value gives other bytes (NaN alone is told as null).

    What has no strict JSON form, such as a lone surrogate, is written canonically, which costs
    three times as much.
    """
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError):
        return canonical.encode(value)


def find_change(prints: Sequence[Print]) -> str | None:
    """Name what changed between prints that follow each other: `event`, `state` or nothing."""
    for first, second in pairwise(prints):
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
