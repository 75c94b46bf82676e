"""What one sent text tells: redaction marks, duplicate keys, and the fields of a request body.

Knows texts that were sent to a model. Must not know events or gaps.

Contexts grow by a few messages per step, so a scan of each whole text would be quadratic in the
messages. Where a text is the one before with a run of JSON values inserted, only these are
scanned: such a run can stand only in a list or inside a string, and neither changes a field. That
the whole is still JSON is checked each time, by a decoder that skips what it passes.

Source: DESIGN.md §4, §10 "Bytes sent"; docs/performance.md.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.audit import references
from redrive.audit.duplicates import has_duplicate_keys, lost_keys
from redrive.audit.redaction import find_mark
from redrive.audit.references import Reference
from redrive.record.texts import common_prefix

PARAMETERS = ("temperature", "top_p", "top_k", "seed", "max_tokens")
_PARAMETER_NAMES = {
    **{name: name for name in PARAMETERS},
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
}
CACHE_FIELDS = ("cache_prompt", "prompt_cache_key", "prompt_cache_retention")
_CACHE_NEEDLE = '"cache_control"'
_GROWTH_FROM_CHARS = 2048
_AROUND_CHARS = 512
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_any = msgspec.json.Decoder().decode


class Body(msgspec.Struct, frozen=True):
    """The fields of a request body that the audit reads.

    Attributes:
        model: the model asked for.
        parameters: sampling parameters by their neutral name; `null` counts as absent.
        references: what the body only points at, in order of appearance, each once.
        has_cache: whether it asks for a prompt cache.
        malformed: fields of another type than an API takes, with the type that was expected.
    """

    model: str | None
    parameters: Mapping[str, Any]
    references: tuple[Reference, ...]
    has_cache: bool
    malformed: Mapping[str, str] = {}


class SentText(msgspec.Struct, frozen=True):
    """What was found in one text.

    `body` is absent where it is no body; `unmet` says what a body was expected to be and is not.
    """

    mark: str | None
    has_duplicates: bool
    body: Body | None = None
    unmet: str | None = None


class SentScanner:
    """Scans the texts of one trajectory in order; remembers the last one of each kind."""

    def __init__(self) -> None:
        self._context = _Growth()
        self._body = _Growth()

    def scan_context(self, text: str) -> SentText:
        """Scan a context: marks and duplicate keys."""
        return self._context.scan(text, is_body=False)

    def scan_body(self, text: str) -> SentText:
        """Scan a request body: marks, duplicate keys, parameters and references."""
        return self._body.scan(text, is_body=True)


class _Growth:
    """The last text, what was found in it, and how far behind its end texts were inserted."""

    def __init__(self) -> None:
        self._text = ""
        self._found = SentText(None, has_duplicates=False)
        self._tail_chars = 1
        self._is_strict = False

    def scan(self, text: str, *, is_body: bool) -> SentText:
        found = self._scan_growth(text) if len(self._text) >= _GROWTH_FROM_CHARS else None
        if found is None and is_body:
            found, self._is_strict = _scan_body(text)
        elif found is None:
            found = SentText(find_mark(text), has_duplicate_keys(text))
        self._text, self._found = text, found
        return found

    def _scan_growth(self, text: str) -> SentText | None:
        """Scan what was inserted since the last text; `None` if it is not the last one grown."""
        cut = self._insertion(text)
        if cut is None:
            return None
        end = cut + len(text) - len(self._text)
        values = _decode_values(text[cut:end])
        before = self._found
        if values is None or before.unmet is not None:
            return None
        if before.body is not None and not self._is_whole(text, cut, end):
            return None
        around = text[max(0, cut - _AROUND_CHARS) : end + _AROUND_CHARS]
        has_duplicates = before.has_duplicates or has_duplicate_keys(_as_list(text[cut:end]))
        body = None if before.body is None else _grow_body(before.body, text[cut:end], values)
        return SentText(before.mark or find_mark(around), has_duplicates, body)

    def _is_whole(self, text: str, cut: int, end: int) -> bool:
        """Say whether a grown body is one JSON object still.

        No decoder skips what strict ones refuse: there, the list that grew must be seen to end.
        """
        if self._is_strict:
            return _is_object(text)
        ends_list = text[end : end + _AROUND_CHARS].lstrip().startswith("]")
        return ends_list and _is_object(f'{{"a":[0{text[cut:end]}]}}')

    def _insertion(self, text: str) -> int | None:
        """Find where the last text was cut open to insert; remembers the place for the next."""
        last = self._text
        if len(text) < len(last):
            return None
        cut = len(last) - self._tail_chars
        if not (text.startswith(last[:cut]) and text.endswith(last[cut:])):
            cut = common_prefix(last, text)
            if not text.endswith(last[cut:]):
                return None
            self._tail_chars = len(last) - cut
        return cut


def _as_list(segment: str) -> str:
    return "[" + segment.strip(", \t\r\n") + "]"


def _decode_values(segment: str) -> list[Any] | None:
    """Decode an inserted run of JSON values; `None` where it is no such run."""
    if segment.strip()[:1] not in ("", ",", "{"):
        return None
    try:
        values: list[Any] = _decode_any(_as_list(segment))
    except (ValueError, RecursionError):
        return None
    return values


def _grow_body(body: Body, segment: str, values: list[Any]) -> Body:
    """Add to a body's facts what the inserted messages hold."""
    found = references.part_references(values) if references.may_hold_parts(segment) else ()
    has_cache = body.has_cache or _CACHE_NEEDLE in segment
    merged = tuple(dict.fromkeys((*body.references, *found)))
    if has_cache == body.has_cache and merged == body.references:
        return body
    return msgspec.structs.replace(body, references=merged, has_cache=has_cache)


