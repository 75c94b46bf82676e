"""What the bytes of one exchange mean: the payloads of its request, answer, calls and errors.

Knows the three APIs and content encodings. Must not know flows, sessions or sockets.

Source: DESIGN.md §3 "Evidence is bytes"; RFC 9110, "Content-Encoding".
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec
import zstandard
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.canonical import get_field
from redrive.capture.event_log import Fact
from redrive.capture.ports import Headers, Outcome
from redrive.record.decisions import JSON_CONTENT, parse_json_decision
from redrive.record.event import (
    FLAG_MALFORMED,
    FLAG_UNREPRESENTABLE,
    Kind,
    ModelError,
    ModelRequest,
    ModelResponse,
    ToolCall,
    Usage,
    Wire,
)
from redrive.replay.answers import DONE, Answer, error_reason, is_stream, parse_sse
from redrive.replay.anthropic_answers import MESSAGES, parse_message
from redrive.replay.openai_answers import CHAT, RESPONSES, parse_chat, parse_responses
from redrive.replay.ports import CallAsked

MAX_ANSWER_BYTES = 64 * 1024 * 1024
_SUFFIXES = (("/chat/completions", CHAT), ("/responses", RESPONSES), ("/messages", MESSAGES))
# OpenAI's threads have messages too: to add one asks no model.
_THREADS = "/threads/"
_PARSERS: Mapping[str, Callable[[bytes], Answer]] = {
    CHAT: parse_chat,
    RESPONSES: parse_responses,
    MESSAGES: parse_message,
}


def find_api(method: str, url: str) -> str | None:
    """Name the API that a request goes to, by its path; `None` for any other request."""
    if method != "POST":
        return None
    path = urlsplit(url).path.rstrip("/")
    if _THREADS in path:
        return None
    return next((api for suffix, api in _SUFFIXES if path.endswith(suffix)), None)


def request_payload(api: str, body: bytes, wire: Wire) -> ModelRequest | None:
    """Give what was sent to a model; `None` where the body is no UTF-8 text."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return ModelRequest(model=_model_of(text), api=api, body=text, wire=wire)


def _model_of(text: str) -> str | None:
    try:
        fields = canonical.decode_value(text)
    except ValueError:
        return None
    return get_field(fields, "model", str) if isinstance(fields, dict) else None


def answer_facts(
    api: str, data: bytes, wire: Wire, *, decisions: str, engine: str | None, message: str = ""
) -> Sequence[Fact]:
    """Give the events of an exchange that has ended, the answer or the error first.

    An answer that is whole is one, however the exchange ended: clients close a stream as soon as
    they have read its last event.

    Args:
        api: see `find_api`.
        data: the body as it was passed on.
        wire: status, outcome and encoding count.
        decisions: `tool_calls` or `json_content`.
        engine: fingerprint of the engine, where who recorded started it and knows better.
        message: what failed, where no answer came.
    """
    if not 200 <= (wire.status or 0) < 300:
        return (_error(wire, message or _reason(data, wire)),)
    try:
        content = decode_content(data, wire.encoding)
        answer = _PARSERS[api](content)
    except ValueError as error:
        if wire.outcome != Outcome.COMPLETE:
            return (_error(wire, _reason(data, wire)),)
        if "reported an error" in str(error):
            return (_error(wire, str(error)),)
        return (Fact(Kind.MODEL_RESPONSE, ModelResponse(wire=wire), flags=(FLAG_MALFORMED,)),)
    response = ModelResponse(
        text=answer.text,
        reasoning=answer.reasoning,
        model=answer.served,
        fingerprint=engine or answer.fingerprint,
        stop_reason=answer.stop_reason,
        usage=usage_of(answer.usage),
        chosen_tokens=answer.chosen_tokens,
        wire=wire,
    )
    flags = () if _has_exact_numbers(content) else (FLAG_UNREPRESENTABLE,)
    facts = [Fact(Kind.MODEL_RESPONSE, response, flags=flags)]
    facts += [
        Fact(Kind.TOOL_CALL, _call(call), call.call_id or f"{wire.exchange}:{number}")
        for number, call in enumerate(answer.calls, start=1)
    ]
    if decisions == JSON_CONTENT and not answer.calls:
        decided = parse_json_decision(answer.text)
        if decided is not None:
            call = _exact(decided.tool, decided.arguments)
            facts.append(Fact(Kind.TOOL_CALL, call, wire.exchange))
    return facts


