"""The proxy for callers without a loop, with real SDKs in front."""

import http.server
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from redrive.capture import proxy_thread
from redrive.capture.ports import Outcome, ServedAnswer
from redrive.capture.proxy import Proxy
from redrive.capture.proxy_thread import ProxyThread
from redrive.errors import UsageError
from tests.proxying import MemoryBackend

CHAT: dict[str, Any] = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Oslo"}}
    ],
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Oslo"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps(MESSAGE if self.path.endswith("/messages") else CHAT).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def proxy_of(backend: MemoryBackend, **upstreams: str) -> Proxy:
    return Proxy(backend, upstreams)  # type: ignore[arg-type]


def test_the_sdks_are_recorded_through_it(model: str) -> None:
    openai, anthropic = pytest.importorskip("openai"), pytest.importorskip("anthropic")
    backend = MemoryBackend()
    with ProxyThread(proxy_of(backend)) as running:
        running.add_upstreams({"openai": model, "anthropic": model})
        with openai.OpenAI(base_url=running.url_for("openai") + "/v1", api_key="k") as client:
            chat = client.chat.completions.create(model="m", messages=[])
        assert chat.choices[0].message.content == "Oslo"
        with anthropic.Anthropic(base_url=running.url_for("anthropic"), api_key="k") as client:
            question: Any = {"role": "user", "content": "?"}
            message = client.messages.create(model="m", max_tokens=9, messages=[question])
        assert message.content[0].text == "Oslo"
    first, second = backend.exchanges
    assert first.request.url == f"{model}/v1/chat/completions"
    assert second.request.url == f"{model}/v1/messages"
    assert json.loads(first.body) == CHAT
    assert json.loads(second.body) == MESSAGE
    assert {first.outcome, second.outcome} == {Outcome.COMPLETE}


def test_an_sdk_does_not_ask_again_where_a_run_was_stopped() -> None:
    openai = pytest.importorskip("openai")

    class Stop(BaseException):
        pass

    class Counting(MemoryBackend):
        n = 0

        def sent(self, request: Any) -> Any:
            self.n += 1
            raise Stop

    backend = Counting()
    with (
        ProxyThread(proxy_of(backend, openai="http://127.0.0.1:1")) as running,
        openai.OpenAI(base_url=running.url_for("openai"), api_key="k", max_retries=5) as client,
        pytest.raises(openai.BadRequestError, match="stopped the run"),
    ):
        client.chat.completions.create(model="m", messages=[])
    assert backend.n == 1


def test_leaving_it_ends_open_exchanges_and_the_thread() -> None:
    backend = MemoryBackend()
    listener = socket.create_server(("127.0.0.1", 0))
    silent = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with ProxyThread(proxy_of(backend, m=silent)) as running:
        host, port = running.url_for("m").split("/")[2].split(":")
        path = running.url_for("m").split("/", 3)[3]
        client = socket.create_connection((host, int(port)))
        client.sendall(f"GET /{path}/x HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        accepted, _ = listener.accept()
        assert accepted.recv(9)
        client.settimeout(60)
    assert client.recv(9) == b""
    assert (backend.only.outcome, backend.only.ends) == (Outcome.CUT, 1)
    assert not any(thread.name == "redrive-proxy" for thread in threading.enumerate())
    running.close()
    for one in (client, accepted, listener):
        one.close()


def test_a_connected_socket_is_served_from_another_thread() -> None:
    served = ServedAnswer(200, (), b"{}")
    with ProxyThread(proxy_of(MemoryBackend(serve=lambda _: served), m="http://a")) as running:
        ours, theirs = socket.socketpair()
        running.serve_connection(theirs)
        path = running.url_for("m").split("/", 3)[3]
        ours.sendall(f"POST /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        ours.settimeout(60)
        data = b""
        while not data.endswith(b"{}"):
            data += ours.recv(1 << 16)
        assert data.startswith(b"HTTP/1.1 200 ")
        ours.close()


def test_control_routes_can_be_asked_with_the_standard_library() -> None:
    async def double(body: bytes) -> bytes:
        return body * 2

    proxy = Proxy(MemoryBackend(), control={"double": double})  # type: ignore[arg-type]
    with ProxyThread(proxy) as running:
        url = running.url_for("redrive") + "/double"
        with urllib.request.urlopen(url, b"ab", timeout=60) as answer:  # noqa: S310 - loopback
            assert answer.read() == b"abab"


def test_a_thread_that_does_not_run_serves_nothing() -> None:
    thread = ProxyThread(proxy_of(MemoryBackend()))
    thread.close()
    ours, theirs = socket.socketpair()
    with pytest.raises(UsageError, match="does not run"):
        thread.serve_connection(theirs)
    ours.close()
    theirs.close()


def test_a_start_that_fails_is_raised_where_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proxy_thread.Proxy, "start", _fail)
    with pytest.raises(OSError, match="no port"), ProxyThread(proxy_of(MemoryBackend())):
        pass  # pragma: no cover - never entered


async def _fail(_: object) -> None:
    raise OSError("no port")
