import functools
import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from redrive.errors import EffectDenied, UsageError
from redrive.trial import Effect, Fixture, FixtureMissError, Grants, Tool, tool


@tool("add", effect="pure")
def add(a: int, b: int = 2, **more: int) -> int:
    """Add
    numbers.

    Not shown to a model.
    """
    return a + b + sum(more.values())


def fresh(**declared: Any) -> Tool:
    @tool("fresh", **declared)
    def fresh(a: int, b: int = 2, **more: int) -> int:
        return a + b + sum(more.values())

    return fresh


def schema(function: Any) -> Any:
    return json.loads(bytes(tool("t", effect="pure")(function).spec.parameters))  # type: ignore[arg-type]


def test_a_tool_is_its_function_outside_a_trial() -> None:
    assert add(1) == 3
    assert add(1, b=5, c=1) == 7
    assert add.__name__ == "add"
    assert repr(add) == "Tool('add', effect='pure')"
    assert add.spec.description == "Add numbers."


def test_a_bound_tool_calls_the_broker_by_names_and_holds_no_function() -> None:
    bound = fresh(effect="pure", simulate=Fixture({"*": 1}))
    calls: list[Any] = []

    def call(name: str, arguments: Any) -> str:
        calls.append((name, arguments))
        return "answer"

    bound.bind(call)
    assert bound(1) == "answer"
    assert bound(1, b=3, c=4) == "answer"
    assert calls == [("fresh", {"a": 1}), ("fresh", {"a": 1, "b": 3, "c": 4})]
    for take in (bound.take_function, bound.take_simulator):
        with pytest.raises(EffectDenied):
            take()


def test_a_call_that_does_not_fit_reaches_nobody() -> None:
    bound = fresh(effect="pure")
    calls: list[Any] = []
    bound.bind(lambda *call: calls.append(call))
    with pytest.raises(TypeError):
        bound()
    assert calls == []


def test_an_unbound_tool_is_denied_past_an_except_exception() -> None:
    unbound = fresh(effect="unsafe")
    unbound.unbind()
    with pytest.raises(EffectDenied, match="fresh"):
        unbound(1)


def test_a_function_is_taken_once() -> None:
    taken = fresh(effect="pure")
    assert taken.take_function()(1) == 3
    with pytest.raises(EffectDenied):
        taken.take_function()
    with pytest.raises(EffectDenied):
        taken(1)


def test_taking_the_simulator_forgets_the_function() -> None:
    fixture = Fixture({"*": None})
    taken = fresh(effect="unsafe", simulate=fixture)
    assert taken.take_simulator() is fixture
    with pytest.raises(EffectDenied):
        taken.take_function()
    with pytest.raises(EffectDenied):
        taken.take_simulator()


def test_parameters_are_read_from_the_signature() -> None:
    def function(
        path: str,
        count: int = 1,
        ratio: float | None = None,
        mode: Literal["a", "b"] = "a",
        names: list[str] = (),  # type: ignore[assignment]
        anything: Any = None,
        odd: Iterator[int] | None = None,
        bare=None,  # type: ignore[no-untyped-def]
    ) -> None: ...

    assert schema(function) == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "mode": {"enum": ["a", "b"]},
            "names": {"type": "array", "items": {"type": "string"}},
            "anything": {},
            "odd": {},
            "bare": {},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


def test_a_type_with_fields_is_defined_beside_the_parameters() -> None:
    def function(place: Grants) -> None: ...

    found = schema(function)
    assert found["properties"]["place"] == {"$ref": "#/$defs/Grants"}
    assert found["$defs"]["Grants"]["properties"]["read"]["type"] == "array"


