"""Segments: up to 256 events as zstd-compressed JSON lines, each chained to the one before it.

Knows lines, digests and order. Must not know sessions' names beyond the chain's beginning. A
segment is never edited; what is appended later begins a new one. Its digest covers the digest
before it, its columns and its uncompressed lines, so it is the same under every zstd. A recorder
writes a segment per commit, so segments may be tiny: neighbours are read together, as one run.

Source: DESIGN.md §3 "Store".
"""

import hashlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import zstandard

from redrive.errors import TamperError, UsageError
from redrive.record.event import Event, Kind
from redrive.record.schema import SCHEMA_VERSION, upcast
from redrive.stores.database import Database
from redrive.stores.payloads import (
    MARK,
    Packer,
    find_texts,
    unpack,
    unpack_envelope,
    unpack_without_texts,
)
from redrive.stores.port import Block
from redrive.stores.rows import (
    ProjectionRow,
    SegmentRow,
    check_row,
    find_row,
    put_row,
    read_records,
)
from redrive.stores.texts import TextStore

MAX_EVENTS = 256
MAX_BYTES = 1024 * 1024
_LEVEL = 3
_CACHE_RUNS = 8
_CACHE_BYTES = 4 * 1024 * 1024
_MIN_TS, _MAX_TS = -(2**63), 2**63 - 1  # what a column holds
_encode = msgspec.json.Encoder().encode


def chain_start(session_id: str) -> bytes:
    """Give the digest that a session's chain begins with; the head of an empty session."""
    return hashlib.sha256(b"redrive segments 1\0" + session_id.encode()).digest()


def _digest(row: SegmentRow, lines: bytes) -> bytes:
    numbers = (row.first_seq, row.version, row.events)
    times = (row.first_ts_ns, row.last_ts_ns)
    state = hashlib.sha256(row.prev)
    state.update(_encode((*numbers, row.kinds, *times, row.size)))
    state.update(lines)
    return state.digest()


class SegmentWriter:
    """Collects the lines of one projection and writes them as segments.

    Args:
        database: inside a transaction.
        texts: where large texts go.
        projection: what the events are appended to.
    """

    def __init__(self, database: Database, texts: TextStore, projection: ProjectionRow) -> None:
        self._database = database
        self._packer = Packer(texts, _last_texts(database, projection))
        self._projection = projection.id
        self._lines: list[bytes] = []
        self._size = 0
        self._kinds: set[Kind] = set()
        self._times: list[int] = []
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self.next_seq = projection.events
        self.head = projection.head
        self.first_ts_ns = projection.first_ts_ns
        self.last_ts_ns = projection.last_ts_ns

    def append(self, event: Event) -> None:
        """Take the next event."""
        self._add(event, self._packer.pack(event))

    def extend(self, events: Sequence[Event]) -> None:
        """Take the next events; the same as to append each, and faster where they fit."""
        lines = self._packer.pack_all(events)
        size = sum(map(len, lines)) + len(lines)
        if len(self._lines) + len(lines) >= MAX_EVENTS or self._size + size > MAX_BYTES:
            for event, line in zip(events, lines, strict=True):
                self._add(event, line)
            return
        self._lines += lines
        self._size += size
        self._kinds.update([event.kind for event in events])
        times = [event.ts_ns for event in events]
        self._times += [t for t in times if t is not None and _MIN_TS <= t <= _MAX_TS]
        self.next_seq += len(lines)

    def _add(self, event: Event, line: bytes) -> None:
        if self._lines and self._size + len(line) + 1 > MAX_BYTES:
            self.flush()
        self._lines.append(line)
        self._size += len(line) + 1
        self._kinds.add(event.kind)
        if event.ts_ns is not None and _MIN_TS <= event.ts_ns <= _MAX_TS:
            self._times.append(event.ts_ns)
        self.next_seq += 1
        if len(self._lines) == MAX_EVENTS:
            self.flush()

    def grown(self, projection: ProjectionRow) -> ProjectionRow:
        """Give the projection's row as it is with all that was flushed."""
        return msgspec.structs.replace(
            projection,
            events=self.next_seq,
            head=self.head,
            first_ts_ns=self.first_ts_ns,
            last_ts_ns=self.last_ts_ns,
        )

    def flush(self) -> None:
        """Write what was collected as a segment; nothing, where there is nothing."""
        if not self._lines:
            return
        lines = b"\n".join([*self._lines, b""])
        count, self._lines = len(self._lines), []  # a long line is held once
        row = SegmentRow(
            projection=self._projection,
            first_seq=self.next_seq - count,
            version=SCHEMA_VERSION,
            events=count,
            kinds=",".join(sorted(self._kinds)),
            first_ts_ns=min(self._times, default=None),
            last_ts_ns=max(self._times, default=None),
            size=len(lines),
            prev=self.head,
            digest=b"",
            data=self._compressor.compress(lines),
        )
        row = msgspec.structs.replace(row, digest=_digest(row, lines))
        put_row(self._database, row)
        self.head = row.digest
        self._note_times(row)
        self._size, self._kinds, self._times = 0, set(), []

    def _note_times(self, row: SegmentRow) -> None:
        firsts = [t for t in (self.first_ts_ns, row.first_ts_ns) if t is not None]
        lasts = [t for t in (self.last_ts_ns, row.last_ts_ns) if t is not None]
        self.first_ts_ns, self.last_ts_ns = min(firsts, default=None), max(lasts, default=None)


