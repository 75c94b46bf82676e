"""A journal keeps what it acknowledged, alone, and everything beside it can read meanwhile."""

import contextlib
import hashlib
import os
import resource
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.app.listing import list_sessions
from redrive.capture import ports
from redrive.errors import RecordError, StoreError, TamperError, UsageError
from redrive.record.event import Event, Kind, ModelResponse, Source, Usage, dump_payload
from redrive.stores.recording import SqliteJournal, open_journal
from redrive.stores.rows import SegmentRow, read_rows
from tests.recorders import SESSION, notes, run_child
from tests.stored import event_at, messages, opened, put_session, raw_database, steps_of


def journal_at(path: Path, **options: int | bool) -> SqliteJournal:
    return open_journal(path, SESSION, "redrive", 1, **options)  # type: ignore[arg-type]


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    made = journal_at(path)
    yield made
    made.abandon()


def events_at(path: Path) -> list[Event]:
    with opened(path) as store:
        verified = store.verify()
        assert verified.is_ok, verified.faults
        return list(store.events(SESSION))


def files_beside(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if "recording" in file.name)


def test_a_journal_is_what_the_recorder_asks_for(journal: SqliteJournal) -> None:
    port: ports.Journal = journal
    assert (port.session_id, port.next_seq) == (SESSION, 0)


def test_what_is_committed_is_there_at_once_for_everybody(
    path: Path, journal: SqliteJournal
) -> None:
    journal.commit(notes(3))
    assert events_at(path) == notes(3)
    journal.commit(notes(2, 3))
    assert events_at(path) == notes(5)
    assert journal.next_seq == 5


def test_a_commit_is_on_the_disk_when_it_returns(journal: SqliteJournal) -> None:
    database = journal._database
    assert database.find("PRAGMA journal_mode") == ("wal",)
    assert database.find("PRAGMA synchronous") == (2,), "FULL: the log is synced at each commit"


def test_growing_requests_build_on_those_of_earlier_commits(
    path: Path, journal: SqliteJournal
) -> None:
    events = list(steps_of(SESSION, messages(30)))
    for event in events:
        journal.commit((event,))
    assert events_at(path) == events
    with raw_database(path) as connection:
        bases = connection.execute("SELECT base FROM texts ORDER BY id").fetchall()
    assert [base for (base,) in bases].count(None) == 1


def test_bytes_that_events_point_at_are_kept_once(path: Path, journal: SqliteJournal) -> None:
    body = b'{"answer": 1}'
    sha256 = hashlib.sha256(body).hexdigest()
    answer = event_at(SESSION, 0, Kind.MODEL_RESPONSE, dump_payload(ModelResponse(text="1")))
    pointing = Event(
        **{n: getattr(answer, n) for n in answer.__struct_fields__}
        | {"source": Source(sha256, 0, len(body))}
    )
    journal.commit((pointing,), (body, body))
    journal.commit(notes(1, 1), (body,))
    with opened(path) as store:
        with store.open_artefact(sha256) as file:
            assert file.read() == body
        assert store.verify().is_ok
        assert len(store.artefact_sizes()) == 1


def test_an_empty_commit_is_none(path: Path, journal: SqliteJournal) -> None:
    journal.commit((), (b"alone",))
    journal.commit(())
    assert events_at(path) == []
    assert journal.next_seq == 0


@pytest.mark.parametrize(
    "events",
    [notes(1, 1), notes(2)[::-1], [*notes(1), *notes(1)], notes(1, session_id="redrive:other")],
)
def test_events_that_do_not_follow_are_refused_and_nothing_is_written(
    path: Path, journal: SqliteJournal, events: list[Event]
) -> None:
    with pytest.raises(StoreError, match=f"expected event . of {SESSION}"):
        journal.commit(events)
    assert events_at(path) == []
    journal.commit(notes(2))
    assert events_at(path) == notes(2)


def test_a_commit_costs_as_many_statements_late_as_early(journal: SqliteJournal) -> None:
    def statements_of(first: int) -> int:
        seen: list[str] = []
        journal._database._connection.set_trace_callback(seen.append)
        journal.commit(notes(5, first))
        journal._database._connection.set_trace_callback(None)
        return len(seen)

    journal.commit(notes(5))
    early = statements_of(5)
    for first in range(10, 2000, 5):
        journal.commit(notes(5, first))
    assert statements_of(2000) == early < 10


