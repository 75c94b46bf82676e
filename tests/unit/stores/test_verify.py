"""`verify` finds every change that keeps the head, and no read answers from what is damaged."""

# ruff: noqa: S608 - names of tables and columns are those of the rows under test
import hashlib
import sqlite3
from pathlib import Path

import msgspec
import pytest

from redrive.errors import TamperError, UsageError
from redrive.record.event import Source
from redrive.stores import rows
from redrive.stores.database import open_database
from redrive.stores.growing import empty_tail, longer_tail
from redrive.stores.port import Store, Verification
from redrive.stores.recording import open_journal
from redrive.stores.rows import SegmentRow, put_row, read_rows
from redrive.stores.trials import artefacts_of
from tests.recorders import SESSION, notes
from tests.stored import message, opened, put_bytes, raw_database

TABLES = (
    rows.ArtefactRow,
    rows.PartRow,
    rows.CatalogueRow,
    rows.ProjectionRow,
    rows.StoredSource,
    rows.SegmentRow,
    rows.TextRow,
    rows.TailRow,
    rows.StoredReport,
    rows.StoredInference,
    rows.StoredSample,
    rows.StoredLabel,
    rows.StoredHook,
    rows.StoredTrial,
    rows.StoredEntry,
)
CELLS = [(kind.table, name) for kind in TABLES for name in (*kind.__struct_fields__, "seal")]


def check(path: Path, session: str | None = None, head: str | None = None) -> Verification:
    with opened(path, read_only=True) as store:
        return store.verify(session, head)


def read_all(store: Store) -> None:
    """Read all that any verb could read."""
    for row in list(store.sessions()):
        store.get_session(row.session_id)
        list(store.events(row.session_id))
        list(store.reader(row.session_id).read_events(range(row.n_events)))
        for _, sha256, _ in row.sources:
            store.sources_of(sha256)
            with store.open_artefact(sha256) as stream:
                stream.read()
    for report in store.policies.reports():
        store.policies.get_report(report.id)
    for sample in store.policies.samples():
        store.policies.labels(sample.id)
    list(store.policies.inferences())
    list(store.policies.hook_decisions())
    for trial in store.trials.list_trials():
        store.trials.get_plan(trial.trial_id)
        for entry in store.trials.entries(trial.trial_id):
            for name in artefacts_of(entry):
                store.trials.get_answer(name)


def edited(value: object, position: int) -> object:
    """Give another value of the same type."""
    if isinstance(value, bytes):
        at = position % max(1, len(value))
        return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :] if value else b"x"
    if isinstance(value, str):
        return value[:-1] + ("a" if value[-1:] != "a" else "b")
    return 1 if value is None else int(str(value)) + 1000


def rowids(connection: sqlite3.Connection, table: str) -> list[int]:
    found = connection.execute(f"SELECT min(rowid), max(rowid) FROM {table}").fetchone()
    return sorted(set(found))


def test_a_sound_store_has_no_fault_and_says_the_heads(filled: Path) -> None:
    result = check(filled)
    assert result.faults == ()
    assert result.is_ok
    with opened(filled) as store:
        assert result.heads == {row.session_id: row.head for row in store.sessions()}
        read_all(store)


@pytest.mark.parametrize(("table", "column"), CELLS)
def test_every_edited_cell_is_found(filled: Path, table: str, column: str) -> None:
    with raw_database(filled) as connection:
        targets = [(r, p) for r in rowids(connection, table) for p in (0, 7, -1)]
    sound = filled.read_bytes()
    for rowid, position in targets:
        filled.write_bytes(sound)
        with raw_database(filled) as connection:
            (old,) = connection.execute(
                f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)
            ).fetchone()
            connection.execute(
                f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (edited(old, position), rowid)
            )
        assert not check(filled).is_ok, (rowid, position)


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (table, column)
        for table, column in CELLS
        if column
        in ("data", "digest", "seal", "head", "document", "value", "label", "event_refs", "entry")
        and table != "tails"
    ],
)
def test_no_read_answers_from_damaged_evidence(filled: Path, table: str, column: str) -> None:
    with raw_database(filled) as connection:
        (old,) = connection.execute(f"SELECT {column} FROM {table} ORDER BY rowid").fetchone()
        connection.execute(
            f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT min(rowid) FROM {table})",
            (edited(old, 20),),
        )
    with opened(filled) as store, pytest.raises(TamperError):
        read_all(store)


@pytest.mark.parametrize("table", [kind.table for kind in TABLES])
def test_every_dropped_row_is_found(filled: Path, table: str) -> None:
    with raw_database(filled) as connection:
        targets = rowids(connection, table)
    sound = filled.read_bytes()
    for rowid in targets:
        filled.write_bytes(sound)
        with raw_database(filled) as connection:
            connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
        assert not check(filled).is_ok, rowid


