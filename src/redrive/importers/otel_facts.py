"""Says what a span is, and reads its model, sampling, usage and tool fields by their many names.

Knows the attribute names of the GenAI conventions, OpenLLMetry, OpenInference, pydantic-ai and the
Vercel AI SDK, as tables. Must not know messages, files or how spans form a trace.

A value of another type than documented, and `null`, count as not recorded.

Source: OpenTelemetry GenAI semantic conventions; docs/opentelemetry.md "Fields".
"""

from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

from msgspec import UNSET

from redrive import canonical
from redrive.importers.otel_parts import parse_json
from redrive.importers.otel_spans import KIND_ATTRIBUTE, Telemetry
from redrive.record.event import Sampling, Usage


class SpanKind(Enum):
    """What a span stands for in a session."""

    MODEL = "model"
    TOOL = "tool"
    AGENT = "agent"
    OTHER = "other"


Attributes = Mapping[str, Any]
_MODEL_OPERATIONS = frozenset({"chat", "text_completion", "generate_content", "llm_call"})
_AGENT_OPERATIONS = frozenset({"invoke_agent", "create_agent"})
_REQUEST_TYPES = frozenset({"chat", "completion"})
_VERCEL_CALLS = (".doGenerate", ".doStream")
_VERCEL_TOOL = "ai.toolCall"
_TRACELOOP_KIND = "traceloop.span.kind"


def kind_of(record: Telemetry) -> SpanKind:
    """Classify a span; a model call wins over a tool use, a tool use over an agent."""
    attributes = record.attributes
    operation = find_text(attributes, "gen_ai.operation.name")
    kind = str(attributes.get(KIND_ATTRIBUTE, "")).upper()
    name = str(attributes.get("ai.operationId") or record.name)
    if (
        operation in _MODEL_OPERATIONS
        or kind == "LLM"
        or find_text(attributes, "llm.request.type") in _REQUEST_TYPES
        or name.endswith(_VERCEL_CALLS)
    ):
        return SpanKind.MODEL
    traced = attributes.get(_TRACELOOP_KIND)
    is_tool = operation == "execute_tool" or kind == "TOOL" or traced == "tool"
    if is_tool or name == _VERCEL_TOOL or "gen_ai.tool.call.id" in attributes:
        return SpanKind.TOOL
    if operation in _AGENT_OPERATIONS or kind == "AGENT" or "agent_name" in attributes:
        return SpanKind.AGENT
    return SpanKind.AGENT if traced == "agent" else SpanKind.OTHER


def find_first(attributes: Attributes, *names: str) -> Any:
    """Give the first recorded attribute of these names, `UNSET` for none; `null` is a value."""
    return next((attributes[name] for name in names if name in attributes), UNSET)


def find_text(attributes: Attributes, *names: str) -> str | None:
    """Give the first of these attributes that is a text and not empty."""
    values = (attributes.get(name) for name in names)
    return next((value for value in values if isinstance(value, str) and value), None)


# --- the model


def model_requested(attributes: Attributes) -> str | None:
    """Name the model that was asked for."""
    named = find_text(attributes, "gen_ai.request.model", "ai.model.id")
    if named is None:
        parameters = parse_json(attributes.get("llm.invocation_parameters"))
        named = find_text(parameters, "model") if isinstance(parameters, dict) else None
    return named or find_text(attributes, "llm.model_name", "model_name")


def model_served(attributes: Attributes) -> str | None:
    """Name the model that served; OpenInference records one name for both."""
    return find_text(attributes, "gen_ai.response.model", "ai.response.model", "llm.model_name")


def fingerprint(attributes: Attributes) -> str | None:
    """Give the engine's own fingerprint."""
    return find_text(
        attributes,
        "gen_ai.openai.response.system_fingerprint",
        "openai.response.system_fingerprint",
        "gen_ai.response.system_fingerprint",
        "gen_ai.openai.system_fingerprint",
    )


