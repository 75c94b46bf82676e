"""What reaches the terminal: documents, text, progress and the one line of an error.

Text from a recording is escaped before it reaches a terminal, and everything is redacted here, by
the one redactor that `use_redactor` installs for the process. Progress goes to stderr, only on a
terminal. Must not know any verb.
"""

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from redrive import canonical
from redrive.errors import RedriveError
from redrive.reports.escape import escape, escape_json
from redrive.reports.redact import Redactor
from redrive.reports.redact_stream import redact_stream

__all__ = [
    "drop_stdout",
    "error_document",
    "escape",
    "progress",
    "redactor",
    "say",
    "say_address",
    "say_lines",
    "time_left",
    "use_redactor",
    "write_address",
    "write_bytes",
    "write_document",
    "write_json",
    "write_json_lines",
    "write_lines",
]

_MIN_PACE_S = 2.0


# Streams are the process's, and so is what stands before them: no verb can forget to pass it on.
# Until a command line installs one with the user's key, marks match nothing else.
_INSTALLED = [Redactor(secrets.token_bytes(32))]


def use_redactor(redactor: Redactor) -> None:
    """Let everything that is written from now on go through this redactor."""
    _INSTALLED[0] = redactor


def redactor() -> Redactor:
    """Give the redactor of this process, for who cuts a text before it is written."""
    return _INSTALLED[0]


def write_json(document: Any) -> None:
    """Write one document and nothing else to stdout; lone surrogates stay escapes."""
    _write(_json(document) + b"\n")
    sys.stdout.buffer.flush()


def write_document(fields: Iterable[tuple[str, Any]]) -> None:
    """Write one JSON object, field by field, so that it is never held whole.

    Args:
        fields: (key, value) in order, keys unique. A value that is an iterator becomes an array,
            element by element, before the next field is asked for; bytes are JSON already.
    """
    separator = b"{"
    for key, value in fields:
        if isinstance(value, Iterator):
            _write(separator + canonical.encode(key) + b":")
            _write_array(value)
        else:
            _write(separator + _member(key, value))
        separator = b","
    _write(b"{}\n" if separator == b"{" else b"}\n")
    sys.stdout.buffer.flush()


def _write_array(items: Iterator[Any]) -> None:
    separator = b"["
    for item in items:
        _write(separator + _json(item))
        separator = b",\n"
    _write(b"[]" if separator == b"[" else b"]")


def _json(value: Any) -> bytes:
    """Encode a value and redact it; bytes are JSON already."""
    return redactor().json(value if isinstance(value, bytes) else canonical.encode(value))


def _member(key: str, value: Any) -> bytes:
    """Encode one field of an object; its key tells the redactor of its value."""
    data = value if isinstance(value, bytes) else canonical.encode(value)
    return redactor().json(b"{" + canonical.encode(key) + b":" + data + b"}")[1:-1]


def _write(data: bytes) -> None:
    """Write JSON to stdout, with what a terminal would obey as escapes where that is one."""
    sys.stdout.buffer.write(escape_json(data) if sys.stdout.isatty() else data)


def write_json_lines(lines: Iterable[bytes]) -> None:
    """Write JSON texts to stdout, one a line."""
    for line in redactor().json_lines(lines):
        _write(line + b"\n")
    sys.stdout.buffer.flush()


def write_bytes(parts: Iterable[bytes]) -> None:
    """Write a stored text to stdout: secrets as marks, every other byte as it is."""
    for _, redacted in redact_stream(parts, redactor()):
        sys.stdout.buffer.write(redacted)
    sys.stdout.buffer.flush()


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of text, already escaped, to stdout."""
    for line in lines:
        data = redactor().text(line).encode("utf-8", "backslashreplace")
        sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def say(line: str) -> None:
    """Write one line for people to stderr, where there is one."""
    _say(escape(redactor().text(line)))


def say_address(line: str) -> None:
    """Write a line with an address that redrive made itself; its token must stay readable."""
    _say(escape(line))


def write_address(line: str) -> None:
    """Write a line with an address that redrive made itself to stdout, at once."""
    sys.stdout.write(escape(line) + "\n")
    sys.stdout.flush()


def say_lines(text: str) -> None:
    """Write lines for people, such as a traceback, to stderr, where there is one."""
    _say(escape(redactor().text(text), keep_lines=True).rstrip("\n"))


def _say(text: str) -> None:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        sys.stderr.buffer.flush()


def drop_stdout() -> None:
    """Forget what is still to be written to a stdout that takes no more."""
    with contextlib.suppress(OSError, AttributeError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def error_document(error: RedriveError, code: int) -> dict[str, Any]:
    """Give the JSON form of an error."""
    return {
        "schema": "redrive.error",
        "schema_version": 1,
        "error": {
            "code": code,
            "type": type(error).__name__,
            "message": error.message,
            "where": error.where,
            "hint": error.hint,
        },
    }


def time_left(done: int, total: int, elapsed_s: float) -> str:
    """Say how long the rest takes at the pace so far; empty while that is no more than a guess."""
    if not 0 < done < total or elapsed_s < _MIN_PACE_S:
        return ""
    left_s = round(elapsed_s / done * (total - done))
    minutes = f"{left_s // 60} min " if left_s >= 60 else ""
    return f", about {minutes}{left_s % 60} s left"


def progress(label: str) -> Callable[[int, int, str], None]:
    """Give a reporter (done, total, name) that draws on stderr where that is a terminal.

    After two seconds it says how long the rest will take, if it goes on as it did.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        return lambda done, total, name: None  # noqa: ARG005 - the reporter's signature

    started = time.monotonic()

    def draw(done: int, total: int, name: str) -> None:
        left = time_left(done, total, time.monotonic() - started)
        tail = escape(redactor().text(name))[-60:]
        line = f"{label} {done}/{total}{left} {tail}" if name else ""
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()

    return draw
