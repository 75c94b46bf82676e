from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import UNSET, Raw

from redrive.errors import ModelError, PluginError, UsageError
from redrive.models.adapters import config_of, from_complete, from_step_fn, read_reply
from redrive.models.options import ModelOptions
from redrive.record.event import Sampling
from redrive.replay.ports import CallAsked, ModelFingerprint, ModelQuery, ModelReply, Override

HISTORY = ({"role": "user", "content": "go", "tool_calls": [{"name": "a"}]},)


def test_complete_gets_the_recorded_prompt_and_what_was_recorded_or_overridden() -> None:
    seen: list[tuple[str, Mapping[str, Any]]] = []

    def complete(prompt: str, config: Mapping[str, Any]) -> str:
        seen.append((prompt, config))
        return "done"

    query = ModelQuery(
        1,
        prompt="[user] go",
        sampling=Sampling(temperature=0.7, seed=0, extra={"min_p": 0.1}),
        recorded_model=ModelFingerprint(requested="m-1"),
        overrides=(Override("temperature", 0),),
    )
    reply = from_complete(complete).decide(query)
    assert (reply.text, reply.calls, reply.is_final) == ("done", (), True)
    assert reply.latency_s is not None
    assert seen == [("[user] go", {"model": "m-1", "temperature": 0, "seed": 0, "min_p": 0.1})]


def test_without_a_prompt_the_body_is_completed_and_without_both_it_is_a_usage_error() -> None:
    model = from_complete(lambda prompt, config: prompt)
    assert model.decide(ModelQuery(1, body='{"a":1}')).text == '{"a":1}'
    with pytest.raises(UsageError, match="no recorded context") as caught:
        model.decide(ModelQuery(4))
    assert caught.value.where == "decision 4"
    model.close()


@pytest.mark.parametrize(
    ("body", "config"),
    [
        ('{"model":"m-2","seed":3,"temperature":null,"tools":[]}', {"model": "m-2", "seed": 3}),
        ("[]", {"seed": 9}),
        ("{half", {"seed": 9}),
        (None, {"seed": 9}),
    ],
)
def test_a_recorded_body_is_the_better_source_of_sampling(
    body: str | None, config: dict[str, Any]
) -> None:
    assert config_of(ModelQuery(1, body=body), ModelOptions(seed=9)) == config


def test_a_step_function_gets_a_copy_so_that_mutation_changes_nothing() -> None:
    def step(messages: list[dict[str, Any]]) -> dict[str, Any]:
        messages[0]["tool_calls"].append("spoiled")
        messages.clear()
        return {"tool": "a", "arguments": {"x": 1}}

    query = ModelQuery(1, messages=HISTORY)
    model = from_step_fn(step)
    first, second = model.decide(query), model.decide(query)
    assert query.messages == ({"role": "user", "content": "go", "tool_calls": [{"name": "a"}]},)
    assert first.calls == second.calls == (CallAsked("a", Raw(b'{"x":1}')),)


def test_later_changes_to_returned_arguments_change_no_reply() -> None:
    arguments = {"x": [1]}
    reply = from_step_fn(lambda messages: {"tool": "a", "arguments": arguments}).decide(
        ModelQuery(1)
    )
    arguments["x"].append(2)
    assert reply.calls[0].arguments == Raw(b'{"x":[1]}')


@pytest.mark.parametrize(
    ("returned", "reply"),
    [
        ("hi", ModelReply("hi", is_final=True)),
        ({"text": "hi"}, ModelReply("hi", is_final=True)),
        ({"text": "hi", "final": False}, ModelReply("hi")),
        ({"tool": "a"}, ModelReply(calls=(CallAsked("a"),))),
        ({"tool": "a", "final": True}, ModelReply(calls=(CallAsked("a"),), is_final=True)),
        (
            {
                "text": "t",
                "tool_calls": [
                    {"name": "a", "args": {}, "call_id": "c1"},
                    {"tool": "b", "args_json": "{x"},
                ],
            },
            ModelReply("t", (CallAsked("a", Raw(b"{}"), None, "c1"), CallAsked("b", UNSET, "{x"))),
        ),
        ({"tool_calls": [], "text": "t"}, ModelReply("t", is_final=True)),
    ],
)
def test_every_documented_shape_of_a_decision_is_read(returned: object, reply: ModelReply) -> None:
    assert read_reply(returned, "tool_calls", where="here") == reply


def test_a_text_holds_the_call_where_decisions_are_json_content() -> None:
    reply = read_reply('{"tool":"a"}', "json_content", where="here")
    assert (reply.calls, reply.is_final) == ((CallAsked("a"),), False)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "returned NoneType"),
        ({}, "returned dict"),
        ({"tool_calls": ["a"]}, "without a name"),
        ({"tool_calls": [{"args": {}}]}, "without a name"),
        ({"tool": "a", "arguments": {"x": {1}}}, "no JSON"),
        ({"tool": "a", "arguments": float("nan")}, "no JSON"),
    ],
)
def test_anything_else_is_a_model_error(returned: object, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_step_fn(lambda messages: returned).decide(ModelQuery(2))


def test_a_reply_of_the_callable_passes_as_it_is() -> None:
    reply = ModelReply("x", latency_s=1.0)
    assert from_step_fn(lambda messages: reply).decide(ModelQuery(1)) is reply


def test_an_exception_of_the_callable_is_one_line_with_its_place() -> None:
    def step(messages: list[dict[str, Any]]) -> object:
        raise KeyError("two\nlines")

    with pytest.raises(PluginError, match="raised KeyError: ") as caught:
        from_step_fn(step).decide(ModelQuery(1))
    assert "\n" not in caught.value.message
    assert caught.value.where.startswith(f"{__file__}:")


def test_an_exception_without_a_frame_of_its_own_has_no_place() -> None:
    with pytest.raises(PluginError, match="TypeError"):
        from_step_fn(len).decide(ModelQuery(1, messages=None))  # type: ignore[arg-type]