def stop_reason(attributes: Attributes) -> str | None:
    """Say why the model stopped, by the provider's word."""
    reasons = attributes.get("gen_ai.response.finish_reasons")
    if isinstance(reasons, list) and reasons and isinstance(reasons[0], str):
        return reasons[0]
    return find_text(attributes, "gen_ai.completion.0.finish_reason", "ai.response.finishReason")


_NUMBER_NAMES = {
    "temperature": ("gen_ai.request.temperature", "ai.settings.temperature"),
    "top_p": ("gen_ai.request.top_p", "ai.settings.topP"),
}
_INTEGER_NAMES = {
    "top_k": ("gen_ai.request.top_k", "ai.settings.topK"),
    "seed": (
        "gen_ai.request.seed", "gen_ai.openai.request.seed", "openai.request.seed",
        "ai.settings.seed",
    ),
    "max_tokens": (
        "gen_ai.request.max_tokens", "ai.settings.maxOutputTokens", "ai.settings.maxTokens",
    ),
}  # fmt: skip
_EXTRA_NAMES = {
    "frequency_penalty": ("gen_ai.request.frequency_penalty", "ai.settings.frequencyPenalty"),
    "presence_penalty": ("gen_ai.request.presence_penalty", "ai.settings.presencePenalty"),
    "stop": ("gen_ai.request.stop_sequences", "ai.settings.stopSequences"),
    "n": ("gen_ai.request.choice.count",),
}
_PARAMETER_NAMES = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "random_seed": "seed",
}


def sampling_of(attributes: Attributes) -> Sampling | None:
    """Read the sampling parameters; `None` where none was recorded."""
    fields: dict[str, Any] = {}
    for name, keys in (_NUMBER_NAMES | _INTEGER_NAMES | _EXTRA_NAMES).items():
        value = find_first(attributes, *keys)
        if value is not UNSET and value is not None:
            fields[name] = value
    given = parse_json(attributes.get("llm.invocation_parameters"))
    parameters: Attributes = given if isinstance(given, dict) else {}
    for name, value in parameters.items():
        if value is not None:
            fields.setdefault(_PARAMETER_NAMES.get(name, name), value)
    return _sampling(fields)


def _sampling(fields: dict[str, Any]) -> Sampling | None:
    known: dict[str, Any] = {}
    for name in _NUMBER_NAMES:
        number = fields.pop(name, None)
        if isinstance(number, (int, float)) and not isinstance(number, bool):
            known[name] = number
    for name in _INTEGER_NAMES:
        integer = as_integer(fields.pop(name, None))
        if integer is not None:
            known[name] = integer
    fields.pop("model", None)
    return Sampling(**known, extra=fields) if known or fields else None


