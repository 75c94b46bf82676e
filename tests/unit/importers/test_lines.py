import io
from typing import Any

import pytest

from redrive import canonical
from redrive.importers import lines
from redrive.importers.lines import LINE_CAP_BYTES, Record, read_head, read_records
from redrive.record.event import FLAG_RECOVERED, FLAG_UNREPRESENTABLE, Damage
from redrive.testing.importers import MemorySource


def test_a_number_beyond_floats_is_kept_as_text_where_two_records_share_a_line() -> None:
    found = list(read_records(io.BytesIO(b'{"a":1e999} {"b":NaN}\n')))
    assert [type(item) for item in found] == [Damage, Record, Record]
    values = [(item.value, item.flags) for item in found if isinstance(item, Record)]
    assert values == [({"a": "1e999"}, (FLAG_RECOVERED,)), ({"b": "NaN"}, (FLAG_RECOVERED,))]


def read(data: bytes, cap_bytes: int = LINE_CAP_BYTES) -> list[Record | Damage]:
    return list(read_records(io.BytesIO(data), cap_bytes=cap_bytes))


def values(found: list[Record | Damage]) -> list[dict[str, Any]]:
    return [item.value for item in found if isinstance(item, Record)]


def damage(found: list[Record | Damage]) -> list[Damage]:
    return [item for item in found if isinstance(item, Damage)]


GOOD = b'{"n":1}'
DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def test_whole_lines_are_strict_records_with_their_place() -> None:
    data = b'{"a":1}\n\n  \r\n{"b":[2]}\r\n{"c":null}'
    found = read(data)
    assert values(found) == [{"a": 1}, {"b": [2]}, {"c": None}]
    assert [(r.line, r.is_strict) for r in found if isinstance(r, Record)] == [
        (1, True),
        (4, True),
        (5, True),
    ]
    for item in found:
        assert isinstance(item, Record)
        stretch = data[item.offset : item.offset + item.length]
        assert canonical.decode_value(stretch) == item.value


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (b'{"a":', "character"),
        (b'{"a":1}x', "Extra data"),
        (b'{"a":1}{"b":2}', "Extra data"),
        (b'"text"', "a JSON str"),
        (b"[1]", "a JSON list"),
        (b"42", "a JSON int"),
        (b"null", "a JSON NoneType"),
        (b"\x00" * 64, "64 NUL bytes"),
        (b'{"a":"\xff"}', "not UTF-8 at byte 6"),
        (b'{"a":"\xe2\x82', "not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (DEEP, "nested too deeply"),
        (b"\xef\xbb\xbf" + GOOD, ""),
    ],
    ids=range(13),
)
def test_one_bad_line_is_located_and_stops_nothing(bad: bytes, word: str) -> None:
    found = read(GOOD + b"\n" + bad + b"\n" + GOOD + b"\n")
    assert [(d.line, d.offset, d.bytes) for d in damage(found)] == [(2, 8, len(bad))]
    assert word in damage(found)[0].reason
    strict = [item for item in found if isinstance(item, Record) and item.is_strict]
    assert [item.line for item in strict] == [1, 3]


def test_a_byte_order_mark_is_named_and_its_line_kept() -> None:
    found = read(b"\xef\xbb\xbf" + GOOD + b"\n")
    assert [(d.offset, d.bytes, d.reason) for d in damage(found)] == [(0, 3, "byte order mark")]
    (record,) = [item for item in found if isinstance(item, Record)]
    assert (record.line, record.offset, record.length, record.is_strict) == (1, 3, 7, True)


def test_two_records_on_one_line_are_both_recovered() -> None:
    found = read(b'{"a":{"x":1}}{"b":2}\n')
    assert values(found) == [{"a": {"x": 1}}, {"b": 2}]
    assert [(r.offset, r.length, r.flags) for r in found if isinstance(r, Record)] == [
        (0, 13, (FLAG_RECOVERED,)),
        (13, 7, (FLAG_RECOVERED,)),
    ]


def test_a_record_glued_to_a_torn_one_is_recovered_and_its_insides_are_no_records() -> None:
    found = read(b'{"a":{"x":1},"b":{"y"{"c":{"z":3}}\n')
    assert values(found) == [{"c": {"z": 3}}]
    assert values(read(b'{"a":{"x":1},"b":{"y":2}\n')) == []


