"""Large texts are stored once, as what is new in them, and rebuilt checked."""

from pathlib import Path

import msgspec
import pytest

from redrive.errors import TamperError
from redrive.stores import texts as module
from redrive.stores.database import Database, open_database
from redrive.stores.rows import TextRow, put_row, read_rows
from redrive.stores.schema import migrate
from redrive.stores.texts import TextStore
from tests.stored import body_of, message, messages


@pytest.fixture
def database(path: Path) -> Database:
    database = open_database(path, create=True, read_only=False)
    migrate(database)
    return database


def put_chain(store: TextStore, chain: list[bytes]) -> list[bytes]:
    digests: list[bytes] = []
    for text in chain:
        digests.append(store.put(text, digests[-1] if digests else None))
    return digests


def stored_bytes(database: Database) -> list[int]:
    return [row[0] for row in database.query("SELECT length(data) FROM texts ORDER BY id")]


SHAPES = {
    "growing": [body_of(messages(n)).encode() for n in range(1, 12)],
    "shrinking": [body_of(messages(n)).encode() for n in range(11, 0, -1)],
    "changed in front": [f"{n} {message('x', 9000)}".encode() for n in range(5)],
    "changed in the middle": [
        (message("a", 4000) + str(n) + message("b", 4000)).encode() for n in range(5)
    ],
    "unlike": [message(str(n), 3000).encode() for n in range(4)],
    "repeats": [b"ab" * n for n in (10, 5, 11, 1, 0, 7)],
    "empty": [b"", b"x", b""],
    "larger than the look back": [message("big", 300_000).encode() * n for n in (1, 2, 3)],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_texts_come_back_in_any_order(database: Database, shape: str) -> None:
    chain = SHAPES[shape]
    digests = put_chain(TextStore(database), chain)
    for order in (range(len(chain)), reversed(range(len(chain)))):
        fresh = TextStore(database)
        for number in order:
            assert fresh.get(digests[number]) == chain[number]


def test_a_growing_text_costs_what_is_new_in_it(database: Database) -> None:
    chain = [body_of(messages(n)).encode() for n in range(1, 60)]
    put_chain(TextStore(database), chain)
    sizes = stored_bytes(database)
    assert max(sizes[1:]) < 500
    assert sum(sizes) < len(chain[-1])


def test_a_text_that_changed_in_front_costs_little(database: Database) -> None:
    put_chain(TextStore(database), SHAPES["changed in front"])
    assert max(stored_bytes(database)[1:]) < 200


def test_an_equal_text_is_stored_once(database: Database) -> None:
    store = TextStore(database)
    assert store.put(b"x" * 100, None) == store.put(b"x" * 100, None)
    assert len(stored_bytes(database)) == 1


def test_a_chain_ends_where_it_would_be_too_long(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHAIN_TEXTS", 4)
    chain = [b"0123456789" * n for n in range(1, 11)]
    digests = put_chain(TextStore(database), chain)
    ordinals = [row[0] for row in database.query("SELECT ordinal FROM texts ORDER BY id")]
    assert ordinals == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert [TextStore(database).get(digest) for digest in digests] == chain


def test_a_very_large_text_stands_alone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_DELTA_BYTES", 50)
    put_chain(TextStore(database), [b"a" * 40, b"a" * 60, b"a" * 50])
    bases = [row[0] for row in database.query("SELECT base FROM texts ORDER BY id")]
    assert bases == [None, None, None]


def test_an_unknown_predecessor_is_no_base(database: Database) -> None:
    store = TextStore(database)
    assert store.get(store.put(b"text", b"\x00" * 32)) == b"text"


def test_the_cache_is_bounded_and_reading_in_order_needs_one_difference_each(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CACHE_BYTES", 100)
    chain = [bytes([65 + n]) * 90 for n in range(20)]
    digests = put_chain(TextStore(database), chain)
    store = TextStore(database)
    rebuilt = []
    original = module._decompress
    monkeypatch.setattr(module, "_decompress", lambda row, d: rebuilt.append(1) or original(row, d))
    assert [store.get(digest) for digest in digests] == chain
    assert len(rebuilt) == 20
    assert len(store._cache) == 2


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("DELETE FROM texts WHERE id = 3", "it is missing"),
        ("DELETE FROM texts WHERE id = 2", "text 2, which it builds on, is missing"),
        ("UPDATE texts SET data = x'00' WHERE id = 1", "row 1 of table texts"),
        ("UPDATE texts SET base = 1 WHERE id = 3", "row 3 of table texts"),
    ],
)
def test_a_damaged_chain_gives_no_text(database: Database, change: str, what: str) -> None:
    digests = put_chain(TextStore(database), [b"a" * 50, b"a" * 60, b"a" * 70])
    database.execute(change)
    with pytest.raises(TamperError, match=what):
        TextStore(database).get(digests[2])


def _forge(database: Database, **columns: object) -> None:
    """Edit text 2 and give it a seal that matches."""
    row = next(read_rows(database, TextRow, "WHERE id = 2"))
    put_row(database, msgspec.structs.replace(row, **columns), replaces=True)


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"base": 2}, "its chain has no beginning"),
        ({"data": b"no zstd"}, "is damaged"),
        ({"size": 999}, "its size is another"),
        ({"prefix": 49, "size": 59}, "its bytes do not match its digest"),
        ({"base": None}, "is damaged"),
    ],
)
def test_a_forged_text_is_refused_even_with_a_seal_that_matches(
    database: Database, columns: dict[str, object], what: str
) -> None:
    digests = put_chain(TextStore(database), [b"a" * 50, b"a" * 50 + b"b" * 10])
    _forge(database, **columns)
    with pytest.raises(TamperError, match=what):
        TextStore(database).get(digests[1])
