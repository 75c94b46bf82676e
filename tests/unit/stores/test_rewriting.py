"""What a session held before it was rewritten leaves the store, down to its free pages."""

import sqlite3

import msgspec
import pytest

from redrive.errors import StoreError
from redrive.record.event import Kind, ModelRequest, Source, UserMessage, dump_payload
from redrive.stores.port import PolicyChanges, SourceRow
from tests.stored import (
    body_of,
    event_at,
    message,
    messages,
    opened,
    put_bytes,
    put_policy_rows,
    put_session,
)

WORD = b"Zq7fakefakefake01"


def rewrite(store, session_id, change):
    """Write a session anew, each event through `change`."""
    old = store.events(session_id)
    row = store.get_row(session_id)
    writer = store.create(row.base_id, row.format, 1, replaces=session_id)
    for event in old:
        writer.append(change(event))
    writer.close()


def mask(event):
    payload = bytes(event.payload).replace(WORD, b"[redacted:x:00000000]")
    return msgspec.structs.replace(event, payload=msgspec.Raw(payload), source=Source("", 0, 0))


def files_of(path):
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def texts_with(*numbers):
    texts = messages(12)
    for number in numbers:
        texts[number] = f"{WORD.decode()} {texts[number]}"
    return texts


def test_what_is_dropped_is_gone_from_the_file_and_its_log(path):
    with opened(path) as store:
        row, _ = put_session(store, "test:a", texts_with(3))
        rewriting = store.rewriting
        (source,) = rewriting.list_sources(row.session_id)
        with store.transaction():
            rewriting.begin()
            before = rewriting.digests_of(row.session_id)
            rewrite(store, row.session_id, mask)
            rewriting.drop_superseded(row.session_id)
            new = put_bytes(store, b"masked")
            store.add_source(msgspec.structs.replace(source, sha256=new, size=6))
            gone = before - rewriting.digests_of(row.session_id)
            assert rewriting.users_of(gone, {row.session_id}) == {}
            rewriting.drop(gone)
        assert source.sha256 in gone
        assert rewriting.needs_cleaning
        assert rewriting.clean() == ""
        assert not rewriting.needs_cleaning
        assert store.verify().is_ok
        assert store.verify().heads[row.session_id] != row.head
        assert len(list(store.events(row.session_id))) == row.n_events
        assert WORD not in b"".join(bytes(e.payload) for e in store.events(row.session_id))
        assert WORD not in files_of(path)
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM projections").fetchone() == (1,)
        assert database.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_deleted_bytes_lie_in_the_file_until_it_is_cleaned(path):
    """The control: without cleaning, the check above would find them."""
    with opened(path) as store:
        with store.transaction():
            digest = put_bytes(store, WORD)
        assert WORD in files_of(path)
        with store.transaction():
            store.rewriting.begin()
            store.rewriting.drop({digest})
        assert WORD in files_of(path)
        store.rewriting.clean()
        assert WORD not in files_of(path)


def test_a_text_that_builds_on_a_dropped_one_stands_alone_from_then_on(path):
    grown = texts_with()
    with opened(path) as store:
        put_session(store, "test:a", grown)
        _, events = put_session(store, "test:b", [*grown, message("more")])
        own = store.rewriting.digests_of("test:a")
        shared = store.rewriting.users_of(own, {"test:a"})
        assert shared
        bodies = {bytes(e.payload) for e in events if e.kind is Kind.MODEL_REQUEST}
        first = dump_payload(UserMessage("hm"))
        with store.transaction():
            store.rewriting.begin()
            rewrite(
                store,
                "test:b",
                lambda e: msgspec.structs.replace(e, payload=first) if e.seq < 25 else e,
            )
            store.rewriting.drop_superseded("test:b")
            rewrite(store, "test:a", lambda e: msgspec.structs.replace(e, payload=first))
            store.rewriting.drop_superseded("test:a")
            gone = own - store.rewriting.digests_of("test:a")
            needed = store.rewriting.users_of(gone, {"test:a"})
            assert needed
            store.rewriting.drop(gone - needed.keys())
        assert store.verify().is_ok
        left = [e for e in store.events("test:b") if e.kind is Kind.MODEL_REQUEST and e.seq >= 25]
        assert {bytes(event.payload) for event in left} <= bodies
        assert len(left) == 5