def test_a_record_behind_a_block_of_zeros_is_recovered_at_its_place() -> None:
    found = read(b"\x00" * 16 + GOOD + b"\n")
    assert [(r.offset, r.length) for r in found if isinstance(r, Record)] == [(16, 7)]
    assert "16 NUL bytes" in damage(found)[0].reason


def test_records_on_one_line_are_placed_without_measuring_a_stretch_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[str] = []
    size_of = lines._size_of

    def measure(text: str) -> int:
        measured.append(text)
        return size_of(text)

    monkeypatch.setattr(lines, "_size_of", measure)
    data = '{"n":"é"}\r {"n":"😀"}\r\x00{"n":"a"}'.encode() * 100
    records = [item for item in read(data) if isinstance(item, Record)]
    assert len(records) == 300
    for item in records:
        stretch = data[item.offset : item.offset + item.length]
        assert canonical.decode_value(stretch) == item.value
    assert sum(map(len, measured)) <= len(data)


def test_a_record_with_bytes_that_are_no_text_is_not_recovered() -> None:
    assert values(read(b'{"a":"\xff"}{"b":2}\n')) == [{"b": 2}]


def test_numbers_beyond_floats_are_kept_and_named() -> None:
    big = b"9" * 5000
    found = read(b'{"a":1e999,"b":NaN,"c":' + big + b',"d":18446744073709551616}\n')
    (kept,) = values(found)
    assert (kept["a"], kept["b"], kept["c"], kept["d"]) == ("1e999", "NaN", big.decode(), 2**64)
    (record,) = [item for item in found if isinstance(item, Record)]
    assert (record.flags, record.is_strict) == ((FLAG_UNREPRESENTABLE,), True)
    assert [d.reason for d in damage(found)] == [FLAG_UNREPRESENTABLE]


def test_half_characters_and_odd_line_ends_inside_a_text_are_values() -> None:
    found = read('{"a":"\\ud800","b":"x\u2028y"}\n'.encode())
    assert values(found) == [{"a": "\ud800", "b": "x\u2028y"}]
    assert damage(found) == []


@pytest.mark.parametrize("tail", [b"\n" + GOOD + b"\n", b"", b"\n"])
def test_a_line_beyond_the_cap_is_skipped_named_and_measured(tail: bytes) -> None:
    long = b'{"a":"' + b"x" * 3_000_000 + b'"}'
    found = read(GOOD + b"\n" + long + tail, cap_bytes=1000)
    (named,) = damage(found)
    assert (named.line, named.offset) == (2, 8)
    assert named.bytes in (len(long), len(long) + 1)
    assert "1000" in named.reason
    assert len(values(found)) == 1 + (GOOD in tail)


def test_a_line_of_exactly_the_cap_is_read() -> None:
    assert values(read(GOOD + b"\n" + GOOD, cap_bytes=len(GOOD))) == [{"n": 1}, {"n": 1}]


def test_a_line_of_many_openings_is_given_up_in_bounded_time() -> None:
    assert values(read(b'{"a":' * 50_000 + b"\n")) == []


# --- what the first lines say


LINE = b'{"type":"session","id":"s","task":"t"}\n'
PAGE = b"# The format\nA session begins with:\n```json\n" + LINE * 3 + b"```\n"


@pytest.mark.parametrize(
    ("data", "n_objects"),
    [
        (LINE * 3, 3),
        (LINE * 99, 40),
        (b"\n\n" + LINE, 1),
        (b"\xef\xbb\xbf" + LINE, 1),
        (b"\x00" * 64 + LINE, 1),
        (b'orn","task":"t"}\n' + LINE, 1),
        (b"{torn\n" + LINE, 1),
        (LINE + b'{"torn', 1),
        (b'{"a":1}{"b":2}\n' + LINE, 1),
        (LINE + b"[1]\n2\nno\n", 0),
        (PAGE, 0),
        (b"```json\n" + LINE * 9 + b"```\n", 0),
        (b"[![badge](x)](y)\n" + LINE * 9, 0),
        (b"[" * 5000, 0),
        (b"", 0),
    ],
)
def test_objects_are_told_from_prose_that_shows_them(data: bytes, n_objects: int) -> None:
    assert len(read_head(MemorySource("x", data))) == n_objects


def test_a_line_that_the_head_cuts_off_does_not_count() -> None:
    long = b'{"x":"' + b"x" * 70_000 + b'"}\n'
    assert len(read_head(MemorySource("x", LINE + long))) == 1
    assert len(read_head(MemorySource("x", long + LINE))) == 2
    assert read_head(MemorySource("x", b"x" * 70_000 + LINE)) == []
