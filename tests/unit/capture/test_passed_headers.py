"""Headers at an intermediary, as RFC 9110 has them."""

import pytest

from redrive.capture.passed_headers import (
    accepted_codings,
    fields_of,
    lowered,
    request_headers,
    response_headers,
)


@pytest.mark.parametrize(
    ("offered", "passed"),
    [
        (b"gzip, deflate", b"gzip, deflate"),
        (b"gzip,deflate,zstd", b"gzip,deflate,zstd"),
        (b"gzip, deflate, br, zstd", b"gzip, deflate, zstd"),
        (b"br", b"identity"),
        (b"*", b"identity"),
        (b"BR;q=1, GZip;q=0.5", b"GZip;q=0.5"),
        (b"identity;q=0, *;q=0", b"identity;q=0"),
        (b"gzip , br", b"gzip"),
    ],
)
def test_only_codings_that_can_be_read_later_are_offered(offered: bytes, passed: bytes) -> None:
    assert accepted_codings(offered) == passed


def test_a_length_stands_once_and_says_what_is_sent() -> None:
    raw = [(b"Host", b"a"), (b"content-length", b"9"), (b"content-length", b"9")]
    assert request_headers(raw, b"b", 5) == [(b"Host", b"b"), (b"content-length", b"5")]
    chunked = [(b"transfer-encoding", b"chunked"), (b"x", b"1")]
    assert request_headers(chunked, b"b", 0) == [(b"Content-Length", b"0"), (b"x", b"1")]
    assert request_headers([(b"Host", b"a")], b"b", 0) == [(b"Host", b"b")]


def test_what_connection_names_is_left_out_but_for_host_and_length() -> None:
    raw = [
        (b"Connection", b"close, X-Hop"),
        (b"connection", b"host,content-length"),
        (b"Host", b"a"),
        (b"x-hop", b"1"),
        (b"Content-Length", b"2"),
        (b"X-Kept", b"1"),
    ]
    kept = [(b"Host", b"b"), (b"Content-Length", b"2"), (b"X-Kept", b"1")]
    assert request_headers(raw, b"b", 2) == kept
    assert response_headers(raw) == [(b"Host", b"a"), *kept[1:]][1:]


def test_a_length_beside_chunks_is_not_passed_on() -> None:
    raw = [(b"Content-Length", b"2"), (b"Transfer-Encoding", b"chunked"), (b"Trailer", b"x")]
    assert response_headers(raw) == [(b"Trailer", b"x")]


def test_names_are_lowered_and_looked_up_by_their_first() -> None:
    raw = [(b"X-A", b"\xe9"), (b"x-a", b"2")]
    assert lowered(raw) == (("x-a", "é"), ("x-a", "2"))
    assert fields_of(raw) == {b"x-a": b"\xe9"}