def _last_texts(database: Database, projection: ProjectionRow) -> dict[tuple[str, str], bytes]:
    """Find the last large text of each actor and field, in the newest segment that has requests."""
    found: dict[tuple[str, str], bytes] = {}
    row = find_row(
        database,
        SegmentRow,
        "WHERE projection = ? AND instr(kinds, ?) ORDER BY first_seq DESC LIMIT 1",
        (projection.id, Kind.MODEL_REQUEST.value),
    )
    for line in [] if row is None else segment_lines(projection.session_id, row).lines:
        if (texts := find_texts(line)) is not None:
            for ref in texts[1]:
                found[texts[0].actor, ref.field] = bytes.fromhex(ref.sha256)
    return found


class Lines(NamedTuple):
    """The lines of one segment; `is_plain` says that every payload stands in its line as it is."""

    lines: list[bytes]
    is_plain: bool


class Link(NamedTuple):
    """A segment's place in its chain; `size` is that of its lines."""

    first_seq: int
    events: int
    size: int
    prev: bytes
    digest: bytes


def read_chain(database: Database, projection: ProjectionRow) -> list[Link]:
    """List a projection's segments, checked to be one unbroken chain from its start to its head.

    Raises:
        TamperError: a segment is missing, doubled or out of place; names session and seq.
    """
    seq, head = 0, chain_start(projection.session_id)
    links = []
    for record in database.query(
        "SELECT first_seq, events, size, prev, digest FROM segments WHERE projection = ? "
        "ORDER BY first_seq",
        (projection.id,),
    ):
        link = Link(*record)
        are_counts = type(link.events) is int and type(link.size) is int
        if link.first_seq != seq or link.prev != head or not are_counts:
            raise tampered_segment(projection.session_id, seq, "the chain breaks here")
        seq, head = seq + link.events, link.digest
        links.append(link)
    if head != projection.head or seq != projection.events:
        raise tampered_segment(projection.session_id, seq, "the chain does not end at its head")
    return links


def group_links(links: Iterable[Link]) -> list[list[Link]]:
    """Group neighbours to runs of at most 256 events and 1 MiB, or one segment; order is kept."""
    runs: list[list[Link]] = []
    events = size = 0
    for link in links:
        events, size = events + link.events, size + link.size
        if not runs or events > MAX_EVENTS or size > MAX_BYTES:
            runs.append([])
            events, size = link.events, link.size
        runs[-1].append(link)
    return runs


