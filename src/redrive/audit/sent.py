"""What one sent text tells: redaction marks, duplicate keys, and the fields of a request body.

Knows texts that were sent to a model. Must not know events or gaps.

Contexts grow by a few messages per step, so a scan of each whole text would be quadratic in the
messages. Where a text is the one before with a run of JSON values inserted, only these are
scanned: such a run can stand only in a list or inside a string, and neither changes a field.

Source: DESIGN.md §4, §10 "Bytes sent"; docs/performance.md.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.audit import references
from redrive.audit.duplicates import has_duplicate_keys
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
_MARK_OVERLAP_CHARS = 80
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_any = msgspec.json.Decoder().decode


class Body(msgspec.Struct, frozen=True):
    """The fields of a request body that the audit reads.

    Attributes:
        model: the model asked for.
        parameters: sampling parameters by their neutral name; `null` counts as absent.
        references: what the body only points at, in order of appearance, each once.
        has_cache: whether it asks for a prompt cache.
    """

    model: str | None
    parameters: Mapping[str, Any]
    references: tuple[Reference, ...]
    has_cache: bool


class SentText(msgspec.Struct, frozen=True):
    """What was found in one text; `body` is absent where it is no body, or no JSON object."""

    mark: str | None
    has_duplicates: bool
    body: Body | None = None


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

    def scan(self, text: str, *, is_body: bool) -> SentText:
        found = self._scan_growth(text) if len(self._text) >= _GROWTH_FROM_CHARS else None
        if found is None:
            body = _read_body(text) if is_body else None
            found = SentText(find_mark(text), has_duplicate_keys(text), body)
        self._text, self._found = text, found
        return found

    def _scan_growth(self, text: str) -> SentText | None:
        """Scan what was inserted since the last text; `None` if it is not the last one grown."""
        cut = self._insertion(text)
        if cut is None:
            return None
        end = cut + len(text) - len(self._text)
        values = _decode_values(text[cut:end])
        if values is None:
            return None
        before = self._found
        around = text[max(0, cut - _MARK_OVERLAP_CHARS) : end + _MARK_OVERLAP_CHARS]
        has_duplicates = before.has_duplicates or has_duplicate_keys(_as_list(text[cut:end]))
        body = None if before.body is None else _grow_body(before.body, text[cut:end], values)
        return SentText(before.mark or find_mark(around), has_duplicates, body)

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
    return Body(body.model, body.parameters, merged, has_cache)


def _read_body(text: str) -> Body | None:
    """Read the fields of a body; `None` where it is no JSON object."""
    try:
        fields: Mapping[str, Any] = _decode_fields(text)
    except (ValueError, RecursionError):
        fields = _read_odd_body(text)
        if not fields:
            return None
    wanted = {
        name: canonical.decode_value(bytes(fields[name])) for name in _WANTED if name in fields
    }
    found = [*references.field_references(wanted), *references.tool_references(wanted.get("tools"))]
    if references.may_hold_parts(text):
        lists = [canonical.decode_value(bytes(fields[name])) for name in _LISTS if name in fields]
        found.extend(references.part_references(lists))
    model = wanted.get("model")
    return Body(
        model=model if isinstance(model, str) else None,
        parameters={
            _PARAMETER_NAMES[name]: value
            for name, value in wanted.items()
            if name in _PARAMETER_NAMES and value is not None
        },
        references=tuple(dict.fromkeys(found)),
        has_cache=any(wanted.get(name) for name in CACHE_FIELDS) or _CACHE_NEEDLE in text,
    )


def _read_odd_body(text: str) -> Mapping[str, Raw]:
    """Read a body that strict decoders refuse (a lone surrogate, a long integer)."""
    try:
        value = canonical.decode_value(text)
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    return {name: Raw(canonical.encode(field)) for name, field in value.items()}


_LISTS = ("messages", "input", "system", "instructions")
_WANTED = (
    "model",
    "tools",
    *_PARAMETER_NAMES,
    *CACHE_FIELDS,
    *references.BODY_FIELDS,
    *references.PROVIDER_FIELDS,
)
