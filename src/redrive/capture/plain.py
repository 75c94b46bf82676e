"""A short cut for plain messages of HTTP/1.1; `h11` reads whatever is not plain.

Plain is what most exchanges with a model API are: a whole head in one piece, CRLF line ends, a body
by its length or none, nothing that changes the framing or the connection. To let `h11` parse, check
and write a plain exchange on both sides takes more time than all else that the proxy does with it.
What is taken for plain here means the same to `h11`; tests hold the two against each other.

Source: RFC 9112 §2.2, §5, §6.
"""

import re

import msgspec

from redrive.capture import passed_headers as rules

MAX_PLAIN_DIGITS = 9

_REQUEST = re.compile(rb"(GET|POST|PUT|PATCH|DELETE) ([!-~]+) HTTP/1\.1")
_STATUS = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) ([\t !-~]*)")
_LINES = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t !-~\x80-\xff]*\r\n)*")
_NO_BODY_STATUS = frozenset((b"204", b"304"))
_REQUEST_NEVER = frozenset((b"transfer-encoding", b"expect", b"upgrade", b"trailer"))


class PlainRequest(msgspec.Struct, frozen=True):
    """A request's head: method, target, headers in order and by name; body length; head length."""

    method: bytes
    target: bytes
    headers: rules.RawHeaders
    fields: rules.Fields
    n_body: int
    n_head: int


class PlainResponse(msgspec.Struct, frozen=True):
    """An answer's head: status, reason, headers in order; body length; head length."""

    status: int
    reason: bytes
    headers: rules.RawHeaders
    n_body: int
    n_head: int


def find_plain_request(data: bytes, max_head_bytes: int) -> PlainRequest | None:
    """Parse a request whose head is here as a whole; `None` where it is not plain.

    Args:
        data: from its first byte on; what follows the head may be part of its body, or all of it.
        max_head_bytes: a longer head is not plain.
    """
    end = data.find(b"\r\n\r\n", 0, max_head_bytes)
    line, _, block = data[: end + 2].partition(b"\r\n")
    matched = _REQUEST.fullmatch(line) if end > 0 else None
    headers = _parse_lines(block) if matched else None
    if matched is None or headers is None:
        return None
    fields = rules.fields_of(headers)
    # A name that comes twice may be Host or a length: not here.
    if len(fields) != len(headers) or b"host" not in fields:
        return None
    if not _REQUEST_NEVER.isdisjoint(fields) or _closes(fields):
        return None
    length = fields.get(b"content-length", b"0")
    if not _is_plain_length(length):
        return None
    method, target = matched.groups()
    return PlainRequest(method, target, headers, fields, int(length), end + 4)


def find_plain_response(data: bytes, max_head_bytes: int) -> PlainResponse | None:
    """Parse the answer to a plain request, by the same rules; it must tell its body's length."""
    end = data.find(b"\r\n\r\n", 0, max_head_bytes)
    line, _, block = data[: end + 2].partition(b"\r\n")
    matched = _STATUS.fullmatch(line) if end > 0 else None
    headers = _parse_lines(block) if matched else None
    if matched is None or headers is None or matched[1] in _NO_BODY_STATUS:
        return None
    fields = rules.fields_of(headers)
    length = fields.get(b"content-length", b"")
    is_once = len(fields) == len(headers) or _count(headers, b"content-length") == 1
    if not (is_once and _is_plain_length(length)) or _closes(fields):
        return None
    if b"transfer-encoding" in fields or b"upgrade" in fields:
        return None
    return PlainResponse(int(matched[1]), matched[2], headers, int(length), end + 4)


def _parse_lines(block: bytes) -> rules.RawHeaders | None:
    if not _LINES.fullmatch(block):
        return None
    parts = [line.partition(b":") for line in block.split(b"\r\n")[:-1]]
    return [(name, value.strip(b" \t")) for name, _, value in parts]


def _closes(fields: rules.Fields) -> bool:
    """Tell whether the connection is said to be anything but kept."""
    return fields.get(b"connection", b"keep-alive").lower() != b"keep-alive"


def _is_plain_length(value: bytes) -> bool:
    return value.isdigit() and len(value) <= MAX_PLAIN_DIGITS


def _count(headers: rules.RawHeaders, name: bytes) -> int:
    return sum(found.lower() == name for found, _ in headers)
