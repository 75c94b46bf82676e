"""The version of the event schema, and how a row of an older version becomes one of today.

Knows rows as plain JSON objects. Must not know where they lie. Evidence is never rewritten: a
stored row keeps its version for ever, and is lifted step by step each time it is read.

`UPCASTERS` maps version n to `upcast_vN`, which turns a row of version n into one of n + 1.

Source: DESIGN.md §1 "old row → new row", §3 "versioned".
"""

from collections.abc import Callable, Mapping
from typing import Any

from redrive.errors import StoreError

SCHEMA_VERSION = 1

Row = dict[str, Any]
Upcaster = Callable[[Row], Row]

UPCASTERS: Mapping[int, Upcaster] = {}


def upcast(
    row: Row,
    version: int,
    *,
    upcasters: Mapping[int, Upcaster] = UPCASTERS,
    newest: int = SCHEMA_VERSION,
) -> Row:
    """Lift a row to the newest version.

    Args:
        row: one event as it was stored; it is not changed.
        version: the schema version it was stored under.
        upcasters: version n → the step to n + 1.
        newest: the version to reach.

    Raises:
        StoreError: the row is newer than this program, or a step is missing.
    """
    if version > newest:
        raise StoreError(
            f"an event has schema version {version}, this redrive knows up to {newest}",
            hint="upgrade redrive",
        )
    for step in range(version, newest):
        lift = upcasters.get(step)
        if lift is None:
            raise StoreError(f"no way is known from event schema version {step} to {step + 1}")
        row = lift(dict(row))
    return row