@pytest.mark.parametrize("table", [kind.table for kind in TABLES])
def test_a_cell_of_another_type_is_a_fault_and_no_crash(filled: Path, table: str) -> None:
    kind = next(kind for kind in TABLES if kind.table == table)
    sound = filled.read_bytes()
    for column in kind.__struct_fields__:
        for value in ("text \udcff".encode("utf-8", "surrogateescape"), 7.5, "text", None):
            filled.write_bytes(sound)
            with raw_database(filled) as connection:
                try:
                    connection.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT)", (value,))
                except sqlite3.IntegrityError:
                    continue
                changed = connection.execute("SELECT changes()").fetchone()[0]
            may_be_absent = column in ("first_ts_ns", "extends", "base", "tool_use_id")
            if changed and not (may_be_absent and value is None):
                assert not check(filled).is_ok, (column, value)


def segments(path: Path, session: str) -> list[SegmentRow]:
    database = open_database(path, create=False, read_only=True)
    where = "WHERE projection = (SELECT projection FROM sessions WHERE session_id = ?)"
    found = list(read_rows(database, SegmentRow, where, (session,)))
    database.close()
    return found


def reseal(path: Path, *changed: SegmentRow) -> None:
    """Write segments with seals that match, as a patient forger does."""
    database = open_database(path, create=False, read_only=False)
    with database.transaction():
        for row in changed:
            put_row(database, row, replaces=True)
    database.close()


def assert_refused(path: Path, session: str, seq: int) -> None:
    result = check(path)
    assert (session, seq) in {(fault.session_id, fault.seq) for fault in result.faults}
    with opened(path) as store:
        with pytest.raises(TamperError, match=session):
            list(store.events(session))
        with pytest.raises(TamperError, match=session):
            list(store.reader(session).read_events([0, 300]))


