"""A row's seal covers every column, its type and its place."""

from pathlib import Path

import msgspec
import pytest

from redrive.errors import TamperError
from redrive.stores.database import open_database
from redrive.stores.rows import (
    CatalogueRow,
    PartRow,
    StoredSource,
    TextRow,
    check_row,
    find_row,
    next_id,
    put_row,
    seal_of,
)
from redrive.stores.schema import migrate

ROW = TextRow(1, b"ab", 3, None, 0, 0, 0, b"data")


def record(row: TextRow) -> tuple[object, ...]:
    return (*msgspec.structs.astuple(row), seal_of(row))


def test_a_sound_record_is_its_row() -> None:
    assert check_row(TextRow, record(ROW)) == ROW


@pytest.mark.parametrize(
    "columns",
    [{"id": 2}, {"sha256": b"a"}, {"size": 4}, {"base": 0}, {"suffix": 1}, {"data": b"dat"}],
)
def test_every_column_is_covered(columns: dict[str, object]) -> None:
    edited = msgspec.structs.replace(ROW, **columns)
    with pytest.raises(TamperError, match="of table texts does not match its seal"):
        check_row(TextRow, (*msgspec.structs.astuple(edited), seal_of(ROW)))


def test_bytes_that_move_to_the_next_column_are_noticed() -> None:
    one = StoredSource("ab", "c", b"", 0, "", 0, "{}")
    other = StoredSource("a", "bc", b"", 0, "", 0, "{}")
    assert seal_of(one) != seal_of(other)


def test_equal_columns_of_two_tables_have_two_seals() -> None:
    assert seal_of(PartRow(1, 2, b"x")) != seal_of(CatalogueRow("1", "2", 1, "x", 1, b"x"))


@pytest.mark.parametrize("value", ["text", 1.5, None, b"bytes"])
def test_a_column_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TamperError):
        check_row(TextRow, (value, *record(ROW)[1:]))


def test_rows_are_put_found_and_numbered(path: Path) -> None:
    database = open_database(path, create=True, read_only=False)
    migrate(database)
    assert next_id(database, TextRow) == 1
    put_row(database, ROW)
    assert next_id(database, TextRow) == 2
    assert find_row(database, TextRow, "WHERE sha256 = ?", (b"ab",)) == ROW
    assert find_row(database, TextRow, "WHERE sha256 = ?", (b"no",)) is None
    longer = msgspec.structs.replace(ROW, size=4)
    put_row(database, longer, replaces=True)
    assert find_row(database, TextRow, "WHERE id = 1", ()) == longer
    database.close()
