"""The store's promises at full length, or sampled; `make soak` sets REDRIVE_SOAK=full."""

# ruff: noqa: S608 - names of tables and columns are those of the rows under test
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from redrive import canonical
from redrive.errors import TamperError
from redrive.stores.port import Store
from tests.stored import kill_a_writer, messages, opened, put_policy_rows, put_session, raw_database

IS_FULL = os.environ.get("REDRIVE_SOAK") == "full"
SAMPLED = 5
COLUMNS = {
    "segments": ("kinds", "prev", "digest", "data", "seal"),
    "texts": ("data", "seal"),
    "parts": ("data", "seal"),
    "artefacts": ("sha256", "seal"),
    "sessions": ("session_id", "base_id", "format", "sources", "seal"),
    "projections": ("session_id", "head", "summary", "seal"),
    "sources": ("session_id", "role", "sha256", "importer", "report", "seal"),
    "tails": ("name", "digest", "seal"),
    "policy_reports": ("policy", "version", "digest", "document", "seal"),
    "inferences": ("key", "name", "spec", "request", "value", "fingerprint", "seal"),
    "samples": ("name", "policy", "version", "seed", "branches", "event_refs", "seal"),
    "labels": ("sample", "event_ref", "rater", "label", "seal"),
    "hook_decisions": ("policy", "digest", "session_id", "event", "action", "reason", "seal"),
}
# A flipped id may lead to nothing instead, which `verify` finds.
ANSWERED_FROM = ("segments", "texts", "parts", "policy_reports", "inferences", "hook_decisions")


@pytest.mark.skipif(not IS_FULL, reason="long: set REDRIVE_SOAK=full; the unit tests run some")
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
    for report in store.policies.reports():
        store.policies.get_report(report.id)
    for sample in store.policies.samples():
        store.policies.labels(sample.id)
    list(store.policies.inferences())
    list(store.policies.hook_decisions())


def _positions(size: int) -> Iterable[int]:
    """Give every position, or a few that the first, the last and the middle ones are among."""
    return (
        range(size) if IS_FULL else sorted({n * (size - 1) // SAMPLED for n in range(SAMPLED + 1)})
    )


def _flipped(cell: bytes | str, position: int) -> bytes | str:
    """Flip one bit; of a text, one that leaves it a text."""
    if isinstance(cell, str):
        return cell[:position] + chr(ord(cell[position]) ^ 1) + cell[position + 1 :]
    changed = bytearray(cell)
    changed[position] ^= 1 << position % 8
    return bytes(changed)


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in COLUMNS for column in COLUMNS[table]]
)
def test_every_flipped_byte_is_found_and_nothing_answers_from_it(
    tmp_path: Path, table: str, column: str
) -> None:
    path = tmp_path / "store.db"
    with opened(path) as store:
        put_session(store, "test:a", messages(6))
        put_policy_rows(store, "test:a")
    with raw_database(path) as connection:
        cells = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
    change = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
    n_flips = 0
    for rowid, cell in cells if IS_FULL else cells[:2]:
        for position in _positions(len(cell)):
            with raw_database(path) as connection:
                connection.execute(change, (_flipped(cell, position), rowid))
            with opened(path, read_only=True) as store:
                verified = store.verify()
                assert not verified.is_ok, (rowid, position)
                assert all(fault.fault for fault in verified.faults)
                if table in ANSWERED_FROM:
                    with pytest.raises(TamperError):
                        _read_all(store)
            n_flips += 1
        with raw_database(path) as connection:
            connection.execute(change, (cell, rowid))
    assert n_flips
    with opened(path) as store:
        assert store.verify().is_ok, "the control: undone, all is well"
