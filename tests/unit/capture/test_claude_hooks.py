import json
from typing import Any

import pytest
from msgspec import Raw

from redrive.capture.claude_hooks import MAX_BYTES, report_hook
from redrive.errors import UsageError
from redrive.record.event import Kind, ToolPermission, ToolResult, payload_of, raw_value
from tests.recorded import Recorded, said

ANTHROPIC_URL = "https://api.example/v1/messages"
COMMON = {"session_id": "s", "transcript_path": "/t.jsonl", "cwd": "/p", "permission_mode": "plan"}


def hook(event: str, **fields: Any) -> bytes:
    return json.dumps({"hook_event_name": event} | COMMON | fields).encode()


def used(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}


def recorded(*calls: dict[str, Any]) -> Recorded:
    """Record an exchange whose answer holds these calls, as the proxy sees it."""
    found = Recorded(by_context=False)
    body = {"model": "m", "max_tokens": 9, "messages": [said("user", "go")]}
    answer = {"id": "msg_1", "type": "message", "model": "m", "role": "assistant"}
    answer |= {"content": calls, "stop_reason": "tool_use"}
    found.exchange(json.dumps(body).encode(), json.dumps(answer).encode(), url=ANTHROPIC_URL)
    return found


def results(found: Recorded) -> list[tuple[str | None, ToolResult]]:
    return [(event.call_id, payload_of(event)) for event in found.sink.of_kind(Kind.TOOL_RESULT)]


def customs(found: Recorded) -> list[tuple[str, Any]]:
    payloads = [payload_of(event) for event in found.sink.of_kind(Kind.CUSTOM)]
    return [(payload.name, raw_value(payload.data)) for payload in payloads]


def test_a_result_answers_the_call_with_its_id_at_the_hook_seam():
    found = recorded(used("toolu_1", "Read", file_path="a"), used("toolu_2", "Read", file_path="a"))
    answer = {"tool_name": "Read", "tool_input": {"file_path": "a"}, "tool_response": {"n": 2}}
    report_hook(hook("PostToolUse", tool_use_id="toolu_2", **answer), found.backend)
    ((call_id, result),) = results(found)
    assert (call_id, result.seam, result.status, result.tool) == ("toolu_2", "hook", "ok", "Read")
    assert raw_value(result.result) == {"n": 2}
    assert raw_value(result.executed) is raw_value(ToolResult().executed)
    assert found.faults == []


def test_without_an_id_tool_and_arguments_tell_the_call():
    found = recorded(used("toolu_1", "Bash", command="ls"), used("toolu_2", "Bash", command="pwd"))
    answer = {"tool_name": "Bash", "tool_input": {"command": "pwd"}, "tool_response": "/p"}
    report_hook(hook("PostToolUse", **answer), found.backend)
    assert [call_id for call_id, _ in results(found)] == ["toolu_2"]


def test_arguments_that_another_hook_changed_are_kept_as_what_was_run():
    found = recorded(used("toolu_1", "Bash", command="rm -r x"))
    answer = {"tool_name": "Bash", "tool_input": {"command": "ls x"}, "tool_response": ""}
    report_hook(hook("PostToolUse", tool_use_id="toolu_1", **answer), found.backend)
    ((_, result),) = results(found)
    assert raw_value(result.executed) == {"command": "ls x"}


def test_a_failed_tool_is_an_error():
    found = recorded(used("toolu_1", "Bash", command="false"))
    failed = {"tool_name": "Bash", "tool_input": {"command": "false"}, "error": "exit 1"}
    report_hook(hook("PostToolUseFailure", tool_use_id="toolu_1", **failed), found.backend)
    ((_, result),) = results(found)
    assert result.status == "error"
    assert raw_value(result.result) == {"error": "exit 1"}


def test_a_result_that_another_seam_saw_first_is_written_beside_and_not_twice():
    found = recorded(used("toolu_1", "mcp__files__read", path="a"))
    call = found.backend.begin_call(
        "files__read", "unsafe", Raw(b'{"path":"a"}'), is_unsafe=True, seam="mcp"
    )
    call.returned(Raw(b'{"content":[]}'))
    answer = {"tool_name": "mcp__files__read", "tool_input": {"path": "a"}, "tool_response": []}
    report_hook(hook("PostToolUse", tool_use_id="toolu_1", **answer), found.backend)
    assert len(results(found)) == 1
    name, data = customs(found)[-1]
    assert name == "tool.reported"
    assert data == {
        "seam": "hook",
        "call_id": "toolu_1",
        "tool": "mcp__files__read",
        "arguments": {"path": "a"},
        "status": "ok",
        "result": [],
    }