def read_run(database: Database, projection: ProjectionRow, run: Sequence[Link]) -> list[Lines]:
    """Read the lines of neighbouring segments, each checked against its digest, in order.

    Raises:
        TamperError: one is missing or damaged; names session and seq.
    """
    session_id = projection.session_id
    where = "WHERE projection = ? AND first_seq >= ? AND first_seq <= ? ORDER BY first_seq"
    values = (projection.id, run[0].first_seq, run[-1].first_seq)
    found = {record[1]: record for record in read_records(database, SegmentRow, where, values)}
    segments: list[Lines] = []
    for link in run:
        record = found.pop(link.first_seq, None)
        try:
            row = None if record is None else check_row(SegmentRow, record)
        except TamperError as error:
            raise tampered_segment(session_id, link.first_seq, error.message) from error
        if row is None or row.digest != link.digest:
            raise tampered_segment(session_id, link.first_seq, "it is another than in the chain")
        segments.append(segment_lines(session_id, row))
    return segments


def segment_lines(session_id: str, row: SegmentRow) -> Lines:
    """Decompress a segment, check its digest, and lift lines of an older event schema.

    Raises:
        TamperError: it is damaged; names session and seq.
        StoreError: it was written under a newer event schema.
    """
    lines = _checked_lines(session_id, row)
    listed = lines.split(b"\n")[:-1]
    if len(listed) != row.events:
        raise tampered_segment(session_id, row.first_seq, "it has another number of lines")
    if row.version != SCHEMA_VERSION:
        listed = [_encode(upcast(msgspec.json.decode(line), row.version)) for line in listed]
    return Lines(listed, MARK not in lines)


def _checked_lines(session_id: str, row: SegmentRow) -> bytes:
    """Decompress a segment and check its digest."""
    try:
        if zstandard.frame_content_size(row.data) != row.size:
            raise tampered_segment(session_id, row.first_seq, "its size is another")
        lines = zstandard.ZstdDecompressor().decompress(row.data)
    except zstandard.ZstdError as error:
        raise tampered_segment(session_id, row.first_seq, str(error)) from error
    if _digest(row, lines) != row.digest:
        raise tampered_segment(session_id, row.first_seq, "its lines do not match its digest")
    return lines


def tampered_segment(session_id: str, seq: int, what: str) -> TamperError:
    """Say that a segment is damaged."""
    return TamperError(
        f"session {session_id}, segment at seq {seq}: {what}",
        where=f"seq {seq}",
        hint="`redrive verify` lists all that is damaged",
    )


def read_events(
    database: Database,
    texts: TextStore,
    projection: ProjectionRow,
    chain: Iterable[Link],
    start: int,
) -> Iterator[Event]:
    """Stream the events of a projection from seq `start`; a run of segments is held at a time.

    Args:
        database: where they lie.
        texts: where large texts lie.
        projection: whose events these are.
        chain: what `read_chain` gave; what is appended later is not read.
        start: the first seq to give.

    Raises:
        TamperError: a segment or a text is missing or damaged; names session and seq.
    """
    return _stream(database, projection, chain, start, lambda line: unpack(line, texts))


def read_events_without_texts(
    database: Database, projection: ProjectionRow, chain: Iterable[Link]
) -> Iterator[Event]:
    """Stream the events with large texts left out, as `unpack_without_texts` does."""
    return _stream(database, projection, chain, 0, unpack_without_texts)


def _stream(
    database: Database,
    projection: ProjectionRow,
    chain: Iterable[Link],
    start: int,
    unpack_line: Callable[[bytes], Event],
) -> Iterator[Event]:
    wanted = (link for link in chain if link.first_seq + link.events > start)
    for run in group_links(wanted):
        for link, segment in zip(run, read_run(database, projection, run), strict=True):
            read = unpack_envelope if segment.is_plain else unpack_line
            try:
                yield from map(read, segment.lines[max(0, start - link.first_seq) :])
            except TamperError as error:
                session_id = projection.session_id
                raise tampered_segment(session_id, link.first_seq, error.message) from error


