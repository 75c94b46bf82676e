import json
import threading

import pytest
from msgspec import Raw

from redrive import canonical
from redrive.capture import mcp
from redrive.capture.mcp_notes import MAX_DAMAGE_NOTES
from redrive.capture.ports import ServedResult
from redrive.errors import StoreError
from redrive.record.event import Custom, Kind, ToolResult, payload_of, raw_value
from tests.mcp_reporter import (
    Connection,
    call,
    error,
    notification,
    request,
    result,
    text,
)
from tests.recorded import Recorded, asks, chat_answer, chat_body, said

HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def shake_hands(connection: Connection, version: str) -> None:
    client = {"name": "agent", "version": "1"}
    connection.client(
        request(0, "initialize", protocolVersion=version, capabilities={}, clientInfo=client)
    )
    info = {"name": "disk", "version": "3"}
    told = {"protocolVersion": version, "serverInfo": info, "capabilities": {"tools": {}}}
    connection.server(result(0, **told, instructions="Be careful."))
    connection.client({"jsonrpc": "2.0", "method": "notifications/initialized"})


# --- who is there ------------------------------------------------------------------------------
@pytest.mark.parametrize("version", HANDSHAKES)
def test_a_handshake_names_server_client_and_version(version: str):
    connection = Connection()
    shake_hands(connection, version)
    assert connection.reporter.notes("server") == [
        {
            "server": "files",
            "info": {"name": "disk", "version": "3"},
            "protocol": version,
            "client": {"name": "agent", "version": "1"},
            "capabilities": {"tools": {}},
            "instructions_sha256": canonical.text_digest("Be careful."),
        }
    ]


@pytest.mark.parametrize("version", HANDSHAKES)
def test_a_call_of_every_handshake_version_is_reported_with_its_whole_result(version: str):
    connection = Connection()
    shake_hands(connection, version)
    connection.client(call(7, "read", arguments={"path": "a"}))
    answer = (
        b'{"jsonrpc": "2.0", "id": 7, "result": { "content":[], "structuredContent":{"n":1e2}}}'
    )
    connection.server(answer)
    assert connection.reporter.calls() == [
        ("call", "read", "unsafe", b'{"path": "a"}', True, "mcp"),
        ("returned", "read", b'{ "content":[], "structuredContent":{"n":1e2}}', False),
    ]


def test_a_server_without_handshake_is_known_by_what_its_messages_say():
    connection = Connection()
    version = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    told = {"io.modelcontextprotocol/serverInfo": {"name": "disk", "version": "4"}}
    connection.client(request(1, "server/discover", _meta=version))
    connection.server(result(1, supportedVersions=["2026-07-28"], capabilities={}, _meta=told))
    connection.client(call(2, "read", _meta=version))
    connection.server(result(2, resultType="complete", content=[]))
    assert connection.reporter.notes("server") == [
        {"server": "files", "protocol": "2026-07-28"},
        {
            "server": "files",
            "protocol": "2026-07-28",
            "info": {"name": "disk", "version": "4"},
            "capabilities": {},
        },
    ]
    assert [entry[0] for entry in connection.reporter.calls()] == ["call", "returned"]


def test_a_client_that_asks_nothing_first_is_known_by_the_server_s_listing():
    connection = Connection()
    connection.client(request(1, "tools/list", _meta={"io.modelcontextprotocol/clientInfo": 5}))
    told = {"io.modelcontextprotocol/serverInfo": {"name": "disk"}}
    connection.server(result(1, tools=[], _meta=told))
    assert connection.reporter.notes("server")[-1] == {
        "server": "files",
        "client": 5,
        "info": {"name": "disk"},
    }


# --- listings ----------------------------------------------------------------------------------
def test_each_page_of_a_listing_is_noted_and_hints_stay_hints():
    connection = Connection()
    hints = {"readOnlyHint": True}
    tool = {"name": "read", "annotations": hints, "inputSchema": {}}
    connection.client(request(1, "tools/list"))
    connection.server(result(1, tools=[tool], nextCursor="p2"))
    connection.client(request(2, "tools/list", cursor="p2"))
    connection.server(result(2, tools=[{"name": "write", "inputSchema": {}}]))
    first, second = connection.reporter.notes("listing")
    assert first["tools"][0]["hints"] == hints
    assert (first["cursor"], first["has_more"]) == (None, True)
    assert (second["cursor"], second["has_more"]) == ("p2", False)
    connection.client(call(3, "read"))
    assert connection.reporter.told[-1] == ("call", "read", "unsafe", b"{}", True, "mcp")


