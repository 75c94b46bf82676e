from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from redrive.importers.claude_drafts import Part, parts_of, task_of
from redrive.importers.claude_lines import Line
from redrive.record.event import Kind, ModelError, ToolCall, ToolResult, UserMessage, raw_value
from tests.claude_files import assistant, call, line, result, text, user


def read(value: dict[str, Any]) -> list[Part]:
    return parts_of(msgspec.convert(value, Line))


def only(value: dict[str, Any]) -> Any:
    (part,) = read(value)
    return part.payload


def test_an_answer_gives_a_response_and_one_call_a_block() -> None:
    parts = read(assistant(1, None, text("a"), call("c1", x=1), text("b"), call("c2"), answer="m"))
    assert [(part.kind, part.call_id, part.group) for part in parts] == [
        (Kind.MODEL_RESPONSE, None, "m"),
        (Kind.TOOL_CALL, "c1", "m"),
        (Kind.TOOL_CALL, "c2", "m"),
    ]
    response: Any = parts[0].payload
    assert (response.text, response.model, response.stop_reason) == ("a\nb", "model-x", "tool_use")
    assert (response.usage.input_tokens, response.usage.cache_read_tokens) == (10, None)


@pytest.mark.parametrize(
    ("given", "arguments", "words"),
    [
        ({"input": {"a": 1.0}}, {"a": 1.0}, None),
        ({"input": None}, None, None),
        ({"input": '{"a": 1}'}, UNSET, '{"a": 1}'),
        ({}, UNSET, None),
    ],
)
def test_arguments_stay_as_they_were_recorded(
    given: dict[str, Any], arguments: object, words: str | None
) -> None:
    block = {"type": "tool_use", "id": "c1", "name": "Bash", **given}
    payload = read(assistant(1, None, block))[1].payload
    assert isinstance(payload, ToolCall)
    assert raw_value(payload.arguments) == arguments
    assert payload.arguments_text == words


def test_a_call_that_the_provider_runs_says_so_and_carries_its_own_result() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
    parts = read(assistant(1, None, search, found))
    call_part, result_part = parts[1], parts[2]
    assert isinstance(call_part.payload, ToolCall)
    assert call_part.payload.is_provider_side
    assert (result_part.kind, result_part.call_id) == (Kind.TOOL_RESULT, "s1")


@pytest.mark.parametrize(
    ("content", "fields", "status"),
    [
        ("fine", {}, "ok"),
        ("fine", {"is_error": False}, "ok"),
        ("Exit code 1", {"is_error": True}, "error"),
        ("<tool_use_error>no such file</tool_use_error>", {}, "error"),
        ("[Request interrupted by user for tool use]", {}, "error"),
        ([text("fine")], {}, "ok"),
        ("fine", {"is_error": "yes"}, "ok"),
    ],
)
def test_a_result_keeps_its_value_and_whether_it_failed(
    content: Any, fields: dict[str, Any], status: str
) -> None:
    payload = only(user(1, None, [result("c1", content, **fields)]))
    assert isinstance(payload, ToolResult)
    assert (raw_value(payload.result), payload.status) == (content, status)


def test_an_absent_result_is_not_a_null_one() -> None:
    absent = only(user(1, None, [{"type": "tool_result", "tool_use_id": "c1"}]))
    null = only(user(1, None, [result("c1", None)]))
    assert (raw_value(absent.result), raw_value(null.result)) == (UNSET, None)


@pytest.mark.parametrize(
    ("words", "decision", "by"),
    [
        ("The user doesn't want to proceed with this tool use. STOP", "denied", "user"),
        ("Permission to use Bash has been denied.", "denied", "rule"),
        ("Claude requested permissions to write to x, but", "asked", None),
    ],
)
def test_a_call_that_was_not_let_through_has_a_permission_before_its_result(
    words: str, decision: str, by: str | None
) -> None:
    parts = read(user(1, None, [result("c1", words, is_error=True)]))
    assert [(part.kind, part.call_id) for part in parts] == [
        (Kind.TOOL_PERMISSION, "c1"),
        (Kind.TOOL_RESULT, "c1"),
    ]
    permission: Any = parts[0].payload
    assert (permission.decision, permission.by) == (decision, by)
    assert [part.kind for part in read(user(1, None, [result("c1", words)]))] == [Kind.TOOL_RESULT]


def test_a_small_image_is_kept_and_a_large_one_is_told_by_its_size() -> None:
    def image(size: int) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "data": "A" * size}}

    small = only(user(1, None, [text("See"), image(100)]))
    assert isinstance(small, UserMessage)
    assert raw_value(small.content) == [text("See"), image(100)]
    message, note = read(user(1, None, [text("See"), image(70_000)]))
    assert isinstance(message.payload, UserMessage)
    assert message.payload.content is UNSET
    assert "70" in str(note.payload)
    assert note.kind is Kind.NOTE


def test_what_the_program_wrote_in_the_models_place_is_no_decision() -> None:
    filler = read(assistant(1, None, text("No response requested."), model="<synthetic>"))
    assert [part.kind for part in filler] == [Kind.NOTE]
    error = only(assistant(1, None, text("API Error: 529 overloaded"), model="<synthetic>"))
    assert error == ModelError(status=529, message="API Error: 529 overloaded")
    lost = only(assistant(1, None, text("API Error: socket closed"), isApiErrorMessage=True))
    assert lost.status is None


def test_a_retried_model_error_keeps_status_attempt_and_delay() -> None:
    value = line(
        1,
        None,
        "system",
        subtype="api_error",
        error={"status": 529},
        retryAttempt=2,
        retryInMs=1500.5,
    )
    assert only(value) == ModelError(status=529, attempt=2, delay_s=1.5005)
    hostile = {**value, "error": "x", "retryAttempt": True, "retryInMs": "soon"}
    assert only(hostile) == ModelError()


@pytest.mark.parametrize(
    ("value", "label", "words"),
    [
        (line(1, None, "system", subtype="turn_duration"), "system/turn_duration", None),
        (line(1, None, "progress", data={"type": "hook_progress"}), "progress/hook_progress", None),
        ({"type": "permission-mode", "permissionMode": "plan"}, "permission-mode", "plan"),
        ({"type": "summary", "summary": "Did it", "leafUuid": "x"}, "summary", "Did it"),
        ({"silly": "this"}, "untyped", None),
        (user(1, None, []), "user", None),
    ],
)
def test_what_no_rule_understands_is_a_note(
    value: dict[str, Any], label: str, words: str | None
) -> None:
    payload = only(value)
    assert (payload.label, payload.text) == (label, words)


def test_a_task_is_what_a_person_asked() -> None:
    def task(value: dict[str, Any]) -> str | None:
        return task_of(msgspec.convert(value, Line))

    assert task(user(1, None, "Fix it")) == "Fix it"
    assert task(user(1, None, [text("Fix it")])) == "Fix it"
    assert task(user(1, None, "Fix it", isMeta=True)) is None
    assert task(user(1, None, "Fix it", isSidechain=True)) is None
    assert task(user(1, None, "So far", isCompactSummary=True)) is None
    assert task(user(1, None, "<command-name>/clear</command-name>")) is None
    assert task(user(1, None, [result("c1")])) is None
    assert task(assistant(1, None, text("Fix it"))) is None
