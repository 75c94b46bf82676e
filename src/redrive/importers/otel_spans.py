"""Reads OpenTelemetry JSON to one neutral record per span or log record, whoever exported it.

Knows OTLP/JSON (one document, or the JSON lines of the collector's file exporter), the span lists
of Phoenix, of the SDKs' console exporters and of the Vercel AI SDK, and bare attribute maps. Must
not know what a span means: operations and messages are read by `otel_facts` and `otel_messages`.

A document is held whole, at about 4 × its size; of JSON lines, one line and all records are held,
since children may come before their parents and calls before or after their answers.

Source: OTLP 1.x JSON mapping (ids hex, 64-bit integers as strings); docs/opentelemetry.md.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from redrive import canonical
from redrive.importers.draft import SourceFile
from redrive.importers.lines import LINE_CAP_BYTES, Record, read_records
from redrive.importers.timestamps import parse_epoch, parse_rfc3339
from redrive.record.event import FLAG_UNREPRESENTABLE, Damage

MAX_NESTING = 200
CHOICE_EVENT = "gen_ai.choice"
DETAILS_EVENT = "gen_ai.client.inference.operation.details"
KIND_ATTRIBUTE = "openinference.span.kind"
_BOM = b"\xef\xbb\xbf"
_MAX_TS_NS = 2**63 - 1
_TRACE_BYTES, _SPAN_BYTES = 16, 8
_HEX_ID = re.compile(r"(?:0x)?([0-9a-fA-F]{16}|[0-9a-fA-F]{32})")
_BASE64_ID = re.compile(r"[A-Za-z0-9+/_-]{10,22}={1,2}")

_LOG_LISTS = frozenset({"logRecords", "log_records"})
_RECORD_LISTS = frozenset({"spans"}) | _LOG_LISTS
_SKIPPED = frozenset({"resourceMetrics", "resource_metrics"})
_CONTEXTS = ("spanContext", "span_context", "context")
_TRACE_KEYS = ("traceId", "trace_id")
_SPAN_KEYS = ("spanId", "span_id")
_PARENT_KEYS = ("parentSpanId", "parent_span_id", "parentId", "parent_id")
_START_KEYS = ("startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time")
_END_KEYS = ("endTimeUnixNano", "end_time_unix_nano", "endTime", "end_time")
_LOG_TIME_KEYS = (
    "timeUnixNano", "time_unix_nano", "timestamp",
    "observedTimeUnixNano", "observed_time_unix_nano",
)  # fmt: skip
_DROPPED_KEYS = ("droppedAttributesCount", "dropped_attributes_count")
_ERROR_CODES = frozenset({"2", "ERROR", "STATUS_CODE_ERROR", "StatusCode.ERROR"})
_MAP_PREFIXES = ("gen_ai.", "openinference.span", "llm.input_messages.", "ai.operationId")
_NESTED_ROOTS = frozenset(
    {"gen_ai", "llm", "ai", "openinference", "input", "output", "session", "tool", "tool_call"}
)
_EPOCH_UNITS = ((10**17, 1_000_000_000), (10**14, 1_000_000), (10**11, 1_000), (1, 1))


class SpanEvent(msgspec.Struct, frozen=True):
    """A timed annotation of a span, such as `exception`."""

    name: str
    attributes: Mapping[str, Any]


class Telemetry(msgspec.Struct, frozen=True):
    """One span, or one log record.

    Attributes:
        ordinal: place in the file, from 0.
        is_log: whether it is a log record.
        trace_id: hex where the source has a valid one; as written for other ids; empty for none.
        span_id: likewise; the ordinal, as `#N`, for none.
        parent_id: id of the parent span; empty for none.
        name: span name, or the event name of a log record.
        start_ns, end_ns: UTC nanoseconds; a log record has one time.
        attributes: by dotted name, values as plain JSON.
        body: a log record's body as plain JSON.
        events: a span's annotations, in order.
        is_error: whether the status is an error.
        status_message: what the status says.
        has_dropped: whether the recorder dropped attributes.
        digest: sha256 of the record where it names no trace; empty otherwise.
        offset, length: the bytes it was read from.
        flags: as of `lines.Record`.
    """

    ordinal: int
    is_log: bool
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int | None
    end_ns: int | None
    attributes: Mapping[str, Any]
    body: Any
    events: tuple[SpanEvent, ...]
    is_error: bool
    status_message: str | None
    has_dropped: bool
    digest: str
    offset: int
    length: int
    flags: tuple[str, ...] = ()

    @property
    def is_choice(self) -> bool:
        """Whether it is the log record of one answer."""
        return self.is_log and self.name == CHOICE_EVENT

    @property
    def is_details(self) -> bool:
        """Whether it is the log record of one whole model call."""
        return self.is_log and self.name == DETAILS_EVENT


class Placed(msgspec.Struct, frozen=True):
    """One JSON value of the file and where it lies."""

    value: Any
    line: int
    offset: int
    length: int
    flags: tuple[str, ...] = ()


def read_telemetry(source: SourceFile) -> Iterator[Telemetry | Damage]:
    """Yield the spans and log records of a file, in file order, and its damage.

    A document that is no JSON yields one `Damage` and nothing else.
    """
    ordinal = 0
    for placed in _read_values(source):
        if isinstance(placed, Damage):
            yield placed
            continue
        for is_log, item in find_records(placed.value):
            if isinstance(item, dict):
                yield parse_record(item, placed, ordinal, is_log=is_log)
                ordinal += 1
            else:
                found = f"a {'log record' if is_log else 'span'} that is no JSON object"
                yield Damage(placed.line, placed.offset, placed.length, found)


def _read_values(source: SourceFile) -> Iterator[Placed | Damage]:
    with source.open() as file:
        if is_json_lines(file):
            file.seek(0)
            yield from _read_lines(file)
            return
        file.seek(0)
        document = _read_document(file.read())
        if isinstance(document[-1], Damage) and _has_telemetry_line(file):
            file.seek(0)
            yield from _read_lines(file)
        else:
            yield from document


def is_json_lines(file: BinaryIO) -> bool:
    """Say whether the first line is one whole JSON object and more text follows it."""
    line = file.readline(LINE_CAP_BYTES)
    if not line.endswith(b"\n") or not line.lstrip().startswith(b"{"):
        return False
    try:
        value = canonical.decode_value(line)
    except ValueError:
        return False
    return isinstance(value, dict) and any(rest.strip() for rest in file)


def _has_telemetry_line(file: BinaryIO) -> bool:
    """Say whether some line of a file that is no JSON document is one object with telemetry."""
    file.seek(0)
    return any(
        item.is_strict and any(True for _ in find_records(item.value))
        for item in read_records(file)
        if isinstance(item, Record)
    )


def _read_lines(file: BinaryIO) -> Iterator[Placed | Damage]:
    for item in read_records(file):
        if isinstance(item, Damage):
            yield item
        elif is_too_deep(item.value):
            yield Damage(item.line, item.offset, item.length, "nested too deeply")
        else:
            yield Placed(item.value, item.line, item.offset, item.length, item.flags)


def _read_document(data: bytes) -> list[Placed | Damage]:
    """Decode a whole file; the last item is the document, or why there is none.

    Line ends behind it do not count, so that one line is the same record when others follow later.
    """
    data = data.rstrip(b"\r\n")
    size = len(data)
    found: list[Placed | Damage] = []
    if data.startswith(_BOM):
        found.append(Damage(1, 0, len(_BOM), "byte order mark"))
        data = data[len(_BOM) :]
    try:
        decoded = canonical.decode(data)
    except ValueError as error:
        line, offset, reason = _locate(data, error)
        offset += size - len(data)
        return [*found, Damage(line, offset, size - offset, reason)]
    if is_too_deep(decoded.value):
        return [*found, Damage(1, 0, size, "nested too deeply")]
    if not decoded.is_exact:
        found.append(Damage(1, 0, size, FLAG_UNREPRESENTABLE))
    flags = () if decoded.is_exact else (FLAG_UNREPRESENTABLE,)
    return [*found, Placed(decoded.value, 1, 0, size, flags)]


def _locate(data: bytes, error: ValueError) -> tuple[int, int, str]:
    """Give 1-based line, byte offset and reason of what is wrong with a JSON text."""
    if isinstance(error, UnicodeDecodeError):
        return data.count(b"\n", 0, error.start) + 1, error.start, "not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        offset = len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
        return error.lineno, offset, f"no JSON: {error.msg}"
    return 1, 0, f"no JSON: {error}"


def is_too_deep(root: Any, limit: int = MAX_NESTING) -> bool:
    """Say whether a value nests beyond the limit; hostile depth would stop a recursive reader."""
    level = [root]
    for _ in range(limit):
        level = [
            child
            for value in level
            if isinstance(value, (dict, list))
            for child in (value.values() if isinstance(value, dict) else value)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def find_records(root: Any) -> Iterator[tuple[bool, Any]]:
    """Walk a JSON value and yield (is a log record, record) in document order.

    What stands in a list of spans or log records is given as it is, so that a caller can name an
    entry that is no object.
    """
    stack: list[tuple[Any, str]] = [(root, "")]
    while stack:
        item, key = stack.pop()
        if isinstance(item, list):
            stack.extend((child, key) for child in reversed(item))
        elif not isinstance(item, dict):
            if key in _RECORD_LISTS:
                yield key in _LOG_LISTS, item
        elif _is_record(item, key):
            yield key in _LOG_LISTS, item
        else:
            stack.extend((v, k) for k, v in reversed(item.items()) if k not in _SKIPPED)


def _is_record(item: Mapping[str, Any], key: str) -> bool:
    if key in _RECORD_LISTS and not _RECORD_LISTS & item.keys():
        return True
    if "spanName" in item and "attributes" in item:
        return True
    named = [item, *(item[k] for k in _CONTEXTS if isinstance(item.get(k), dict))]
    is_named = any(_first(place, _TRACE_KEYS) and _first(place, _SPAN_KEYS) for place in named)
    is_console = bool(_first(item, _TRACE_KEYS)) and "id" in item and "attributes" in item
    return is_named or is_console or any(k.startswith(_MAP_PREFIXES) for k in item)


def _first(item: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((item[k] for k in keys if item.get(k) not in (None, "")), None)


def parse_record(
    item: Mapping[str, Any], placed: Placed, ordinal: int, *, is_log: bool
) -> Telemetry:
    """Read one span or log record; a field of a wrong type counts as not recorded."""
    context: Mapping[str, Any] = next(
        (item[k] for k in _CONTEXTS if isinstance(item.get(k), dict)), {}
    )
    trace_id = _parse_id(_first(item, _TRACE_KEYS) or _first(context, _TRACE_KEYS), _TRACE_BYTES)
    own = _first(item, _SPAN_KEYS) or _first(context, _SPAN_KEYS)
    span_id = _parse_id(own or (item.get("id") if trace_id else None), _SPAN_BYTES)
    parent = _first(item, _PARENT_KEYS)
    if parent is None and isinstance(item.get("parentSpanContext"), dict):
        parent = _first(item["parentSpanContext"], _SPAN_KEYS)
    attributes = _parse_attributes(item)
    is_error, message = _parse_status(item)
    start = _parse_time(_first(item, _LOG_TIME_KEYS if is_log else _START_KEYS))
    end = start if is_log else _parse_time(_first(item, _END_KEYS))
    return Telemetry(
        ordinal=ordinal,
        is_log=is_log,
        trace_id=trace_id,
        span_id=span_id or ("" if is_log else f"#{ordinal}"),
        parent_id=_parse_id(parent, _SPAN_BYTES),
        name=_parse_name(item, attributes),
        start_ns=start if start is not None else end,
        end_ns=end if end is not None else start,
        attributes=attributes,
        body=parse_any(item.get("body")) if is_log else None,
        events=_parse_events(item.get("events")),
        is_error=is_error,
        status_message=message,
        has_dropped=str(_first(item, _DROPPED_KEYS) or 0) not in ("0", "False"),
        digest="" if trace_id else canonical.digest(canonical.encode(item)),
        offset=placed.offset,
        length=placed.length,
        flags=placed.flags,
    )


def _parse_name(item: Mapping[str, Any], attributes: Mapping[str, Any]) -> str:
    for name in (
        *(item.get(key) for key in ("name", "spanName", "eventName", "event_name")),
        attributes.get("event.name"),
    ):
        if isinstance(name, str) and name:
            return name
    return ""


def _parse_id(value: Any, size: int) -> str:
    """Give an id as lower-case hex where it is hex or base64; an all-zero id is none."""
    if not isinstance(value, str):
        return ""
    if match := _HEX_ID.fullmatch(value):
        text = match[1].lower()
    elif _BASE64_ID.fullmatch(value):
        try:
            raw = base64.b64decode(value, altchars=None, validate=True)
        except binascii.Error:
            raw = b""
        text = raw.hex() if len(raw) == size else value
    else:
        text = canonical.safe_text(value)
    return text if text.strip("0") else ""


def _parse_time(value: Any) -> int | None:
    """Give UTC nanoseconds of an epoch count, an RFC 3339 text or [seconds, nanoseconds]."""
    if isinstance(value, list):
        whole = [parse_epoch(part, 1_000_000_000) for part in value]
        if len(whole) != 2 or whole[0] is None or whole[1] is None:
            return None
        moment: int | None = whole[0] * 1_000_000_000 + whole[1]
    else:
        count = parse_epoch(value, 1_000_000_000)
        units = (per_second for least, per_second in _EPOCH_UNITS if (count or 0) >= least)
        per_second = next(units, None)
        moment = parse_epoch(count, per_second) if per_second else parse_rfc3339(value)
    return moment if moment is not None and 0 <= moment <= _MAX_TS_NS else None


def _parse_status(item: Mapping[str, Any]) -> tuple[bool, str | None]:
    status = item.get("status")
    nested = status if isinstance(status, dict) else {}
    code = _first(nested, ("code", "status_code")) or item.get("status_code")
    message = _first(nested, ("message", "description")) or item.get("status_message")
    return str(code) in _ERROR_CODES, message if isinstance(message, str) and message else None


def _parse_events(value: Any) -> tuple[SpanEvent, ...]:
    items = value if isinstance(value, list) else []
    return tuple(
        SpanEvent(str(item.get("name", "")), _parse_attributes(item))
        for item in items
        if isinstance(item, dict)
    )


def _parse_attributes(item: Mapping[str, Any]) -> dict[str, Any]:
    """Give attributes by dotted name, from OTLP pairs, a map, or the record itself."""
    given = item.get("attributes")
    if isinstance(given, list):
        attributes = {
            pair["key"]: parse_any(pair.get("value"))
            for pair in given
            if isinstance(pair, dict) and isinstance(pair.get("key"), str)
        }
    elif isinstance(given, dict):
        attributes = _flatten(given)
    else:
        attributes = dict(item) if any(k.startswith(_MAP_PREFIXES) for k in item) else {}
    kind = item.get("span_kind")
    if isinstance(kind, str):
        attributes.setdefault(KIND_ATTRIBUTE, kind)
    return attributes


def _flatten(given: Mapping[str, Any]) -> dict[str, Any]:
    """Write nested maps of well-known roots with dotted names; other values stay as they are."""
    flat: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [*given.items()][::-1]
    while stack:
        key, value = stack.pop()
        root = key.split(".", 1)[0]
        if isinstance(value, dict) and value and root in _NESTED_ROOTS and _is_nested(given, key):
            stack.extend((f"{key}.{name}", child) for name, child in [*value.items()][::-1])
        elif isinstance(value, list) and key.startswith("llm.") and _has_maps(value):
            stack.extend((f"{key}.{n}", child) for n, child in reversed([*enumerate(value)]))
        else:
            flat[key] = parse_any(value) if _is_any_value(value) else value
    return flat


def _is_nested(given: Mapping[str, Any], key: str) -> bool:
    """Say whether a dotted name came from nesting; a map under a name of the source is a value."""
    return key not in given or "." not in key


def _has_maps(value: list[Any]) -> bool:
    return any(isinstance(child, dict) for child in value)


def _is_any_value(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _ANY_VALUES


def parse_any(value: Any) -> Any:
    """Decode an OTLP `AnyValue` to plain JSON; what is none is given back as it is."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    key, inner = next(iter(value.items()))
    reader = _ANY_VALUES.get(key)
    return value if reader is None else reader(inner)


def _parse_int(inner: Any) -> Any:
    if isinstance(inner, str):
        try:
            return canonical.decode_value(inner)
        except ValueError:
            return inner
    return inner


def _parse_array(inner: Any) -> Any:
    items = inner.get("values", []) if isinstance(inner, dict) else inner
    return [parse_any(item) for item in items] if isinstance(items, list) else items


def _parse_map(inner: Any) -> Any:
    pairs = inner.get("values", []) if isinstance(inner, dict) else inner
    if not isinstance(pairs, list):
        return pairs
    return {
        pair["key"]: parse_any(pair.get("value"))
        for pair in pairs
        if isinstance(pair, dict) and isinstance(pair.get("key"), str)
    }


def _same(inner: Any) -> Any:
    return inner


_ANY_VALUES = {
    "stringValue": _same, "string_value": _same,
    "intValue": _parse_int, "int_value": _parse_int,
    "doubleValue": _same, "double_value": _same,
    "boolValue": _same, "bool_value": _same,
    "bytesValue": _same, "bytes_value": _same,
    "arrayValue": _parse_array, "array_value": _parse_array,
    "values": _parse_array,
    "kvlistValue": _parse_map, "kvlist_value": _parse_map,
}  # fmt: skip
