"""Tables that only grow: each row has its place, and the tail says where they end."""

from pathlib import Path

import msgspec
import pytest

from redrive.errors import TamperError
from redrive.stores.database import Database, open_database
from redrive.stores.growing import append_row, empty_tail, longer_tail, rewrite_rows
from redrive.stores.rows import StoredLabel, TailRow, find_row, put_row, read_rows, seal_of
from redrive.stores.schema import migrate

VALUES = ("s", "ref", "ann", "true", "", 1)


@pytest.fixture
def database(path: Path) -> Database:
    opened = open_database(path, create=True, read_only=False)
    migrate(opened)
    return opened


def tail_of(database: Database) -> TailRow | None:
    return find_row(database, TailRow, "WHERE name = ?", ("labels",))


def test_a_row_gets_the_next_number_and_its_seal_goes_into_the_tail(database: Database) -> None:
    rows = [append_row(database, StoredLabel, VALUES) for _ in range(3)]
    assert [row.id for row in rows] == [1, 2, 3]
    tail = empty_tail(StoredLabel)
    for row in rows:
        tail = longer_tail(tail, seal_of(row))
    assert tail_of(database) == tail
    database.close()


def test_a_lone_surrogate_is_stored_as_its_escape(database: Database) -> None:
    row = append_row(database, StoredLabel, ("s", "r\ud83d", "ann", "true", "", 1))
    assert row.event_ref == "r\\ud83d"
    database.close()


def test_rows_go_on_behind_the_last_one_after_some_were_dropped(database: Database) -> None:
    for _ in range(3):
        append_row(database, StoredLabel, VALUES)
    assert rewrite_rows(database, StoredLabel, lambda row: None if row.id == 2 else row) == 1
    assert append_row(database, StoredLabel, VALUES).id == 4
    assert [row.id for row in read_rows(database, StoredLabel, "ORDER BY id")] == [1, 3, 4]
    tail = tail_of(database)
    assert tail is not None
    assert tail.rows == 3
    database.close()


def test_nothing_is_written_where_no_row_changes(database: Database) -> None:
    append_row(database, StoredLabel, VALUES)
    before = tail_of(database)
    assert rewrite_rows(database, StoredLabel, lambda row: row) == 0
    assert tail_of(database) == before
    database.close()


def test_a_damaged_row_is_not_rewritten(database: Database) -> None:
    row = append_row(database, StoredLabel, VALUES)
    put_row(database, msgspec.structs.replace(row, rater="bob"), replaces=True)
    database.execute("UPDATE labels SET note = 'x'")
    with pytest.raises(TamperError):
        rewrite_rows(database, StoredLabel, lambda row: None)
    database.close()
