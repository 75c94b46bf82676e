"""Sources are stored small, read back as a bounded stream, and never answered for when damaged."""

import hashlib
import io
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from redrive.errors import TamperError
from redrive.stores import artefacts
from redrive.stores.database import Database, open_database
from redrive.stores.rows import ArtefactRow, PartRow, put_row, read_rows
from redrive.stores.schema import migrate
from redrive.stores.sqlite import SqliteStore
from tests.stored import body_of, messages, put_bytes

MB = 1024 * 1024


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    database = open_database(path, create=True, read_only=False)
    migrate(database)
    yield database
    database.close()


def put(database: Database, data: bytes, extends: bytes | None = None) -> str:
    return put_bytes(SqliteStore(database), data, extends)


def read(database: Database, sha256: str) -> bytes:
    with artefacts.open_artefact(database, bytes.fromhex(sha256)) as stream:
        return stream.read()


def test_a_source_that_does_not_compress_lies_in_parts_of_at_most_4_mib(database: Database) -> None:
    data = os.urandom(9 * MB)
    assert read(database, put(database, data)) == data
    sizes = [len(row.data) for row in read_rows(database, PartRow, "ORDER BY number")]
    assert sizes[:2] == [4 * MB, 4 * MB]
    assert len(sizes) == 3


def test_a_log_of_growing_requests_costs_about_its_unique_bytes(database: Database) -> None:
    texts = messages(200)
    data = "\n".join(body_of(texts[: n + 1]) for n in range(200)).encode()
    assert len(data) > 80 * sum(map(len, texts))
    put(database, data)
    stored = sum(len(row.data) for row in read_rows(database, PartRow))
    assert stored < sum(map(len, texts))


class _Zeros(io.RawIOBase):
    """A file of zeros that is never held."""

    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        count = min(self._left, len(buffer))
        buffer[:count] = bytes(count)
        self._left -= count
        return count


def _peak_bytes(use: BinaryIO) -> int:
    tracemalloc.start()
    try:
        while use.read(MB):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_reading_a_source_that_compresses_a_thousandfold_is_bounded(database: Database) -> None:
    size = 64 * MB
    sha256 = hashlib.sha256(bytes(size)).digest()
    with database.transaction():
        artefacts.write_artefact(database, sha256, size, io.BufferedReader(_Zeros(size)), None)
    with artefacts.open_artefact(database, sha256) as stream:
        assert _peak_bytes(stream) < 8 * MB


def test_many_growths_are_read_back_in_order(database: Database) -> None:
    data = b""
    for number in range(50):
        longer = data + f"line {number}\n".encode()
        sha256 = put(database, longer, extends=data if number else None)
        data = longer
    assert read(database, sha256) == data


def _parts_of(database: Database) -> list[PartRow]:
    return list(read_rows(database, PartRow, "ORDER BY artefact, number"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("DELETE FROM parts WHERE number = 1", "part 1 is missing"),
        ("UPDATE parts SET data = x'00' WHERE number = 1", "does not match its seal"),
        ("DELETE FROM artefacts WHERE id = 1", "before it is missing"),
        ("UPDATE artefacts SET parts = 1 WHERE id = 1", "does not match its seal"),
    ],
)
def test_a_damaged_source_is_refused(database: Database, change: str, what: str) -> None:
    first = os.urandom(5 * MB)
    put(database, first)
    sha256 = put(database, first + b"more", extends=first)
    database.execute(change)
    with pytest.raises(TamperError, match=what):
        read(database, sha256)


def test_a_forged_part_is_refused_even_with_a_seal_that_matches(database: Database) -> None:
    one, _ = put(database, b"one" * 100), put(database, b"two" * 100)
    _, other = _parts_of(database)
    put_row(database, PartRow(1, 0, other.data), replaces=True)
    with pytest.raises(TamperError, match="its bytes do not match its digest"):
        read(database, one)
    put_row(database, PartRow(1, 0, b"no zstd at all"), replaces=True)
    with pytest.raises(TamperError, match=f"artefact {one} is damaged"):
        read(database, one)


def test_a_truncated_frame_is_refused_even_with_seals_that_match(database: Database) -> None:
    sha256 = put(database, os.urandom(1000))
    (part,) = _parts_of(database)
    put_row(database, PartRow(1, 0, part.data[:500]), replaces=True)
    with pytest.raises(TamperError, match="its bytes do not match its digest"):
        read(database, sha256)


def test_a_chain_without_a_beginning_is_refused(database: Database) -> None:
    sha256 = bytes.fromhex(put(database, b"data"))
    put_row(database, ArtefactRow(1, sha256, 4, sha256, 1), replaces=True)
    with pytest.raises(TamperError, match="before it is missing"):
        artefacts.open_artefact(database, sha256)
