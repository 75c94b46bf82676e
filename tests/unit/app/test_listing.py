import sqlite3

import msgspec

from redrive.app.listing import (
    find_recorder_state,
    find_task,
    find_thread,
    list_sessions,
    read_opening,
    view_row,
)
from redrive.stores.recording import open_journal
from tests.stored import messages, steps_of


def session(name, **fields):
    return {"type": "session", "id": name} | fields


def test_sessions_are_listed_with_what_they_say_of_themselves(recorded, decision, result):
    store, _ = recorded(
        session("s", task="first line\nsecond line"),
        decision("d1", ("t", {}), ts="2026-01-02T00:00:00Z", usage={"input_tokens": 3}, text="x"),
        result("d1.1", ts="2026-01-02T00:00:01.5Z"),
    )
    ((view,), (thread,)) = list_sessions(store).sessions, list_sessions(store).threads
    assert view.task == "first line"
    assert (view.first, view.last) == (
        "2026-01-02T00:00:00.000000000Z",
        "2026-01-02T00:00:01.500000000Z",
    )
    assert (view.model_calls, view.tool_calls, view.complete, view.branches) == (1, 1, True, 1)
    assert view.usage.input_tokens == 3
    assert len(view.head) == 64
    assert thread.sessions == ("interchange:s",)


def test_a_session_s_task_is_found_by_its_id_where_it_is_stored(recorded, decision):
    store, row = recorded(session("s", task="first line\nsecond line"), decision("d1"))
    assert find_task(store, row.session_id) == "first line"
    assert find_task(store, "interchange:gone") is None


def test_without_a_stated_task_the_first_message_is_it(recorded, decision):
    empty = {"type": "event", "id": "u0", "kind": "user", "text": " "}
    store, _ = recorded(empty, empty | {"id": "u1", "text": "do it"}, decision("d1"))
    assert list_sessions(store).sessions[0].task == "do it"


def test_a_task_is_looked_for_only_at_the_beginning(recorded, decision):
    asked = {"type": "event", "id": "u", "kind": "user", "text": "late"}
    store, _ = recorded(*(decision(f"d{n}") for n in range(70)), asked)
    assert list_sessions(store).sessions[0].task is None


def test_resumed_and_forked_sessions_stand_under_one_thread(recorded, decision):
    for name, fields in {
        "root": {},
        "fork": {"parent_session": "root"},
        "again": {"parent_session": "interchange:fork"},
        "a": {"thread": "t9"},
        "b": {"thread": "t9"},
        "alone": {},
    }.items():
        ts = f"2026-01-0{1 + len(name)}T00:00:00Z"
        store, row = recorded(session(name, **fields), decision("d1", ts=ts), name=name)
    listed = list_sessions(store)
    assert {frozenset(thread.sessions) for thread in listed.threads} == {
        frozenset({"interchange:root", "interchange:fork", "interchange:again"}),
        frozenset({"interchange:a", "interchange:b"}),
        frozenset({"interchange:alone"}),
    }
    by_id = {view.session_id: view for view in listed.sessions}
    assert by_id["interchange:again"].thread == by_id["interchange:root"].thread
    assert find_thread(store, row).sessions == ("interchange:alone",)


def test_two_revisions_of_one_id_are_one_thread(recorded, decision):
    recorded(session("s"), decision("d1", text="one"), name="x")
    store, row = recorded(session("s"), decision("d1", text="two"), name="y")
    assert row.session_id == "interchange:s@2"
    assert find_thread(store, row).sessions == ("interchange:s", "interchange:s@2")


def damage(store_path, session_id):
    """Flip a bit in the first segment of a session."""
    with sqlite3.connect(store_path) as database:
        query = (
            "SELECT rowid, data FROM segments WHERE projection ="
            " (SELECT projection FROM sessions WHERE session_id = ?)"
        )
        rowid, data = database.execute(query, (session_id,)).fetchone()
        changed = data[:20] + bytes([data[20] ^ 1]) + data[21:]
        database.execute("UPDATE segments SET data = ? WHERE rowid = ?", (changed, rowid))
    database.close()