def test_a_dropped_segment_is_named(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM segments WHERE projection = 1 AND first_seq = 0")
    assert_refused(filled, "test:aaaa-1", 0)


def test_a_dropped_last_segment_is_named(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM segments WHERE projection = 1 AND first_seq = 256")
    assert_refused(filled, "test:aaaa-1", 256)


def test_swapped_segments_are_named_even_with_seals_that_match(filled: Path) -> None:
    first, second = segments(filled, "test:aaaa-1")
    reseal(
        filled,
        msgspec.structs.replace(second, first_seq=0),
        msgspec.structs.replace(first, first_seq=256),
    )
    assert_refused(filled, "test:aaaa-1", 0)


def test_a_doubled_segment_is_named_even_with_a_seal_that_matches(filled: Path) -> None:
    _, second = segments(filled, "test:aaaa-1")
    reseal(filled, msgspec.structs.replace(second, first_seq=360))
    assert_refused(filled, "test:aaaa-1", 360)


def test_another_sessions_segment_is_named_even_with_a_seal_that_matches(filled: Path) -> None:
    (theirs,) = segments(filled, "test:bbbb-2")
    first, _ = segments(filled, "test:aaaa-1")
    reseal(filled, msgspec.structs.replace(theirs, projection=first.projection))
    assert_refused(filled, "test:aaaa-1", 0)


@pytest.mark.parametrize("column", ["events", "kinds", "first_ts_ns", "last_ts_ns", "size"])
def test_a_segments_columns_are_covered_by_its_digest(filled: Path, column: str) -> None:
    first, _ = segments(filled, "test:aaaa-1")
    value = edited(getattr(first, column), 0)
    reseal(filled, msgspec.structs.replace(first, **{column: value}))
    assert_refused(filled, "test:aaaa-1", 0)


def test_the_head_is_found_now_and_after_more_was_appended(filled: Path) -> None:
    with opened(filled) as store:
        head = store.get_session("test:aaaa-1").head
        with store.transaction():
            writer = store.extend("test:aaaa-1")
            event = next(iter(store.events("test:aaaa-1", start=359)))
            writer.append(msgspec.structs.replace(event, seq=360, id="e360"))
            writer.close()
        assert store.get_session("test:aaaa-1").head != head
    assert check(filled, None, head).is_ok
    assert check(filled, "test:aaaa-1", head.upper()).is_ok


def test_a_cut_tail_needs_the_head_and_is_found_with_it(filled: Path) -> None:
    first, second = segments(filled, "test:aaaa-1")
    head = second.digest.hex()
    database = open_database(filled, create=False, read_only=False)
    projection = next(read_rows(database, rows.ProjectionRow, "WHERE id = 1"))
    with database.transaction():
        database.execute("DELETE FROM segments WHERE projection = 1 AND first_seq = 256")
        cut = msgspec.structs.replace(projection, events=256, head=first.digest)
        put_row(database, cut, replaces=True)
    database.close()
    assert check(filled).is_ok
    result = check(filled, head=head)
    assert [fault.fault for fault in result.faults] == [f"the store has no head {head}"]


def test_a_head_of_another_session_is_none_of_this_one(filled: Path) -> None:
    other = segments(filled, "test:bbbb-2")[0].digest.hex()
    result = check(filled, "test:aaaa-1", other)
    assert [(f.session_id, f.fault) for f in result.faults] == [
        ("test:aaaa-1", f"the session has no head {other}")
    ]


def test_one_session_is_checked_alone(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("UPDATE segments SET data = x'00' WHERE projection = 1")
    sound = check(filled, "test:bbbb-2")
    assert sound.is_ok
    assert sound.heads.keys() == {"test:bbbb-2"}
    assert not check(filled, "test:aaaa-1").is_ok


def test_a_damaged_text_is_reported_by_each_event_that_rests_on_it(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("UPDATE texts SET data = data || x'00' WHERE id = 1")
    named = {(f.session_id, f.seq) for f in check(filled).faults if f.session_id}
    assert len(named) > 1
    assert ("test:aaaa-1", 301) in named


def test_damage_that_no_session_rests_on_is_a_fault_of_the_store(filled: Path) -> None:
    with opened(filled) as store:
        put_bytes(store, message("unused").encode())
    with raw_database(filled) as connection:
        connection.execute(
            "UPDATE parts SET data = x'00' WHERE artefact = (SELECT max(id) FROM artefacts)"
        )
    (fault,) = check(filled).faults
    assert (fault.session_id, fault.seq) == ("", None)
    assert "artefact" in fault.fault


def test_a_part_behind_the_end_is_found(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("INSERT INTO parts SELECT artefact, 9, data, seal FROM parts LIMIT 1")
    assert not check(filled).is_ok


def test_what_is_rewritten_by_the_rules_leaves_no_trace(filled: Path) -> None:
    """What `verify` cannot know: labels have no head that reports hold elsewhere."""
    database = open_database(filled, create=False, read_only=False)
    kind = rows.StoredLabel
    first, *_ = read_rows(database, kind, "ORDER BY id")
    with database.transaction():
        database.execute("DELETE FROM labels WHERE id > 1")
        put_row(database, longer_tail(empty_tail(kind), rows.seal_of(first)), replaces=True)
    database.close()
    assert check(filled).is_ok


def test_rows_that_change_places_are_found_even_with_seals_that_match(filled: Path) -> None:
    database = open_database(filled, create=False, read_only=False)
    first, second, *_ = read_rows(database, rows.StoredLabel, "ORDER BY id")
    with database.transaction():
        for row, number in ((first, second.id), (second, first.id)):
            put_row(database, msgspec.structs.replace(row, id=number), replaces=True)
    database.close()
    assert any("table labels does not end as it was left" in f.fault for f in check(filled).faults)


def test_a_tail_of_no_table_is_found(filled: Path) -> None:
    database = open_database(filled, create=False, read_only=False)
    with database.transaction():
        put_row(database, rows.TailRow("nothing", 1, b""))
    database.close()
    assert [f.fault for f in check(filled).faults] == ["tail nothing belongs to no table"]


def test_a_label_of_no_sample_and_a_sample_of_no_report_are_found(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM samples")
        connection.execute("DELETE FROM policy_reports")
    faults = " ".join(fault.fault for fault in check(filled).faults)
    assert "labels that belong to no sample: 3" in faults
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM labels")
    assert not check(filled).is_ok


def test_a_damaged_page_is_a_fault_and_no_crash(filled: Path) -> None:
    data = bytearray(filled.read_bytes())
    with raw_database(filled) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'segments'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    data[(page - 1) * size : (page - 1) * size + 64] = b"\xff" * 64
    filled.write_bytes(bytes(data))
    result = check(filled)
    assert not result.is_ok
    assert any(fault.session_id == "" for fault in result.faults)


def test_an_index_that_does_not_fit_its_table_is_a_fault(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, '(sha256)', '(size)') "
            "WHERE name = 'sources_by_artefact'"
        )
    assert any("damaged pages" in fault.fault for fault in check(filled).faults)


def test_checking_changes_nothing(filled: Path) -> None:
    before = filled.read_bytes()
    check(filled)
    assert filled.read_bytes() == before


def test_a_session_that_does_not_exist_cannot_be_checked(filled: Path) -> None:
    with pytest.raises(UsageError, match="no session 'test:zzzz'"):
        check(filled, "test:zzzz")


def test_bytes_that_an_event_points_at_and_no_source_names_are_checked_too(path: Path) -> None:
    """A recorded session has no source: its answers point at bytes of their own."""
    journal = open_journal(path, SESSION, "redrive", 1)
    sha256 = hashlib.sha256(b"wire").hexdigest()
    pointing = [msgspec.structs.replace(event, source=Source(sha256, 0, 4)) for event in notes(3)]
    journal.commit(pointing, (b"wire",))
    journal.close()
    assert check(path).is_ok
    with raw_database(path) as connection:
        connection.execute("DELETE FROM parts")
        connection.execute("DELETE FROM artefacts")
    for session in (SESSION, None):
        (fault,) = check(path, session).faults
        assert (fault.session_id, fault.seq) == (SESSION, 0)
        assert f"artefact {sha256} is not in the store" in fault.fault


def test_an_event_that_points_at_no_digest_is_a_fault(path: Path) -> None:
    journal = open_journal(path, SESSION, "redrive", 1)
    journal.commit([msgspec.structs.replace(notes(1)[0], source=Source("what", 0, 4))])
    journal.close()
    assert [fault.seq for fault in check(path).faults] == [0]
