"""Verbatim sources: content-addressed, compressed as one stream, read back as a checked stream.

Knows bytes and digests. Must not know formats or sessions. An artefact is one zstd frame with a
window of up to 8 MiB, so that a log of growing requests costs about its unique bytes, cut into
parts of at most 4 MiB. A grown source stores its tail alone, after the artefact that it `extends`.

Source: DESIGN.md §3 "Evidence is bytes" and "Store". Memory: about 20 MiB, whatever the size.
"""

import hashlib
import io
from typing import BinaryIO

import zstandard

from redrive.errors import RecordError, StoreError, TamperError
from redrive.stores.database import Database
from redrive.stores.rows import ArtefactRow, PartRow, find_row, next_id, put_row, read_rows

PART_BYTES = 4 * 1024 * 1024
_WINDOW_LOG = 23
_MIN_WINDOW_LOG = 10
_LEVEL = 3
_READ_BYTES = 1024 * 1024
_BUFFER_BYTES = 128 * 1024


def find_artefact(database: Database, sha256: bytes) -> ArtefactRow | None:
    """Find an artefact by its digest."""
    return find_row(database, ArtefactRow, "WHERE sha256 = ?", (sha256,))


def write_artefact(
    database: Database, sha256: bytes, size: int, data: BinaryIO, extends: bytes | None
) -> None:
    """Store a source, or only what follows the artefact that it extends.

    Args:
        database: inside a transaction.
        sha256: digest of the whole source.
        size: of the whole source, in bytes.
        data: the source, or its tail.
        extends: the artefact that the source begins with.

    Raises:
        RecordError: the bytes are others than `sha256` and `size` say.
        StoreError: the artefact to extend is not stored.
        TamperError: the artefact to extend is damaged.
    """
    state, known_bytes = hashlib.sha256(), 0
    if extends is not None:
        with open_artefact(database, extends) as base:
            while chunk := base.read(_READ_BYTES):
                state.update(chunk)
                known_bytes += len(chunk)
    artefact = next_id(database, ArtefactRow)
    parts, tail_bytes = _write_frame(database, artefact, data, state, size - known_bytes)
    known_bytes += tail_bytes
    if state.digest() != sha256 or known_bytes != size:
        database.execute("DELETE FROM parts WHERE artefact = ?", (artefact,))
        raise RecordError(
            f"a source changed while it was read: expected {size} bytes of sha256 {sha256.hex()}, "
            f"found {known_bytes} of {state.hexdigest()}",
            hint="import it again",
        )
    put_row(database, ArtefactRow(artefact, sha256, size, extends, parts))


def _write_frame(
    database: Database, artefact: int, data: BinaryIO, state: "hashlib._Hash", expected: int
) -> tuple[int, int]:
    """Compress a stream into parts and hash it on the way; give the number of parts and bytes."""
    compressor = zstandard.ZstdCompressor(compression_params=_parameters(expected)).chunker(
        chunk_size=PART_BYTES
    )
    number = size = 0
    while chunk := data.read(_READ_BYTES):
        state.update(chunk)
        size += len(chunk)
        for part in compressor.compress(chunk):
            put_row(database, PartRow(artefact, number, part))
            number += 1
    for part in compressor.finish():  # type: ignore[no-untyped-call]
        put_row(database, PartRow(artefact, number, part))
        number += 1
    return number, size


def _parameters(size: int) -> zstandard.ZstdCompressionParameters:
    """Choose the window for a stream of about `size` bytes; a small one is set up faster."""
    window_log = min(_WINDOW_LOG, max(_MIN_WINDOW_LOG, size.bit_length()))
    return zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=window_log, source_size=max(size, 1), enable_ldm=True
    )


def open_artefact(database: Database, sha256: bytes) -> BinaryIO:
    """Open an artefact as a stream whose digest is checked when it was read to its end.

    Raises:
        StoreError: it is not stored.
        TamperError: its rows do not match their seals; later, from `read`, its bytes.
    """
    row = find_artefact(database, sha256)
    if row is None:
        raise StoreError(f"artefact {sha256.hex()} is not in the store", hint="import its source")
    return io.BufferedReader(_ArtefactStream(database, row), _BUFFER_BYTES)


def artefact_chain(database: Database, row: ArtefactRow) -> list[ArtefactRow]:
    """List the artefacts whose bytes make up one, first bytes first.

    Raises:
        TamperError: one of them is missing, or the chain has no beginning.
    """
    chain, seen = [row], {row.sha256}
    while (base := chain[-1].extends) is not None:
        found = find_artefact(database, base)
        if found is None or base in seen:
            raise tampered_artefact(row, f"the artefact {base.hex()} before it is missing")
        chain.append(found)
        seen.add(base)
    return chain[::-1]


def tampered_artefact(row: ArtefactRow, what: str) -> TamperError:
    """Say that an artefact is damaged."""
    return TamperError(
        f"artefact {row.sha256.hex()} is damaged: {what}",
        hint="`redrive verify` lists all that is damaged",
    )


class _Parts(io.RawIOBase):
    """The compressed bytes of one artefact, each part checked as it is read."""

    def __init__(self, database: Database, row: ArtefactRow) -> None:
        self._database = database
        self._row = row
        self._number = 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        if not self._rest and self._number < self._row.parts:
            part = self._read_part(self._number)
            self._rest = memoryview(part.data)
            self._number += 1
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def _read_part(self, number: int) -> PartRow:
        try:
            part = find_row(
                self._database,
                PartRow,
                "WHERE artefact = ? AND number = ?",
                (self._row.id, number),
            )
        except TamperError as error:
            raise tampered_artefact(self._row, error.message) from error
        if part is None:
            raise tampered_artefact(self._row, f"part {number} is missing")
        return part


class _ArtefactStream(io.RawIOBase):
    """The bytes of an artefact and of those it extends, one after the other."""

    def __init__(self, database: Database, row: ArtefactRow) -> None:
        self._database = database
        self._row = row
        self._later = artefact_chain(database, row)[::-1]
        self._frame: BinaryIO = io.BytesIO()
        self._state = hashlib.sha256()
        self._size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        count = self._read_frame(buffer)
        while not count and self._later:
            self._frame = _open_frame(self._database, self._later.pop())
            count = self._read_frame(buffer)
        self._state.update(memoryview(buffer)[:count])
        self._size += count
        is_whole = self._size == self._row.size and self._state.digest() == self._row.sha256
        if not count and not is_whole:
            raise tampered_artefact(self._row, "its bytes do not match its digest")
        return count

    def _read_frame(self, buffer: "memoryview | bytearray") -> int:
        try:
            return self._frame.readinto(buffer)  # type: ignore[attr-defined,no-any-return]
        except zstandard.ZstdError as error:
            raise tampered_artefact(self._row, str(error)) from error


def _open_frame(database: Database, row: ArtefactRow) -> BinaryIO:
    return zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG).stream_reader(
        io.BufferedReader(_Parts(database, row), _BUFFER_BYTES)
    )


def artefact_sizes(database: Database) -> dict[int, list[str]]:
    """Map size in bytes → digests (hex) of the artefacts of that size."""
    sizes: dict[int, list[str]] = {}
    for row in read_rows(database, ArtefactRow, "ORDER BY id"):
        sizes.setdefault(row.size, []).append(row.sha256.hex())
    return sizes