def test_annotations_that_fail_leave_the_parameters_open() -> None:
    def function(a: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert schema(function)["properties"] == {"a": {}}


def test_a_declared_schema_and_description_stand_instead() -> None:
    declared = fresh(effect="pure", description="Says.", parameters={"type": "object"})
    assert declared.spec.description == "Says."
    assert bytes(declared.spec.parameters) == b'{"type":"object"}'  # type: ignore[arg-type]


def test_an_effect_is_a_word_as_it_stands() -> None:
    assert fresh(effect=Effect.READ_ONLY).spec.effect == "read_only"
    assert fresh(effect="Safe").spec.effect == "Safe"
    assert fresh().spec.effect == ""


def test_a_simulator_is_noted_by_its_kind() -> None:
    assert fresh(effect="unsafe").spec.simulator is None
    assert fresh(effect="unsafe", simulate=Fixture({})).spec.simulator == "fixture"
    assert fresh(effect="unsafe", simulate=lambda state, **a: None).spec.simulator == "function"


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ({"effect": 1}, "an effect is a word"),
        ({"grants": {"read": ["."]}}, "grants are a Grants"),
        ({"grants": Grants(read="abc")}, "the grant read is a list of texts"),  # type: ignore[arg-type]
        ({"grants": Grants(network=(1,))}, "the grant network"),  # type: ignore[arg-type]
        ({"grants": Grants(write=("/etc",))}, "cannot grant to write"),
        ({"simulate": 3}, "cannot be simulated by int"),
        ({"simulate": add}, "cannot be simulated by Tool"),
        ({"parameters": {"a": {1}}}, "no JSON form"),
        ({"parameters": {"a": float("nan")}}, "no JSON form"),
    ],
)
def test_a_malformed_declaration_is_refused_by_name(declared: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        fresh(**declared)


def test_grants_written_as_a_list_become_a_tuple() -> None:
    assert fresh(grants=Grants(read=["."])).spec.grants == Grants(read=(".",))  # type: ignore[arg-type]


async def _late(a: int) -> None: ...


def _many(a: int) -> Iterator[int]:
    yield a


@pytest.mark.parametrize(
    "function",
    [_late, _many, int, add, 3, functools.partial(print), lambda *a: None, lambda a, /: None],
)
def test_only_a_plain_function_of_named_arguments_is_a_tool(function: Any) -> None:
    with pytest.raises(UsageError, match="tool 't'"):
        tool("t", effect="pure")(function)


def test_a_function_that_hides_its_signature_is_no_tool() -> None:
    with pytest.raises(UsageError, match="signature cannot be read"):
        tool("t", effect="pure")(getattr)


def test_an_id_is_a_text() -> None:
    with pytest.raises(UsageError, match="id is a text"):
        tool(len)  # type: ignore[arg-type]


def test_a_fixture_answers_equal_arguments_with_a_fresh_copy() -> None:
    fixture = Fixture({'{"b": 1.0, "a": "x"}': {"sent": [True]}})
    first = fixture.answer({"a": "x", "b": 1})
    first["sent"].append(1)
    assert fixture.answer({"b": 1, "a": "x"}) == {"sent": [True]}


def test_a_fixture_makes_nothing_up() -> None:
    fixture = Fixture([({"a": 1}, "one"), ({"a": None}, None)])
    assert fixture.answer({"a": 1}) == "one"
    assert fixture.answer({"a": None}) is None
    for arguments in ({"a": True}, {"a": "1"}, {}, {"a": 1, "b": 2}):
        with pytest.raises(FixtureMissError, match="no answer for"):
            fixture.answer(arguments)


def test_a_fixture_may_answer_any_other_arguments() -> None:
    fixture = Fixture({"*": "any", '{"a":1}': "one"})
    assert (fixture.answer({"a": 1}), fixture.answer({"a": 2})) == ("one", "any")


@pytest.mark.parametrize(
    ("answers", "what"),
    [
        ({"a": 1}, "asked by a JSON object"),
        ({"[]": 1}, "asked by a JSON object"),
        ([({"a": {1}}, 1)], "asked by a JSON object"),
        ({'{"a":1}': 1, '{"a": 1}': 2}, "twice"),
        ({"*": {1}}, "no JSON form"),
    ],
)
def test_a_malformed_fixture_is_refused(answers: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        Fixture(answers)
