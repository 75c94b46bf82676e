"""Redaction marks: how a recorded text shows that something was masked.

Knows the marks. Must not know where a text stands.

Source: DESIGN.md §10 "Redaction marks".
"""

import re
from collections.abc import Sequence

import msgspec

MARKS_VERSION = 1
_SHOWN_CHARS = 60


class Mark(msgspec.Struct, frozen=True):
    """One kind of mark: its name, its pattern, and what every text that holds it must contain."""

    name: str
    pattern: str
    needle: str


# `<` and `>` may stand as JSON escapes where a request body was written by another serialiser.
MARKS: Sequence[Mark] = (
    Mark("redrive", r"\[redacted:[^\[\]:]{1,64}:[0-9a-f]{8}\]", "redacted"),
    Mark("bracketed", r"\[REDACTED[^\[\]]*\]", "REDACTED"),
    Mark("word", r"(?<![A-Za-z0-9])REDACTED(?![A-Za-z0-9])", "REDACTED"),
    Mark("tag", r"(?:<|\\u003[cC])redacted(?:>|\\u003[eE])", "redacted"),
    Mark("x-run", r"x{8,}", "xxxxxxxx"),
    Mark("star-run", r"\*{8,}", "********"),
)

_ANY = re.compile("|".join(mark.pattern for mark in MARKS))
_QUIET, _SHOUTED, _X_RUN, _STAR_RUN = dict.fromkeys(mark.needle.encode() for mark in MARKS)
_NEEDLES = tuple(dict.fromkeys(mark.needle for mark in MARKS))
_ESCAPE = b"\\u00"
# An escaped printable character of ASCII; marks hold no other.
_SPELLED = re.compile(r"\\u00[2-7]")
# JSON escapes that stand for a character of a mark, and the escaped backslash of a nested text.
_ESCAPES = re.compile(r"\\(?:\\|u00([2-7][0-9a-fA-F]))")
_MAX_NESTING = 4


def find_mark(text: str) -> str | None:
    """Find the first redaction mark in a JSON text, cut to 60 characters.

    A mark counts as well where JSON escapes spell it, in texts nested up to four deep.

    Cost: four substring searches and one of a pattern; the others run only where one hits.
    """
    found = _find_plain(text)
    for _ in range(_MAX_NESTING):
        if found is not None or _SPELLED.search(text) is None:
            break
        text = _ESCAPES.sub(_unescape, text)
        found = _find_plain(text)
    return found


def _unescape(escape: re.Match[str]) -> str:
    return "\\" if escape[1] is None else chr(int(escape[1], 16))


def _find_plain(text: str) -> str | None:
    for needle in _NEEDLES:
        if needle in text:
            found = _ANY.search(text)
            return None if found is None else found.group()[:_SHOWN_CHARS]
    return None


def may_hold_mark(data: bytes) -> bool:
    """Say whether stored bytes could hold a mark; false is certain."""
    if _QUIET in data or _X_RUN in data:
        return True
    # A search for one byte costs a tenth of one for a word.
    return (
        (b"D" in data and _SHOUTED in data)
        or (b"*" in data and _STAR_RUN in data)
        or (b"\\" in data and _ESCAPE in data)
    )
