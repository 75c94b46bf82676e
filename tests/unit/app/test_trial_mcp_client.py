"""What a hostile or broken server may say, and that the client is never lost in it."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec import Raw

from redrive.app import trial_mcp_client
from redrive.app.trial_mcp_client import McpAnswer, McpClient
from redrive.errors import PluginError

Serve = Callable[[Any], list[bytes]]


class Peer:
    """Answers each request with the lines that a test lays down."""

    def __init__(self, answer: Serve) -> None:
        self.ours, self._theirs = socket.socketpair()
        self.received: list[Any] = []
        self._answer = answer
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._theirs, self._theirs.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                self.received.append(message)
                if "method" not in message or "id" not in message:
                    continue
                for data in self._answer(message):
                    if data == b"":
                        return
                    self._theirs.sendall(data)

    def close(self) -> None:
        self.ours.close()
        self._thread.join()


@pytest.fixture
def client() -> Iterator[Callable[[Serve], tuple[McpClient, Peer]]]:
    peers: list[Peer] = []

    def make(answer: Serve) -> tuple[McpClient, Peer]:
        peers.append(Peer(answer))
        return McpClient(peers[-1].ours, "files"), peers[-1]

    yield make
    for peer in peers:
        peer.close()


def result(message: Any, value: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode() + b"\n"


def test_a_client_introduces_itself_and_offers_nothing(client: Any) -> None:
    asks = b'{"jsonrpc":"2.0","id":"s1","method":"ping"}\n'
    more = b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage"}\n'
    made, peer = client(lambda message: [asks + more, result(message, {})])
    made.initialize(10.0)
    with pytest.raises(PluginError, match="a listing without tools"):
        made.list_tools(10.0)
    first, pong, refused, initialized = peer.received[:4]
    assert first["method"] == "initialize"
    assert first["params"]["capabilities"] == {}
    assert pong == {"jsonrpc": "2.0", "id": "s1", "result": {}}
    assert (refused["id"], refused["error"]["code"]) == (7, -32601)
    assert initialized == {"jsonrpc": "2.0", "method": "notifications/initialized"}


def test_what_is_no_message_or_answers_another_is_passed_over(client: Any) -> None:
    def answer(message: Any) -> list[bytes]:
        noise = b"noise\n\xff\xfe\n[]\n{}\n" + b"[" * 5000 + b"\n"
        other = result({"id": 99}, {"tools": [1]}) + result({"id": str(message["id"])}, {})
        whole = noise + other + result(message, {"tools": [{"name": "a"}]})
        return [whole[:20], whole[20:]]

    made, _ = client(answer)
    assert [tool.name for tool in made.list_tools(10.0)] == ["a"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"tools": 3}, "no list"),
        ({"tools": [{}]}, "a tool without a name"),
        ({"tools": [3]}, "a tool without a name"),
        ({"nothing": []}, "a listing without tools"),
        ([], "a listing without tools"),
        ({"tools": [], "nextCursor": "x"}, "does not end within 100 pages"),
        ({"tools": [{"name": "a"}] * 600, "nextCursor": "x"}, "more than 1000 tools"),
    ],
)
def test_a_listing_that_cannot_be_read_is_refused(client: Any, value: Any, said: str) -> None:
    made, _ = client(lambda message: [result(message, value)])
    with pytest.raises(PluginError, match=f"MCP server files: .*{said}"):
        made.list_tools(30.0)


def test_the_pages_together_have_one_time(client: Any) -> None:
    made, _ = client(lambda message: [])
    with pytest.raises(PluginError, match="does not answer tools/list in time"):
        made.list_tools(0.1)
    with pytest.raises(PluginError, match="in time"):
        made.list_tools(-1.0)


def test_a_server_that_ends_is_named(client: Any) -> None:
    made, _ = client(lambda message: [b""])
    with pytest.raises(PluginError, match="ended before it answered"):
        made.initialize(10.0)
    with pytest.raises(PluginError, match=r"has ended|ended before"):
        made.initialize(10.0)
    made.close()
    with pytest.raises(PluginError, match="has ended"):
        made.initialize(10.0)


def test_a_stream_that_fails_is_an_end(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = client(lambda message: [])

    class Broken:
        def settimeout(self, _: float) -> None: ...

        def sendall(self, _: bytes) -> None: ...

        def recv(self, _: int) -> bytes:
            raise ConnectionResetError

    monkeypatch.setattr(made, "_connection", Broken())
    with pytest.raises(PluginError, match="ended before it answered"):
        made.initialize(10.0)


def test_a_line_without_end_is_refused(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_mcp_client, "MAX_LINE_BYTES", 1000)
    made, _ = client(lambda message: [b"x" * 2000])
    with pytest.raises(PluginError, match="a line of more than 1000 bytes"):
        made.initialize(10.0)


def test_an_error_of_the_protocol_is_one_of_the_tool(client: Any) -> None:
    def answer(message: Any) -> list[bytes]:
        error = {"code": -32602, "message": "wrong"}
        return [
            json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode() + b"\n"
        ]

    made, _ = client(answer)
    told = made.call("list", Raw(b"{}"), 10.0)
    assert told.is_error
    assert "wrong" in told.value()
    with pytest.raises(PluginError, match="answers initialize with an error"):
        made.initialize(10.0)


def test_an_answer_without_content_is_refused(client: Any) -> None:
    made, _ = client(lambda message: [result(message, {"toolResult": 1})])
    with pytest.raises(PluginError, match="with no content"):
        made.call("list", Raw(b"{}"), 10.0)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"content": []}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        (
            {"content": [], "structuredContent": {"n": 12345678901234567890}},
            {"n": 12345678901234567890},
        ),
        ({"content": [{"type": "image", "data": "x"}]}, [{"type": "image", "data": "x"}]),
        ({"content": [{"type": "text"}]}, ""),
    ],
)
def test_a_result_is_plain_json(given: Any, value: Any) -> None:
    assert McpAnswer(Raw(json.dumps(given).encode())).value() == value
