import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from redrive.app.trial_calls import Ran, ToolDesk
from redrive.app.trial_mcp_endpoint import MAX_BATCH, McpEndpoint
from redrive.app.trial_messages import CallTold
from redrive.app.trial_state import RunState
from redrive.audit.workflow import ToolSpec, WorkflowSpec
from redrive.capture.ports import ServedAnswer
from redrive.capture.recording import RecordingBackend
from redrive.record.event import SessionStarted
from redrive.replay.trial_plan import RunLimits
from tests.trial_runs import unchecked


class _Sink:
    def put(self, events: Any, artefacts: Any = ()) -> None:
        pass

    def flush(self) -> None:
        pass


class _Runner:
    """Gives back the arguments, or fails where it is told to."""

    async def run(self, tool: ToolSpec, arguments: Any) -> Ran:
        if arguments.get("fail"):
            return Ran(CallTold(error=("ValueError", "no luck")))
        return Ran(CallTold(result=json.dumps(arguments.get("value", arguments)).encode()))


@pytest.fixture
def endpoint() -> McpEndpoint:
    schema = Raw(b'{"type":"object","properties":{"value":{}}}')
    echo = ToolSpec("echo", "pure", description="Echo.", parameters=schema)
    spec = WorkflowSpec("w", "1", tools=(echo, ToolSpec("bare", "pure")))
    state = RunState(RunLimits())
    backend = RecordingBackend(_Sink(), "s", SessionStarted(), now_ns=lambda: 0, by_context=False)
    desk = ToolDesk(unchecked(spec, "echo", "bare"), state, _Runner(), lambda: backend)
    return McpEndpoint(desk, state)


def _ask(endpoint: McpEndpoint, message: Any) -> Any:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    answer = asyncio.run(endpoint.handle(body))
    return answer if isinstance(answer, ServedAnswer) else json.loads(answer)


def _request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": "a", "method": method, "params": params}


def test_it_introduces_itself_in_a_version_that_both_know(endpoint: McpEndpoint) -> None:
    for asked, given in (("2025-03-26", "2025-03-26"), ("1999-01-01", "2025-06-18")):
        answer = _ask(endpoint, _request("initialize", protocolVersion=asked))
        assert answer["id"] == "a"
        assert answer["result"]["protocolVersion"] == given
        assert answer["result"]["capabilities"] == {"tools": {}}
    assert _ask(endpoint, _request("ping"))["result"] == {}


def test_it_lists_the_tools_that_may_be_called(endpoint: McpEndpoint) -> None:
    tools = _ask(endpoint, _request("tools/list"))["result"]["tools"]
    assert [(tool["name"], tool["description"]) for tool in tools] == [
        *(("echo", "Echo."), ("bare", ""))
    ]
    assert tools[1]["inputSchema"] == {"type": "object"}


def test_a_result_is_text_and_an_object_is_structured_as_well(endpoint: McpEndpoint) -> None:
    def call(**arguments: Any) -> Any:
        return _ask(endpoint, _request("tools/call", name="echo", arguments=arguments))["result"]

    assert call(value="plain") == {
        "content": [{"type": "text", "text": "plain"}],
        "isError": False,
    }
    assert call(value={"a": 1})["structuredContent"] == {"a": 1}
    assert call(value=[1])["content"][0]["text"] == "[1]"
    failed = call(fail=True)
    assert (failed["isError"], failed["content"][0]["text"]) == (True, "ValueError: no luck")


def test_a_tool_that_is_not_declared_is_denied(endpoint: McpEndpoint) -> None:
    answer = _ask(endpoint, _request("tools/call", name="rm", arguments={}))["result"]
    assert answer["isError"] is True
    assert answer["content"][0]["text"].startswith("denied: ")
    assert [call.tool for call in endpoint._state.denied] == ["rm"]


def test_notifications_are_accepted_and_batches_answered_in_order(endpoint: McpEndpoint) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert _ask(endpoint, note) == ServedAnswer(202, (), b"")
    answers = _ask(endpoint, [_request("ping"), note, _request("tools/list")])
    assert ["tools" in answer["result"] for answer in answers] == [False, True]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"nonsense", -32700),
        (b"{}", -32700),
        (_request("resources/list"), -32601),
        (_request("tools/call", arguments={}), -32602),
    ],
)
def test_what_is_no_request_that_it_knows_is_an_error_of_the_protocol(
    endpoint: McpEndpoint, message: Any, code: int
) -> None:
    assert _ask(endpoint, message)["error"]["code"] == code


def test_a_batch_that_is_too_long_is_refused_whole(endpoint: McpEndpoint) -> None:
    answer = _ask(endpoint, [_request("tools/list")] * (MAX_BATCH + 1))
    assert answer["error"]["message"] == f"a batch of more than {MAX_BATCH} requests"
    assert len(_ask(endpoint, [_request("ping")] * MAX_BATCH)) == MAX_BATCH
