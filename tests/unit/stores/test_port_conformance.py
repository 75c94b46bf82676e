"""What every store must do, whatever holds it: run with each store that there is."""

import hashlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from redrive.errors import RecordError, StoreError, UsageError
from redrive.record.event import Event, Kind, Note, dump_payload
from redrive.stores.port import SessionRow, SourceRow, Store
from redrive.stores.sqlite import open_store
from tests.stored import event_at, messages, put_bytes, put_session, steps_of

STORES: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: open_store(folder / "store.db", create=True),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = STORES[request.param](tmp_path)
    yield opened
    opened.close()


def note(session_id: str, seq: int) -> Event:
    return event_at(session_id, seq, Kind.NOTE, dump_payload(Note(label=f"note {seq}")))


def put_notes(store: Store, base_id: str, count: int) -> SessionRow:
    with store.transaction():
        writer = store.create(base_id, "test", 1)
        for seq in range(count):
            writer.append(note(writer.session_id, seq))
        return writer.close()


# --- events


def test_events_come_back_as_they_were_appended(store: Store) -> None:
    row, events = put_session(store, "test:a", messages(30))
    assert list(store.events(row.session_id)) == events
    assert [bytes(e.payload) for e in store.events(row.session_id)] == [
        bytes(e.payload) for e in events
    ]


def test_the_row_says_what_was_stored(store: Store) -> None:
    row, events = put_session(store, "test:a", messages(4))
    times = [event.ts_ns for event in events]
    assert (row.session_id, row.base_id, row.revision) == ("test:a", "test:a", 1)
    assert (row.format, row.importer_version, row.n_events) == ("test", 1, 12)
    assert (row.first_ts_ns, row.last_ts_ns) == (times[0], times[-1])
    assert row.summary == {"events": 12}
    assert [(role, len(sha256)) for role, sha256, _ in row.sources] == [("main", 64)]
    assert len(row.head) == 64


@pytest.mark.parametrize("start", [0, 1, 255, 256, 257, 599, 600, 1000])
def test_a_stream_begins_where_it_is_asked_to(store: Store, start: int) -> None:
    put_notes(store, "test:a", 600)
    assert [event.seq for event in store.events("test:a", start)] == list(range(start, 600))


def test_a_reader_gives_any_event_in_any_order_again_and_again(store: Store) -> None:
    row, events = put_session(store, "test:a", messages(200, 20))
    asked = [599, 0, 256, 255, 0, 599, 300, 1, 1]
    read = list(store.reader(row.session_id).read_events(asked))
    assert read == [events[seq] for seq in asked]


@pytest.mark.parametrize("seq", [-1, 3])
def test_a_reader_refuses_a_seq_that_does_not_exist(store: Store, seq: int) -> None:
    put_notes(store, "test:a", 3)
    with pytest.raises(UsageError, match=f"has no event {seq}: expected 0 to 2"):
        list(store.reader("test:a").read_events([seq]))


def test_the_index_is_that_of_the_events(store: Store) -> None:
    row, events = put_session(store, "test:a", messages(5))
    index = store.index(row.session_id)
    assert index.session_id == "test:a"
    assert list(index.node_ids) == [event.node_id for event in events]


def test_an_empty_session_has_a_head_of_its_own(store: Store) -> None:
    first, second = put_notes(store, "test:a", 0), put_notes(store, "test:b", 0)
    assert (first.n_events, first.first_ts_ns, first.last_ts_ns) == (0, None, None)
    assert list(store.events("test:a")) == []
    assert len(first.head) == 64
    assert first.head != second.head
    assert store.verify("test:a", first.head).is_ok


def test_equal_sessions_have_equal_heads_in_any_store(store: Store, tmp_path: Path) -> None:
    row, _ = put_session(store, "test:a", messages(20))
    other = open_store(tmp_path / "other.db", create=True)
    put_session(other, "test:z", messages(3))
    again, _ = put_session(other, "test:a", messages(20))
    other.close()
    assert again.head == row.head


# --- writing


def test_an_appended_session_is_one_and_its_old_head_stays_known(store: Store) -> None:
    old = put_notes(store, "test:a", 300)
    with store.transaction():
        writer = store.extend("test:a")
        assert writer.next_seq == 300
        writer.append(note("test:a", 300))
        new = writer.close()
    assert new.n_events == 301
    assert new.head != old.head
    assert [event.seq for event in store.events("test:a")] == list(range(301))
    assert store.verify("test:a", old.head).is_ok
    assert store.verify("test:a", new.head).is_ok


