import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw, UnsetType

from redrive.importers import repeated_keys
from redrive.importers.repeated_keys import find_repeated_keys


class Inner(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str | None = None
    value: Raw | UnsetType = UNSET


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str | None = None
    one: Inner | None = None
    many: list[Inner] | None = None
    table: dict[str, Any] | None = None
    any: Any = None
    evidence: Raw | UnsetType = UNSET


def find(text: str, **options: bool) -> list[str]:
    data = text.encode()
    line = msgspec.json.decode(data, type=Line)
    return list(find_repeated_keys(line, data, **{"is_usual": True} | options))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"id":"a","id":"b"}', ["id"]),
        ('{"id":"a","id":"a","id":"a"}', ["id"]),
        ('{"id":"a","\\u0069d":"b"}', ["id"]),
        ('{"other":1,"other":2}', ["other"]),
        ('{"one":{"name":"a","name":"b"}}', ["one.name"]),
        ('{"one":{"x":"a","x":"b"}}', ["one.x"]),
        ('{"many":[{},{"name":"a","name":"b"}]}', ["many[1].name"]),
        ('{"table":{"k":1,"k":2}}', ["table.k"]),
        ('{"any":[1,{"k":{"a":1,"a":2}}]}', ["any[1].k.a"]),
        ('{"id":"\\u0022","id":"\\u0022"}', ["id"]),
        ('{"id":"\\"","any":1,"any":{"a":2,"a":3}}', ["any", "any.a"]),
    ],
)
def test_keys_that_stand_twice_are_named(text: str, found: list[str]) -> None:
    assert find(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"id":"a","one":{"name":null},"many":[],"table":{},"any":null}',
        '{"id":"\\"","other":{"id":1},"one":{"name":"id"}}',
        '{"id":"\\u0022","any":"\\u0022"}',
        '{"evidence":{"a":1,"a":2},"one":{"value":[{"a":1,"a":2}]}}',
        '{"other":{"a":1,"a":2}}',
    ],
)
def test_evidence_and_what_no_field_describes_are_left_out(text: str) -> None:
    assert find(text) == []


def test_a_line_that_was_read_tolerantly_is_not_judged_by_its_struct() -> None:
    data = b'{"id":5,"x":1,"x":2}'
    assert find_repeated_keys(Line("5"), data, is_usual=False) == ("x",)
    odd = b'{"one":[{"name":"a","name":"b"}],"many":5,"id":"\\ud800","id":1}'
    assert find_repeated_keys(Line(), odd, is_usual=False) == ("id",)


def test_half_a_character_in_the_struct_is_no_fault() -> None:
    data = b'{"id":"\\ud800"}'
    assert find_repeated_keys(Line("\ud800"), data, is_usual=True) == ()


def test_a_usual_line_costs_no_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_keys, "_decode", json.loads("null"))
    assert find('{ "id" : "a", "one": {"name":"b","value":{"a":1,"a":2}} }') == []


def test_what_is_nested_beyond_reach_is_told() -> None:
    data = b'{"any":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert len(find_repeated_keys(Line(), data, is_usual=False)) == 1


def test_a_long_line_is_decoded_only_where_a_key_stands_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeated_keys, "_LONG_BYTES", 0)
    assert find('{"one":{"name":"a","name":"b"}}') == ["one.name"]
    monkeypatch.setattr(repeated_keys, "_decode", pytest.fail)
    monkeypatch.setattr(json, "loads", pytest.fail)
    assert find('{"id":"a","other":[{"id":"b"}]}') == []