def test_a_reported_result_is_not_taken_from_the_next_request_again():
    found = recorded(used("toolu_1", "Read", file_path="a"))
    answer = {"tool_name": "Read", "tool_input": {"file_path": "a"}, "tool_response": "text"}
    report_hook(hook("PostToolUse", tool_use_id="toolu_1", **answer), found.backend)
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "     1  text"}
    messages = [said("user", "go")]
    messages += [{"role": "assistant", "content": [used("toolu_1", "Read", file_path="a")]}]
    messages += [{"role": "user", "content": [result]}]
    body = {"model": "m", "max_tokens": 9, "messages": messages}
    found.send(json.dumps(body).encode(), url=ANTHROPIC_URL)
    assert [result.seam for _, result in results(found)] == ["hook"]


def test_what_is_about_to_run_is_written_down_and_durable():
    found = recorded(used("toolu_1", "Bash", command="rm x"))
    about = {"tool_name": "Bash", "tool_input": {"command": "rm x"}, "tool_use_id": "toolu_1"}
    report_hook(hook("PreToolUse", agent_id="a7", **about), found.backend)
    name, data = customs(found)[-1]
    assert name == "tool.intent"
    assert data == {
        "call_id": "toolu_1",
        "tool": "Bash",
        "arguments": {"command": "rm x"},
        "session_id": "s",
        "agent_id": "a7",
        "permission_mode": "plan",
        "cwd": "/p",
    }
    assert found.sink.n_flushed == len(found.sink.events)
    assert found.sink.of_kind(Kind.TOOL_PERMISSION) == []


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("PermissionRequest", ToolPermission(decision="asked", by="user", tool="Bash")),
        (
            "PermissionDenied",
            ToolPermission(decision="denied", tool="Bash", reason="it is outside the project"),
        ),
    ],
)
def test_permissions_are_recorded_as_what_was_decided(event: str, expected: ToolPermission):
    found = recorded(used("toolu_1", "Bash", command="rm x"))
    fields = {"tool_name": "Bash", "tool_input": {}}
    if event == "PermissionDenied":
        fields |= {"tool_use_id": "toolu_1", "reason": expected.reason}
    report_hook(hook(event, **fields), found.backend)
    (told,) = found.sink.of_kind(Kind.TOOL_PERMISSION)
    assert payload_of(told) == expected
    assert told.call_id == fields.get("tool_use_id")


@pytest.mark.parametrize("event", ["UserPromptSubmit", "SessionStart", "SubagentStop", "New"])
def test_every_other_event_is_a_note_with_its_input_as_it_came(event: str):
    found = Recorded(by_context=False)
    report_hook(hook(event, prompt="ä") + b"\n", found.backend)
    ((name, data),) = customs(found)
    assert name == f"hook.{event}"
    assert data["input"] == {"hook_event_name": event} | COMMON | {"prompt": "ä"}


def test_lone_surrogates_in_a_result_are_recorded():
    found = recorded(used("toolu_1", "Bash", command="cat x"))
    data = hook("PostToolUse", tool_use_id="toolu_1", tool_name="Bash", tool_response="\ud800")
    report_hook(data, found.backend)
    ((_, result),) = results(found)
    assert raw_value(result.result) == "\ud800"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no hook input"),
        (b"[]", "no hook input"),
        (b'{"hook_event_name": "\xff"}', "not UTF-8"),
        (b'{"hook_event_name": 5}', "without hook_event_name"),
        (b'{"hook_event_name": "PreToolUse"}', "without tool_name"),
        (b" " * (MAX_BYTES + 1), "bytes"),
    ],
)
def test_what_is_no_hook_input_is_refused_and_nothing_is_recorded(data: bytes, reason: str):
    found = Recorded(by_context=False)
    before = len(found.sink.events)
    with pytest.raises(UsageError, match=reason):
        report_hook(data, found.backend)
    assert len(found.sink.events) == before