# --- the end


def test_closing_counts_the_session_as_an_import_does(path: Path, journal: SqliteJournal) -> None:
    usage = Usage(input_tokens=5, output_tokens=7, cost_usd="0.5")
    events = [*steps_of(SESSION, messages(40))]
    events.append(
        event_at(SESSION, 120, Kind.MODEL_RESPONSE, dump_payload(ModelResponse(usage=usage)))
    )
    journal.commit(events[:100])
    journal.commit(events[100:])
    journal.close()
    journal.close()
    with opened(path) as store:
        row = store.get_session(SESSION)
        (view,) = list_sessions(store).sessions
    assert (row.n_events, row.summary["events"], row.summary["model_calls"]) == (121, 121, 41)
    assert (view.usage, view.complete, view.recorder) == (usage, True, None)
    assert view.task == messages(40)[0][:200].strip() + "…"
    assert files_beside(path) == []


def test_a_session_without_an_event_is_counted(path: Path, journal: SqliteJournal) -> None:
    journal.close()
    with opened(path) as store:
        assert store.get_session(SESSION).summary["events"] == 0


def test_superseded_events_are_not_counted(path: Path, journal: SqliteJournal) -> None:
    first, second = notes(2)
    fields = {name: getattr(second, name) for name in second.__struct_fields__}
    journal.commit((first, Event(**fields | {"supersedes": first.id})))
    journal.close()
    with opened(path) as store:
        assert store.get_session(SESSION).summary["events"] == 1


def test_an_abandoned_recording_is_listed_with_its_counts_and_as_ended_early(
    path: Path, journal: SqliteJournal
) -> None:
    journal.commit(list(steps_of(SESSION, messages(2))))
    with opened(path) as store:
        (view,) = list_sessions(store).sessions
        assert (view.recorder, view.model_calls) == ("recording", 2)
    journal.abandon()
    journal.abandon()
    with opened(path) as store:
        assert store.get_session(SESSION).summary == {}
        (view,) = list_sessions(store).sessions
        assert (view.recorder, view.model_calls, view.events) == ("ended early", 2, 6)


def test_a_closed_journal_takes_nothing(journal: SqliteJournal) -> None:
    journal.close()
    with pytest.raises(StoreError, match="is closed"):
        journal.commit(notes(1))


def test_a_recording_whose_counts_cannot_be_made_gives_its_lock_up(
    path: Path, journal: SqliteJournal
) -> None:
    journal.commit(notes(2))
    with raw_database(path) as connection:
        connection.execute("UPDATE segments SET data = x'00'")
    with pytest.raises(TamperError):
        journal.close()
    assert files_beside(path) == []


# --- beginning


def test_a_recording_is_resumed_by_its_own_id_alone(path: Path, journal: SqliteJournal) -> None:
    journal.commit(notes(3))
    journal.close()
    for options in ({}, {"is_resumed": True, "fmt": "other"}, {"is_resumed": True, "version": 2}):
        given = {"fmt": "redrive", "version": 1} | options
        with pytest.raises(StoreError, match="is stored already: 3 events of format redrive"):
            open_journal(path, SESSION, **given)  # type: ignore[arg-type]
    again = journal_at(path, is_resumed=True)
    assert again.next_seq == 3
    with opened(path) as store:
        assert list_sessions(store).sessions[0].recorder == "recording"
    again.commit(notes(2, 3))
    again.close()
    assert events_at(path) == notes(5)
    with opened(path) as store:
        assert store.get_session(SESSION).summary["events"] == 5


def test_an_imported_session_is_never_recorded_into(path: Path) -> None:
    with opened(path) as store:
        put_session(store, SESSION, messages(2))
    with pytest.raises(StoreError, match="is stored already: 6 events of format test"):
        open_journal(path, SESSION, "test", 1, is_resumed=True)
    assert files_beside(path) == []