def test_a_listing_that_is_none_is_noted_as_damage():
    connection = Connection()
    connection.client(request(1, "tools/list"))
    connection.server(result(1, tools=5))
    assert connection.reporter.notes("listing") == []
    assert "no JSON array" in connection.reporter.notes("damage")[0]["reason"]


def test_a_changed_listing_is_noted():
    connection = Connection()
    connection.server(notification("notifications/tools/list_changed"))
    assert connection.reporter.notes("listing_changed") == [{"server": "files"}]


# --- calls -------------------------------------------------------------------------------------
def test_a_declared_effect_is_the_user_s_word():
    connection = Connection({"read": "read_only", "odd": "harmless"})
    connection.client(call(1, "read"), call(2, "odd"))
    assert [entry[2:5:2] for entry in connection.reporter.calls()] == [
        ("read_only", False),
        ("unsafe", True),
    ]


def test_concurrent_calls_are_told_apart_by_type_and_value_of_their_id():
    connection = Connection()
    connection.client(call(1, "a"), call("1", "b"), call(2, "c"))
    connection.server(result(2, content=text("c")), result("1", content=[]), result(1, content=[]))
    assert [entry[1] for entry in connection.reporter.calls()] == ["a", "b", "c", "c", "b", "a"]


def test_a_result_in_which_the_tool_says_that_it_failed_is_an_error_kept_whole():
    connection = Connection()
    connection.client(call(1, "read"))
    connection.server(result(1, content=text("no such file"), isError=True))
    _, ended = connection.reporter.calls()
    assert ended[3] is True
    assert json.loads(ended[2]) == {"content": text("no such file"), "isError": True}


def test_an_error_of_the_protocol_is_raised_and_noted_with_its_data():
    connection = Connection()
    connection.client(call(1, "nope"))
    connection.server(error(1, -32602, "Unknown tool", data={"near": "note"}))
    assert connection.reporter.calls()[-1] == (
        "raised",
        "nope",
        "JSON-RPC error -32602",
        "Unknown tool",
    )
    assert connection.reporter.notes("error")[0]["error"]["data"] == {"near": "note"}


def test_a_batch_of_the_older_version_is_seen_message_by_message():
    connection = Connection()
    connection.client([call(1, "a"), notification("notifications/x"), call(2, "b")])
    connection.server([result(1, content=[]), error(2, -1, "no")])
    assert [entry[:2] for entry in connection.reporter.calls()] == [
        ("call", "a"),
        ("call", "b"),
        ("returned", "a"),
        ("raised", "b"),
    ]


def test_a_cancelled_call_ends_at_once_and_a_late_answer_is_noted():
    connection = Connection()
    connection.client(call(4, "slow"))
    connection.client(notification("notifications/cancelled", requestId=4, reason="too long"))
    connection.server(result(4, content=[]))
    assert connection.reporter.calls()[-1] == ("raised", "slow", "Cancelled", "too long")
    (cancelled,) = connection.reporter.notes("cancelled")
    assert cancelled == {"server": "files", "by": "client", "reason": "too long", "tool": "slow"}
    assert connection.reporter.notes("late_answer")[0]["tool"] == "slow"
    assert connection.reporter.notes("damage") == []


def test_a_cancellation_that_comes_after_the_answer_changes_nothing():
    connection = Connection()
    connection.client(call(4, "quick"))
    connection.server(result(4, content=[]))
    connection.client(notification("notifications/cancelled", requestId=4))
    assert [entry[0] for entry in connection.reporter.told] == ["call", "returned"]


