import enum
import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from redrive import canonical
from redrive.capture.json_values import MAX_DEPTH, comparable, exact_json, type_name

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
)


class Colour(enum.StrEnum):
    RED = "red"


class Plain:
    pass


@dataclass
class Point:
    x: int
    y: Any


@dataclass
class Hostile:
    x: int

    def __getattribute__(self, name: str) -> Any:
        if name == "x":
            raise RuntimeError("not now")
        return super().__getattribute__(name)


def same(one: Any, two: Any) -> bool:
    """Equal, and of equal types all the way down; -0.0 is not 0.0."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    return one == two and (type(one) is not float or math.copysign(1, one) == math.copysign(1, two))


@given(JSON)
def test_what_has_a_json_form_comes_back_as_it_was(value: Any) -> None:
    form = exact_json(value)
    assert isinstance(form, Raw)
    assert same(canonical.decode_value(bytes(form)), value)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ((1,), "tuple"),
        ({1}, "set"),
        (b"x", "bytes"),
        (Decimal(1), "decimal.Decimal"),
        (Colour.RED, f"{__name__}.Colour"),
        (OrderedDict(), "collections.OrderedDict"),
        (Point(1, 2), f"{__name__}.Point"),
        ([1, (2,)], "tuple in list"),
        ({"a": [b""]}, "bytes in dict"),
        ({1: 2}, "a key that is no str in dict"),
        (math.nan, "float that is not finite in float"),
        ([math.inf], "float that is not finite in list"),
        ([10**4300], "int of more than 4300 digits in list"),
        (Raw(b"1"), "msgspec.Raw"),
    ],
)
def test_what_would_not_come_back_is_named_by_its_type(value: Any, name: str) -> None:
    assert exact_json(value) == name


def test_deep_values_end_at_the_limit_and_cycles_with_them() -> None:
    deep: list[Any] = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert isinstance(exact_json(deep), Raw)
    assert exact_json([deep]) == f"a value nested deeper than {MAX_DEPTH} in list"
    assert comparable([deep]) == {
        "redrive.unrepresentable": f"a value nested deeper than {MAX_DEPTH}"
    }
    cycle: list[Any] = []
    cycle += [cycle, cycle]
    assert exact_json(cycle) == f"a value nested deeper than {MAX_DEPTH} in list"
    assert "redrive.unrepresentable" in comparable(cycle)


def mark(name: str) -> dict[str, str]:
    return {"redrive.unrepresentable": name}


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ((1, [2, (3,)]), [1, [2, [3]]]),
        (namedtuple("Pair", "a b")(1, 2), [1, 2]),
        (Point(1, (2, b"")), {"x": 1, "y": [2, mark("bytes")]}),
        (Point, mark("type")),
        (Colour.RED, "red"),
        (enum.IntEnum("N", "A").A, 1),  # type: ignore[attr-defined]
        (True, True),
        (type("F", (float,), {})(0.5), 0.5),
        (OrderedDict(a=1), {"a": 1}),
        ({1: 2}, mark("dict")),
        ({"a": {1}}, {"a": mark("set")}),
        (math.nan, mark("float that is not finite")),
        (Plain(), mark(f"{__name__}.Plain")),
        (Hostile(1), mark(f"{__name__}.Hostile")),
        ("\ud800", "\ud800"),
    ],
)
def test_an_argument_keeps_its_content_or_is_a_mark_with_its_type(value: Any, form: Any) -> None:
    assert same(comparable(value), form)
    canonical.encode(comparable(value))


def test_types_are_named_in_full_unless_built_in() -> None:
    assert type_name(ValueError) == "ValueError"
    assert type_name(Decimal) == "decimal.Decimal"
    assert type_name(Point) == f"{__name__}.Point"
