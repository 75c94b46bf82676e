import io
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw, UnsetType

from redrive.importers.typed_lines import Placed, Shapes, members_of, read_typed_lines
from redrive.record.event import FLAG_RECOVERED, FLAG_UNREPRESENTABLE, Damage


class Inner(msgspec.Struct, frozen=True):
    name: str | None = None
    value: Raw | UnsetType = UNSET
    inner: "Inner | None" = None


class Line(msgspec.Struct, frozen=True):
    id: str | None = None


class Full(Line, frozen=True, tag_field="type", tag="full"):
    count: int | None = None
    ratio: int | float | None = None
    is_on: bool | None = None
    one: Inner | None = None
    many: list[Inner] | None = None
    names: list[str] | None = None
    table: dict[str, Any] | None = None
    evidence: Raw | UnsetType = UNSET
    any: Any = None


class Empty(Line, frozen=True, tag_field="type", tag="empty"):
    pass


class Other(Line, frozen=True):
    type: Any = None


def evidence(line: Line, data: bytes) -> list[Raw]:
    return [line.evidence] if isinstance(line, Full) and line.evidence is not UNSET else []


SHAPES: Shapes[Line] = Shapes(Other, Full, Empty, evidence=evidence)
IDS: Shapes[Inner] = Shapes(Inner)


def read(data: bytes, shapes: Shapes[Any] = SHAPES, **options: int) -> list[Any]:
    return list(read_typed_lines(io.BytesIO(data), shapes, **options))


def only(data: bytes) -> Placed[Full]:
    (placed,) = read(data)
    return placed


def test_a_usual_line_is_typed_and_knows_its_place_and_bytes() -> None:
    data = b'\n{"type":"full","id":"a","evidence": {"x": 1.0, "x": 2e5}}\r\n'
    placed = only(data)
    assert (placed.number, placed.offset, placed.is_strict) == (2, 1, True)
    assert placed.data == data.strip() == data[placed.offset :][: placed.length]
    assert bytes(placed.line.evidence) == b'{"x": 1.0, "x": 2e5}'


def test_the_tag_chooses_the_struct_and_what_has_none_is_the_other() -> None:
    found = read(b'{"id":"a"}\n{"type":"later"}\n{"type":[]}\n{"type":"full","id":7}\n')
    assert [type(placed.line) for placed in found] == [Other, Other, Other, Full]
    assert [placed.line.type for placed in found[:3]] == [None, "later", []]
    assert SHAPES.tags == {"full", "empty"}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (b'"count": true', "count"),
        (b'"count": 1.0', "count"),
        (b'"count": "1"', "count"),
        (b'"ratio": false', "ratio"),
        (b'"is_on": 1', "is_on"),
        (b'"one": [{}]', "one"),
        (b'"many": {}', "many"),
        (b'"names": "x"', "names"),
        (b'"table": []', "table"),
    ],
)
def test_a_value_of_another_type_is_not_recorded_and_the_rest_is(wrong: bytes, field: str) -> None:
    placed = only(b'{"type":"full","id":"a",' + wrong + b',"evidence":[1.0]}')
    assert getattr(placed.line, field) is None
    assert placed.line.id == "a"
    assert bytes(placed.line.evidence) == b"[1.0]"
    assert placed.is_strict


def test_the_tolerant_reader_finds_what_the_typed_one_finds() -> None:
    fields = (
        b'"type":"full","count":1,"ratio":0.5,"is_on":true,"one":{"name":"n","value":null},'
        b'"many":[{"name":"m"},{"value":[1]}],"names":["x"],"table":{"k":[1]},'
        b'"evidence":{"a":1,"a":2},"any":[{}]'
    )
    usual = only(b"{" + fields + b"}").line
    odd = only(b"{" + fields + b',"id":5}').line
    assert odd == usual
    assert bytes(odd.one.value) == b"null"


def test_odd_items_of_a_list_of_structs_are_dropped() -> None:
    line = only(b'{"type":"full","many":[5,{"name":"m","value": 1.0},"x",null,[]]}').line
    assert line.many == [Inner("m", Raw(b"1.0"))]


def test_structs_that_nest_without_end_are_cut() -> None:
    deep = b'{"name":1,"inner":' * 20 + b"{}" + b"}" * 20
    (placed,) = read(deep, IDS)
    depth = 0
    inner = placed.line
    while inner.inner is not None:
        inner, depth = inner.inner, depth + 1
    assert depth == 4