def test_what_was_to_be_resumed_and_is_not_there_begins(path: Path) -> None:
    journal = journal_at(path, is_resumed=True)
    assert journal.next_seq == 0
    journal.close()


def test_a_store_that_must_exist_does(path: Path) -> None:
    with pytest.raises(UsageError, match="no store at"):
        journal_at(path, create=False)


def test_a_second_recorder_is_refused_and_told_who_holds_the_session(
    path: Path, journal: SqliteJournal
) -> None:
    journal.commit(notes(1))
    for options in ({}, {"is_resumed": True}):
        with pytest.raises(StoreError, match=f"being recorded by process {os.getpid()} "):
            journal_at(path, **options)
    other = open_journal(path, "redrive:other", "redrive", 1)
    other.close()
    journal.commit(notes(1, 1))
    assert events_at(path) == notes(2)


def test_two_sessions_are_recorded_into_one_store_at_once(path: Path) -> None:
    first, second = (open_journal(path, f"redrive:{n}", "redrive", 1) for n in "ab")
    for seq in range(5):
        for journal in (first, second):
            journal.commit(notes(1, seq, session_id=journal.session_id))
    first.close()
    second.close()
    with opened(path) as store:
        assert store.verify().is_ok
        assert [row.n_events for row in store.sessions()] == [5, 5]


def test_a_read_only_store_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path):
        pass
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
        with pytest.raises(StoreError, match="is read-only"):
            journal_at(path)
    assert files_beside(path) == []


# --- faults


def test_a_full_disk_loses_nothing_that_was_committed_and_says_so(
    path: Path, journal: SqliteJournal
) -> None:
    journal.commit(notes(10))
    pages = journal._database.find("PRAGMA page_count")
    assert pages is not None
    journal._database.execute(f"PRAGMA max_page_count={pages[0] + 2}")
    big = [event_at(SESSION, 10, Kind.NOTE, notes(1)[0].payload), *notes(200, 11, size=3000)]
    with pytest.raises(StoreError, match="the disk is full"):
        journal.commit(big, (os.urandom(100_000),))
    assert events_at(path) == notes(10)
    assert journal.next_seq == 10
    journal._database.execute("PRAGMA max_page_count=100000")
    journal.commit(big)
    assert journal.next_seq == 211
    with opened(path) as store:
        assert store.verify().is_ok


def test_after_a_failed_commit_the_next_one_writes_what_a_first_one_would(
    path: Path, journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list(steps_of(SESSION, messages(20)))
    journal.commit(events[:30])
    with monkeypatch.context() as patch:
        patch.setattr("redrive.stores.recording.put_row", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            journal.commit(events[30:50])
    journal.commit(events[30:])
    assert events_at(path) == events


def test_an_id_that_is_no_text_is_refused_and_leaves_nothing(
    path: Path, journal: SqliteJournal
) -> None:
    bad = event_at(SESSION, 1, Kind.NOTE, notes(1)[0].payload)
    fields = {name: getattr(bad, name) for name in bad.__struct_fields__}
    with pytest.raises(RecordError, match="event 1 has an id"):
        journal.commit([*notes(1), Event(**fields | {"id": "\ud800"})])
    assert events_at(path) == []


def test_a_store_that_another_process_keeps_locked_is_refused_after_a_while(
    path: Path, journal: SqliteJournal
) -> None:
    journal.commit(notes(1))
    journal._database.execute("PRAGMA busy_timeout=50")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="is locked by another process"):
            journal.commit(notes(1, 1))
        with pytest.raises(StoreError, match="is locked by"):
            open_journal(path, "redrive:other", "redrive", 1, busy_timeout_ms=50)
    journal.commit(notes(1, 1))
    assert events_at(path) == notes(2)
    assert len(files_beside(path)) == 1, "who was refused left no lock behind"


def test_a_lock_that_is_given_up_in_time_is_waited_for(path: Path, journal: SqliteJournal) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.1, lambda: other.execute("COMMIT"))
    timer.start()
    journal.commit(notes(1))
    timer.join()
    other.close()
    assert events_at(path) == notes(1)


