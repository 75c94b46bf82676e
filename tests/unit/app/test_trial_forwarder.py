import asyncio
import socket
from pathlib import Path

import pytest

from redrive.app.trial_forwarder import forward, parse_head
from redrive.errors import UsageError
from tests.trial_witness import open_witness


def _ask(granted: tuple[str, ...], request: bytes) -> tuple[bytes, list[tuple[str, str]]]:
    """Send a request through a forwarder; give what came back, and who was refused."""
    denied: list[tuple[str, str]] = []

    async def talk() -> bytes:
        ours, theirs = socket.socketpair()
        serving = asyncio.create_task(
            forward(theirs, granted, lambda place, why: denied.append((place, why)))
        )
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(request)
        writer.write_eof()
        answer = await reader.read()
        writer.close()
        await serving
        return answer

    return asyncio.run(talk()), denied


def test_a_granted_place_is_reached_and_sees_a_plain_request(tmp_path: Path) -> None:
    with open_witness(tmp_path) as witness:
        place = f"127.0.0.1:{witness.port}"
        lines = b"Host: elsewhere\r\nProxy-Authorization: x\r\nX-A: 1\r\n\r\n"
        request = f"GET http://{place}/path?q=1 HTTP/1.1\r\n".encode() + lines
        answer, denied = _ask((place,), request)
    assert answer.endswith(b"hi")
    assert denied == []
    first, *headers = witness.reached[0].split(b"\r\n")
    assert first == b"GET /path?q=1 HTTP/1.1"
    assert f"Host: {place}".encode() in headers
    assert not any(b"elsewhere" in line or b"Proxy" in line for line in headers)


def test_a_tunnel_to_a_granted_place_carries_bytes_both_ways(tmp_path: Path) -> None:
    with open_witness(tmp_path) as witness:
        place = f"127.0.0.1:{witness.port}"
        request = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\nraw bytes".encode()
        answer, _ = _ask((place.upper(),), request)
    assert witness.reached == [b"raw bytes"]
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"hi")


@pytest.mark.parametrize(
    "target", ["localhost:{}", "127.0.0.2:{}", "127.0.0.1:1", "127.1:{}", "[::1]:{}", "0:{}"]
)
def test_any_other_place_is_refused_told_of_and_not_connected_to(
    tmp_path: Path, target: str
) -> None:
    with open_witness(tmp_path) as witness:
        place = target.format(witness.port)
        granted = (f"127.0.0.1:{witness.port}",)
        answer, denied = _ask(granted, f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
        plain, _ = _ask(granted, f"GET http://{place}/ HTTP/1.1\r\n\r\n".encode())
    assert (answer[:12], plain[:12]) == (b"HTTP/1.1 403", b"HTTP/1.1 403")
    assert denied == [(f"network {place}", "the tool is not granted this place")]
    assert witness.reached == []


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET https://a:1/ HTTP/1.1\r\n\r\n",
        b"CONNECT a HTTP/1.1\r\n\r\n",
        b"CONNECT a:1/x HTTP/1.1\r\n\r\n",
        b"CONNECT a:99999 HTTP/1.1\r\n\r\n",
        b"GET http://u:p@a:1/ HTTP/1.1\r\n\r\n",
        b"CONNECT \xff:1 HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_what_is_no_request_to_a_proxy_is_refused(head: bytes) -> None:
    with pytest.raises(UsageError):
        parse_head(head)
    assert _ask((), head)[0].startswith(b"HTTP/1.1 400")


def test_a_granted_place_that_nobody_serves_is_said_to_be_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    answer, _ = _ask((f"127.0.0.1:{port}",), f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 502")
