"""A SQLite file is opened safely, and each of its faults is one of ours."""

import multiprocessing
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Event as Signal
from pathlib import Path

import pytest

from redrive.errors import StoreError, UsageError
from redrive.stores.database import Database, open_database
from redrive.stores.sqlite import open_store
from tests.stored import messages, opened, put_bytes, put_session, raw_database

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def database_at(path: Path, **options: bool | int) -> Database:
    return open_database(path, create=True, read_only=False, **options)  # type: ignore[arg-type]


def test_a_new_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "store.db"
    with opened(path) as store:
        put_session(store, "test:a", messages(2))
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700


def test_a_store_is_one_file_once_it_is_closed(path: Path) -> None:
    with opened(path) as store:
        put_session(store, "test:a", messages(2))
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


def test_a_store_that_does_not_exist_is_not_made_for_reading(path: Path) -> None:
    for options in ({"create": False}, {"create": True, "read_only": True}):
        with pytest.raises(UsageError, match="no store at"):
            open_store(path, **options)  # type: ignore[arg-type]
    assert not path.exists()


def test_a_folder_in_the_stores_place_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreError, match="cannot make store"):
        open_store(path, create=True)


def test_what_is_no_file_is_no_place_for_a_store_and_keeps_its_mode(path: Path) -> None:
    os.mkfifo(path)
    path.chmod(0o644)
    with pytest.raises(StoreError, match="it is no file"):
        open_store(path, create=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert sorted(path.parent.iterdir()) == [path]


def test_a_file_in_the_folders_place_is_refused(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreError, match="cannot make store"):
        open_store(path / "below" / "store.db", create=True)


@pytest.mark.parametrize("size", [1, 50, 100, 4096])
def test_a_broken_header_is_refused(filled: Path, size: int) -> None:
    data = filled.read_bytes()
    filled.write_bytes(b"\x00" * size + data[size:])
    with pytest.raises(StoreError, match=str(filled)):
        open_store(filled, create=False)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("this is no database, but long enough to be looked at\n" * 100)
    with pytest.raises(StoreError, match="is no redrive store"):
        open_store(path, create=False)


def test_another_programs_database_is_refused_and_left_alone(path: Path) -> None:
    with raw_database(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        open_store(path, create=True)
    with raw_database(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert tables == [("bookmarks",)]
    assert len(path.read_bytes()) == len(before)


def test_a_truncated_store_is_refused_or_found_damaged(filled: Path) -> None:
    data = filled.read_bytes()
    filled.write_bytes(data[: len(data) // 2])
    with pytest.raises(StoreError, match="damaged"):
        _read_all_events(filled)


def _read_all_events(path: Path) -> None:
    with opened(path) as store:
        for row in list(store.sessions()):
            list(store.events(row.session_id))


def test_a_read_only_store_is_read_and_not_written(filled: Path) -> None:
    with opened(filled, read_only=True) as store:
        assert len(list(store.sessions())) == 3
        with pytest.raises(StoreError, match="is read-only"):
            put_bytes(store, b"more")


def _forbid_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the system say that files may not be written, also to a superuser."""
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)


def test_a_file_that_may_not_be_written_is_opened_for_reading(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _forbid_writing(monkeypatch)
    with opened(filled) as store:
        assert store.get_session("aaaa").n_events == 360
        with pytest.raises(StoreError, match="is read-only"):
            put_bytes(store, b"more")


def test_a_file_that_may_not_be_written_is_read_with_its_log(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(filled) as writer:
        put_session(writer, "test:new", messages(3))
        _forbid_writing(monkeypatch)
        with opened(filled) as store:
            assert store.get_session("test:new").n_events == 9


def test_reading_what_may_not_be_written_leaves_nothing_beside_it(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        _forbid_writing(patch)
        with opened(filled) as store:
            assert store.verify().is_ok
            assert [file.name for file in filled.parent.iterdir()] == ["store.db"]
    with opened(filled) as store:
        put_bytes(store, b"more")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="a superuser may do all")
def test_a_read_only_folder_is_read_and_a_closed_one_refused(filled: Path) -> None:
    filled.chmod(0o400)
    filled.parent.chmod(0o500)
    try:
        with opened(filled) as store:
            assert store.get_session("aaaa").n_events == 360
        filled.parent.chmod(0)
        with pytest.raises(UsageError, match="no store at"):
            open_store(filled, create=False)
        with pytest.raises(StoreError, match="cannot make store"):
            open_store(filled, create=True)
    finally:
        filled.parent.chmod(0o700)


def test_a_store_is_not_closed_from_another_thread(path: Path) -> None:
    database = database_at(path)
    with ThreadPoolExecutor(1) as pool, pytest.raises(StoreError, match="thread"):
        pool.submit(database.close).result()
    database.close()


def test_a_full_disk_leaves_the_store_as_it_was(filled: Path) -> None:
    database = database_at(filled)
    database.execute("PRAGMA max_page_count=1")  # SQLite's own way to be full
    before = database.find("SELECT count(*) FROM parts")
    with pytest.raises(StoreError, match="the disk is full"):
        _write_much(database)
    assert database.find("SELECT count(*) FROM parts") == before
    database.close()


def _write_much(database: Database) -> None:
    with database.transaction():
        for number in range(1000, 1100):
            database.execute("INSERT INTO parts VALUES (?, 0, zeroblob(100000), x'00')", (number,))


def test_statements_that_fail_are_store_errors_everywhere(path: Path) -> None:
    database = database_at(path)
    with pytest.raises(StoreError, match="cannot be used"):
        database.execute("NO SQL")
    with pytest.raises(StoreError, match="cannot be used"):
        database.find("NO SQL")
    with pytest.raises(StoreError, match="cannot be used"):
        list(database.query("NO SQL"))
    database.close()
    with pytest.raises(StoreError, match="closed"):
        database.execute("SELECT 1")


def test_a_transaction_cannot_hold_another(path: Path) -> None:
    with opened(path) as store, store.transaction(), pytest.raises(StoreError, match="open alr"):
        store.transaction().__enter__()


def _hold_the_lock(path: Path, is_held: Signal, is_done: Signal) -> None:
    with opened(path) as store, store.transaction():
        is_held.set()
        is_done.wait(60)


def test_a_second_writer_is_refused_and_told_who_holds_the_lock(filled: Path) -> None:
    context = multiprocessing.get_context("spawn")
    is_held, is_done = context.Event(), context.Event()
    other = context.Process(target=_hold_the_lock, args=(filled, is_held, is_done))
    other.start()
    try:
        assert is_held.wait(60)
        with opened(filled, busy_timeout_ms=50) as store:
            assert len(list(store.sessions())) == 3, "reading goes on"
            with pytest.raises(StoreError, match="is locked by another process") as caught:
                put_bytes(store, b"more")
        if Path("/proc/locks").exists():
            assert f"pid {other.pid}" in caught.value.message
    finally:
        is_done.set()
        other.join(60)
    with opened(filled) as store:
        put_bytes(store, b"more")


def test_a_reader_sees_the_old_state_until_the_commit(filled: Path) -> None:
    with opened(filled) as writer, opened(filled) as reader:
        with writer.transaction():
            session = writer.create("test:new", "test", 1)
            session.close()
            assert len(list(reader.sessions())) == 3
        assert len(list(reader.sessions())) == 4


def test_an_empty_file_is_no_store_until_something_is_imported(path: Path) -> None:
    path.touch(mode=0o644)
    path.chmod(0o644)
    with pytest.raises(StoreError, match="is an empty file"):
        open_database(path, create=False, read_only=False)
    assert path.stat().st_size == 0
    open_database(path, create=True, read_only=False).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_message_that_quotes_damaged_bytes_is_damage(path: Path) -> None:
    database = open_database(path, create=True, read_only=False)
    with pytest.raises(StoreError, match="is damaged"):
        database.find("SELECT ?", ("\ud800",))
    database.close()


def test_a_snapshot_shows_one_state_whatever_others_commit(path: Path) -> None:
    writer, reader = database_at(path), database_at(path)
    writer.execute("CREATE TABLE t (x)")
    with reader.snapshot():
        assert reader.find("SELECT count(*) FROM t") == (0,)
        writer.execute("INSERT INTO t VALUES (1)")
        with reader.snapshot():
            assert reader.find("SELECT count(*) FROM t") == (0,)
        assert reader.find("SELECT count(*) FROM t") == (0,)
    assert reader.find("SELECT count(*) FROM t") == (1,)
    with reader.transaction():
        reader.execute("INSERT INTO t VALUES (2)")
        with reader.snapshot():
            assert reader.find("SELECT count(*) FROM t") == (2,)
    assert writer.find("SELECT count(*) FROM t") == (2,), "a transaction goes on around it"
    writer.close()
    reader.close()


def test_a_snapshot_ends_with_what_was_wrong_inside(path: Path) -> None:
    database = database_at(path)
    with pytest.raises(StoreError), database.snapshot():
        database.find("SELECT nothing FROM nowhere")
    with database.transaction():
        database.execute("CREATE TABLE t (x)")
    database.close()
