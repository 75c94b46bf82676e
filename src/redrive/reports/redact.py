"""Replaces secrets in whatever redrive writes by marks that tell equal ones from different ones.

Knows where the rules apply: in a text as it stands, and as its JSON or URL escapes spell it. Must
not know what the text is for, nor where the key comes from.

A mark is `[redacted:RULE:DIGEST]`, with eight hex digits of HMAC-SHA256(key, secret). It says which
rule fired, lets equal secrets match each other, and cannot be guessed from a bare hash.

Source: DESIGN.md §10 "Redaction marks".
"""

import hashlib
import hmac
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from redrive import canonical
from redrive.reports.redact_fields import find_fields, find_logins, find_urls
from redrive.reports.redact_json import (
    Text,
    find_by_name,
    find_fields_in_json,
    is_json,
    write_json,
)
from redrive.reports.redact_known import KnownSecrets
from redrive.reports.redact_prefilter import find_prefixes, find_suspects
from redrive.reports.redact_rules import BETWEEN, RULES_VERSION, Span, find_blocks, find_shapes
from redrive.reports.redact_views import views_of

__all__ = ["MARK", "RULES_VERSION", "Redactor", "find_spans"]

MARK = re.compile(r"\[redacted:[^\[\]:]{1,64}:[0-9a-f]{8}\]")
_MARK_NEEDLE = "[redacted:"
_BLOCK_BYTES = 256 * 1024


class Redactor:
    """Redacts texts and JSON with one key.

    Args:
        key: what the digests in marks are made with; secret itself.
        known: learns every secret that is found, and those that it knows are found everywhere;
            without it, each text is searched for itself.

    Attributes:
        n_marks: how many secrets were replaced so far.
    """

    def __init__(self, key: bytes, known: KnownSecrets | None = None) -> None:
        self._key = key
        self._known = known
        self.n_marks = 0

    def text(self, text: str) -> str:
        """Redact a text; a mark that it holds is left alone.

        The text may have been cut off by somebody else: the beginning of a secret at its end, or
        in front of an ellipsis, is redacted as well.
        """
        return self._join(text, find_spans(text, known=self._known), 0, len(text))

    def redact_excerpt(self, text: str, limit: int) -> str:
        """Redact a text, and only then cut it to `limit` characters; a mark is never cut."""
        redacted = self.text(text)
        if len(redacted) <= limit:
            return redacted
        begin = redacted.rfind(_MARK_NEEDLE, 0, limit)
        mark = MARK.match(redacted, begin) if begin >= 0 else None
        return redacted[: limit if mark is None else max(limit, mark.end())]

    def parts(self, text: str, name: str = "") -> Callable[[int, int], str]:
        """Give a function that cuts a text from one place to another, redacted as a whole.

        A secret that reaches into a part is a mark in it, whole. Cost: one search per text.

        Args:
            text: the whole text.
            name: the field that it is the value of, as a path such as `result.list[0].password`.
        """
        found = find_spans(text, known=self._known)
        spans = _merge(text, [*found, *find_by_name(text, name)])
        return lambda start, end: self._join(text, spans, start, end)

    def json(self, data: bytes) -> bytes:
        """Redact a JSON text; it stays one, and what is no secret stays byte for byte."""
        return next(self._block((data,)))

    def json_lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Redact JSON texts, one a line, none of which holds a line end; they are read in blocks.

        Cost: a block is searched once for all its lines; only suspected ones are read further.
        """
        block: list[bytes] = []
        size = 0
        for line in lines:
            block.append(line)
            size += len(line)
            if size >= _BLOCK_BYTES:
                yield from self._block(block)
                block, size = [], 0
        yield from self._block(block)

    def _block(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        data = b"\n".join(lines)
        shaped = {bisect_right(starts, place) - 1 for place in find_prefixes(data)}
        placed = {bisect_right(starts, place) - 1 for place in find_suspects(data)}
        known = self._known
        needles = () if known is None else known.needles_in(data)
        for number, line in enumerate(lines):
            is_shaped = number in shaped or b"\\u00" in line
            is_known = known is not None and known.may_be_in(line, needles)
            if is_shaped or is_known or number in placed:
                yield self._json(line, is_shaped=is_shaped)
            else:
                yield line

    def _json(self, data: bytes, *, is_shaped: bool) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        texts, numbers, spans = find_fields_in_json(text)
        known_whole = {number for number, _ in spans}
        nested = {
            number: self._nested(t.value)
            for number, t in enumerate(texts)
            if number not in known_whole and is_json(t.value)
        }
        texts = [_with_value(t, nested.get(n)) for n, t in enumerate(texts)]
        found = _find_in_all(texts, spans, has_shapes=is_shaped, known=self._known)
        changed = [
            (t.start, t.end, write_json(self._join(t.value, own, 0, len(t.value))))
            for n, (t, own) in enumerate(zip(texts, found, strict=True))
            if own or nested.get(n) is not None
        ]
        changed += [(a, b, write_json(self._mark("field", text[a:b]))) for a, b in numbers]
        if not changed:
            return data
        return _splice(text, sorted(changed)).encode("utf-8", "surrogateescape")

    def _nested(self, text: str) -> str | None:
        """Redact a text that is JSON itself, by its structure; `None` where it holds no secret."""
        data = canonical.escape_surrogates(text).encode()
        redacted = self.json(data)
        return None if redacted is data else redacted.decode()

    def value(self, value: Any) -> Any:
        """Redact a decoded JSON value: texts, keys, and what the keys' names say of values.

        Returns:
            The value itself where it holds no secret, else a new one.
        """
        written = json.dumps(value, ensure_ascii=False)
        try:
            data = written.encode()
        except UnicodeEncodeError:  # lone surrogates: their escapes say the same
            data = json.dumps(value).encode()
        redacted = self.json(data)
        return value if redacted is data else json.loads(redacted)

    def _join(self, text: str, spans: Sequence[Span], start: int, end: int) -> str:
        """Give a part of a text with its spans, which are in order and apart, as marks."""
        parts: list[str] = []
        place = start
        for span in spans:
            if span.end > start and span.start < end:
                parts += [text[place : max(place, span.start)], self._mark(span.rule, span.secret)]
                place = span.end
        return "".join((*parts, text[place:end]))

    def _mark(self, rule: str, secret: str) -> str:
        if self._known is not None:
            rule = self._known.learn(rule, secret)
        return self.mark(rule, secret.encode("utf-8", "surrogatepass"))

    def mark(self, rule: str, data: bytes) -> str:
        """Give the mark of bytes that a rule keeps from being written."""
        self.n_marks += 1
        return f"[redacted:{rule}:{hmac.new(self._key, data, hashlib.sha256).hexdigest()[:8]}]"


def find_spans(
    text: str, *, has_shapes: bool = True, known: KnownSecrets | None = None
) -> list[Span]:
    """Find the secrets of a text, in order and apart; marks are not looked into.

    Args:
        text: what is searched.
        has_shapes: false where it is known that no prefix of a secret stands in it as it is.
        known: secrets that are found wherever they stand.
    """
    if _MARK_NEEDLE not in text:
        return _merge(text, _find(text, is_whole=False, has_shapes=has_shapes, known=known))
    found: list[Span] = []
    place = 0
    for mark in MARK.finditer(text):
        part = text[place : mark.start()]
        found += _shift(_find(part, is_whole=True, has_shapes=has_shapes, known=known), place)
        place = mark.end()
    rest = _find(text[place:], is_whole=False, has_shapes=has_shapes, known=known)
    return _merge(text, [*found, *_shift(rest, place)])


def _shift(spans: Sequence[Span], by: int) -> list[Span]:
    return [Span(s.start + by, s.end + by, s.rule, s.secret) for s in spans]


def _find(text: str, *, is_whole: bool, has_shapes: bool, known: KnownSecrets | None) -> list[Span]:
    found = _find_placed(text, is_whole=is_whole)
    if has_shapes:
        found += find_shapes(text, is_whole=is_whole)
    if known is not None:
        found += known.find(text)
    for view in views_of(text):
        again = () if known is None else known.find(view.text)
        for span in (*_find_plain(view.text, is_whole=is_whole), *again):
            start, end = view.place(span.start), view.place(span.end)
            found.append(Span(start, end, span.rule, span.secret))
    return found


def _find_plain(text: str, *, is_whole: bool) -> list[Span]:
    return [*find_shapes(text, is_whole=is_whole), *_find_placed(text, is_whole=is_whole)]


def _find_placed(text: str, *, is_whole: bool) -> list[Span]:
    return [
        *find_blocks(text),
        *find_fields(text, is_whole=is_whole),
        *find_urls(text, is_whole=is_whole),
        *find_logins(text),
    ]


def _merge(text: str, spans: Sequence[Span]) -> list[Span]:
    """Put spans in order, and make one of those that overlap; the first names the rule."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        last = merged[-1] if merged else None
        if last is None or span.start >= last.end:
            merged.append(span)
        elif span.end > last.end:
            secret = text[last.start : span.end]
            merged[-1] = Span(last.start, span.end, last.rule, secret)
        elif span.end - span.start == last.end - last.start:
            shorter = min(last.secret, span.secret, key=len)  # as it reads when decoded
            merged[-1] = Span(last.start, last.end, last.rule, shorter)
    return merged


