"""Tells from a file's first bytes whether it holds OpenTelemetry records, and under which name.

Knows the keys of span exports. Must not decode a whole file: the first 64 KiB are scanned for the
keys of the outermost objects, so that words inside a quoted text never count.

Source: DESIGN.md §8 `import`; docs/opentelemetry.md "What is claimed".
"""

import re

import msgspec

from redrive.importers.lines import is_json_like

OTEL_GENAI_NAME = "otel_genai"
OPENINFERENCE_NAME = "openinference"

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"(?:\s*:)?|[{}\[\]]|"', re.DOTALL)
_MAX_DEPTH = 3
_ENVELOPES = frozenset({"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"})
_SPAN_ENVELOPES = frozenset({"resourceSpans", "resource_spans"})
_SPAN_KEYS = (
    frozenset({"spanName", "attributes"}),
    frozenset({"spanContext", "attributes"}),
    frozenset({"context", "parent_id", "attributes"}),
    frozenset({"context", "span_kind", "attributes"}),
    frozenset({"traceId", "spanId", "attributes"}),
    frozenset({"trace_id", "span_id", "attributes"}),
)
_MAP_PREFIXES = ("gen_ai.", "openinference.span.kind", "ai.operationId")
_OPENINFERENCE_MARK = b'"openinference.span.kind"'
_MARKS = (b'"gen_ai.', b'"ai.operationId"', b'"llm.request.type"', _OPENINFERENCE_MARK)


class Shape(msgspec.Struct, frozen=True):
    """What a file looks like: the importer's name, how sure, and whether it holds logs alone."""

    name: str
    confidence: int
    is_logs: bool = False


def find_shape(head: bytes) -> Shape | None:
    """Tell the shape of a file by its first bytes; `None` if it is no span export."""
    if not is_json_like(head):
        return None
    objects = list(_outer_keys(head))
    top = {key for depth, keys in objects if depth <= 2 for key in keys}
    has_mark = any(mark in head for mark in _MARKS)
    if top & _ENVELOPES:
        name = OPENINFERENCE_NAME if _OPENINFERENCE_MARK in head else OTEL_GENAI_NAME
        return Shape(name, 90 if has_mark else 60, is_logs=not top & _SPAN_ENVELOPES)
    spans = [keys for _, keys in objects if any(wanted <= keys for wanted in _SPAN_KEYS)]
    if any("span_kind" in keys for keys in spans):
        return Shape(OPENINFERENCE_NAME, 90)
    if spans:
        name = OPENINFERENCE_NAME if _OPENINFERENCE_MARK in head else OTEL_GENAI_NAME
        return Shape(name, 85 if has_mark else 40)
    if any(key.startswith(_MAP_PREFIXES) for depth, keys in objects if depth <= 2 for key in keys):
        return Shape(OTEL_GENAI_NAME, 80)
    return None


def _outer_keys(head: bytes) -> list[tuple[int, set[str]]]:
    """List (depth, keys) of the objects down to `_MAX_DEPTH`; the outermost value has depth 1."""
    found: list[tuple[int, set[str]]] = []
    stack: list[set[str] | None] = []
    for match in _TOKEN.finditer(head):
        token = match[0]
        if token == b'"':  # a text that the head cuts off
            break
        if token in (b"{", b"["):
            keys: set[str] | None = set() if token == b"{" else None
            stack.append(keys)
            if keys is not None and len(stack) <= _MAX_DEPTH:
                found.append((len(stack), keys))
        elif token in (b"}", b"]"):
            if not stack:
                break
            stack.pop()
        elif token.endswith(b":") and stack and len(stack) <= _MAX_DEPTH:
            inner = stack[-1]
            if inner is not None:
                inner.add(token.rsplit(b'"', 1)[0][1:].decode("utf-8", "replace"))
    return found
