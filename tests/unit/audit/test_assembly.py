import json
from collections.abc import Sequence

import pytest
from msgspec import UNSET

from redrive.audit.assembly import (
    Assembly,
    assistant_message,
    tool_message,
    user_message,
)
from redrive.audit.renderers import Message, render_json_v1
from redrive.errors import PluginError
from redrive.record.event import ContextReplaced, ToolCall, ToolResult, UserMessage, raw_of


def render_whole(parts: Sequence[Message]) -> bytes:
    return repr(len(parts)).encode()


def test_without_a_renderer_nothing_is_checked_and_nothing_is_kept() -> None:
    assembly = Assembly(None, "", "go")
    assembly.give_up("a result is missing")
    assert not assembly.is_checked
    assert assembly.compare("anything") is None
    assert assembly.note() == "assembly: not checked"


def test_the_reason_for_not_checking_is_said_and_the_first_one_stays() -> None:
    assembly = Assembly(render_json_v1, "", "go")
    assembly.give_up("one")
    assembly.give_up("two")
    assembly.add({"role": "user", "content": "x"})
    assert assembly.note() == "assembly: not checked (one)"


def test_messages_are_compared_as_rendered_so_far() -> None:
    assembly = Assembly(render_json_v1, "", "go")
    assert assembly.compare('[{"role": "user", "content": "go"}]') is None
    assembly.add({"role": "user", "content": 1})
    assert assembly.compare('[{"role": "user", "content": "go"}]') is not None
    assert (
        assembly.compare('[{"role": "user", "content": "go"}, {"role": "user", "content": 1}]')
        is None
    )


def test_without_a_task_the_list_begins_empty() -> None:
    assert Assembly(render_json_v1, "", None).compare("[]") is None


def test_a_renderer_of_whole_lists_is_given_the_whole_list() -> None:
    assembly = Assembly(render_whole, "", "go")
    assembly.add({"role": "user", "content": "x"})
    assert assembly.compare("2") is None


def test_a_renderer_that_fails_is_named_as_a_plug_ins_fault() -> None:
    def render(parts: Sequence[Message]) -> bytes:
        raise KeyError("role")

    with pytest.raises(PluginError, match="renderer"):
        Assembly(render, "", "go").compare("x")


def test_a_compaction_with_its_new_list_starts_over() -> None:
    assembly = Assembly(render_json_v1, "", "go")
    assembly.replace(ContextReplaced(after=raw_of([{"role": "user", "content": "sum"}])))
    assert assembly.compare('[{"role": "user", "content": "sum"}]') is None
    whole = Assembly(render_whole, "", "go")
    whole.replace(ContextReplaced(after=raw_of([{}, {}])))
    assert whole.compare("2") is None


@pytest.mark.parametrize("after", [UNSET, raw_of("a summary"), raw_of(["a summary"])])
def test_a_compaction_without_its_new_list_ends_the_check(after: object) -> None:
    assembly = Assembly(render_json_v1, "", "go")
    assembly.replace(ContextReplaced(after=after))  # type: ignore[arg-type]
    assert "compaction" in assembly.note()


def test_the_neutral_form_of_each_message() -> None:
    assert user_message(UserMessage("hi")) == {"role": "user", "content": "hi"}
    many = UserMessage(content=raw_of([{"type": "text"}]), role="system")
    assert user_message(many) == {"role": "system", "content": [{"type": "text"}]}
    assert assistant_message("ok", []) == {"role": "assistant", "content": "ok"}
    calls = [
        ("c1", ToolCall("t", arguments=raw_of({"b": 1.0, "a": 2}))),
        ("c2", ToolCall("t", arguments_text="")),
        (None, ToolCall("t")),
    ]
    assert json.dumps(assistant_message("", calls)["tool_calls"]) == (
        '[{"call_id": "c1", "name": "t", "args": {"b": 1.0, "a": 2}},'
        ' {"call_id": "c2", "name": "t", "args_json": ""}, {"call_id": null, "name": "t"}]'
    )
    result = ToolResult(result=raw_of(None))
    assert tool_message("c", result) == {"role": "tool", "call_id": "c", "content": None}
