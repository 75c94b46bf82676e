import io
from typing import Any

import msgspec
import pytest

from redrive import canonical
from redrive.importers.claude_code import IMPORTER
from redrive.importers.claude_lines import Placed, read_claude_lines
from redrive.record.event import Damage
from tests.claude_files import SESSION, assistant, call, dump, result, text, user
from tests.helpers import drafts_from, events_from, index_of


def read(data: bytes) -> list[Placed | Damage]:
    return list(read_claude_lines(io.BytesIO(data)))


def first(data: bytes) -> Placed:
    return next(item for item in read(data) if isinstance(item, Placed))


def test_a_line_knows_its_place() -> None:
    data = b"\r\n" + dump([user(1, None, "x"), user(2, 1, "y")])
    found = [item for item in read(data) if isinstance(item, Placed)]
    assert [item.number for item in found] == [2, 3]
    for item in found:
        stretch = data[item.offset : item.offset + item.length]
        assert msgspec.json.decode(stretch)["uuid"] == item.line.uuid


@pytest.mark.parametrize(
    "wrong",
    [
        {"uuid": 5.5},
        {"parentUuid": ["x"]},
        {"isMeta": "yes"},
        {"isSidechain": 1},
        {"timestamp": 17},
        {"message": "error"},
        {"message": {"content": [5, "x", None, {"type": 7}], "usage": {"input_tokens": True}}},
        {"message": {"content": 1e5, "id": {}, "usage": []}},
        {"data": {"type": [], "message": {"message": {"content": "x"}, "uuid": 1}}},
        {"data": "x"},
    ],
)
def test_a_field_of_another_type_counts_as_not_recorded(wrong: dict[str, Any]) -> None:
    value = {**user(1, None, "x"), **wrong}
    item = first(dump([value]))
    assert item.is_strict
    assert item.line.session_id == SESSION
    drafts, tally = drafts_from(IMPORTER, "s.jsonl", dump([value]))
    assert tally.records == 1
    assert len(drafts) >= 2


def test_the_tolerant_reader_finds_what_the_typed_one_finds() -> None:
    value = assistant(1, None, text("a"), call("c1", x=1))
    usual = first(dump([value])).line
    odd = first(dump([{**value, "isMeta": "yes"}])).line
    assert odd == usual


def test_texts_with_half_characters_become_ids_that_can_be_printed() -> None:
    data = dump([{**user(1, None, "x"), "uuid": "half @@"}]).replace(b"@@", b"\\ud83d")
    events = events_from(IMPORTER, "s.jsonl", data)
    assert events[-1].node_id == "\ufffdhalf \\ud83d"
    assert canonical.encode(events[-1]).decode()


def test_bytes_that_are_not_utf8_are_damage_even_in_fields_that_no_rule_reads() -> None:
    data = dump([{**user(1, None, "x"), "toolUseResult": "@@"}]).replace(b"@@", b"\xff")
    damage = [item for item in read(data) if isinstance(item, Damage)]
    assert [item.line for item in damage] == [1]
    assert "UTF-8" in damage[0].reason


def test_a_line_beyond_the_cap_is_damage_and_the_next_one_is_read() -> None:
    data = dump([user(1, None, "x" * 2000), user(2, None, "y")])
    long, kept = read_claude_lines(io.BytesIO(data), cap_bytes=1000)
    assert isinstance(long, Damage)
    assert isinstance(kept, Placed)
    assert (long.offset, kept.number) == (0, 2)


def test_progress_that_nests_without_end_is_cut() -> None:
    inner: dict[str, Any] = {"type": "user", "isMeta": "no"}
    for _ in range(200):
        inner = {"type": "progress", "data": {"type": "agent_progress", "message": inner}}
    assert len(read(dump([inner]))) == 1


def session() -> bytes:
    return dump(
        [
            user(1, None, "Go"),
            assistant(2, 1, text("é"), call("c1", command="ls")),
            user(3, 2, [result("c1", "out", is_error=True)]),
            assistant(4, 3, text("Done")),
        ]
    )


def mutations(data: bytes) -> list[bytes]:
    """Give 300 copies with one stretch overwritten, removed or doubled; always the same ones."""
    draws = canonical.stream("claude", "fuzz")
    copies = []
    for _ in range(300):
        start = next(draws) % len(data)
        size = 1 + next(draws) % 12
        junk = bytes(next(draws) % 256 for _ in range(size))
        stretch = data[start : start + size]
        put = (junk, b"", stretch * 2, b"\x00" * size, b'{"', b"}\n{")[next(draws) % 6]
        copies.append(data[:start] + put + data[start + size :])
    return copies


def test_no_change_of_bytes_stops_a_file_or_goes_unseen() -> None:
    data = session()
    for copy in mutations(data):
        drafts, tally = drafts_from(IMPORTER, "s.jsonl", copy)
        lines = [line for line in copy.split(b"\n") if line.strip()]
        damaged = {damage.line for damage in tally.damage}
        assert tally.records + len(damaged) >= len(lines), copy
        assert len({draft.id for draft in drafts}) == len(drafts), copy
        events = events_from(IMPORTER, "s.jsonl", copy)
        if events:
            index_of(events)
            assert all(canonical.encode(event).decode() for event in events)


def test_an_integer_uuid_is_its_decimal_text() -> None:
    line = first(b'{"type":"user","uuid":7,"parentUuid":6,"sessionId":5}\n').line
    assert (line.uuid, line.parent_uuid, line.session_id) == ("7", "6", "5")