def test_a_session_that_somebody_else_wrote_to_is_not_written_behind(
    path: Path, journal: SqliteJournal
) -> None:
    journal.commit(notes(2))
    with opened(path) as store, store.transaction():
        writer = store.extend(SESSION)
        writer.append(notes(1, 2)[0])
        writer.close()
    with pytest.raises(StoreError, match="was changed by another process"):
        journal.commit(notes(1, 2))
    assert journal.next_seq == 3


def test_a_file_that_may_not_grow_loses_nothing_that_was_acknowledged(path: Path) -> None:
    program = """
    import resource, sys
    from pathlib import Path
    from redrive.errors import StoreError
    from redrive.stores.recording import open_journal
    from tests.recorders import SESSION, notes

    journal = open_journal(Path(sys.argv[1]), SESSION, "redrive", 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
    for seq in range(10_000):
        try:
            journal.commit(notes(1, seq), (str(seq).encode() * 2000,))
        except StoreError as error:
            print(error.message, file=sys.stderr)
            break
        print(seq, flush=True)
    """
    done = run_child(program, str(path))
    acknowledged = [int(line) for line in done.stdout.split()]
    assert "failed in input or output" in done.stderr or "the disk is full" in done.stderr
    assert 10 < len(acknowledged) < 9_000
    assert [event.seq for event in events_at(path)] == acknowledged
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2_000_000


# --- readers


def test_a_reader_sees_a_whole_prefix_while_commits_go_on(path: Path) -> None:
    done, failed = threading.Event(), list[BaseException]()

    def record() -> None:
        try:
            journal = journal_at(path)
            for seq in range(0, 1500, 3):
                journal.commit(notes(3, seq))
            journal.close()
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=record)
    with opened(path) as store:
        thread.start()
        sizes = set()
        while not done.is_set():
            listed = list_sessions(store)
            assert listed.damaged == ()
            verified = store.verify()
            assert verified.is_ok, verified.faults
            for row in store.sessions():
                events = list(store.events(SESSION))
                assert events == notes(len(events))
                assert len(store.index(SESSION, row.n_events)) == row.n_events
                reader = store.reader(SESSION)
                assert list(reader.read_events(range(row.n_events))) == notes(row.n_events)
                assert store.read_whole(SESSION, 10**8).blocks is not None
                sizes.add(len(events))
        thread.join()
        assert failed == []
        assert len(sizes) > 3, "the control: it was read while it grew"
        assert list_sessions(store).sessions[0].recorder is None
    assert events_at(path) == notes(1500)


def test_many_tiny_segments_are_read_with_few_queries(path: Path, journal: SqliteJournal) -> None:
    for seq in range(600):
        journal.commit(notes(1, seq))
    journal.close()
    with opened(path) as store:
        seen: list[str] = []
        store._database._connection.set_trace_callback(seen.append)  # type: ignore[attr-defined]
        assert list(store.events(SESSION)) == notes(600)
        assert len([sql for sql in seen if "FROM segments" in sql]) == 1 + 3
        seen.clear()
        asked = [599, 0, 300, 1, 301, 598]
        assert [e.seq for e in store.reader(SESSION).read_events(asked)] == asked
        assert len([sql for sql in seen if "FROM segments" in sql]) == 1 + 3


def test_damage_in_one_of_many_tiny_segments_is_named_by_its_seq(
    path: Path, journal: SqliteJournal
) -> None:
    for seq in range(20):
        journal.commit(notes(1, seq))
    journal.close()
    with raw_database(path) as connection:
        connection.execute("UPDATE segments SET data = x'00' WHERE first_seq = 7")
    with opened(path) as store:
        events = store.events(SESSION)
        with pytest.raises(TamperError, match="segment at seq 7"):
            list(events)
        with pytest.raises(TamperError, match="segment at seq 7"):
            list(store.reader(SESSION).read_events([3]))


def test_one_commit_is_one_segment(path: Path, journal: SqliteJournal) -> None:
    journal.commit(notes(300))
    journal.commit(notes(2, 300))
    rows = [(r.first_seq, r.events) for r in read_rows(journal._database, SegmentRow)]
    assert rows == [(0, 256), (256, 44), (300, 2)]