def test_progress_is_summed_up_where_its_call_ends():
    connection = Connection()
    connection.client(call(1, "slow", _meta={"progressToken": "t"}))
    for n in range(3):
        connection.server(notification("notifications/progress", progressToken="t", progress=n))
    connection.server(notification("notifications/progress", progressToken=9, progress=1))
    connection.server(notification("notifications/progress", progressToken=[], progress=1))
    connection.server(result(1, content=[]))
    connection.server(notification("notifications/progress", progressToken="t", progress=9))
    (progress,) = connection.reporter.notes("progress")
    assert (progress["n"], progress["last"]["progress"]) == (3, 2)
    assert connection.reporter.told[-1][0] == "returned"


def test_a_task_ends_with_the_result_that_is_asked_for():
    connection = Connection()
    connection.client(call(1, "build", task={"ttl": 1}))
    connection.server(result(1, task={"taskId": "T", "status": "working"}))
    connection.client(request(2, "tasks/get", taskId="T"))
    connection.server(result(2, taskId="T", status="completed"))
    connection.client(request(3, "tasks/result", taskId="T"))
    connection.server(result(3, content=text("built")))
    connection.client(request(4, "tasks/result", taskId="other"))
    connection.server(result(4, content=[]))
    assert [entry[:2] for entry in connection.reporter.calls()] == [
        ("call", "build"),
        ("returned", "build"),
    ]
    assert connection.reporter.notes("task")[0]["task"]["taskId"] == "T"
    assert connection.reporter.notes("exchange") == []


def test_a_call_that_needs_input_is_one_call():
    connection = Connection()
    connection.client(call(1, "deploy", arguments={}))
    asked = {"resultType": "input_required", "inputRequests": {"k": {}}}
    connection.server(result(1, **asked, requestState="s1"))
    connection.client(call(2, "deploy", requestState="s1", inputResponses={"k": {"action": "ok"}}))
    connection.server(result(2, **asked))
    connection.client(call(3, "deploy", arguments={}, inputResponses={"k": {}}))
    connection.server(result(3, resultType="complete", content=[]))
    assert [entry[0] for entry in connection.reporter.calls()] == ["call", "returned"]
    assert len(connection.reporter.notes("input_required")) == 2
    assert connection.reporter.notes("input")[0]["responses"] == {"k": {"action": "ok"}}


def test_input_for_a_call_that_was_not_seen_begins_one():
    connection = Connection()
    connection.client(call(1, "deploy", requestState="from before"))
    assert connection.reporter.calls()[0][:2] == ("call", "deploy")


def test_an_id_that_is_used_again_leaves_the_first_call_without_a_known_result():
    connection = Connection()
    connection.client(call(1, "a"), call(1, "b"))
    connection.server(result(1, content=[]))
    assert connection.reporter.calls()[1:] == [
        ("unknown", "a", "an id that was used again"),
        ("call", "b", "unsafe", b"{}", True, "mcp"),
        ("returned", "b", b'{"content": []}', False),
    ]


def answered(connection: Connection, *messages: object) -> bytes | None:
    data = json.dumps(messages[0] if len(messages) == 1 else messages).encode()
    return connection.observer.from_client(data).answer


def test_a_result_that_is_served_answers_its_call():
    connection = Connection()
    connection.reporter.served = ServedResult(Raw(b'{"content": []}'))
    assert answered(connection, call("a", "read")) == (
        b'{"jsonrpc":"2.0","id":"a","result":{"content": []}}'
    )
    assert answered(connection, request(2, "tools/list")) is None
    connection.observer.closed("over")
    assert connection.reporter.notes("closed")[0]["n_unanswered"] == 0


def test_in_a_batch_with_served_calls_nothing_else_reaches_the_server():
    connection = Connection()
    connection.reporter.served = ServedResult(Raw(b"{}"))
    found = answered(connection, call(1, "a"), request(2, "tools/list"), call(3, "b"))
    answers = {answer["id"]: answer for answer in json.loads(found or b"")}
    assert [answers[n].get("result") for n in (1, 3)] == [{}, {}]
    assert "a rerun serves" in answers[2]["error"]["message"]


