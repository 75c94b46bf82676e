"""The short cut takes nothing that `h11` reads otherwise."""

from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.capture.plain import find_plain_request, find_plain_response

MAX = 64 * 1024
REQUEST = b"POST /a HTTP/1.1\r\nHost: x\r\nX-Two:  b \r\nContent-Length: 2\r\n\r\n{}"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\r\n{}"


def test_a_plain_request_is_taken_with_its_names_as_written() -> None:
    found = find_plain_request(REQUEST, MAX)
    assert found is not None
    assert (found.method, found.target, found.n_body) == (b"POST", b"/a", 2)
    assert found.headers == [(b"Host", b"x"), (b"X-Two", b"b"), (b"Content-Length", b"2")]
    assert found.fields[b"x-two"] == b"b"
    assert REQUEST[found.n_head :] == b"{}"


def test_a_plain_answer_is_taken_with_its_names_as_written() -> None:
    found = find_plain_response(RESPONSE, MAX)
    assert found is not None
    assert (found.status, found.reason, found.n_body) == (200, b"OK", 2)
    assert found.headers[1:] == [(b"Set-Cookie", b"a"), (b"Set-Cookie", b"b")]
    assert RESPONSE[found.n_head :] == b"{}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"POST", b"HEAD"),
        (b"POST", b"CONNECT"),
        (b"POST", b"post"),
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"/a", b"/\xff"),
        (b"/a", b"/a b"),
        (b"\r\n\r\n{}", b"\r\n"),
        (b"X-Two:  b", b"X-Two: b\r\n folded"),
        (b"X-Two:", b"X Two:"),
        (b"X-Two:", b"X-Two :"),
        (b"X-Two:", b":"),
        (b"X-Two:  b", b"no colon"),
        (b"X-Two:  b", b"X-Two: a\rb"),
        (b"X-Two:  b", b"X-Two: \x00"),
        (b"Host: x", b"Host: x\nX: y"),
        (b"Host: x", b"Nobody: x"),
        (b"X-Two:  b", b"host: y"),
        (b"X-Two:  b", b"content-length: 2"),
        (b"X-Two:  b", b"Transfer-Encoding: chunked"),
        (b"X-Two:  b", b"Expect: 100-continue"),
        (b"X-Two:  b", b"Upgrade: h2c"),
        (b"X-Two:  b", b"Trailer: x"),
        (b"X-Two:  b", b"Connection: close"),
        (b"Length: 2", b"Length: +2"),
        (b"Length: 2", b"Length: "),
        (b"Length: 2", b"Length: 1234567890"),
        (b"Length: 2", "Length: ²".encode()),
    ],
)
def test_a_request_that_is_not_plain_is_left_to_the_library(old: bytes, new: bytes) -> None:
    changed = REQUEST.replace(old, new, 1)
    assert changed != REQUEST
    assert find_plain_request(changed, MAX) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"HTTP/1.1", b"HTTP/1.0"),
        (b"200 OK", b"100 Continue"),
        (b"200 OK", b"101 Switching"),
        (b"200 OK", b"204 None"),
        (b"200 OK", b"304 None"),
        (b"200 OK", b"200"),
        (b"200 OK", b"2000 OK"),
        (b"200 OK", b"200 \x00"),
        (b"\r\n\r\n{}", b"\r\n"),
        (b"Set-Cookie: a", b"Content-Length: 3"),
        (b"Set-Cookie: a", b"content-length: 2"),
        (b"Set-Cookie: a", b"Transfer-Encoding: chunked"),
        (b"Set-Cookie: a", b"Connection: close"),
        (b"Set-Cookie: a", b"Upgrade: x"),
        (b"Content-Length: 2\r\n", b""),
        (b"Length: 2", b"Length: 2, 2"),
    ],
)
def test_an_answer_that_is_not_plain_is_left_to_the_library(old: bytes, new: bytes) -> None:
    changed = RESPONSE.replace(old, new, 1)
    assert changed != RESPONSE
    assert find_plain_response(changed, MAX) is None


def test_a_head_longer_than_allowed_is_left_to_the_library() -> None:
    for find, data in ((find_plain_request, REQUEST), (find_plain_response, RESPONSE)):
        n_head = data.index(b"\r\n\r\n") + 4
        assert find(data, n_head) is not None
        assert find(data, n_head - 1) is None


def by_library(data: bytes, *, is_request: bool) -> Any:
    """Read one message with `h11`: what it says, or `None` where it refuses."""
    connection = h11.Connection(h11.SERVER if is_request else h11.CLIENT, MAX)
    if not is_request:
        connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x")]))
        connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    try:
        head, body = connection.next_event(), b""
        while isinstance(event := connection.next_event(), h11.Data):
            body += event.data
    except h11.RemoteProtocolError:
        return None
    return head, body, isinstance(event, h11.EndOfMessage)


LINES = st.sampled_from(
    [
        b"Host: x",
        b"host:y",
        b"X-A:",
        b"X-A: \t a  b\t",
        b"x-a: \xe9\xff",
        b"Content-Length: 2",
        b"content-length: 02",
        b"Content-Length: 2, 2",
        b"Content-Length: 0",
        b"Transfer-Encoding: chunked",
        b"Connection: keep-alive",
        b"Connection: Keep-Alive, x",
        b"Expect: 100-continue",
        b"bad\x01: x",
        b"X: a\x01b",
        b" folded",
        b"",
    ]
)
STARTS = (
    st.sampled_from(
        [b"POST /a?b HTTP/1.1", b"GET * HTTP/1.1", b"PUT x HTTP/1.1", b"GET  / HTTP/1.1"]
    ),
    st.sampled_from(
        [b"HTTP/1.1 200 OK", b"HTTP/1.1 500 ", b"HTTP/1.1 404 a  b", b"HTTP/1.1 299 \t"]
    ),
)


@pytest.mark.parametrize("is_request", [True, False])
@given(data=st.data())
def test_what_is_plain_means_the_same_to_the_library(is_request: bool, data: Any) -> None:
    start = data.draw(STARTS[0] if is_request else STARTS[1])
    lines = data.draw(st.lists(LINES, max_size=6))
    raw = b"\r\n".join([start, *lines]) + b"\r\n\r\n{}"
    find: Any = find_plain_request if is_request else find_plain_response
    found = find(raw, MAX)
    if found is None:
        return
    read = by_library(raw, is_request=is_request)
    assert read is not None, "the library refuses it"
    head, body, is_ended = read
    assert is_ended
    assert body == raw[found.n_head :][: found.n_body]
    values = [(name.lower(), value.strip(b" \t")) for name, value in head.headers.raw_items()]
    ours = [(name.lower(), value) for name, value in found.headers]
    assert values == ours
    if is_request:
        assert (head.method, head.target) == (found.method, found.target)
    else:
        assert head.status_code == found.status