def read_blocks(
    database: Database, projection: ProjectionRow, max_bytes: int
) -> tuple[Block, ...] | None:
    """Read all lines of a projection at once; the chain and each segment are checked.

    Returns:
        The lines by segment; `None` where they take more than `max_bytes`.

    Raises:
        TamperError: a segment is missing or damaged; names session and seq.
    """
    session_id, blocks = projection.session_id, list[Block]()
    head, seq, size = chain_start(session_id), 0, 0
    where = "WHERE projection = ? ORDER BY first_seq"
    for record in read_records(database, SegmentRow, where, (projection.id,)):
        row = _unsealed(session_id, record)
        if row.first_seq != seq or row.prev != head:
            raise tampered_segment(session_id, seq, "the chain breaks here")
        size += row.size
        if size > max_bytes:
            return None
        lines = _checked_lines(session_id, row)
        is_plain = MARK not in lines
        if row.version != SCHEMA_VERSION:
            lines = b"\n".join([*segment_lines(session_id, row).lines, b""])
        blocks.append(Block(seq, row.events, lines, is_plain))
        head, seq = row.digest, seq + row.events
    if head != projection.head or seq != projection.events:
        raise tampered_segment(session_id, seq, "the chain does not end at its head")
    return tuple(blocks)


def _unsealed(session_id: str, record: tuple[Any, ...]) -> SegmentRow:
    """Make a row of a record; its digest, which is checked next, says as much as its seal."""
    try:
        return msgspec.convert(record[:-1], SegmentRow)
    except (msgspec.ValidationError, ValueError) as error:
        raise tampered_segment(session_id, record[1], f"its row is damaged: {error}") from error


class SegmentReader:
    """Gives the events of one projection by seq; see `redrive.record.session.EventReader`.

    Holds a few runs of segments: at most eight and 4 MiB of lines, and always the last one read.

    Args:
        database: where they lie.
        texts: where large texts lie.
        projection: whose events these are.
        chain: what `read_chain` gave.
    """

    def __init__(
        self, database: Database, texts: TextStore, projection: ProjectionRow, chain: Iterable[Link]
    ) -> None:
        self._database = database
        self._texts = texts
        self._projection = projection
        self._runs = group_links(chain)
        self._starts = [run[0].first_seq for run in self._runs]
        self._cache: OrderedDict[int, list[bytes]] = OrderedDict()
        self._sizes: dict[int, int] = {}

    def read_events(self, seqs: Iterable[int]) -> Iterator[Event]:
        """Yield the events with these seqs, in the order asked.

        Raises:
            UsageError: the session has no such seq.
            TamperError: the segment is damaged.
        """
        for seq in seqs:
            number, lines = self._run_of(seq)
            try:
                yield unpack(lines[seq - self._starts[number]], self._texts)
            except TamperError as error:
                first = max(x.first_seq for x in self._runs[number] if x.first_seq <= seq)
                raise tampered_segment(self._projection.session_id, first, error.message) from error

    def _run_of(self, seq: int) -> tuple[int, list[bytes]]:
        """Give the number of the run that holds a seq, and its lines."""
        if not 0 <= seq < self._projection.events:
            raise UsageError(
                f"session {self._projection.session_id} has no event {seq}: "
                f"expected 0 to {self._projection.events - 1}"
            )
        number = bisect_right(self._starts, seq) - 1
        lines = self._cache.get(number)
        if lines is None:
            segments = read_run(self._database, self._projection, self._runs[number])
            lines = [line for segment in segments for line in segment.lines]
            self._keep(number, lines)
        self._cache.move_to_end(number)
        return number, lines

    def _keep(self, number: int, lines: list[bytes]) -> None:
        self._cache[number] = lines
        self._sizes[number] = sum(map(len, lines))
        while len(self._cache) > 1 and (
            len(self._cache) > _CACHE_RUNS or sum(self._sizes.values()) > _CACHE_BYTES
        ):
            oldest, _ = self._cache.popitem(last=False)
            del self._sizes[oldest]