def _has_exact_numbers(content: bytes) -> bool:
    """Say whether each number of an answer that was understood can be represented."""
    if not is_stream(content):
        return canonical.has_exact_numbers(content)
    events = (text for text in parse_sse(content) if text != DONE)
    return all(canonical.has_exact_numbers(text.encode()) for text in events)


def _error(wire: Wire, message: str | None) -> Fact:
    error = ModelError(status=wire.status, attempt=wire.attempt, message=message, wire=wire)
    return Fact(Kind.MODEL_ERROR, error)


def _call(call: CallAsked) -> ToolCall:
    if call.arguments_text is not None:
        return ToolCall(tool=call.tool, arguments_text=call.arguments_text)
    return _exact(call.tool, call.arguments)


def _exact(tool: str, arguments: Raw | UnsetType) -> ToolCall:
    """Keep arguments that hold a number without a form as the text that they are."""
    if isinstance(arguments, UnsetType) or canonical.decode(bytes(arguments)).is_exact:
        return ToolCall(tool=tool, arguments=arguments)
    return ToolCall(tool=tool, arguments=UNSET, arguments_text=bytes(arguments).decode())


def _reason(data: bytes, wire: Wire) -> str | None:
    if wire.outcome == Outcome.CANCELLED:
        return f"cancelled by the agent after {len(data)} bytes"
    if wire.outcome == Outcome.CUT:
        return f"the server ended the answer too early, after {len(data)} bytes"
    try:
        return error_reason(decode_content(data, wire.encoding)) or None
    except ValueError:
        return None


def encodings_of(headers: Headers) -> tuple[str, ...]:
    """List the content encodings that headers name, first applied first."""
    values = [value for name, value in headers if name == "content-encoding"]
    words = (word.strip().lower() for value in values for word in value.split(","))
    return tuple(word for word in words if word not in ("", "identity"))


def decode_content(data: bytes, encodings: Sequence[str]) -> bytes:
    """Undo content encodings.

    Raises:
        ValueError: an encoding is unknown, the bytes are not in it, or they grow beyond 64 MiB.
    """
    for encoding in reversed(encodings):
        data = _decode_one(data, encoding)
        if len(data) > MAX_ANSWER_BYTES:
            raise ValueError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
    return data


def _decode_one(data: bytes, encoding: str) -> bytes:
    try:
        if encoding in ("gzip", "x-gzip", "deflate"):
            is_raw = encoding == "deflate" and data[:1] not in (b"\x78", b"\x58", b"\x38")
            bits = -zlib.MAX_WBITS if is_raw else zlib.MAX_WBITS | 32
            stream = zlib.decompressobj(bits)
            found = stream.decompress(data, MAX_ANSWER_BYTES + 1)
            if not stream.eof and len(found) <= MAX_ANSWER_BYTES:
                raise ValueError(f"the body ends inside its {encoding}")
            return found
        if encoding == "zstd":
            reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
            return reader.read(MAX_ANSWER_BYTES + 1)
    except (zlib.error, zstandard.ZstdError) as error:
        raise ValueError(f"the body is no {encoding}: {error}") from error
    raise ValueError(f"the content encoding {encoding!r} is not known here")


_USAGE_NAMES: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("completion_tokens", "output_tokens"),
    "total_tokens": ("total_tokens",),
    "cache_read_tokens": (
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "cache_read_input_tokens",
    ),
    "cache_write_tokens": ("cache_creation_input_tokens",),
    "reasoning_tokens": (
        "completion_tokens_details.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
    ),
}


def usage_of(counts: Mapping[str, int]) -> Usage | None:
    """Read token counts by any API's names; `None` where none is stated."""
    found = {
        field: next((counts[name] for name in names if name in counts), None)
        for field, names in _USAGE_NAMES.items()
    }
    return msgspec.convert(found, Usage) if any(v is not None for v in found.values()) else None