def _find_in_all(
    texts: Sequence[Text],
    spans: Sequence[tuple[int, Span]],
    *,
    has_shapes: bool,
    known: KnownSecrets | None,
) -> list[list[Span]]:
    """Find the secrets of many texts in one search; `spans` adds those that are known."""
    whole = BETWEEN.join(text.value for text in texts)
    starts = [0, *accumulate(len(text.value) + len(BETWEEN) for text in texts)]
    found: list[list[Span]] = [[] for _ in texts]
    for number, span in spans:
        found[number].append(span)
    number = 0
    for span in find_spans(whole, has_shapes=has_shapes, known=known):
        while starts[number + 1] <= span.start:
            number += 1
        _hand_out(texts, found, starts, number, span)
    return [_merge(t.value, own) for t, own in zip(texts, found, strict=True)]


def _hand_out(
    texts: Sequence[Text],
    found: list[list[Span]],
    starts: Sequence[int],
    number: int,
    span: Span,
) -> None:
    """Give a span to the text that it begins in, and what reaches further to the next ones."""
    while number < len(texts) and starts[number] < span.end:
        value = texts[number].value
        start = max(0, span.start - starts[number])
        end = min(len(value), span.end - starts[number])
        if start < end:
            is_all = span.end - span.start == end - start
            secret = span.secret if is_all else value[start:end]
            found[number].append(Span(start, end, span.rule, secret))
        number += 1


def _with_value(text: Text, value: str | None) -> Text:
    return text if value is None else Text(text.start, text.end, value)


def _splice(text: str, changed: Sequence[tuple[int, int, str]]) -> str:
    parts: list[str] = []
    place = 0
    for start, end, new in changed:
        parts += [text[place:start], new]
        place = end
    return "".join((*parts, text[place:]))
