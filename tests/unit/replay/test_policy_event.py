from types import MappingProxyType

import pytest

from redrive.record.event import (
    Custom,
    Kind,
    ModelError,
    ModelResponse,
    Read,
    SessionEnded,
    ToolCall,
    ToolPermission,
    ToolResult,
    UserMessage,
    raw_of,
)
from redrive.record.session import FLAG_META
from redrive.replay.policy_event import freeze, thaw, view
from tests.policy_sessions import NS, make_event


def seen(kind, payload, **fields):
    return view(make_event(0, kind, payload, **fields))


def test_a_call_has_its_tool_arguments_and_command():
    event = seen(Kind.TOOL_CALL, ToolCall("Bash", raw_of({"command": "ls", "more": [{"a": 1}]})))
    assert (event.tool, event.command) == ("Bash", "ls")
    assert event.arguments["more"] == (MappingProxyType({"a": 1}),)
    with pytest.raises(TypeError):
        event.arguments["command"] = "rm"
    assert (event.text, event.status, event.result, event.exit_code) == (None, None, None, None)
    assert not event.was_denied
    assert seen(Kind.TOOL_CALL, ToolCall("Read", raw_of({"path": "a"}))).command is None


def test_a_result_has_its_value_status_and_exit_code():
    value = {"exit_code": 2, "stdout": ["x"]}
    event = seen(Kind.TOOL_RESULT, ToolResult("error", raw_of(value)))
    assert (event.status, event.exit_code, event.result["stdout"]) == ("error", 2, ("x",))
    assert event.command is None
    assert dict(event.arguments) == {}
    assert seen(Kind.TOOL_RESULT, ToolResult()).result is None
    assert seen(Kind.TOOL_RESULT, ToolResult(result=raw_of("rejected by user"))).was_denied


def test_other_kinds_have_their_own_words():
    permission = seen(Kind.TOOL_PERMISSION, ToolPermission("denied", tool="Bash"))
    assert (permission.decision, permission.tool) == ("denied", "Bash")
    assert seen(Kind.CLOCK_READ, Read("now")).name == "now"
    assert seen(Kind.SESSION_ENDED, SessionEnded("success")).status == "success"
    assert seen(Kind.MODEL_ERROR, ModelError(status=429)).status == "429"
    custom = seen(Kind.CUSTOM, Custom("freeze", raw_of({"on": True, "of": [1]})))
    assert (custom.name, dict(custom.data)) == ("freeze", {"on": True, "of": (1,)})
    assert dict(seen(Kind.CUSTOM, Custom("x", raw_of([1]))).data) == {}
    assert dict(permission.data) == {}
    assert permission.details == ToolPermission("denied", tool="Bash")


def test_the_only_clock_is_the_events_own_time():
    answer = ModelResponse("a")
    assert seen(Kind.MODEL_RESPONSE, answer, ts_ns=3 * NS // 2).now_s == 1.5
    assert seen(Kind.MODEL_RESPONSE, answer).now_s is None
    assert view(make_event(0, Kind.MODEL_RESPONSE, answer), ends_turn=True).ends_turn


def test_what_a_harness_wrote_is_not_from_the_user():
    assert seen(Kind.USER_MESSAGE, UserMessage("u")).is_from_user
    assert not seen(Kind.USER_MESSAGE, UserMessage("u"), flags=(FLAG_META,)).is_from_user
    assert not seen(Kind.MODEL_RESPONSE, ModelResponse("a")).is_from_user


def test_a_frozen_value_comes_back_as_it_was():
    value = {"a": [1, {"b": None}], "c": "d"}
    assert thaw(freeze(value)) == value
