"""P11: a request through the recording proxy, against the same through a plain byte relay.

One process runs a fake model, a relay and the proxy, each on loopback, in one event loop; this one
is the client, with a kept connection and a blocking socket. So all that differs between the two is
the work of the one in the middle. The backend records to memory.
"""

import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

from benchmarks.paired import Figure, compare

REQUESTS = 400
_MESSAGES = [{"role": "user", "content": "What was the incident about? " * 40}]
BODY = json.dumps({"model": "m", "messages": _MESSAGES}).encode()
_CHOICE = {"index": 0, "message": {"role": "assistant", "content": "It was the clock. " * 20}}
ANSWER = json.dumps({"id": "chatcmpl-1", "object": "chat.completion", "choices": [_CHOICE]})
# The headers that the OpenAI SDK sends, and those that its API answers with.
REQUEST_HEADERS = """\
Accept: application/json
Content-Type: application/json
User-Agent: OpenAI/Python 3.57.0
X-Stainless-Lang: python
X-Stainless-Package-Version: 3.57.0
X-Stainless-OS: Linux
X-Stainless-Arch: x64
X-Stainless-Runtime: CPython
X-Stainless-Runtime-Version: 3.11.7
Authorization: Bearer none
X-Stainless-Async: false
x-stainless-retry-count: 0
x-stainless-read-timeout: 600
Accept-Encoding: gzip, deflate"""
ANSWER_HEADERS = """\
Date: Mon, 02 Mar 2026 10:00:00 GMT
Content-Type: application/json
access-control-expose-headers: X-Request-ID
openai-organization: none
openai-processing-ms: 312
openai-version: 2020-10-01
x-ratelimit-limit-requests: 10000
x-ratelimit-remaining-requests: 9999
x-request-id: req_0123456789abcdef
Server: none"""


def _crlf(lines: str) -> bytes:
    return lines.encode().replace(b"\n", b"\r\n")


RAW_ANSWER = b"HTTP/1.1 200 OK\r\n%s\r\nContent-Length: %d\r\n\r\n%s" % (
    _crlf(ANSWER_HEADERS),
    len(ANSWER),
    ANSWER.encode(),
)


def request_to(url: str) -> tuple[tuple[str, int], bytes]:
    """Give the address of a URL, and a raw request to it."""
    authority, _, path = url.removeprefix("http://").partition("/")
    host, _, port = authority.partition(":")
    raw = b"POST /%s HTTP/1.1\r\nHost: %s\r\n%s\r\nContent-Length: %d\r\n\r\n%s" % (
        path.encode(),
        authority.encode(),
        _crlf(REQUEST_HEADERS),
        len(BODY),
        BODY,
    )
    return (host, int(port)), raw


def median_request(url: str) -> float:
    """Give the median of seconds that a request takes on a kept connection."""
    address, raw = request_to(url)
    length = len(exchange_once(address, raw))
    times = []
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(REQUESTS):
            started = time.perf_counter()
            connection.sendall(raw)
            left = length
            while left:
                left -= len(connection.recv(left))
            times.append(time.perf_counter() - started)
    return statistics.median(times)


def exchange_once(address: tuple[str, int], raw: bytes) -> bytes:
    """Give a whole answer; each one through the same middle is as long."""
    with socket.create_connection(address) as connection:
        connection.sendall(raw)
        data = b""
        while not data.endswith(ANSWER.encode()):
            received = connection.recv(65536)
            assert received, data
            data += received
    return data


@contextlib.contextmanager
def servers() -> Iterator[tuple[str, str]]:
    """Run the fake model, the relay and the proxy; give the URLs of relay and proxy."""
    command = (sys.executable, "-m", "benchmarks.relaying")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        relay, proxy = json.loads(child.stdout.readline())
        yield relay, proxy
        child.stdin.close()


def figures(*, is_quick: bool) -> Iterator[Figure]:
    """Measure P11's row of the proxy."""
    del is_quick  # the whole takes less than two seconds
    with servers() as (relay, proxy):
        yield compare(
            "P11",
            "median request through the recording proxy / through a byte relay",
            lambda: median_request(proxy),
            lambda: median_request(relay),
            goal=3,
            clock=f"wall, medians of {REQUESTS} requests",
        )


# --- the other process ------------------------------------------------------------------------


class _Observer:
    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def responded(self, status: int, headers: object, at_ns: int) -> None:
        self.head = (status, headers, at_ns)

    def received(self, data: bytes) -> None:
        self.chunks.append(data)

    def finished(self, outcome: object, at_ns: int, message: str = "") -> None:
        self.end = (outcome, at_ns, message)


class _Memory:
    """A backend that keeps the last exchanges."""

    is_serving = False

    def __init__(self) -> None:
        self.kept: list[tuple[object, _Observer]] = []

    def sent(self, request: object) -> _Observer:
        observer = _Observer()
        self.kept.append((request, observer))
        del self.kept[:-100]
        return observer


class _Model(asyncio.Protocol):
    """Answers whenever a whole request is there."""

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._data.endswith(BODY):
            self._data = b""
            self._transport.write(RAW_ANSWER)  # type: ignore[attr-defined]


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The floor: bytes from one side to the other."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def _serve() -> None:
    from redrive.capture.proxy import Proxy

    loop = asyncio.get_running_loop()
    model = await loop.create_server(_Model, "127.0.0.1", 0)
    host, port = model.sockets[0].getsockname()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(_pump(reader, up_writer), _pump(up_reader, writer))

    relay = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay_port = relay.sockets[0].getsockname()[1]
    proxy = Proxy(_Memory(), {"openai": f"http://{host}:{port}"})  # type: ignore[arg-type]
    await proxy.start()
    path = "/v1/chat/completions"
    urls = (f"http://127.0.0.1:{relay_port}{path}", proxy.url_for("openai") + path)
    print(json.dumps(urls), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    await proxy.close()


if __name__ == "__main__":
    asyncio.run(_serve())