def _write_and_give_up(store: Store) -> None:
    with store.transaction():
        put_bytes(store, b"source")
        writer = store.create("test:b", "test", 1)
        for event in steps_of("test:b", messages(9)):
            writer.append(event)
        writer.close()
        longer = store.extend("test:a")
        longer.append(note("test:a", 24))
        longer.close()
        raise KeyboardInterrupt


def test_a_rolled_back_transaction_leaves_nothing(store: Store) -> None:
    before, _ = put_session(store, "test:a", messages(8))
    with pytest.raises(KeyboardInterrupt):
        _write_and_give_up(store)
    assert [row.session_id for row in store.sessions()] == ["test:a"]
    assert store.get_session("test:a") == before
    assert not store.has_artefact(hashlib.sha256(b"source").hexdigest())
    assert store.verify().is_ok
    put_session(store, "test:b", messages(9))
    assert store.verify().is_ok


def test_a_writer_that_was_left_open_stores_nothing(store: Store) -> None:
    with pytest.raises(StoreError, match="writer of test:a was not closed"), store.transaction():
        store.create("test:a", "test", 1).append(note("test:a", 0))
    assert list(store.sessions()) == []


def test_a_closed_writer_takes_nothing_more(store: Store) -> None:
    with store.transaction():
        writer = store.create("test:a", "test", 1)
        writer.close()
        for use in (lambda: writer.append(note("test:a", 0)), writer.close):
            with pytest.raises(StoreError, match="is closed"):
                use()
    assert store.get_session("test:a").n_events == 0


def test_an_event_out_of_order_or_of_another_session_is_refused(store: Store) -> None:
    with store.transaction():
        writer = store.create("test:a", "test", 1)
        for event in (note("test:a", 1), note("test:b", 0)):
            with pytest.raises(StoreError, match="expected event 0 of test:a"):
                writer.append(event)
        writer.close()


def test_a_session_is_only_written_inside_a_transaction(store: Store) -> None:
    put_notes(store, "test:a", 1)
    with pytest.raises(StoreError, match="inside a transaction"):
        store.create("test:b", "test", 1)
    with pytest.raises(StoreError, match="inside a transaction"):
        store.extend("test:a")


def test_several_sessions_are_written_at_once(store: Store) -> None:
    with store.transaction():
        writers = [store.create(f"test:{name}", "test", 1) for name in "abc"]
        for seq in range(300):
            for writer in writers:
                writer.append(note(writer.session_id, seq))
        for writer in writers:
            writer.close()
    for name in "abc":
        assert [event.seq for event in store.events(f"test:{name}")] == list(range(300))
    assert store.verify().is_ok


def test_a_summary_is_replaced_and_nothing_else(store: Store) -> None:
    row, _ = put_session(store, "test:a", messages(2))
    new = store.set_summary("test:a", {"model_calls": 2, "words": "\ud800"})
    assert new == msgspec.structs.replace(row, summary={"model_calls": 2, "words": "\ud800"})
    assert store.verify().is_ok


# --- revisions, projections, sources


def test_the_same_id_again_is_a_revision_and_never_a_merge(store: Store) -> None:
    for count in (1, 2, 3):
        put_notes(store, "test:a", count)
    assert [row.session_id for row in store.revisions("test:a")] == [
        "test:a",
        "test:a@2",
        "test:a@3",
    ]
    assert [row.n_events for row in store.revisions("test:a")] == [1, 2, 3]
    assert store.revisions("test:none") == []
    assert [event.session_id for event in store.events("test:a@2")] == ["test:a@2"] * 2


def test_an_id_that_looks_like_a_revision_keeps_its_own_name(store: Store) -> None:
    put_notes(store, "test:a@2", 5)
    put_notes(store, "test:a", 1)
    put_notes(store, "test:a", 2)
    assert [row.session_id for row in store.revisions("test:a")] == ["test:a", "test:a@3"]
    assert store.get_session("test:a@2").n_events == 5
    assert store.verify().is_ok


def test_a_new_projection_is_shown_and_the_old_one_stays(store: Store) -> None:
    old = put_notes(store, "test:a", 3)
    with store.transaction():
        writer = store.create("test:a", "test", 2, replaces="test:a")
        assert (writer.session_id, writer.next_seq) == ("test:a", 0)
        writer.append(note("test:a", 0))
        new = writer.close()
    assert (new.importer_version, new.n_events, new.revision) == (2, 1, 1)
    assert [event.seq for event in store.events("test:a")] == [0]
    assert store.verify().heads == {"test:a": new.head}
    assert store.verify(head=old.head).is_ok


