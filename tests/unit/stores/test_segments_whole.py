"""The lines of a session read whole are those of its events; damage is found all the same."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from redrive.errors import TamperError
from redrive.record.event import Event, Kind, Note, dump_payload
from redrive.stores.port import Store
from tests.stored import event_at, messages, opened, steps_of

_decode = msgspec.json.Decoder(Event).decode_lines
MB = 1024 * 1024


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


def put(store: Store, events: list[Event]) -> None:
    with store.transaction():
        writer = store.create("test:a", "test", 1)
        for event in events:
            writer.append(event)
        writer.close()


def note(seq: int, label: str = "x") -> Event:
    return event_at("test:a", seq, Kind.NOTE, dump_payload(Note(label=label)))


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def test_a_session_read_whole_has_the_same_events_and_head(store: Store) -> None:
    put(store, [note(seq) for seq in range(600)])
    head, blocks = store.read_whole("test:a", MB)
    assert blocks is not None
    assert [(b.first_seq, b.n_events, b.is_plain) for b in blocks] == [
        (0, 256, True),
        (256, 256, True),
        (512, 88, True),
    ]
    events = [event for block in blocks for event in _decode(block.lines)]
    assert events == list(store.events("test:a"))
    assert head == store.get_row("test:a").head


def test_lines_whose_texts_lie_elsewhere_say_so(store: Store) -> None:
    put(store, list(steps_of("test:a", messages(12))))
    _, blocks = store.read_whole("test:a", MB)
    assert blocks is not None
    assert [block.is_plain for block in blocks] == [False]


def test_an_empty_session_has_no_lines(store: Store) -> None:
    put(store, [])
    assert store.read_whole("test:a", MB).blocks == ()


def test_a_session_above_the_bound_is_not_held(store: Store) -> None:
    put(store, [note(seq, "x" * 1000) for seq in range(600)])
    assert store.read_whole("test:a", 100_000).blocks is None


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE segments SET data = zeroblob(length(data)) WHERE first_seq = 256",
        "UPDATE segments SET prev = zeroblob(32) WHERE first_seq = 256",
        "UPDATE segments SET events = events - 1 WHERE first_seq = 256",
        "UPDATE segments SET version = 2 WHERE first_seq = 256",
        "UPDATE segments SET kinds = 'custom' WHERE first_seq = 256",
        "UPDATE segments SET size = 'x' WHERE first_seq = 256",
        "UPDATE segments SET data = (SELECT data FROM segments WHERE first_seq = 0) "
        "WHERE first_seq = 256",
        "DELETE FROM segments WHERE first_seq = 256",
        "DELETE FROM segments WHERE first_seq = 512",
    ],
)
def test_damage_is_found(store: Store, path: Path, damage: str) -> None:
    put(store, [note(seq) for seq in range(600)])
    change(path, damage)
    with pytest.raises(TamperError, match="test:a"):
        store.read_whole("test:a", MB)
