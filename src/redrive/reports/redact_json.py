"""Finds secrets in a JSON text by its structure: keys, pairs of name and value, argument lists.

Knows JSON as text, so that numbers, order and spelling of what is no secret stay as they are. Must
not know how a single text is searched.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from redrive.reports.redact_names import Level, judge, level_of, looks_random
from redrive.reports.redact_rules import Span

__all__ = ["Text", "find_by_name", "find_fields_in_json", "is_json", "write_json"]

_TOKEN = re.compile(r'"((?:[^"\\]++|\\.)*+)(?:"|\Z)|[\[\]{}]', re.DOTALL)
_NAME_CHARS = 60
_COLON = re.compile(r"\s*:\s*")
_NUMBER = re.compile(r"-?\d[\d.eE+-]{3,}")
_NAMING = frozenset({"name", "key", "header", "field", "variable", "var"})
_VALUES = frozenset({"value", "val", "data", "plaintext", "contents", "recorded", "given"})
_SCHEME = re.compile(r"\s*[A-Za-z][\w-]{0,20}[ \t]+(?=\S)")
_NUMERIC = re.compile(r"(?i)(?:pass(?:word|wd|code|phrase)?|pwd|pin|otp|secret)$")


@dataclass(frozen=True, slots=True)
class Text:
    """A string of a JSON text: its place, quotes included, and its value."""

    start: int
    end: int
    value: str


@dataclass(slots=True)
class _Frame:
    """An object or list that is open: what its key says, and what was seen in it."""

    is_object: bool
    level: Level | None
    named: Level | None = None
    values: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)


def write_json(text: str) -> str:
    """Write a text as a JSON string; control characters and lone surrogates are escapes."""
    written = json.dumps(text, ensure_ascii=False)
    try:
        written.encode()
    except UnicodeEncodeError:
        return json.dumps(text)
    return written


def is_json(text: str) -> bool:
    """Say whether a text is a JSON object or list that is not empty."""
    if len(text) < 4 or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def find_fields_in_json(
    text: str,
) -> tuple[list[Text], list[tuple[int, int]], list[tuple[int, Span]]]:
    """Find what the structure of a JSON text makes a secret; it need not be whole.

    Returns:
        Every string, keys included, in order; the places of numbers that are secrets; and secrets
        in strings, as (number of the string, span).
    """
    reader = _Reader(text)
    for token in _TOKEN.finditer(text):
        reader.take(token)
    return reader.texts, reader.numbers, list(reader.spans())


class _Reader:
    """Takes the strings and brackets of a JSON text, one by one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._frames: list[_Frame] = []
        self._levels: dict[int, tuple[Level, bool]] = {}
        self._key: str | None = None
        self.texts: list[Text] = []
        self.numbers: list[tuple[int, int]] = []

    def take(self, token: "re.Match[str]") -> None:
        sign = token[0][0]
        if sign == '"':
            self._take_string(token)
        elif sign in "{[":
            self._open(is_object=sign == "{")
        elif self._frames:
            self._close(self._frames.pop())

    def spans(self) -> Iterator[tuple[int, Span]]:
        """Yield the secrets that keys and neighbours told of."""
        for number, (level, is_sure) in self._levels.items():
            span = _span(self.texts[number].value, level)
            if _is_secret(span.secret, level) if is_sure else looks_random(span.secret, least=8):
                yield number, span

    def _open(self, *, is_object: bool) -> None:
        level = level_of(self._key) if self._key is not None else None
        if level is None and self._frames and not self._frames[-1].is_object and not is_object:
            level = self._frames[-1].level
        self._key = None
        self._frames.append(_Frame(is_object, level))

    def _close(self, frame: _Frame) -> None:
        if frame.is_object:
            if frame.named is not None:
                self._levels |= dict.fromkeys(frame.values, (frame.named, True))
        elif frame.level is None and len(frame.items) == 2:
            level = level_of(self.texts[frame.items[0]].value)
            if level is not None and frame.items[1] not in self._levels:
                self._levels[frame.items[1]] = (level, False)

    def _take_string(self, token: "re.Match[str]") -> None:
        number = len(self.texts)
        value = token[1] if "\\" not in token[1] else _decode(token[1])
        self.texts.append(Text(token.start(), token.end(), value))
        frame = self._frames[-1] if self._frames else None
        if frame is None:
            return
        if not frame.is_object:
            self._take_item(frame, number)
            return
        colon = _COLON.match(self._text, token.end())
        if colon is not None:
            self._take_key(value, colon.end())
            return
        key, self._key = self._key, None
        self._take_member(frame, key or "", number)

    def _take_key(self, key: str, end: int) -> None:
        self._key = key if self._text[end : end + 1] in ('"', "{", "[") else None
        if self._key is None and _NUMERIC.search(key):
            found = _NUMBER.match(self._text, end)
            if found is not None:
                self.numbers.append(found.span())

    def _take_member(self, frame: _Frame, key: str, number: int) -> None:
        low = key.lower()
        if low in _NAMING:
            frame.named = frame.named or level_of(self.texts[number].value)
        elif low in _VALUES:
            frame.values.append(number)
            if frame.level is not None:
                self._levels[number] = (frame.level, True)
        level = level_of(key)
        if level is not None:
            self._levels[number] = (level, True)

    def _take_item(self, frame: _Frame, number: int) -> None:
        before = self.texts[frame.items[-1]].value if frame.items else ""
        frame.items.append(number)
        if frame.level is not None:
            self._levels[number] = (frame.level, True)
        elif before.startswith("-") and "=" not in before:
            level = level_of(before)
            value = self.texts[number].value
            if level is not None and (value[:1] != "-" or looks_random(value)):
                self._levels[number] = (level, level is not Level.MAYBE)


def find_by_name(text: str, name: str) -> Iterator[Span]:
    """Yield a text as a secret where the name of its field makes it one."""
    level = level_of(name[-_NAME_CHARS:])
    if level is not None:
        span = _span(text, level)
        if _is_secret(span.secret, level):
            yield span


def _is_secret(value: str, level: Level) -> bool:
    if level is Level.COOKIE and "=" not in value:
        return False
    return judge(value, level, is_quoted=True, is_assigned=True)


def _span(value: str, level: Level) -> Span:
    start = 0
    if level is Level.HEADER:
        scheme = _SCHEME.match(value)
        start = 0 if scheme is None else scheme.end()
    rule = "field" if level is Level.SURE else level.value
    return Span(start, len(value), rule, value[start:])


def _decode(inner: str) -> str:
    try:
        return str(json.loads(f'"{inner}"', strict=False))
    except ValueError:  # torn in the middle of an escape
        return inner
