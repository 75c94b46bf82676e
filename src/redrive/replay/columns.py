"""The fields of a session's events that say where each belongs, one column a field.

Knows envelopes. Must not know payloads, nor what the columns say together (`quick_walk`,
`branched_walk`).
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from redrive.record.event import Event, Kind

_get_row = attrgetter(
    "kind", "node_id", "parent_id", "group", "flags", "ts_ns", "actor", "supersedes"
)


class Columns(NamedTuple):
    """One value per event, by seq; see `redrive.record.event.Event`."""

    kinds: Sequence[Kind]
    names: Sequence[str]
    parents: Sequence[str | None]
    groups: Sequence[str | None]
    flags: Sequence[tuple[str, ...]]
    times: Sequence[int | None]
    actors: Sequence[str]
    supersedes: Sequence[str | None]


def columns_of(batches: Iterable[Sequence[Event]]) -> Columns:
    """Take the columns of events that come in batches, by seq. Cost: O(n), nothing else is kept."""
    columns: list[list[Any]] = [[] for _ in Columns._fields]
    for batch in batches:
        parts = zip(*map(_get_row, batch), strict=True)
        for column, part in zip(columns, parts, strict=False):  # an empty batch has none
            column += part
    return Columns(*columns)