def test_who_else_rests_on_something_is_named(path):
    with opened(path) as store:
        with store.transaction():
            base = put_bytes(store, b"first\n")
            longer = put_bytes(store, b"first\nsecond\n", extends=b"first\n")
        for name, digest in (("test:a", base), ("test:b", longer)):
            with store.transaction():
                writer = store.create(name, "test", 1)
                writer.append(event_at(name, 0, Kind.USER_MESSAGE, dump_payload(UserMessage("x"))))
                writer.close()
                store.add_source(SourceRow(name, "main", digest, 6, "test", 1))
        rewriting = store.rewriting
        assert rewriting.users_of({base, longer, "f" * 64}, ()) == {
            base: {"test:a", "test:b"},
            longer: {"test:b"},
        }
        assert rewriting.users_of({base}, {"test:a", "test:b"}) == {}
        assert rewriting.find_size(longer) == 13
        assert rewriting.find_size("f" * 64) is None
        assert base in rewriting.digests_of("test:b")


def test_an_event_s_bytes_and_texts_are_among_what_it_rests_on(path):
    with opened(path) as store:
        with store.transaction():
            artefact = put_bytes(store, b"answer")
            writer = store.create("test:a", "test", 1)
            request = dump_payload(ModelRequest(body=body_of(messages(9))))
            writer.append(event_at("test:a", 0, Kind.MODEL_REQUEST, request, artefact=artefact))
            writer.close()
        assert artefact in store.rewriting.digests_of("test:a")
        assert len(store.rewriting.digests_of("test:a")) == 2


def test_rows_about_policies_are_redacted_and_their_tails_hold(path):
    def redact(data):
        return (
            data.replace(b"why", b"[m]").replace(b'{\\"n\\":2}', b"[m]").replace(b'"so"', b'"[m]"')
        )

    with opened(path) as store:
        put_session(store, "test:a", messages(2))
        put_policy_rows(store, "test:a")
        with store.transaction():
            changes = store.rewriting.rewrite_policies(
                lambda data: data if redact(data) == data else redact(data)
            )
        assert changes == PolicyChanges(reports=0, inferences=1, labels=2, hook_decisions=2)
        assert {row.reason for row in store.policies.hook_decisions()} == {"[m]"}
        assert {row.note for row in store.policies.labels("s1")} == {"[m]", ""}
        assert len(list(store.policies.inferences())) == 1
        with store.transaction():
            sessions = store.rewriting.rewrite_policies(
                lambda data: data.replace(b"test:a", b"[mm]")
            )
        assert sessions.reports == 2
        assert b"[mm]" in store.policies.get_report(1)
        assert store.verify().is_ok
        with store.transaction():
            nothing = store.rewriting.rewrite_policies(lambda data: data)
        assert nothing == PolicyChanges()


def test_a_reader_keeps_the_file_from_being_cleaned_and_it_is_said(path):
    with opened(path, busy_timeout_ms=1) as store, opened(path) as reader:
        put_session(store, "test:a", messages(40))
        reader._database.execute("BEGIN")
        reader._database.find("SELECT 1 FROM sessions")
        with store.transaction():
            store.rewriting.begin()
        assert store.rewriting.clean() == "another process is reading the store"
        assert store.rewriting.needs_cleaning
        reader._database.execute("ROLLBACK")
        assert store.rewriting.clean() == ""


def test_a_writer_keeps_the_file_from_being_cleaned_and_it_is_said(path):
    with opened(path, busy_timeout_ms=1) as store, opened(path) as other:
        with store.transaction():
            store.rewriting.begin()
        with other.transaction():
            put_bytes(other, b"x")
            assert "locked" in store.rewriting.clean()
        assert store.rewriting.clean() == ""


def test_nothing_is_removed_where_a_transaction_fails(path):
    def fail(store):
        with store.transaction():
            store.rewriting.begin()
            rewrite(store, "test:a", mask)
            store.rewriting.drop_superseded("test:a")
            raise StoreError("stop")

    with opened(path) as store:
        row, events = put_session(store, "test:a", texts_with(1))
        with pytest.raises(StoreError, match="stop"):
            fail(store)
        assert store.get_row("test:a").head == row.head
        assert list(store.events("test:a")) == events
        assert not store.rewriting.needs_cleaning
