import json
from typing import Any

import pytest
from msgspec import UNSET

from redrive.importers import otel_facts as facts
from redrive.importers.otel_facts import SpanKind
from redrive.importers.otel_sniff import find_shape
from redrive.importers.otel_spans import Telemetry, read_telemetry
from redrive.record.event import Sampling, Usage
from tests.helpers import source_of


def _record(attributes: dict[str, Any], **more: Any) -> Telemetry:
    data = json.dumps({"spans": [{"attributes": attributes, **more}]}).encode()
    (record,) = read_telemetry(source_of("made.json", data))
    assert isinstance(record, Telemetry)
    return record


@pytest.mark.parametrize(
    ("attributes", "name", "kind"),
    [
        ({"gen_ai.operation.name": "chat"}, "x", SpanKind.MODEL),
        ({"gen_ai.operation.name": "generate_content"}, "x", SpanKind.MODEL),
        ({"gen_ai.operation.name": "embeddings"}, "x", SpanKind.OTHER),
        ({"gen_ai.operation.name": ["chat"]}, "x", SpanKind.OTHER),
        ({"llm.request.type": "completion"}, "x", SpanKind.MODEL),
        ({"openinference.span.kind": "LLM"}, "x", SpanKind.MODEL),
        ({"openinference.span.kind": "TOOL"}, "x", SpanKind.TOOL),
        ({"openinference.span.kind": "AGENT"}, "x", SpanKind.AGENT),
        ({"openinference.span.kind": "CHAIN"}, "x", SpanKind.OTHER),
        ({}, "ai.streamText.doStream", SpanKind.MODEL),
        ({}, "ai.streamText", SpanKind.OTHER),
        ({}, "ai.embed.doEmbed", SpanKind.OTHER),
        ({"ai.operationId": "ai.toolCall"}, "x", SpanKind.TOOL),
        ({"traceloop.span.kind": "tool"}, "x", SpanKind.TOOL),
        ({"traceloop.span.kind": "agent"}, "x", SpanKind.AGENT),
        ({"agent_name": "a"}, "agent run", SpanKind.AGENT),
        ({"gen_ai.tool.call.id": "c"}, "running tool", SpanKind.TOOL),
        ({"gen_ai.operation.name": "chat", "gen_ai.tool.call.id": "c"}, "x", SpanKind.MODEL),
    ],
)
def test_a_span_is_what_its_attributes_or_name_say(
    attributes: dict[str, Any], name: str, kind: SpanKind
) -> None:
    assert facts.kind_of(_record(attributes, name=name)) is kind


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({"gen_ai.request.temperature": 0.0}, Sampling(temperature=0.0)),
        ({"gen_ai.request.temperature": None}, None),
        ({"gen_ai.request.temperature": "0"}, None),
        ({"gen_ai.request.temperature": True}, None),
        ({"gen_ai.request.seed": 0}, Sampling(seed=0)),
        ({"gen_ai.openai.request.seed": 4}, Sampling(seed=4)),
        ({"gen_ai.request.top_k": 40.0}, Sampling(top_k=40)),
        ({"gen_ai.request.top_k": 0.5}, None),
        ({"gen_ai.request.stop_sequences": ["x"]}, Sampling(extra={"stop": ["x"]})),
        (
            {"llm.invocation_parameters": '{"seed": 1, "max_completion_tokens": 9, "n": null}'},
            Sampling(seed=1, max_tokens=9),
        ),
        (
            {"llm.invocation_parameters": '{"model": "m", "tools": []}'},
            Sampling(extra={"tools": []}),
        ),
        ({"llm.invocation_parameters": '{"seed": 1'}, None),
        ({"ai.settings.topP": 1, "ai.settings.maxTokens": 5}, Sampling(top_p=1, max_tokens=5)),
    ],
)
def test_sampling_is_what_was_recorded_and_nothing_else(
    attributes: dict[str, Any], expected: Sampling | None
) -> None:
    assert facts.sampling_of(attributes) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({"gen_ai.usage.input_tokens": 0}, Usage(input_tokens=0)),
        ({"gen_ai.usage.input_tokens": "9", "llm.usage.total_tokens": -1}, None),
        ({"operation.cost": 1.905e-05}, Usage(cost_usd="0.00001905")),
        ({"llm.token_count.prompt_details.cache_read": 3}, Usage(cache_read_tokens=3)),
    ],
)
def test_usage_is_exact(attributes: dict[str, Any], expected: Usage | None) -> None:
    assert facts.usage_of(attributes) == expected