@pytest.mark.parametrize("number", [b"1e999", b"-1E+400", b"9" * 4301, b"1" + b"0" * 400 + b".5"])
def test_a_number_that_cannot_be_held_is_noticed_in_kept_bytes(number: bytes) -> None:
    damage, placed = read(b'{"type":"full","evidence":{"a":' + number + b"}}")
    assert isinstance(damage, Damage)
    assert damage.reason == FLAG_UNREPRESENTABLE
    assert placed.flags == (FLAG_UNREPRESENTABLE,)
    assert bytes(placed.line.evidence) == b'{"a":"' + number + b'"}'


@pytest.mark.parametrize("word", [b"NaN", b"-Infinity"])
def test_nan_stands_as_its_text_in_kept_bytes(word: bytes) -> None:
    damage, placed = read(b'{"type":"full","evidence":' + word + b"}")
    assert damage.reason == FLAG_UNREPRESENTABLE
    assert bytes(placed.line.evidence) == b'"' + word + b'"'


def test_bytes_that_are_not_utf8_are_damage_in_kept_and_skipped_values_too() -> None:
    for name in (b"evidence", b"unknown"):
        damage = read(b'{"type":"full","' + name + b'":"\xff"}')[0]
        assert isinstance(damage, Damage)
        assert "UTF-8" in damage.reason


def test_lone_surrogates_stay_in_evidence_and_are_escaped_in_ids() -> None:
    line = only(b'{"type":"full","id":"\\ud800","evidence":["\\udc00", 1.0]}').line
    assert line.id == "\ud800"
    assert msgspec.json.decode(bytes(line.evidence).replace(b"\\u", b"+")) == ["+dc00", 1.0]
    many = b'{"type":"full","many":[{"name":"\\ud800"},3],"names":["\\ud800"]}'
    assert only(many).line.many == [Inner("\ud800")]
    (placed,) = read(b'{"name":"\\ud800"}', IDS)
    assert placed.line.name == "\ufffd\\ud800"


def test_what_is_found_behind_damage_is_typed_too() -> None:
    damage, placed = read(b'{"type":"fu{"type":"full","evidence": [1.0]}')
    assert isinstance(damage, Damage)
    assert placed.flags == (FLAG_RECOVERED,)
    assert not placed.is_strict
    assert bytes(placed.line.evidence) == b"[1.0]"
    assert placed.data == b'{"type":"full","evidence":[1.0]}'


def test_a_byte_order_mark_and_a_line_beyond_the_cap_are_damage() -> None:
    mark, placed = read(b'\xef\xbb\xbf{"type":"full","evidence": 1.0}')
    assert mark.reason == "byte order mark"
    assert placed.data == b'{"type":"full","evidence": 1.0}'
    long, kept = read(b'{"id":"' + b"x" * 99 + b'"}\n{"id":"y"}\n', cap_bytes=50)
    assert isinstance(long, Damage)
    assert kept.line.id == "y"


def test_members_are_verbatim_and_only_an_object_has_any() -> None:
    assert {k: bytes(v) for k, v in members_of(b'{"a": 1.0 , "b":{"c":1,"c":2}}').items()} == {
        "a": b"1.0",
        "b": b'{"c":1,"c":2}',
    }
    assert members_of(b"[1]") == {}
    assert members_of(b'{"\\ud800":1}') == {"\ud800": b"1"}


def test_what_has_another_type_is_named_and_null_is_not() -> None:
    line = (
        b'{"type":"full","id":7,"count":"1","ratio":[],"is_on":0,"one":5,"many":[{"name":1},null],'
        b'"names":"x","table":null,"any":1}'
    )
    placed = only(line)
    assert placed.is_odd
    assert [f"{fault.field} {fault.reason}" for fault in placed.faults] == [
        "id is no text",
        "count is no integer",
        "ratio is no integer or number",
        "is_on is no boolean",
        "one is no object",
        "many[0].name is no text",
        "many[1] is no object",
        "names is no list",
    ]
    usual = only(b'{"type":"full","id":"a","count":null}')
    assert (usual.is_odd, list(usual.faults)) == (False, [])


def test_an_integer_is_an_id_by_its_decimal_text_where_ids_are_named() -> None:
    shapes: Shapes[Line] = Shapes(Other, Full, Empty, ids=frozenset({"id", "name"}))
    (placed,) = read(b'{"type":"full","id":12,"one":{"name":-3}}', shapes)
    assert (placed.line.id, placed.line.one.name) == ("12", "-3")
    assert not placed.faults
    for odd in (b"1.0", b"true", b"[1]"):
        (placed,) = read(b'{"type":"full","id":' + odd + b"}", shapes)
        assert [fault.field for fault in placed.faults] == ["id"]
