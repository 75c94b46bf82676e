"""What the lines of the interchange format become: event kinds and their payloads.

Knows line structs and event kinds. Must not know files, ids of events, nor what a file counts.

One `decision` line gives a request, a response and its calls. What the writer did not mention of
clock, PRNG and tool results counts as captured on the writer's word (`vouched`).

Source: DESIGN.md §8 "Interchange", §10.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.importers.interchange_faults import CAPTURED, INPUT_CLASSES
from redrive.importers.interchange_lines import (
    Call,
    ContextReplacedLine,
    Counts,
    DecisionLine,
    DerivedLine,
    EndLine,
    EventLine,
    Line,
    ModelErrorLine,
    ModelNames,
    Output,
    PermissionLine,
    ReadLine,
    Request,
    ResultLine,
    SessionLine,
)
from redrive.importers.typed_lines import Placed, members_of
from redrive.record.decisions import JSON_CONTENT, JsonDecision, parse_json_decision
from redrive.record.event import (
    ContextReplaced,
    Custom,
    Derived,
    Kind,
    ModelError,
    ModelRequest,
    ModelResponse,
    Payload,
    Read,
    Redaction,
    Sampling,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolPermission,
    ToolResult,
    Usage,
    UserMessage,
    raw_of,
)

_NULL = Raw(b"null")
_STATES = (CAPTURED, "not_captured", "unknown")
VOUCHED = dict.fromkeys(("tool_results", "clock", "prng"), CAPTURED)
_ENVELOPE = frozenset({"type", "id", "parent", "ts", "kind", "actor"})
_NAMED_SAMPLING = frozenset(
    {"temperature", "top_p", "top_k", "seed", "max_tokens", "chosen_tokens", "logits"}
)

Part = tuple[Kind, Payload, str | None]


def parts_of(placed: Placed[Line], decisions: str) -> Sequence[Part]:
    """Give the events that a line becomes, as (kind, payload, call id), in order.

    Args:
        placed: the line, of a known type.
        decisions: `tool_calls` or `json_content`, as the session declares.
    """
    return _READERS[type(placed.line)](placed, decisions)


def _read_session(placed: Placed[SessionLine], decisions: str) -> Sequence[Part]:
    line = placed.line
    payload = SessionStarted(
        task=_text_of(line.task),
        format_id=line.id,
        tools={name: str(effect) for name, effect in (line.tools or {}).items()},
        captures=_captures(line.captures),
        basis="vouched",
        renderer=line.renderer,
        environment=UNSET if line.environment == _NULL else line.environment,
        decisions=decisions,
        agent=line.agent,
        cwd=line.cwd,
        parent_session=line.parent_session,
        thread=line.thread,
    )
    return ((Kind.SESSION_STARTED, payload, None),)


def _captures(declared: object) -> dict[str, str]:
    """Read what the writer says of each class; what says nothing that is known is `unknown`."""
    if declared is None:
        return dict(VOUCHED)
    if not isinstance(declared, dict):
        return dict.fromkeys(INPUT_CLASSES, "unknown")
    said = {name: state if state in _STATES else "unknown" for name, state in declared.items()}
    return VOUCHED | said


def _text_of(value: object) -> str | None:
    """Keep a task that is no text as its JSON."""
    if value is None or isinstance(value, str):
        return value
    return canonical.encode(value).decode()


def _read_decision(placed: Placed[DecisionLine], decisions: str) -> Sequence[Part]:
    line = placed.line
    output, model = line.output or _NO_OUTPUT, line.model or _NO_MODEL
    parts: list[Part] = [
        (Kind.MODEL_REQUEST, _request(line, model), None),
        (Kind.MODEL_RESPONSE, _response(line, model, output), None),
    ]
    parts += [(Kind.TOOL_CALL, _call(call), call.call_id) for call in output.tool_calls or ()]
    if decisions == JSON_CONTENT and not output.tool_calls:
        decided = parse_json_decision(output.text or "")
        if decided is not None:
            parts.append((Kind.TOOL_CALL, _decided_call(decided), line.id))
    return parts


def _decided_call(decided: JsonDecision) -> ToolCall:
    """Keep arguments that hold a number without a form as the text that they are."""
    arguments = decided.arguments
    if isinstance(arguments, UnsetType) or canonical.decode(bytes(arguments)).is_exact:
        return ToolCall(tool=decided.tool, arguments=arguments)
    return ToolCall(tool=decided.tool, arguments_text=bytes(arguments).decode())


_NO_OUTPUT, _NO_MODEL, _NO_REQUEST = Output(), ModelNames(), Request()


def _request(line: DecisionLine, model: ModelNames) -> ModelRequest:
    request = line.request or _NO_REQUEST
    return ModelRequest(
        model=model.requested,
        api=request.api,
        body=request.body,
        context=line.context,
        sampling=None if line.sampling is None else _sampling(line.sampling),
        truncated=bool(line.context_truncated),
        redactions=_redactions(line.redactions, is_output=False),
        step=line.step,
    )


def _response(line: DecisionLine, model: ModelNames, output: Output) -> ModelResponse:
    sampling = line.sampling or {}
    return ModelResponse(
        text=output.text or "",
        model=model.served,
        fingerprint=model.fingerprint,
        stop_reason=output.stop_reason,
        usage=None if line.usage is None else _usage(line.usage),
        chosen_tokens=_tokens(sampling.get("chosen_tokens")),
        has_logits=bool(sampling.get("logits")),
        redactions=_redactions(line.redactions, is_output=True) + _redactions(output.redactions),
        step=line.step,
    )


def _sampling(fields: Mapping[str, Any]) -> Sampling:
    """Read sampling parameters; `null` and a value of another type count as not recorded."""
    return Sampling(
        temperature=_number(fields.get("temperature")),
        top_p=_number(fields.get("top_p")),
        top_k=_integer(fields.get("top_k")),
        seed=_integer(fields.get("seed")),
        max_tokens=_integer(fields.get("max_tokens")),
        extra={}
        if fields.keys() <= _NAMED_SAMPLING
        else {
            name: value
            for name, value in fields.items()
            if name not in _NAMED_SAMPLING and value is not None
        },
    )


def _number(value: object) -> int | float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _tokens(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    return tuple(value) if all(type(token) is int for token in value) else None


def _usage(counts: Counts) -> Usage:
    read, written = counts.prompt_tokens, counts.completion_tokens
    return Usage(
        input_tokens=counts.input_tokens if read is None else read,
        output_tokens=counts.output_tokens if written is None else written,
        cache_read_tokens=counts.cache_read_tokens,
        cache_write_tokens=counts.cache_write_tokens,
        reasoning_tokens=counts.reasoning_tokens,
        total_tokens=counts.total_tokens,
        cost_usd=None if counts.cost_usd is None else str(counts.cost_usd),
    )


def _redactions(listed: object, *, is_output: bool | None = None) -> tuple[Redaction, ...]:
    """Read the recorder's own list of what it masked, or the part in or outside the output.

    What is no such list still says that something was masked, and not where.
    """
    if listed is None:
        return ()
    found = map(_redaction, listed if isinstance(listed, list) else (listed,))
    return tuple(r for r in found if is_output in (None, r.path.startswith("output")))


def _redaction(entry: object) -> Redaction:
    if not isinstance(entry, dict):
        return Redaction("")
    path = entry.get("path")
    return Redaction(path if isinstance(path, str) else "", _text_of(entry.get("rule")))


def _call(call: Call) -> ToolCall:
    return ToolCall(
        tool=call.name or "",
        arguments=call.args if call.args_json is None else UNSET,
        arguments_text=call.args_json,
        redactions=_redactions(call.redactions),
    )


def _read_result(placed: Placed[ResultLine], _: str) -> Sequence[Part]:
    line = placed.line
    payload = ToolResult(
        status="ok" if line.status is None else line.status,
        result=line.result,
        tool=line.name,
        truncated=bool(line.result_truncated),
        original_chars=line.original_chars,
        redactions=_redactions(line.redactions),
    )
    return ((Kind.TOOL_RESULT, payload, line.call_id),)


def _read_read(placed: Placed[ReadLine], _: str) -> Sequence[Part]:
    line = placed.line
    kind = Kind.CLOCK_READ if line.kind == "clock" else Kind.PRNG_READ
    payload = Read(
        name=line.name or "",
        value=line.value,
        step=line.step,
        redactions=_redactions(line.redactions),
    )
    return ((kind, payload, None),)


def _read_derived(placed: Placed[DerivedLine], _: str) -> Sequence[Part]:
    line = placed.line
    payload = Derived(
        name=line.name or "",
        function=line.function,
        version=_text_of(line.version),
        inputs=line.inputs,
        value=line.value,
        step=line.step,
        redactions=_redactions(line.redactions),
    )
    return ((Kind.VALUE_DERIVED, payload, None),)


def _read_event(placed: Placed[EventLine], _: str) -> Sequence[Part]:
    line = placed.line
    kind = str(line.kind)
    if kind == "user":
        return ((Kind.USER_MESSAGE, UserMessage(text=_text_of(line.text) or ""), None),)
    if kind == "tool_call":
        call = ToolCall(
            tool=str(line.tool),
            arguments=_event_arguments(line),
            redactions=_redactions(line.redactions),
        )
        return ((Kind.TOOL_CALL, call, line.call_id),)
    members = members_of(placed.data)
    rest = {name: Raw(value) for name, value in members.items() if name not in _ENVELOPE}
    return ((Kind.CUSTOM, Custom(name=kind, data=raw_of(rest)), line.call_id),)


def _event_arguments(line: EventLine) -> Raw:
    """Give `args`, else the command as the only argument, else no arguments."""
    if not isinstance(line.args, UnsetType):
        return line.args
    return raw_of({} if isinstance(line.command, UnsetType) else {"command": line.command})


def _read_permission(placed: Placed[PermissionLine], _: str) -> Sequence[Part]:
    line = placed.line
    payload = ToolPermission(decision=line.decision or "", by=line.by, tool=line.name)
    return ((Kind.TOOL_PERMISSION, payload, line.call_id),)


def _read_model_error(placed: Placed[ModelErrorLine], _: str) -> Sequence[Part]:
    line = placed.line
    payload = ModelError(
        status=line.status,
        attempt=line.attempt,
        delay_s=line.delay_s,
        message=line.message,
        step=line.step,
    )
    return ((Kind.MODEL_ERROR, payload, None),)


def _read_context_replaced(placed: Placed[ContextReplacedLine], _: str) -> Sequence[Part]:
    payload = ContextReplaced(before=placed.line.before, after=placed.line.after)
    return ((Kind.CONTEXT_REPLACED, payload, None),)


def _read_end(placed: Placed[EndLine], _: str) -> Sequence[Part]:
    return ((Kind.SESSION_ENDED, SessionEnded(status=placed.line.status), None),)


_READERS: Mapping[type[Line], Callable[[Placed[Any], str], Sequence[Part]]] = {
    SessionLine: _read_session,
    DecisionLine: _read_decision,
    ResultLine: _read_result,
    ReadLine: _read_read,
    DerivedLine: _read_derived,
    EventLine: _read_event,
    PermissionLine: _read_permission,
    ModelErrorLine: _read_model_error,
    ContextReplacedLine: _read_context_replaced,
    EndLine: _read_end,
}