# --- other traffic -----------------------------------------------------------------------------
def test_what_a_server_asks_of_its_client_is_noted_with_the_answer():
    connection = Connection()
    connection.server(request(1, "sampling/createMessage", maxTokens=5))
    connection.client(result(1, role="assistant"))
    connection.server(request(2, "ping"))
    connection.client(result(2))
    connection.server(request(3, "elicitation/create", message="Sure?"))
    connection.client(error(3, -1, "no"))
    connection.server(notification("notifications/cancelled", requestId=3))
    asked, elicited = connection.reporter.notes("server_request")
    assert (asked["method"], asked["params"]) == ("sampling/createMessage", {"maxTokens": 5})
    assert elicited["params"] == {"message": "Sure?"}
    answered, refused = connection.reporter.notes("client_answer")
    assert answered["result"] == {"role": "assistant"}
    assert refused["error"]["message"] == "no"


def test_a_server_that_takes_its_question_back_is_noted():
    connection = Connection()
    connection.server(request(3, "roots/list"))
    connection.server(notification("notifications/cancelled", requestId=3))
    assert connection.reporter.notes("cancelled")[0]["by"] == "server"
    assert connection.reporter.notes("cancelled")[0]["method"] == "roots/list"


def test_resources_and_prompts_that_reach_the_client_are_noted():
    connection = Connection()
    connection.client(request(1, "resources/read", uri="file:a"), request(2, "ping"))
    connection.server(result(1, contents=[]), result(2))
    (exchange,) = connection.reporter.notes("exchange")
    assert (exchange["method"], exchange["result"]) == ("resources/read", {"contents": []})
    assert exchange["params"] == {"uri": "file:a"}


def test_what_is_too_long_for_a_note_is_noted_by_digest_and_size():
    connection = Connection()
    connection.client(request(1, "resources/read", uri="file:a"))
    connection.server(result(1, contents="x" * 2_000_000))
    (exchange,) = connection.reporter.notes("exchange")
    assert "result" not in exchange
    assert exchange["result_bytes"] > 2_000_000


# --- garbage -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"Server listening on stdio", "not one JSON object"),
        (b'{"jsonrpc":"2.0","id":1}', "no message of JSON-RPC"),
        (b'{"id":1,"method":5}', "a method that is no text"),
        (b'{"id":[],"method":"x"}', "neither text nor number"),
        (b'{"id":true,"result":1}', "neither text nor number"),
        (b"[1,2]", "not one JSON object"),
        (b"[", "no JSON array"),
        (b'{"a":' + b"[" * 100_000, "deep"),
        (b'"\xff"', "UTF-8"),
        (b'{"id":1,"method":"tools/call","params":[]}', "without the name of a tool"),
        (b'{"id":9,"result":{}}', "an answer to nothing"),
        (b'{"id":null,"error":{"code":-32700,"message":"Parse error"}}', "an answer to nothing"),
        (b'{"method":"notifications/cancelled","params":{"requestId":{}}}', "neither text"),
    ],
)
def test_garbage_is_noted_and_never_fatal(garbage: bytes, reason: str):
    connection = Connection()
    connection.client(garbage)
    connection.server(garbage)
    assert any(reason in note["reason"] for note in connection.reporter.notes("damage"))
    connection.client(call(5, "read"))
    connection.server(result(5, content=[]))
    assert [entry[0] for entry in connection.reporter.calls()][-2:] == ["call", "returned"]


def test_lone_surrogates_in_a_result_are_kept_as_they_came():
    connection = Connection()
    connection.client(call(1, "read"))
    connection.server(b'{"jsonrpc":"2.0","id":1,"result":{"content":"\\ud800"}}')
    assert connection.reporter.calls()[-1][2] == b'{"content":"\\ud800"}'


def test_empty_lines_are_nothing():
    connection = Connection()
    connection.client(b"", b" \r")
    assert connection.reporter.told == []


def test_a_flood_of_garbage_is_noted_a_hundred_times_and_counted():
    connection = Connection()
    for _ in range(500):
        connection.server(b"noise")
    connection.observer.closed("over")
    assert len(connection.reporter.notes("damage")) == MAX_DAMAGE_NOTES
    assert connection.reporter.notes("closed")[0]["n_unreadable"] == 500