def test_the_model_asked_for_and_the_model_that_served_are_kept_apart() -> None:
    attributes = {"llm.model_name": "m-2026", "llm.invocation_parameters": '{"model": "m"}'}
    assert facts.model_requested(attributes) == "m"
    assert facts.model_served(attributes) == "m-2026"
    assert facts.model_requested({"llm.invocation_parameters": "{"}) is None
    assert facts.stop_reason({"gen_ai.response.finish_reasons": ["stop", "x"]}) == "stop"
    assert facts.stop_reason({"gen_ai.response.finish_reasons": [1]}) is None


@pytest.mark.parametrize(
    ("system", "body", "api"),
    [
        ("openai", {"messages": [{"role": "user", "content": "x"}]}, "openai.chat"),
        ("openai", {"messages": []}, None),
        ("openai", {"messages": [{"role": ["user"], "content": "x"}]}, None),
        ("openai", {"input": "x"}, "openai.responses"),
        ("anthropic", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5},
         "anthropic.messages"),
        ("anthropic", {"messages": [{"role": "user", "content": "x"}]}, None),
        ("cohere", {"messages": [{"role": "user", "content": "x"}]}, None),
    ],
)  # fmt: skip
def test_a_request_body_is_told_by_its_apis_own_form(
    system: str, body: dict[str, Any], api: str | None
) -> None:
    text = json.dumps({"model": "m", **body})
    attributes = {"llm.system": system, "input.value": text, "input.mime_type": "application/json"}
    assert facts.find_request_body(attributes) == (None if api is None else (api, text))


def test_a_failed_span_says_why_in_the_first_place_that_knows() -> None:
    thrown = [{"name": "exception", "attributes": {"exception.message": "a"}}]
    status = {"code": 2, "message": "b"}
    assert facts.error_text(_record({"error.type": "c"}, status=status, events=thrown)) == "a"
    thrown[0]["attributes"] = {"exception.message": ""}
    assert facts.error_text(_record({"error.type": "c"}, status=status, events=thrown)) == "b"
    assert facts.error_text(_record({"error.type": "c"})) == "c"
    assert facts.error_text(_record({})) is None


def test_a_tools_fields_have_many_names() -> None:
    record = _record({"tool.id": "c", "output.value": None}, name="execute_tool t")
    assert facts.tool_name(record) == "t"
    assert facts.tool_call_id(record.attributes) == "c"
    assert facts.tool_arguments(record.attributes) is UNSET
    assert facts.tool_result(record.attributes) is None
    assert facts.has_result(record)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "}{",
        '{"type": "user", "message": {"content": "look at \\"resourceSpans\\": []"}}',
        '{"a": "{\\"gen_ai.operation.name\\": \\"chat\\"}"}',
        '[{"trace_id": "t", "run_type": "llm", "inputs": {"gen_ai.prompt": "x"}}]',
        '{"observations": [{"traceId": "t", "metadata": {"attributes": {"gen_ai.system": "x"}}}]}',
        '{"cut": "resourceSpans',
    ],
)
def test_other_files_are_not_claimed_whatever_they_quote(text: str) -> None:
    assert find_shape(text.encode()) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"resourceSpans": []}', ("otel_genai", 60, False)),
        ('{"resourceSpans": [{"key": "gen_ai.sys', ("otel_genai", 90, False)),
        ('{"resourceLogs": [{"key": "gen_ai.system"', ("otel_genai", 90, True)),
        ('{"resourceLogs": []}\n{"resourceSpans": []}', ("otel_genai", 60, False)),
        ('{"resourceSpans": ["openinference.span.kind"]}', ("openinference", 90, False)),
        ('[{"context": {}, "span_kind": "LLM", "attributes": {}}]', ("openinference", 90, False)),
        ('[{"traceId": "t", "spanId": "s", "attributes": {}}]', ("otel_genai", 40, False)),
        ('{"gen_ai.system": "x"}', ("otel_genai", 80, False)),
    ],
)
def test_a_span_export_is_claimed_by_its_keys(text: str, expected: tuple[str, int, bool]) -> None:
    shape = find_shape(text.encode())
    assert shape is not None
    assert (shape.name, shape.confidence, shape.is_logs) == expected