def test_one_damaged_session_is_marked_and_the_others_are_listed(recorded, decision, tmp_path):
    recorded(session("a", task="t"), decision("d1"), name="a")
    store, row = recorded(session("b", parent_session="a"), decision("d1"), name="b")
    damage(tmp_path / "recorded.db", "interchange:a")
    listed = list_sessions(store)
    by_id = {view.session_id: view for view in listed.sessions}
    assert by_id["interchange:b"].damage is None
    assert "segment at seq 0" in by_id["interchange:a"].damage
    assert by_id["interchange:a"].task == "t"
    (damaged,) = listed.damaged
    assert (damaged.session_id, damaged.fault) == (
        "interchange:a",
        by_id["interchange:a"].damage,
    )
    assert find_thread(store, row).sessions == ("interchange:a", "interchange:b")


def test_a_session_whose_row_is_damaged_is_named_beside_the_list(recorded, decision, tmp_path):
    recorded(session("a"), decision("d1"), name="a")
    store, row = recorded(session("b"), decision("d1"), name="b")
    with sqlite3.connect(tmp_path / "recorded.db") as database:
        database.execute("UPDATE sessions SET format = 'x' WHERE session_id = 'interchange:a'")
    database.close()
    listed = list_sessions(store)
    assert [view.session_id for view in listed.sessions] == ["interchange:b"]
    assert [entry.session_id for entry in listed.damaged] == ["interchange:a"]
    assert find_thread(store, row).sessions == ("interchange:b",)


def test_a_session_of_an_older_store_is_read_for_what_its_row_lacks(recorded, decision, tmp_path):
    store, row = recorded(session("a", task="t", agent="x"), decision("d1"), name="a")
    noted = read_opening(store, row)
    old = {key: value for key, value in row.summary.items() if key != "opening"}
    row = store.set_summary(row.session_id, old)
    assert read_opening(store, row) == noted
    assert list_sessions(store).sessions[0].task == "t"
    damage(tmp_path / "recorded.db", "interchange:a")
    (view,) = list_sessions(store).sessions
    assert (view.task, "segment" in view.damage) == (None, True)


def recording(store, name="redrive:r"):
    """Record two steps into the store of a test."""
    journal = open_journal(store.path, name, "redrive", 1)
    journal.commit(list(steps_of(name, messages(2))))
    return journal


def test_a_session_is_counted_while_it_is_recorded_and_after_its_recorder_was_killed(recorded):
    store, _ = recorded(session("a"), {"type": "event", "id": "u", "kind": "user", "text": "x"})
    journal = recording(store)
    views = {view.session_id: view for view in list_sessions(store).sessions}
    assert views["interchange:a"].recorder is None
    view = views["redrive:r"]
    assert (view.recorder, view.model_calls, view.events) == ("recording", 2, 6)
    assert view.task.startswith(messages(2)[0][:50])
    journal.abandon()
    row = store.get_session("redrive:r")
    assert view_row(store, row, "redrive:r") == msgspec.structs.replace(
        view, recorder="ended early"
    )


def test_a_row_that_was_read_before_the_recorder_ended_is_not_called_early(recorded):
    store, _ = recorded(session("a"), {"type": "event", "id": "u", "kind": "user", "text": "x"})
    journal = recording(store)
    row = store.get_session("redrive:r")
    journal.close()
    assert find_recorder_state(store, row) is None
    view = view_row(store, row, "redrive:r")
    assert (view.recorder, view.model_calls) == (None, 2)


def test_a_damaged_session_without_counts_keeps_no_other_from_being_listed(recorded, tmp_path):
    store, _ = recorded(session("a"), {"type": "event", "id": "u", "kind": "user", "text": "x"})
    recording(store).abandon()
    damage(tmp_path / "recorded.db", "redrive:r")
    listed = list_sessions(store)
    views = {view.session_id: view for view in listed.sessions}
    assert (views["redrive:r"].recorder, views["redrive:r"].model_calls) == ("ended early", None)
    assert "segment" in views["redrive:r"].damage
    assert views["interchange:a"].damage is None
