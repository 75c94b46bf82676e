"""Segments are bounded, appended and never edited; a reader holds few of them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from redrive.errors import StoreError, TamperError
from redrive.record.event import Event, Kind, Note, dump_payload
from redrive.stores import segments as module
from redrive.stores.database import open_database
from redrive.stores.port import Store
from redrive.stores.rows import ProjectionRow, SegmentRow, TextRow, put_row, read_rows
from redrive.stores.schema import migrate
from redrive.stores.segments import (
    Link,
    SegmentWriter,
    chain_start,
    group_links,
    segment_lines,
)
from redrive.stores.texts import TextStore
from tests.stored import body_of, event_at, messages, opened, steps_of

MB = 1024 * 1024


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


def rows(path: Path, kind: type = SegmentRow) -> list:  # type: ignore[type-arg]
    database = open_database(path, create=False, read_only=True)
    found = list(read_rows(database, kind))
    database.close()
    return found


def note(seq: int, size: int = 1) -> Event:
    return event_at("test:a", seq, Kind.NOTE, dump_payload(Note(label="x" * size)))


def put(store: Store, events: list[Event], *, extends: bool = False) -> None:
    with store.transaction():
        writer = store.extend("test:a") if extends else store.create("test:a", "test", 1)
        for event in events:
            writer.append(event)
        writer.close()


def test_a_segment_holds_at_most_256_events(store: Store, path: Path) -> None:
    put(store, [note(seq) for seq in range(600)])
    assert [(row.first_seq, row.events) for row in rows(path)] == [(0, 256), (256, 256), (512, 88)]


def test_a_segment_holds_at_most_a_mebibyte_unless_one_event_is_larger(
    store: Store, path: Path
) -> None:
    put(store, [note(0), note(1, 2 * MB), *(note(seq, 400_000) for seq in range(2, 8))])
    found = [(row.first_seq, row.events) for row in rows(path)]
    assert found == [(0, 1), (1, 1), (2, 2), (4, 2), (6, 2)]
    assert [event.seq for event in store.events("test:a")] == list(range(8))


def test_an_event_of_64_mib_is_stored_and_read(store: Store) -> None:
    event = note(1, 64 * MB)
    put(store, [note(0), event, note(2)])
    assert next(store.events("test:a", 1)) == event
    assert list(store.reader("test:a").read_events([2, 1])) == [note(2), event]


def test_appending_begins_a_new_segment_and_edits_none(store: Store, path: Path) -> None:
    put(store, [note(seq) for seq in range(10)])
    before = rows(path)
    put(store, [note(seq) for seq in range(10, 12)], extends=True)
    after = rows(path)
    assert after[:1] == before
    assert (after[1].first_seq, after[1].events, after[1].prev) == (10, 2, before[0].digest)


@pytest.mark.parametrize(
    "groups",
    [
        [range(300)],
        [range(255), range(255, 256), range(256, 258)],
        [range(200), range(200, 600), range(600, 600)],
        [[0], [1], [2]],
    ],
)
@pytest.mark.parametrize("size", [1, 9000])
def test_events_that_come_together_are_stored_as_each_alone(
    tmp_path: Path, groups: list[range], size: int
) -> None:
    written = []
    for is_together in (True, False):
        database = open_database(tmp_path / f"{is_together}.db", create=True, read_only=False)
        migrate(database)
        start = ProjectionRow(1, "test:a", 1, 0, chain_start("test:a"), None, None, "{}")
        writer = SegmentWriter(database, TextStore(database), start)
        for group in groups:
            events = [note(seq, size) for seq in group]
            if is_together:
                writer.extend(events)
            else:
                for event in events:
                    writer.append(event)
        writer.flush()
        written.append((list(read_rows(database, SegmentRow)), writer.grown(start)))
        database.close()
    assert written[0] == written[1]


def test_neighbours_are_read_together_up_to_a_segments_size() -> None:
    links = [Link(n, 1, 10, b"", b"") for n in range(300)] + [Link(300, 256, 10, b"", b"")]
    assert [len(run) for run in group_links(links)] == [256, 44, 1]
    assert [len(run) for run in group_links(Link(n, 1, MB // 2, b"", b"") for n in range(5))] == [
        2,
        2,
        1,
    ]
    assert [len(run) for run in group_links([Link(n, 1, 9 * MB, b"", b"") for n in (0, 1)])] == [
        1,
        1,
    ]
    assert group_links([]) == []


def test_appending_nothing_changes_no_segment(store: Store, path: Path) -> None:
    put(store, [note(0)])
    before = rows(path), store.get_session("test:a")
    put(store, [], extends=True)
    assert (rows(path), store.get_session("test:a")) == before


def test_a_segment_says_which_kinds_and_times_it_holds(store: Store, path: Path) -> None:
    put(store, list(steps_of("test:a", messages(2))))
    (row,) = rows(path)
    assert row.kinds == "model.request,model.response,user.message"
    assert (row.first_ts_ns, row.last_ts_ns) == (1000 * 10**9, 1005 * 10**9)


@pytest.mark.parametrize("ts_ns", [2**63, -(2**63) - 1, 10**30])
def test_a_time_beyond_64_bits_is_kept_in_the_event_alone(store: Store, ts_ns: int) -> None:
    event = msgspec.structs.replace(note(0), ts_ns=ts_ns)
    put(store, [event])
    assert list(store.events("test:a")) == [event]
    assert store.get_session("test:a").first_ts_ns is None


def test_requests_that_are_appended_later_build_on_those_before(store: Store, path: Path) -> None:
    events = list(steps_of("test:a", messages(30)))
    put(store, events[:60])
    put(store, events[60:], extends=True)
    texts = rows(path, TextRow)
    assert [row.base for row in texts].count(None) == 1
    assert sum(len(row.data) for row in texts) < len(body_of(messages(30)))
    assert list(store.events("test:a")) == events


def test_a_reader_holds_few_segments_and_always_the_last(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, [note(seq, 5000) for seq in range(3000)])
    reader = store.reader("test:a")
    list(reader.read_events(range(3000)))
    held = sum(len(line) for lines in reader._cache.values() for line in lines)  # type: ignore[attr-defined]
    assert held <= module._CACHE_BYTES
    monkeypatch.setattr(module, "_CACHE_BYTES", 10)
    list(reader.read_events([0, 2999]))
    assert len(reader._cache) == 1  # type: ignore[attr-defined]


def test_a_reader_reads_a_segment_once_for_neighbours(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, [note(seq) for seq in range(600)])
    reader, read = store.reader("test:a"), []
    original = module.read_run
    monkeypatch.setattr(
        module, "read_run", lambda *args: read.append(args[2][0].first_seq) or original(*args)
    )
    list(reader.read_events([0, 300, 1, 301, 599, 2]))
    assert read == [0, 256, 512]


def _forge(path: Path, **columns: object) -> SegmentRow:
    """Edit the first segment and give it a seal that matches."""
    database = open_database(path, create=False, read_only=False)
    row = msgspec.structs.replace(next(read_rows(database, SegmentRow)), **columns)
    put_row(database, row, replaces=True)
    database.close()
    return row


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"data": b"no zstd"}, "segment at seq 0"),
        ({"size": 7}, "its size is another"),
        ({"kinds": "note,tool.call"}, "its lines do not match its digest"),
    ],
)
def test_a_forged_segment_is_refused_even_with_a_seal_that_matches(
    store: Store, path: Path, columns: dict[str, object], what: str
) -> None:
    put(store, [note(0)])
    row = _forge(path, **columns)
    with pytest.raises(TamperError, match=what):
        segment_lines("test:a", row)
    with pytest.raises(TamperError, match="session test:a, segment at seq 0"):
        list(store.events("test:a"))


def test_a_digest_over_another_number_of_lines_is_refused(store: Store, path: Path) -> None:
    put(store, [note(0)])
    (row,) = rows(path)
    lines = segment_lines("test:a", row).lines[0] + b"\n"
    forged = msgspec.structs.replace(row, events=2, digest=b"")
    forged = msgspec.structs.replace(forged, digest=module._digest(forged, lines))
    with pytest.raises(TamperError, match="another number of lines"):
        segment_lines("test:a", forged)


def test_a_damaged_text_is_refused_with_session_and_segment(store: Store, path: Path) -> None:
    put(store, list(steps_of("test:a", messages(8))))
    database = open_database(path, create=False, read_only=False)
    database.execute("UPDATE texts SET data = x'00' WHERE id = (SELECT max(id) FROM texts)")
    database.close()
    with opened(path) as fresh:
        with pytest.raises(TamperError, match="session test:a, segment at seq 0"):
            list(fresh.events("test:a"))
        with pytest.raises(TamperError, match="session test:a, segment at seq 0"):
            list(fresh.reader("test:a").read_events([22]))
        assert len(list(fresh.reader("test:a").read_events([0, 1, 2, 23]))) == 4


def test_damage_between_two_reads_of_one_reader_is_found(store: Store, path: Path) -> None:
    put(store, [note(seq) for seq in range(300)])
    reader = store.reader("test:a")
    events = store.events("test:a")
    next(events)
    database = open_database(path, create=False, read_only=False)
    database.execute("DELETE FROM segments WHERE first_seq = 256")
    database.close()
    with pytest.raises(TamperError, match="another than in the chain"):
        list(reader.read_events([299]))
    with pytest.raises(TamperError, match="another than in the chain"):
        list(events)


def test_lines_of_an_older_event_schema_are_lifted_when_they_are_read(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, [note(0)])

    def lift(row: dict[str, object], version: int) -> dict[str, object]:
        assert version == 1
        return row | {"actor": "lifted"}

    monkeypatch.setattr(module, "SCHEMA_VERSION", 2)
    monkeypatch.setattr(module, "upcast", lift)
    put(store, [note(1)], extends=True)
    assert [event.actor for event in store.events("test:a")] == ["lifted", "main"]
    assert [event.actor for event in store.reader("test:a").read_events((0, 1))] == [
        "lifted",
        "main",
    ]
    assert [row.version for row in rows(path)] == [1, 2]
    assert store.verify().is_ok


def test_lines_of_a_newer_event_schema_are_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SCHEMA_VERSION", 9)
    put(store, [note(0)])
    monkeypatch.undo()
    with pytest.raises(StoreError, match="has schema version 9"):
        list(store.events("test:a"))
