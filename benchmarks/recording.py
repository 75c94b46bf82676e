"""P11: what recording costs: encode, chain and hand to the store, and what group commit saves.

Goals: at most 4.5 × `msgspec` encode of the same event where events come one at a time, 3 × where
64 come together, before compression and SQL, as P10 counts; a grouped event takes at most a
thirtieth of the time of one that is made durable alone; a commit costs the same late in a session.

The first rows are CPU time. The last ones run on a real file and are wall time, since what a sync
takes is waiting; they say little where the folder lies in memory.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.data import event_lines
from benchmarks.paired import ROUNDS, Figure, cpu_seconds, measure
from redrive.capture.ports import RecordingFault
from redrive.capture.recorder import MAX_EVENTS, Recorder
from redrive.record.event import Event
from redrive.stores.database import Database
from redrive.stores.recording import open_journal
from redrive.stores.rows import ProjectionRow
from redrive.stores.segments import SegmentWriter, chain_start
from redrive.stores.texts import TextStore

SESSION = "bench:0"
N_ENCODED, N_GROUPED, N_ALONE = 32_000, 6_400, 320
N_LONG, N_PAIRS = 100_000, 50
_encode = msgspec.json.Encoder().encode


class _NoDatabase(Database):
    """Takes every statement and keeps nothing."""

    def __init__(self) -> None:
        """Open nothing."""

    def execute(self, sql: str, values: Sequence[object] = ()) -> int:
        del sql, values
        return 0

    def query(self, sql: str, values: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        del sql, values
        return iter(())

    find = None  # type: ignore[assignment] - a session of small events looks nothing up


class _NoCompressor:
    def compress(self, data: bytes) -> bytes:
        del data
        return b""


def chain_writer() -> SegmentWriter:
    """Make a segment writer without compression and SQL."""
    database = _NoDatabase()
    start = ProjectionRow(1, SESSION, 1, 0, chain_start(SESSION), None, None, "{}")
    writer = SegmentWriter(database, TextStore(database), start)
    writer._compressor = _NoCompressor()  # type: ignore[assignment]
    return writer


def make_events(n_events: int) -> list[Event]:
    """Make a session of events of about 560 bytes."""
    return [msgspec.json.decode(line, type=Event) for line in event_lines(SESSION, n_events, 1)]


def groups_of(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Cut events into groups as a busy recorder does."""
    return [events[n : n + MAX_EVENTS] for n in range(0, len(events), MAX_EVENTS)]


def figures(*, is_quick: bool = False) -> Iterator[Figure]:
    """Measure all rows."""
    events = make_events(N_ENCODED // (8 if is_quick else 1))
    yield from _encoding(events)
    with tempfile.TemporaryDirectory(dir=_disk()) as folder:
        yield _grouping(Path(folder), events[:N_GROUPED])
        yield _growing(Path(folder), make_events(N_LONG // (10 if is_quick else 1)))


def _encoding(events: Sequence[Event]) -> Iterator[Figure]:
    groups = groups_of(events)

    def floor() -> None:
        for event in events:
            _encode(event)

    def one_at_a_time() -> None:
        writer = chain_writer()
        for group in groups:
            for event in group:
                writer.append(event)
            writer.flush()

    def together() -> None:
        writer = chain_writer()
        for group in groups:
            writer.extend(group)
            writer.flush()

    n_bytes = sum(len(_encode(event)) for event in events)
    for name, work, goal in (
        ("encode + chain, an event at a time", one_at_a_time, 4.5),
        ("encode + chain, 64 events together", together, 3.0),
    ):
        yield measure(
            "P11", f"{name} / msgspec encode", work, floor, goal=goal, floor_bytes=n_bytes
        )


def _grouping(folder: Path, events: Sequence[Event]) -> Figure:
    """Compare an event of a group with one that is made durable alone, through the recorder."""
    ratios, grouped, alone = [], [], []
    for number in range(ROUNDS):
        alone.append(_recorded_s(folder / f"a{number}.db", events[:N_ALONE], is_synced=True))
        grouped.append(_recorded_s(folder / f"g{number}.db", events, is_synced=False))
        ratios.append(grouped[-1] / alone[-1])
    put_s = _put_s(folder / "put.db", events)
    basis = (
        f"grouped {statistics.median(grouped) * 1e6:.1f} µs, alone "
        f"{statistics.median(alone) * 1e6:.0f} µs wall an event, compression and commit included; "
        f"a put takes the agent's thread {put_s * 1e6:.1f} µs; median of {ROUNDS}"
    )
    name = "30 × an event in group commit / one synced alone"
    return Figure("P11", name, 30 * statistics.median(ratios), 1.0, basis)


def _recorded_s(path: Path, events: Sequence[Event], *, is_synced: bool) -> float:
    """Record events one put each, until the last is durable; give wall seconds per event."""
    recorder = Recorder(
        lambda: open_journal(path, SESSION, "bench", 1), on_fault=_fail, is_synced=is_synced
    )
    started = time.perf_counter()
    for event in events:
        recorder.put((event,))
    recorder.flush()
    taken_s = time.perf_counter() - started
    recorder.close()
    return taken_s / len(events)


def _put_s(path: Path, events: Sequence[Event]) -> float:
    """Give the CPU seconds that one put takes the thread that calls it."""
    recorder = Recorder(lambda: open_journal(path, SESSION, "bench", 1), on_fault=_fail)
    started = time.thread_time()
    for event in events:
        recorder.put((event,))
    taken_s = time.thread_time() - started
    recorder.close()
    return taken_s / len(events)


def _growing(folder: Path, events: Sequence[Event]) -> Figure:
    """Compare commits late in a long session with those at its beginning, in turns."""
    groups = groups_of(events)
    late = open_journal(folder / "late.db", SESSION, "bench", 1)
    for group in groups[:-N_PAIRS]:
        late.commit(group)
    early = open_journal(folder / "early.db", SESSION, "bench", 1)
    early_s, late_s = [], []
    for first, last in zip(groups[:N_PAIRS], groups[-N_PAIRS:], strict=True):
        early_s.append(cpu_seconds(partial(early.commit, first)))
        late_s.append(cpu_seconds(partial(late.commit, last)))
    early.abandon()
    late.abandon()
    ratio = statistics.median(b / a for a, b in zip(early_s, late_s, strict=True))
    basis = (
        f"early {statistics.median(early_s) * 1e6:.0f} µs, late "
        f"{statistics.median(late_s) * 1e6:.0f} µs CPU; median of {N_PAIRS}"
    )
    name = f"a commit of 64 at event {len(events):,} / at a session's beginning"
    return Figure("P11", name, ratio, 1.25, basis)


def _disk() -> str | None:
    """Name a folder that is not in memory, where there is one."""
    return "/var/tmp" if Path("/var/tmp").is_dir() else None  # noqa: S108


def _fail(fault: RecordingFault) -> None:
    raise AssertionError(fault.message)
