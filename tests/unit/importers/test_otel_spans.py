import base64
import json
from typing import Any

import pytest

from redrive.importers.otel_spans import Telemetry, is_too_deep, parse_any, read_telemetry
from redrive.record.event import Damage
from tests.helpers import source_of

TRACE, SPAN, PARENT = "0a" * 16, "0b" * 8, "0c" * 8
START, END = 1_772_442_000_000_000_000, 1_772_442_001_500_000_000


def _read(document: Any) -> list[Telemetry | Damage]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return list(read_telemetry(source_of("made.json", data)))


def _one(document: Any) -> Telemetry:
    (record,) = _read(document)
    assert isinstance(record, Telemetry)
    return record


def _base64(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text)).decode()


OTLP = {
    "traceId": TRACE, "spanId": SPAN, "parentSpanId": PARENT, "name": "chat",
    "startTimeUnixNano": str(START), "endTimeUnixNano": str(END),
    "attributes": [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}],
    "status": {"code": 2, "message": "late"},
}  # fmt: skip
SNAKE = {
    "trace_id": _base64(TRACE), "span_id": _base64(SPAN), "parent_span_id": _base64(PARENT),
    "name": "chat", "start_time_unix_nano": START, "end_time_unix_nano": END,
    "attributes": [{"key": "gen_ai.operation.name", "value": {"string_value": "chat"}}],
    "status": {"code": "STATUS_CODE_ERROR", "message": "late"},
}  # fmt: skip
PYTHON_CONSOLE = {
    "name": "chat",
    "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{SPAN}", "trace_state": "[]"},
    "parent_id": f"0x{PARENT}",
    "start_time": "2026-03-02T09:00:00.000000Z", "end_time": "2026-03-02T09:00:01.500000Z",
    "status": {"status_code": "ERROR", "description": "late"},
    "attributes": {"gen_ai.operation.name": "chat"},
}  # fmt: skip
JS_CONSOLE = {
    "traceId": TRACE, "id": SPAN, "parentId": PARENT, "name": "chat",
    "startTime": [START // 10**9, 0], "endTime": [START // 10**9 + 1, 500_000_000],
    "attributes": {"gen_ai.operation.name": "chat"}, "status": {"code": 2, "message": "late"},
}  # fmt: skip
JS_READABLE = {
    "spanContext": {"traceId": TRACE.upper(), "spanId": SPAN}, "name": "chat",
    "parentSpanContext": {"traceId": TRACE, "spanId": PARENT},
    "startTime": START // 10**6, "endTime": END // 10**6,
    "attributes": {"gen_ai": {"operation": {"name": "chat"}}},
    "status": {"code": 2, "message": "late"},
}  # fmt: skip


@pytest.mark.parametrize(
    "document",
    [
        {"resourceSpans": [{"scopeSpans": [{"spans": [OTLP]}]}]},
        {"resource_spans": [{"scope_spans": [{"spans": [SNAKE]}]}]},
        {"resourceSpans": [{"instrumentationLibrarySpans": [{"spans": [OTLP]}]}]},
        [PYTHON_CONSOLE],
        {"data": [PYTHON_CONSOLE], "next_cursor": None},
        [JS_CONSOLE],
        {"name": "run", "spans": [{"turn": 1, "spans": [JS_READABLE]}]},
    ],
)
def test_a_span_is_the_same_whoever_exported_it(document: Any) -> None:
    record = _one(document)
    assert (record.trace_id, record.span_id, record.parent_id) == (TRACE, SPAN, PARENT)
    assert (record.start_ns, record.end_ns) == (START, END)
    assert dict(record.attributes) == {"gen_ai.operation.name": "chat"}
    assert (record.is_error, record.status_message) == (True, "late")
    assert (record.name, record.is_log, record.digest) == ("chat", False, "")


def test_an_attribute_map_is_one_span_without_ids() -> None:
    record = _one({"gen_ai.operation.name": "chat", "input": "x"})
    assert (record.trace_id, record.span_id) == ("", "#0")
    assert record.attributes["input"] == "x"
    assert len(record.digest) == 64


def test_ids_of_zeros_are_no_ids() -> None:
    record = _one({"spans": [{"traceId": "0" * 32, "spanId": "0" * 16}]})
    assert (record.trace_id, record.span_id) == ("", "#0")


def test_ids_that_are_neither_hex_nor_base64_stay_as_written() -> None:
    record = _one({"spans": [{"traceId": "trace-1", "spanId": "AAAAAAAAAAAAAA==", "name": 7}]})
    assert (record.trace_id, record.span_id, record.name) == ("trace-1", "AAAAAAAAAAAAAA==", "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"intValue": "18446744073709551617"}, 2**64 + 1),
        ({"intValue": 3}, 3),
        ({"intValue": "x"}, "x"),
        ({"doubleValue": 0.5}, 0.5),
        ({"boolValue": False}, False),
        ({"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": "1"}]}}, ["a", 1]),
        ({"arrayValue": {}}, []),
        ({"arrayValue": 1}, 1),
        ({"values": [{"stringValue": "a"}]}, ["a"]),
        ({"kvlistValue": {"values": [{"key": "k", "value": {"boolValue": True}}, 1]}}, {"k": True}),
        ({"kvlistValue": 1}, 1),
        ({"other": 1}, {"other": 1}),
        (None, None),
    ],
)
def test_attribute_values_become_plain_json(value: Any, expected: Any) -> None:
    assert parse_any(value) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (START // 10**9, START),
        (START // 10**6, START),
        (START // 10**3, START),
        (str(START), START),
        ("2026-03-02T09:00:00.000000001Z", START + 1),
        ([1, 2, 3], None),
        (["a", 1], None),
        (-5, None),
        (10**40, None),
        (True, None),
        ("soon", None),
    ],
)
def test_times_are_read_in_every_unit_and_never_guessed(written: Any, expected: int | None) -> None:
    assert _one({"spans": [{"startTime": written}]}).start_ns == expected


def test_attributes_of_nested_maps_get_dotted_names() -> None:
    nested = {
        "llm": {"input_messages": [{"message": {"role": "user", "content": "hi"}}]},
        "openinference": {"span": {"kind": "LLM"}},
        "gen_ai.tool.call.arguments": {"city": "Paris"},
        "metadata": {"a": {"b": 1}},
        "tags": {"values": [{"stringValue": "x"}]},
    }
    assert dict(_one([{**PYTHON_CONSOLE, "attributes": nested}]).attributes) == {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "hi",
        "openinference.span.kind": "LLM",
        "gen_ai.tool.call.arguments": {"city": "Paris"},
        "metadata": {"a": {"b": 1}},
        "tags": ["x"],
    }


def test_metrics_beside_spans_are_passed_over() -> None:
    exemplar = {"traceId": TRACE, "spanId": SPAN, "asInt": "1"}
    document = {"resourceMetrics": [{"x": [exemplar]}], "resourceSpans": [{"spans": [OTLP]}]}
    assert _one(document).name == "chat"


def test_log_records_keep_body_and_time_and_may_lack_ids() -> None:
    record = _one(
        {
            "resourceLogs": [
                {
                    "scopeLogs": [
                        {
                            "logRecords": [
                                {
                                    "timeUnixNano": str(START),
                                    "body": {"stringValue": "hi"},
                                    "attributes": [
                                        {"key": "event.name", "value": {"stringValue": "e"}}
                                    ],
                                }
                            ]
                        }
                    ]
                }
            ]
        }
    )
    assert (record.is_log, record.name, record.body, record.span_id) == (True, "e", "hi", "")
    assert record.start_ns == record.end_ns == START


@pytest.mark.parametrize(
    ("data", "line", "offset", "reason"),
    [
        (b'{"spans": [\n  {"a": x}]}', 2, 20, "no JSON"),
        (b'{"spans": "\xff"}', 1, 11, "not UTF-8"),
        (b'{"\xc3\xa4": x}', 1, 7, "no JSON"),
        (b"", 1, 0, "no JSON"),
        (b"[" * 100_000, 1, 0, "nested too deeply"),
        (b"[" * 500 + b"]" * 500, 1, 0, "nested too deeply"),
    ],
)
def test_a_document_that_is_no_json_is_one_damage_with_its_place(
    data: bytes, line: int, offset: int, reason: str
) -> None:
    (damage,) = _read(data)
    assert isinstance(damage, Damage)
    assert (damage.line, damage.offset, damage.bytes) == (line, offset, len(data) - offset)
    assert reason in damage.reason


def test_a_byte_order_mark_is_damage_and_the_document_is_read() -> None:
    mark, record = _read(b"\xef\xbb\xbf" + json.dumps({"spans": [OTLP]}).encode())
    assert isinstance(mark, Damage)
    assert (mark.offset, mark.bytes, mark.reason) == (0, 3, "byte order mark")
    assert isinstance(record, Telemetry)


def test_a_line_that_nests_too_deeply_is_damage_of_that_line() -> None:
    deep = b'{"a":' + b"[" * 500 + b"]" * 500 + b"}"
    line = json.dumps({"spans": [OTLP]}).encode()
    record, damage = _read(line + b"\n" + deep + b"\n")
    assert isinstance(record, Telemetry)
    assert isinstance(damage, Damage)
    assert (damage.line, damage.reason) == (2, "nested too deeply")


def test_depth_is_counted_in_levels() -> None:
    assert not is_too_deep({"a": [1]}, 2)
    assert is_too_deep({"a": [[1]]}, 2)
