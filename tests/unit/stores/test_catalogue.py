"""Which session a name means, and what the catalogue refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.errors import TamperError, UsageError
from redrive.stores.port import Store
from tests.stored import opened, raw_database

IDS = (
    "codex:0199aa",
    "codex:0199aa-long",
    "codex:0199bb",
    "claude_code:0199bb",
    "claude_code:ffee",
    "claude_code:ffee",
    "claude_code:ffee",
    *(f"otel:many{number}" for number in range(7)),
)


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        with store.transaction():
            for base_id in IDS:
                store.create(base_id, "test", 1).close()
        yield store


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("codex:0199bb", "codex:0199bb"),
        ("codex:0199b", "codex:0199bb"),
        ("codex:0199aa", "codex:0199aa"),
        ("0199aa", "codex:0199aa"),
        ("0199aa-", "codex:0199aa-long"),
        ("claude_code:ffee", "claude_code:ffee@3"),
        ("claude_code:ffee@2", "claude_code:ffee@2"),
        ("claude_code:ffee@1", "claude_code:ffee"),
        ("claude_code:ffee@3", "claude_code:ffee@3"),
        ("ff", "claude_code:ffee@3"),
        ("ff@2", "claude_code:ffee@2"),
        ("ff@1", "claude_code:ffee"),
        ("many3", "otel:many3"),
    ],
)
def test_a_name_means_one_session(store: Store, name: str, expected: str) -> None:
    assert store.get_session(name).session_id == expected


@pytest.mark.parametrize("name", ["", "zzz", "0199aa-longer", "@2", "%", "_", "x@", "\udcff"])
def test_an_unknown_name_is_refused_with_a_hint(store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="no session") as caught:
        store.get_session(name)
    assert "redrive sessions" in caught.value.hint


def test_an_ambiguous_name_is_refused_with_its_candidates(store: Store) -> None:
    with pytest.raises(UsageError) as caught:
        store.get_session("0199b")
    assert caught.value.message == (
        "'0199b' means several sessions: claude_code:0199bb, codex:0199bb"
    )


def test_at_most_five_candidates_are_listed(store: Store) -> None:
    with pytest.raises(UsageError, match="and 2 more") as caught:
        store.get_session("many")
    assert caught.value.message.count("otel:many") == 5


def test_a_revision_that_does_not_exist_is_refused_with_the_newest(store: Store) -> None:
    with pytest.raises(UsageError, match="has no revision 9: its newest is claude_code:ffee@3"):
        store.get_session("ff@9")


def test_an_id_with_a_lone_surrogate_is_stored_and_found(store: Store) -> None:
    with store.transaction():
        writer = store.create("test:\ud800x", "test", 1)
        writer.close()
    assert writer.session_id == "test:\\ud800x"
    assert store.get_session("test:\ud800x").session_id == writer.session_id
    assert len(store.revisions("test:\ud800x")) == 1


def test_a_session_without_its_projection_is_refused(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM projections WHERE session_id = 'test:aaaa-1'")
    with opened(filled) as store:
        for use in (lambda: store.get_session("aaaa"), lambda: list(store.events("test:aaaa-1"))):
            with pytest.raises(TamperError, match="session test:aaaa-1: its projection"):
                use()


def test_a_session_without_one_of_its_sources_is_refused(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM sources WHERE session_id = 'test:aaaa-1'")
    with opened(filled) as store, pytest.raises(TamperError, match="its sources are not those"):
        store.get_session("aaaa")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("DELETE FROM projections WHERE session_id = 'test:aaaa-1'", "its projection is missing"),
        ("DELETE FROM sources WHERE session_id = 'test:aaaa-1'", "its sources are not those"),
        ("UPDATE sessions SET format = 'x' WHERE session_id = 'test:aaaa-1'", "its seal"),
        ("UPDATE projections SET events = 9 WHERE session_id = 'test:aaaa-1'", "its seal"),
        ("UPDATE sources SET size = 9 WHERE session_id = 'test:aaaa-1'", "its seal"),
    ],
)
def test_a_damaged_row_keeps_no_other_from_being_listed(
    filled: Path, change: str, fault: str
) -> None:
    with opened(filled) as store:
        listed = [row.session_id for row in store.sessions()]
    with raw_database(filled) as connection:
        connection.execute(change)
    with opened(filled) as store:
        rows, (found,) = store.list_sound()
        assert [row.session_id for row in rows] == [n for n in listed if n != "test:aaaa-1"]
        assert found.session_id == "test:aaaa-1"
        assert fault in found.fault
        with pytest.raises(TamperError, match=fault):
            list(store.sessions())


def test_a_long_name_is_cut_in_the_message(store: Store) -> None:
    with pytest.raises(UsageError) as caught:
        store.get_session("x" * 5000)
    assert "(5000 characters)" in caught.value.message
    assert len(caught.value.message) < 200