def test_a_flood_of_methods_is_counted_under_one_name():
    connection = Connection()
    for n in range(300):
        connection.server(notification(f"n{n}"))
    connection.observer.closed("over")
    counts = connection.reporter.notes("closed")[0]["from_server"]
    assert len(counts) == 101
    assert counts["other"] == 200


def test_requests_beyond_a_bound_are_not_observed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp, "MAX_PENDING", 2)
    connection = Connection()
    connection.client(*(call(n, "a") for n in range(4)))
    assert len(connection.reporter.calls()) == 2
    assert "without an answer" in connection.reporter.notes("damage")[0]["reason"]


def test_cancelled_calls_that_are_never_answered_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp, "MAX_PENDING", 2)
    connection = Connection()
    for n in range(4):
        connection.client(call(n, "a"), notification("notifications/cancelled", requestId=n))
    connection.server(result(0, content=[]), result(3, content=[]))
    assert len(connection.reporter.notes("late_answer")) == 1
    assert len(connection.reporter.notes("damage")) == 1


# --- the end -----------------------------------------------------------------------------------
def test_a_server_that_dies_ends_its_calls():
    connection = Connection()
    connection.client(call(1, "a"), call(2, "b", task={}))
    connection.server(result(2, task={"taskId": "T"}))
    connection.client(call(3, "c"))
    connection.server(result(3, resultType="input_required", requestState="s"))
    connection.observer.closed("the server ended with exit code 3")
    connection.observer.closed("again")
    assert {entry[1:] for entry in connection.reporter.calls() if entry[0] == "raised"} == {
        (tool, "ConnectionClosed", "the server ended with exit code 3") for tool in "abc"
    }
    (closed,) = connection.reporter.notes("closed")
    assert closed["n_unanswered"] == 3
    assert closed["from_client"] == {"tools/call": 3}
    assert closed["from_server"] == {"result": 2}
    connection.client(call(9, "late"))
    assert connection.reporter.told[-1][0] == "mcp.closed"


def test_a_call_whose_answer_may_be_among_garbage_has_no_known_result():
    connection = Connection()
    connection.client(call(1, "a"))
    connection.observer.skipped("server", 70_000_000, "too long")
    connection.observer.closed("over")
    assert connection.reporter.calls()[-1][0] == "unknown"
    assert connection.reporter.notes("damage")[0]["bytes"] == 70_000_000


def test_a_recorder_that_must_not_fail_is_heard():
    connection = Connection(is_fail_closed=True)
    connection.reporter.error = StoreError("disk full")
    with pytest.raises(StoreError):
        connection.client(call(1, "a"))
    with pytest.raises(StoreError):
        connection.observer.closed("over")


@pytest.mark.parametrize("error", [StoreError("disk full"), RuntimeError("a fault of ours")])
def test_a_recorder_that_fails_does_not_reach_the_client(error: Exception):
    connection = Connection()
    connection.reporter.error = error
    connection.client(call(1, "a"), request(2, "tools/list"))
    connection.server(result(1, content=[]), result(2, tools=[]), b"garbage")
    connection.observer.closed("over")
    assert connection.reporter.told == []


# --- exchanges that stand alone ----------------------------------------------------------------
def test_equal_ids_of_different_exchanges_are_different_requests():
    connection = Connection()
    connection.client(call(1, "a"), scope="x1")
    ((identity,), _) = connection.observer.from_client(json.dumps(call(1, "b")).encode(), "x2")
    connection.server(result(1, content=text("a")), scope="x1")
    connection.observer.gave_up([identity], "the client closed its side")
    assert [entry[:3] for entry in connection.reporter.calls()[2:]] == [
        ("returned", "a", b'{"content": [{"type": "text", "text": "a"}]}'),
        ("raised", "b", "Cancelled"),
    ]