def _is_object(text: str) -> bool:
    """Say whether a strict decoder takes a text as one JSON object; its values are skipped."""
    try:
        _decode_fields(text)
    except (ValueError, RecursionError):
        return False
    return True


def _scan_body(text: str) -> tuple[SentText, bool]:
    """Scan a whole body; say too whether strict decoders take it."""
    mark = find_mark(text)
    try:
        value, is_exact, is_strict = _decode_any(text), True, True
    except (ValueError, RecursionError):
        value, is_exact, is_strict = *_decode_odd(text), False
    if not isinstance(value, dict):
        return SentText(mark, has_duplicate_keys(text), unmet="one JSON object"), False
    has_duplicates = lost_keys(text, value) if is_strict else has_duplicate_keys(text)
    if not is_exact:
        return SentText(mark, has_duplicates, unmet="one JSON object of exact numbers"), False
    return SentText(mark, has_duplicates, _read_body(value, text)), is_strict


def _decode_odd(text: str) -> tuple[Any, bool]:
    """Decode what strict decoders refuse (a lone surrogate, a long integer), and say if exactly."""
    try:
        decoded = canonical.decode(text)
    except ValueError:
        return None, False
    return decoded.value, decoded.is_exact


def _read_body(fields: Mapping[str, Any], text: str) -> Body:
    """Read the fields of a body."""
    tools = fields.get("tools")
    found = [*references.field_references(fields), *references.tool_references(tools)]
    if references.may_hold_parts(text):
        found.extend(references.part_references([fields.get(name) for name in _LISTS]))
    return Body(
        model=canonical.get_field(fields, "model", str),
        parameters={
            neutral: fields[name]
            for name, neutral in _PARAMETER_NAMES.items()
            if fields.get(name) is not None
        },
        references=tuple(dict.fromkeys(found)),
        has_cache=any(fields.get(name) for name in CACHE_FIELDS) or _CACHE_NEEDLE in text,
        malformed={} if references.is_tool_list(tools) else {"tools": "a list of tools"},
    )


_LISTS = ("messages", "input", "system", "instructions")
