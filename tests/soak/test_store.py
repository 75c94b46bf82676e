"""The store's promises at full length; `make soak` runs them."""

# ruff: noqa: S608 - names of tables and columns are those of the rows under test
import os
from pathlib import Path

import pytest

from redrive import canonical
from redrive.errors import TamperError
from redrive.stores.port import Store
from tests.stored import kill_a_writer, messages, opened, put_session, raw_database

pytestmark = pytest.mark.skipif(
    os.environ.get("REDRIVE_SOAK") != "full", reason="long: set REDRIVE_SOAK=full"
)


def test_a_thousand_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    draws = canonical.stream("kill", "after")
    for store_number in range(50):
        path, stored = tmp_path / f"{store_number}.db", 0
        for _ in range(20):
            stored += kill_a_writer(path, next(draws) % 200 / 1000)
            with opened(path) as store:
                rows = list(store.sessions())
                assert len(rows) in (stored, stored + 1)
                assert {row.n_events for row in rows} == {120}
                assert store.verify().is_ok
            stored = len(rows)
        path.unlink()


def _read_all(store: Store) -> None:
    for row in list(store.sessions()):
        list(store.events(row.session_id))
        for _, sha256, _ in row.sources:
            with store.open_artefact(sha256) as stream:
                stream.read()


@pytest.mark.parametrize("table", ["segments", "texts", "parts"])
def test_every_flipped_byte_is_found_and_nothing_answers_from_it(
    tmp_path: Path, table: str
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        put_session(store, "test:a", messages(6))
    with raw_database(path) as connection:
        cells = connection.execute(f"SELECT rowid, data FROM {table}").fetchall()
    for rowid, data in cells:
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 1 << position % 8
            with raw_database(path) as connection:
                connection.execute(
                    f"UPDATE {table} SET data = ? WHERE rowid = ?", (bytes(flipped), rowid)
                )
            with opened(path, read_only=True) as store:
                assert not store.verify().is_ok, (rowid, position)
                with pytest.raises(TamperError):
                    _read_all(store)
        with raw_database(path) as connection:
            connection.execute(f"UPDATE {table} SET data = ? WHERE rowid = ?", (data, rowid))
    with opened(path) as store:
        assert store.verify().is_ok, "the control: undone, all is well"