def test_requests_whose_exchange_failed_are_lost_and_answered_ones_are_not():
    connection = Connection()
    first, _ = connection.observer.from_client(
        json.dumps([call(1, "a"), call(2, "b")]).encode(), "x"
    )
    connection.server(result(1, content=[]), scope="x")
    connection.observer.lost(first, "HTTP error", "status 500")
    connection.client(call(3, "c"), request(4, "ping"), scope="x")
    connection.client(call(3, "d"), scope="y")
    connection.observer.lost_all("x", "ConnectionClosed", "the session was ended")
    assert [entry[:3] for entry in connection.reporter.calls() if entry[0] == "raised"] == [
        ("raised", "b", "HTTP error"),
        ("raised", "c", "ConnectionClosed"),
    ]


def test_a_cancellation_finds_the_one_request_of_its_id_in_another_exchange():
    connection = Connection()
    connection.client(call(1, "a"), scope="x1")
    connection.client(notification("notifications/cancelled", requestId=1), scope="x2")
    assert connection.reporter.calls()[-1][2] == "Cancelled"


# --- with the backend that records -------------------------------------------------------------
def test_a_call_of_a_model_gets_its_result_at_the_mcp_seam():
    recorded = Recorded(by_context=False)
    asked = asks("c1", "mcp__files__read", '{"path": "a"}')
    recorded.exchange(chat_body(said("user", "hi")), chat_answer("", asked))
    observer = mcp.McpObserver("files", recorded.backend)
    observer.from_client(json.dumps(call(1, "read", arguments={"path": "a"})).encode())
    (intent,) = [payload_of(event) for event in recorded.sink.of_kind(Kind.CUSTOM)]
    assert isinstance(intent, Custom)
    assert intent.name == "tool.intent"
    assert recorded.sink.n_flushed == len(recorded.sink.events)
    observer.from_server(json.dumps(result(1, content=[], isError=True)).encode())
    (event,) = recorded.sink.of_kind(Kind.TOOL_RESULT)
    payload = payload_of(event)
    assert isinstance(payload, ToolResult)
    assert (event.call_id, payload.seam, payload.status) == ("c1", "mcp", "error")
    assert raw_value(payload.result) == {"content": [], "isError": True}
    assert recorded.faults == []


def test_of_two_servers_with_a_tool_of_one_name_each_result_goes_to_its_own_call():
    recorded = Recorded(by_context=False)
    first = asks("c1", "mcp__left__read", '{"path": "a"}')
    second = asks("c2", "mcp__right__read", '{"path": "a"}')
    recorded.exchange(chat_body(said("user", "hi")), chat_answer("", first, second))
    for server in ("right", "left"):
        observer = mcp.McpObserver(server, recorded.backend)
        observer.from_client(json.dumps(call(1, "read", arguments={"path": "a"})).encode())
        observer.from_server(json.dumps(result(1, content=text(server))).encode())
    found = {e.call_id: payload_of(e) for e in recorded.sink.of_kind(Kind.TOOL_RESULT)}
    assert raw_value(found["c1"].result) == {"content": text("left")}
    assert raw_value(found["c2"].result) == {"content": text("right")}
    assert found["c2"].tool == "right__read"


@pytest.mark.parametrize("shown", ["read", "mcp__files__read", "mcp__other_name__read"])
def test_a_client_may_show_a_tool_under_another_name(shown: str):
    recorded = Recorded(by_context=False)
    asked = asks("c1", shown, '{"path": "a"}')
    recorded.exchange(chat_body(said("user", "hi")), chat_answer("", asked))
    observer = mcp.McpObserver("files", recorded.backend)
    observer.from_client(json.dumps(call(1, "read", arguments={"path": "a"})).encode())
    observer.from_server(json.dumps(result(1, content=[])).encode())
    assert [event.call_id for event in recorded.sink.of_kind(Kind.TOOL_RESULT)] == ["c1"]


def test_both_directions_may_come_from_threads_of_their_own():
    connection = Connection()
    n = 300

    def ask() -> None:
        for number in range(n):
            connection.client(call(number, "a"))

    def answer() -> None:
        number = 0
        while number < n:
            if len(connection.reporter.calls()) > number * 2:
                connection.server(result(number, content=[]))
                number += 1

    threads = [threading.Thread(target=work) for work in (ask, answer)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(connection.reporter.calls()) == 2 * n
    assert connection.reporter.notes("damage") == []
