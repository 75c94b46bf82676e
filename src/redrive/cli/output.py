"""What reaches the terminal: documents, text, progress and the one line of an error.

Text from a recording is escaped before it reaches a terminal. Progress goes to stderr, only on a
terminal. Must not know any verb.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any

from redrive import canonical
from redrive.errors import RedriveError

_KEPT = frozenset("\n\t")
_BIDI_CODES = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
_BIDI = frozenset(map(chr, _BIDI_CODES))


def escape(text: str, *, keep_lines: bool = False) -> str:
    """Make text from a recording safe for a terminal.

    Control characters, bidi overrides, U+2028/9 and lone surrogates become visible escapes; line
    ends and tabs stay only with `keep_lines`.
    """
    if text.isascii() and text.isprintable():
        return text
    kept = _KEPT if keep_lines else frozenset[str]()
    return "".join(char if char in kept or _is_plain(char) else _spell(char) for char in text)


def _is_plain(char: str) -> bool:
    return (char.isprintable() or char == "\u00a0") and char not in _BIDI


def _spell(char: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    if named:
        return named
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def write_json(document: Any) -> None:
    """Write one document and nothing else to stdout; lone surrogates stay escapes."""
    sys.stdout.buffer.write(canonical.encode(document) + b"\n")
    sys.stdout.buffer.flush()


def write_lines(lines: Iterable[str]) -> None:
    """Write lines of text, already escaped, to stdout."""
    for line in lines:
        data = line.encode("utf-8", "backslashreplace")
        sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def say(line: str) -> None:
    """Write one line for people to stderr."""
    sys.stderr.buffer.write(escape(line).encode("utf-8", "backslashreplace") + b"\n")
    sys.stderr.buffer.flush()


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


def progress(label: str) -> Callable[[int, int, str], None]:
    """Give a reporter (done, total, name) that draws on stderr where that is a terminal."""
    if not sys.stderr.isatty():
        return lambda done, total, name: None  # noqa: ARG005 - the reporter's signature

    def draw(done: int, total: int, name: str) -> None:
        tail = escape(name)[-60:]
        sys.stderr.write(f"\r\x1b[2K{label} {done}/{total} {tail}" if name else "\r\x1b[2K")
        sys.stderr.flush()

    return draw