def test_what_does_not_exist_cannot_be_replaced_extended_or_read(store: Store) -> None:
    with store.transaction():
        with pytest.raises(UsageError, match="no session 'test:a'"):
            store.create("test:a", "test", 1, replaces="test:a")
        with pytest.raises(UsageError, match="no session 'test:a'"):
            store.extend("test:a")
    source = SourceRow("test:a", "main", "0" * 64, 1, "test", 1)
    for use in (
        lambda: store.add_source(source),
        lambda: list(store.events("test:a")),
        lambda: store.reader("test:a"),
        lambda: store.index("test:a"),
        lambda: store.get_session("test:a"),
        lambda: store.set_summary("test:a", {}),
        lambda: store.verify("test:a"),
    ):
        with pytest.raises(UsageError, match="no session 'test:a'"):
            use()


def test_sources_are_listed_and_the_same_role_is_replaced(store: Store) -> None:
    row, _ = put_session(store, "test:a", messages(2))
    grown, logs = put_bytes(store, b"grown"), put_bytes(store, b"logs")
    source = SourceRow("test:a", "main", grown, 5, "test", 2, {"records": 7})
    store.add_source(source)
    store.add_source(SourceRow("test:a", "logs", logs, 4, "test", 2))
    assert store.sources_of(grown) == [source]
    assert store.sources_of(row.sources[0][1]) == []
    assert store.get_session("test:a").sources == (("logs", logs, 4), ("main", grown, 5))
    assert store.verify().is_ok


def test_sessions_are_listed_by_their_first_event_and_then_by_id(store: Store) -> None:
    with store.transaction():
        for name, ts in (("d", None), ("c", 7), ("b", 3), ("a", 7)):
            writer = store.create(f"test:{name}", "test", 1)
            event = note(f"test:{name}", 0)
            writer.append(msgspec.structs.replace(event, ts_ns=ts))
            writer.close()
    assert [row.session_id for row in store.sessions()] == ["test:b", "test:a", "test:c", "test:d"]


# --- artefacts


def test_a_source_comes_back_byte_for_byte(store: Store) -> None:
    data = "\n".join(messages(50)).encode()
    sha256 = put_bytes(store, data)
    assert store.has_artefact(sha256)
    with store.open_artefact(sha256) as stream:
        assert stream.read(10) == data[:10]
        assert stream.read() == data[10:]
    assert store.artefact_sizes() == {len(data): [sha256]}


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\x00\n" * 7])
def test_any_bytes_are_a_source(store: Store, data: bytes) -> None:
    with store.open_artefact(put_bytes(store, data)) as stream:
        assert stream.read() == data


def test_a_grown_source_is_its_beginning_and_its_tail(store: Store) -> None:
    first, second, third = b"one\n", b"one\ntwo\n", b"one\ntwo\nthree\n"
    put_bytes(store, first)
    put_bytes(store, second, extends=first)
    with store.open_artefact(put_bytes(store, third, extends=second)) as stream:
        assert list(stream) == [b"one\n", b"two\n", b"three\n"]
    assert store.verify().is_ok


def test_the_same_source_twice_is_stored_once(store: Store) -> None:
    sha256 = put_bytes(store, b"data")
    unread = io.BytesIO(b"never read")
    store.put_artefact(sha256, 4, unread, None)
    assert unread.tell() == 0
    assert store.artefact_sizes() == {4: [sha256]}


@pytest.mark.parametrize(("size", "data"), [(4, b"DATA"), (3, b"data")])
def test_a_source_that_changed_meanwhile_is_refused(store: Store, size: int, data: bytes) -> None:
    sha256 = hashlib.sha256(b"data").hexdigest()
    with pytest.raises(RecordError, match="changed while it was read"):
        store.put_artefact(sha256, size, io.BytesIO(data), None)
    assert not store.has_artefact(sha256)
    assert store.verify().is_ok


def test_an_unknown_source_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="is not in the store"):
        store.open_artefact("0" * 64)
    with pytest.raises(StoreError, match="is not in the store"):
        store.put_artefact("1" * 64, 4, io.BytesIO(b"tail"), "0" * 64)
