"""Tables that only grow: rows with a number, and a tail that chains all of them.

Knows rows and tails. Must not know what a row means. A tail holds the count of a table's rows and a
digest that chains their seals, so that `verify` finds a row that was changed, dropped, moved or
added behind the store's back.

Source: DESIGN.md §3 "Store".
"""

import hashlib
from collections.abc import Callable
from typing import TypeVar

from redrive import canonical
from redrive.stores.database import Database, SqlValue
from redrive.stores.rows import Row, TailRow, find_row, next_id, put_row, read_rows, seal_of

_R = TypeVar("_R", bound=Row)


def append_row(database: Database, kind: type[_R], values: tuple[SqlValue, ...]) -> _R:
    """Add a row at the end of a table, and its seal to the table's tail.

    A text with a lone surrogate, which the file cannot hold, is stored with its escape.
    """
    tail = find_row(database, TailRow, "WHERE name = ?", (kind.table,)) or empty_tail(kind)
    safe = (canonical.escape_surrogates(v) if isinstance(v, str) else v for v in values)
    row = kind(next_id(database, kind), *safe)  # a redaction may have dropped rows before
    put_row(database, row)
    put_row(database, longer_tail(tail, seal_of(row)), replaces=True)
    return row


def rewrite_rows(database: Database, kind: type[_R], change: Callable[[_R], _R | None]) -> int:
    """Change or drop rows of a table that only grows; say how many, and give it a new tail."""
    rows = list(read_rows(database, kind, "ORDER BY id"))
    changed = [change(row) for row in rows]
    count = sum(old != new for old, new in zip(rows, changed, strict=True))
    if not count:
        return 0
    # The table is a name of this module.
    database.execute(f"DELETE FROM {kind.table}")  # noqa: S608 # nosec B608
    tail = empty_tail(kind)
    for row in changed:
        if row is not None:
            put_row(database, row)
            tail = longer_tail(tail, seal_of(row))
    put_row(database, tail, replaces=True)
    return count


def empty_tail(kind: type[Row]) -> TailRow:
    """Give the tail of a table without rows."""
    return TailRow(kind.table, 0, hashlib.sha256(kind.table.encode()).digest())


def longer_tail(tail: TailRow, seal: object) -> TailRow:
    """Give the tail after one more row, whose seal this is; what is no seal counts as none."""
    digest = hashlib.sha256(tail.digest + (seal if isinstance(seal, bytes) else b"")).digest()
    return TailRow(tail.name, tail.rows + 1, digest)
