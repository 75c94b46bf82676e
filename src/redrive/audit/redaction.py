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


def find_mark(text: str) -> str | None:
    """Find the first redaction mark in a text, cut to 60 characters.

    Cost: four substring searches; the patterns run only where one of them hits.
    """
    for needle in _NEEDLES:
        if needle in text:
            found = _ANY.search(text)
            return None if found is None else found.group()[:_SHOWN_CHARS]
    return None


def may_hold_mark(data: bytes) -> bool:
    """Say whether stored bytes could hold a mark; false is certain."""
    return _QUIET in data or _SHOUTED in data or _X_RUN in data or _STAR_RUN in data
