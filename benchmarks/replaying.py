"""The whole replay: load 100,000 events, shadow them from a script, and compare.

Floor: the untyped decode of the same lines. The work is done twice: from event lines, as a store
keeps them, and from interchange lines, of which 100,000 give 200,000 events and which have to be
projected first. Then the events are indexed, the path is walked, the script decides again on the
recorded answers, and the two are compared.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from benchmarks.data import interchange_session
from benchmarks.paired import Figure, measure
from benchmarks.process import run
from redrive.app.sources import FileSource
from redrive.compare.divergence import Comparison, compare_run
from redrive.importers.draft import FileTally, SourceFile
from redrive.importers.interchange import IMPORTER
from redrive.models.script import ScriptModel, parse_script
from redrive.record.event import Event, Source, dump_payload
from redrive.record.session import EventReader, MemoryReader, build_index
from redrive.record.trajectory import Trajectory, build_trajectory
from redrive.replay.exchange import AskModel
from redrive.replay.ports import ModelQuery, ModelReply
from redrive.replay.recorded import RecordedRun, read_run
from redrive.replay.run import drive, reply_from
from redrive.testing import MemorySource

N_EVENTS = 100_000
INTERCHANGE, STORED = "interchange", "stored"
_decode_any = msgspec.json.Decoder().decode
_decode_event = msgspec.json.Decoder(Event).decode
_encode = msgspec.json.Encoder().encode


def load(source: SourceFile) -> Iterator[Event]:
    """Project a source to events."""
    place = Source(source.sha256, 0, 0)
    for seq, draft in enumerate(IMPORTER.project(source, FileTally())):
        if draft.offset != place.offset or draft.length != place.length:
            place = Source(place.artefact, draft.offset, draft.length)
        yield Event(
            draft.id,
            draft.session,
            seq,
            draft.kind,
            draft.node_id,
            place,
            dump_payload(draft.payload),
            draft.parent_id,
            draft.actor,
            draft.ts_ns,
            draft.call_id,
        )


def load_stored(lines: Iterable[bytes]) -> Iterator[Event]:
    """Decode event lines, as a store keeps them."""
    return map(_decode_event, lines)


def read_path(events: Sequence[Event], reader: EventReader) -> tuple[RecordedRun, Trajectory]:
    """Index a session and read its path; the index is not needed after that."""
    index = build_index("bench", lambda: events)
    path = build_trajectory(index)
    return read_run(index, path, reader), path


def replay(loaded: Iterable[Event], read_script: Callable[[], bytes]) -> Comparison:
    """Load a session, shadow it from a script, and compare."""
    events = list(loaded)
    reader = MemoryReader(events)
    recorded, path = read_path(events, reader)
    model = ScriptModel("script:bench", Path("script"), parse_script(read_script(), "script"))

    def decide(command: AskModel) -> ModelReply:
        asked = ModelQuery(command.decision, recorded_model=command.recorded_model)
        return model.decide(asked)

    replayed = drive(recorded, reply_from(reader, decide))
    return compare_run(recorded, replayed, path, reader)


def figures(*, is_quick: bool) -> Iterator[Figure]:
    """Measure the whole replay, in time and in memory, from both kinds of lines."""
    n_events = N_EVENTS // 10 if is_quick else N_EVENTS
    source, script = interchange_session(n_events)
    yield from _measure_both("interchange lines", INTERCHANGE, n_events, source, script)
    # One decision is four events: its request, response, call and answer.
    source, script = interchange_session(n_events // 2)
    stored = b"\n".join(map(_encode, load(MemorySource("bench.jsonl", source))))
    yield from _measure_both("event lines", STORED, n_events, stored, script)


def _measure_both(
    name: str, form: str, n_lines: int, lines: bytes, script: bytes
) -> Iterator[Figure]:
    split = lines.splitlines()

    def decode() -> None:
        for line in split:
            _decode_any(line)

    def work() -> Comparison:
        source = MemorySource("bench.jsonl", lines)
        loaded = load(source) if form == INTERCHANGE else load_stored(split)
        return replay(loaded, lambda: script)

    yield measure(
        "replay",
        f"load + shadow + diff of {n_lines} {name} / untyped decode of the same lines",
        work,
        decode,
        goal=15,
        floor_bytes=len(lines),
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / part for part in ("session.jsonl", "shadow.jsonl")]
        for path, data in zip(paths, (lines, script), strict=True):
            path.write_bytes(data)
        cost = run((sys.executable, "-m", "benchmarks.replaying", form, *paths))
        assert cost.code == 0
    basis = f"a process of its own, {len(lines) / 1e6:.0f} MB of {name}"
    yield Figure("replay", "peak memory of the same", cost.peak_mb, 280, basis, " MB")


if __name__ == "__main__":
    session, decided = map(Path, sys.argv[2:])
    if sys.argv[1] == INTERCHANGE:
        replay(load(FileSource(session)), decided.read_bytes)
    else:
        with session.open("rb") as file:
            replay(load_stored(file), decided.read_bytes)