def as_integer(value: Any) -> int | None:
    """Give a recorded count: an integer, or a float that is whole."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


_USAGE_NAMES = {
    "input_tokens": (
        "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
        "llm.usage.prompt_tokens", "ai.usage.inputTokens", "ai.usage.promptTokens",
    ),
    "output_tokens": (
        "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
        "llm.token_count.completion", "llm.usage.completion_tokens", "ai.usage.outputTokens",
        "ai.usage.completionTokens",
    ),
    "cache_read_tokens": (
        "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
        "ai.usage.inputTokenDetails.cacheWriteTokens",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens",
    ),
    "total_tokens": (
        "gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total",
        "ai.usage.totalTokens",
    ),
}  # fmt: skip


def usage_of(attributes: Attributes) -> Usage | None:
    """Read token counts and cost; `None` where nothing was recorded."""
    counts = {}
    for name, keys in _USAGE_NAMES.items():
        count = as_integer(find_first(attributes, *keys))
        if count is not None and count >= 0:
            counts[name] = count
    cost = find_first(attributes, "gen_ai.usage.cost", "operation.cost", "llm.cost.total")
    is_number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
    text = f"{Decimal(str(cost)):f}" if is_number else None
    return Usage(**counts, cost_usd=text) if counts or text else None


# --- the request as sent


_OPENAI_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_ANTHROPIC_ROLES = frozenset({"user", "assistant"})


def find_request_body(attributes: Attributes) -> tuple[str, str] | None:
    """Give (api, body) where `input.value` is a request in the API's own form.

    It is taken as the body sent only if it is JSON, names the model, holds messages in that API's
    form, and agrees with every recorded invocation parameter. A summary, a normalised message list
    or a redacted history is none; what a JSON library did to white space cannot be seen from here.
    """
    text = attributes.get("input.value")
    if attributes.get("input.mime_type") != "application/json" or not isinstance(text, str):
        return None
    body = parse_json(text)
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        return None
    parameters = parse_json(attributes.get("llm.invocation_parameters"))
    stated = parameters if isinstance(parameters, dict) else {}
    if any(body.get(name, UNSET) != value for name, value in stated.items()):
        return None
    api = _api_of(body, str(attributes.get("llm.system") or attributes.get("llm.provider")))
    return None if api is None else (api, text)


def _api_of(body: Attributes, system: str) -> str | None:
    messages = body.get("messages")
    if system == "anthropic":
        is_own = _are_messages(messages, _ANTHROPIC_ROLES) and "max_tokens" in body
        return "anthropic.messages" if is_own else None
    if system != "openai":
        return None
    if _are_messages(messages, _OPENAI_ROLES):
        return "openai.chat"
    is_responses = messages is None and isinstance(body.get("input"), (str, list))
    return "openai.responses" if is_responses else None


def _are_messages(messages: Any, roles: frozenset[str]) -> bool:
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(
            isinstance(m, dict)
            and str(m.get("role")) in roles
            and ("content" in m or "tool_calls" in m)
            and "parts" not in m
            for m in messages
        )
    )


# --- tools, agents, threads


def tool_call_id(attributes: Attributes) -> str | None:
    """Give the id that pairs a tool span with a model's call."""
    found = find_text(
        attributes, "gen_ai.tool.call.id", "tool_call.id", "tool.id", "ai.toolCall.id"
    )
    return None if found is None else canonical.safe_text(found)


def tool_name(record: Telemetry) -> str:
    """Name the tool; without an attribute it is the span's name."""
    named = find_text(
        record.attributes,
        "gen_ai.tool.name", "tool.name", "ai.toolCall.name", "traceloop.entity.name",
    )  # fmt: skip
    return named or record.name.removeprefix("execute_tool ")


def tool_arguments(attributes: Attributes) -> Any:
    """Give the arguments as recorded (text or value); `UNSET` where they were left out."""
    return find_first(
        attributes,
        "gen_ai.tool.call.arguments", "tool_arguments", "ai.toolCall.args", "ai.toolCall.input",
        "traceloop.entity.input", "input.value", "input",
    )  # fmt: skip


def tool_result(attributes: Attributes) -> Any:
    """Give the result as recorded; `UNSET` where it was left out."""
    return find_first(
        attributes,
        "gen_ai.tool.call.result", "tool_response", "ai.toolCall.result", "ai.toolCall.output",
        "traceloop.entity.output", "output.value", "output",
    )  # fmt: skip


def has_result(record: Telemetry) -> bool:
    """Say whether a tool span carries its result."""
    return tool_result(record.attributes) is not UNSET


def error_text(record: Telemetry) -> str | None:
    """Give what a failed span says: its exception's message, its status, its error type."""
    for event in record.events:
        if event.name == "exception":
            message = find_text(event.attributes, "exception.message")
            if message is not None:
                return message
    return record.status_message or find_text(record.attributes, "error.type")


def agent_name(record: Telemetry) -> str:
    """Name an agent; without an attribute it is the span's name."""
    return find_text(record.attributes, "gen_ai.agent.name", "agent_name") or record.name


def thread_of(attributes: Attributes) -> str | None:
    """Give the conversation that a span belongs to."""
    return find_text(
        attributes,
        "gen_ai.conversation.id", "session.id", "ai.telemetry.metadata.sessionId",
        "traceloop.association.properties.session_id",
    )  # fmt: skip
