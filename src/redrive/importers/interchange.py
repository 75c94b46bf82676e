"""Reads the interchange line format: the documented way in for any framework without an importer.

Knows the line types of the format (docs/interchange.md) and the event kinds. Must not know stores.

One `decision` line gives a request, a response and its calls on one node. What the writer did not
mention of clock, PRNG and tool results counts as captured on the writer's word (`vouched`).

Source: DESIGN.md §8 "Interchange", §10.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.draft import Draft, FileTally, SourceFile
from redrive.importers.lines import Record, read_records
from redrive.importers.timestamps import parse_rfc3339
from redrive.record.decisions import parse_json_decision
from redrive.record.event import (
    MAIN_ACTOR,
    ContextReplaced,
    Custom,
    Damage,
    Derived,
    Kind,
    ModelError,
    ModelRequest,
    ModelResponse,
    Note,
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

VOUCHED = {"tool_results": "captured", "clock": "captured", "prng": "captured"}
_SAMPLING_TYPES: Mapping[str, tuple[type, ...]] = {
    "temperature": (int, float),
    "top_p": (int, float),
    "top_k": (int,),
    "seed": (int,),
    "max_tokens": (int,),
}
_SAMPLING_OUTPUT = frozenset({"chosen_tokens", "logits"})
_ENVELOPE = frozenset({"type", "id", "parent", "ts", "kind", "actor"})
_USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "prompt_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "completion_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "reasoning_tokens": "reasoning_tokens",
}

Line = Mapping[str, Any]
Part = tuple[Kind, Payload, str | None]


class InterchangeImporter:
    """Projects interchange lines to drafts."""

    name = "interchange"
    version = 1

    def sniff(self, source: SourceFile) -> int:
        """Claim files whose first object is a `session` line, or any known line with an `id`."""
        for line in source.head().splitlines()[:20]:
            try:
                value = canonical.decode_value(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                return _confidence(value)
        return 0

    def role(self, source: SourceFile) -> str:  # noqa: ARG002 - the protocol's signature
        """Give `main`: a session in this format is one file."""
        return "main"

    def project(self, source: SourceFile, tally: FileTally) -> Iterator[Draft]:
        """Yield the drafts of one file, in file order."""
        reading = _Reading(tally, _session_name(source))
        with source.open() as file:
            for item in read_records(file):
                if isinstance(item, Damage):
                    yield reading.damage(item)
                else:
                    yield from reading.record(item)
        tally.branches = 1 + sum(count - 1 for count in reading.children.values() if count > 1)


def _confidence(value: Line) -> int:
    kind = get_field(value, "type", str)
    if kind == "session" and "payload" not in value:
        return 95 if isinstance(value.get("id"), str) and "task" in value else 40
    is_line = kind in _READERS and isinstance(value.get("id"), str)
    return 60 if is_line and "message" not in value and "payload" not in value else 0


def _session_name(source: SourceFile) -> str:
    """Find the session's own id; without one, 16 hex digits of the first record's hash."""
    with source.open() as file:
        for item in read_records(file):
            if isinstance(item, Damage):
                continue
            if item.value.get("type") == "session" and isinstance(item.value.get("id"), str):
                return canonical.safe_text(item.value["id"])
            file.seek(item.offset)
            return canonical.digest(file.read(item.length))[:16]
    return source.sha256[:16]


@dataclass(slots=True)
class _Reading:
    """What is remembered from line to line: a few bytes per line."""

    tally: FileTally
    session: str
    decisions: str = "tool_calls"
    children: Counter[str | None] = field(default_factory=Counter)
    seen: dict[str, tuple[bool, int]] = field(default_factory=dict)

    def damage(self, item: Damage) -> Draft:
        """Turn unreadable bytes into a draft and an entry of the report."""
        self.tally.damage.append(item)
        name = f"damage:{item.offset}"
        return Draft(self.session, name, Kind.DAMAGE, item, item.offset, item.bytes)

    def record(self, record: Record) -> Iterator[Draft]:
        """Turn one line into its drafts."""
        self.tally.records += record.is_strict
        line = record.value
        reader = _READERS.get(str(line.get("type")), _read_unknown)
        parts = list(reader(line, self))
        if record.is_strict:
            self._count(line, parts)
        yield from self._drafts(record, line, parts)

    def _count(self, line: Line, parts: list[Part]) -> None:
        goes_on = False
        for kind, _, call_id in parts:
            if kind is Kind.MODEL_RESPONSE:
                self.tally.model_calls += 1
                goes_on = True
            elif kind is Kind.TOOL_CALL:
                self.tally.tool_calls += 1
                self.tally.called.add(call_id)
            elif kind is Kind.TOOL_RESULT:
                self.tally.tool_results += 1
                self.tally.answered.add(call_id)
            elif kind is Kind.USER_MESSAGE:
                goes_on = True
        if goes_on and line.get("parent") is not None:
            self.children[str(line["parent"])] += 1

    def _drafts(self, record: Record, line: Line, parts: list[Part]) -> Iterator[Draft]:
        own, above = get_field(line, "id", str), get_field(line, "parent", str)
        node = canonical.safe_text(own) if own else f"line:{record.line}"
        parent = None if above is None else canonical.safe_text(above)
        copy = self._place(node, has_parent=parent is not None, n_parts=len(parts))
        if copy is None:
            self.tally.lost.append(f"line {record.line}: a further copy of id {node!r}")
            return
        suffix, superseded = copy
        node_id = "" if line.get("type") == "session" else node
        actor = canonical.safe_text(get_field(line, "actor", str) or MAIN_ACTOR)
        ts_ns = parse_rfc3339(line.get("ts"))
        for number, (kind, payload, call_id) in enumerate(parts, start=1):
            yield Draft(
                session=self.session,
                id=f"{node}{suffix}/{number}" if number > 1 else f"{node}{suffix}",
                kind=kind,
                payload=payload,
                offset=record.offset,
                length=record.length,
                node_id=node_id,
                parent_id=parent,
                actor=actor,
                ts_ns=ts_ns,
                call_id=None if call_id is None else canonical.safe_text(call_id),
                supersedes=superseded[number - 1] if number <= len(superseded) else None,
                flags=record.flags,
            )

    def _place(self, node: str, *, has_parent: bool, n_parts: int) -> tuple[str, list[str]] | None:
        """Decide on a record whose id may have been seen: a copy with a parent wins.

        Returns:
            What its ids end with, and the ids that it replaces; `None` for a spare copy.
        """
        earlier = self.seen.get(node)
        if earlier is None:
            self.seen[node] = (has_parent, n_parts)
            return "", []
        had_parent, n_earlier = earlier
        if had_parent or not has_parent or n_parts < n_earlier:
            return None
        self.seen[node] = (True, n_parts)
        return "~2", [node, *(f"{node}/{n}" for n in range(2, n_earlier + 1))]


def _read_session(line: Line, reading: _Reading) -> Iterator[Part]:
    reading.decisions = get_field(line, "decisions", str) or "tool_calls"
    tools = get_field(line, "tools", dict) or {}
    captures = get_field(line, "captures", dict) or {}
    payload = SessionStarted(
        task=_text_of(line.get("task")),
        format_id=get_field(line, "id", str),
        tools={str(name): str(effect) for name, effect in tools.items()},
        captures=VOUCHED | {str(name): str(state) for name, state in captures.items()},
        basis="vouched",
        renderer=get_field(line, "renderer", str),
        environment=raw_field(line, "environment"),
        decisions=reading.decisions,
        agent=get_field(line, "agent", str),
        cwd=get_field(line, "cwd", str),
        parent_session=get_field(line, "parent_session", str),
        thread=get_field(line, "thread", str),
    )
    yield Kind.SESSION_STARTED, payload, None


def _text_of(value: object) -> str | None:
    """Keep a task that is no text as its JSON."""
    if value is None or isinstance(value, str):
        return value
    return canonical.encode(value).decode()


def _read_decision(line: Line, reading: _Reading) -> Iterator[Part]:
    model = get_field(line, "model", dict) or {}
    output = get_field(line, "output", dict) or {}
    redactions = read_redactions(line)
    yield Kind.MODEL_REQUEST, _request(line, model, redactions), None
    response = _response(line, model, output, redactions)
    yield Kind.MODEL_RESPONSE, response, None
    calls = get_field(output, "tool_calls", list) or []
    if reading.decisions == "json_content" and not calls:
        decided = parse_json_decision(response.text)
        if decided is not None:
            call = ToolCall(tool=decided.tool, arguments=decided.arguments)
            yield Kind.TOOL_CALL, call, get_field(line, "id", str)
    for call in calls:
        if isinstance(call, dict):
            yield Kind.TOOL_CALL, _call(call), get_field(call, "call_id", str)


def _request(line: Line, model: Line, redactions: tuple[Redaction, ...]) -> ModelRequest:
    request = get_field(line, "request", dict) or {}
    return ModelRequest(
        model=get_field(model, "requested", str),
        api=get_field(request, "api", str),
        body=get_field(request, "body", str),
        context=get_field(line, "context", str),
        sampling=read_sampling(get_field(line, "sampling", dict)),
        truncated=line.get("context_truncated") is True,
        redactions=tuple(r for r in redactions if not r.path.startswith("output")),
        step=get_field(line, "step", int),
    )


def _response(
    line: Line, model: Line, output: Line, redactions: tuple[Redaction, ...]
) -> ModelResponse:
    sampling = get_field(line, "sampling", dict) or {}
    return ModelResponse(
        text=get_field(output, "text", str) or "",
        model=get_field(model, "served", str),
        fingerprint=get_field(model, "fingerprint", str),
        stop_reason=get_field(output, "stop_reason", str),
        usage=_usage(get_field(line, "usage", dict)),
        chosen_tokens=_tokens(sampling.get("chosen_tokens")),
        has_logits=bool(sampling.get("logits")),
        redactions=tuple(r for r in redactions if r.path.startswith("output")),
        step=get_field(line, "step", int),
    )


def read_sampling(fields: Line | None) -> Sampling | None:
    """Read sampling parameters; `null` and a value of another type count as not recorded."""
    if fields is None:
        return None
    extra = {
        name: value
        for name, value in fields.items()
        if name not in _SAMPLING_TYPES and name not in _SAMPLING_OUTPUT and value is not None
    }
    numbers: dict[str, Any] = {}
    for name, kinds in _SAMPLING_TYPES.items():
        value = fields.get(name)
        if isinstance(value, kinds) and not isinstance(value, bool):
            numbers[name] = value
    return Sampling(extra=extra, **numbers)


def _tokens(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    return tuple(value) if all(type(token) is int for token in value) else None


def _usage(fields: Line | None) -> Usage | None:
    if not fields:
        return None
    counts: dict[str, Any] = {}
    for name, target in _USAGE_FIELDS.items():
        count = get_field(fields, name, int)
        if count is not None:
            counts[target] = count
    cost = fields.get("cost_usd")
    if isinstance(cost, str | int | float) and not isinstance(cost, bool):
        counts["cost_usd"] = str(cost)
    return Usage(**counts)


def read_redactions(line: Line) -> tuple[Redaction, ...]:
    """Read the recorder's own list of what it masked."""
    listed = get_field(line, "redactions", list)
    if not listed:
        return ()
    return tuple(
        Redaction(str(entry.get("path", "")), _text_of(entry.get("rule")))
        for entry in listed
        if isinstance(entry, dict)
    )


def raw_field(line: Line, name: str) -> Raw | UnsetType:
    """Keep a field as JSON; absent stays `UNSET`, `null` is a value."""
    return raw_of(line[name]) if name in line else UNSET


def _call(call: Line) -> ToolCall:
    return ToolCall(
        tool=get_field(call, "name", str) or "",
        arguments=raw_field(call, "args"),
        arguments_text=get_field(call, "args_json", str),
        redactions=read_redactions(call),
    )


def _read_result(line: Line, _: _Reading) -> Iterator[Part]:
    payload = ToolResult(
        status=get_field(line, "status", str) or "ok",
        result=raw_field(line, "result"),
        tool=get_field(line, "name", str),
        truncated=line.get("result_truncated") is True,
        original_chars=get_field(line, "original_chars", int),
        redactions=read_redactions(line),
    )
    yield Kind.TOOL_RESULT, payload, get_field(line, "call_id", str)


def _read_read(line: Line, _: _Reading) -> Iterator[Part]:
    kind = Kind.CLOCK_READ if line.get("kind") == "clock" else Kind.PRNG_READ
    payload = Read(
        name=get_field(line, "name", str) or "",
        value=raw_field(line, "value"),
        step=get_field(line, "step", int),
    )
    yield kind, payload, None


def _read_derived(line: Line, _: _Reading) -> Iterator[Part]:
    payload = Derived(
        name=get_field(line, "name", str) or "",
        function=get_field(line, "function", str),
        version=_text_of(line.get("version")),
        inputs=raw_field(line, "inputs"),
        value=raw_field(line, "value"),
        step=get_field(line, "step", int),
    )
    yield Kind.VALUE_DERIVED, payload, None


def _read_event(line: Line, _: _Reading) -> Iterator[Part]:
    kind = str(line.get("kind", ""))
    rest = {name: value for name, value in line.items() if name not in _ENVELOPE}
    call_id = get_field(line, "call_id", str)
    if kind == "user":
        yield Kind.USER_MESSAGE, UserMessage(text=_text_of(line.get("text")) or ""), None
    elif kind == "tool_call":
        arguments = rest.get("args", {"command": rest["command"]} if "command" in rest else {})
        payload = ToolCall(tool=str(line.get("tool", "")), arguments=raw_of(arguments))
        yield Kind.TOOL_CALL, payload, call_id
    else:
        yield Kind.CUSTOM, Custom(name=kind, data=raw_of(rest)), call_id


def _read_permission(line: Line, _: _Reading) -> Iterator[Part]:
    payload = ToolPermission(
        decision=get_field(line, "decision", str) or "",
        by=get_field(line, "by", str),
        tool=get_field(line, "name", str),
    )
    yield Kind.TOOL_PERMISSION, payload, get_field(line, "call_id", str)


def _read_model_error(line: Line, _: _Reading) -> Iterator[Part]:
    delay = line.get("delay_s")
    payload = ModelError(
        status=get_field(line, "status", int),
        attempt=get_field(line, "attempt", int),
        delay_s=delay if isinstance(delay, int | float) and not isinstance(delay, bool) else None,
        message=get_field(line, "message", str),
        step=get_field(line, "step", int),
    )
    yield Kind.MODEL_ERROR, payload, None


def _read_context_replaced(line: Line, _: _Reading) -> Iterator[Part]:
    payload = ContextReplaced(before=raw_field(line, "from"), after=raw_field(line, "to"))
    yield Kind.CONTEXT_REPLACED, payload, None


def _read_end(line: Line, _: _Reading) -> Iterator[Part]:
    yield Kind.SESSION_ENDED, SessionEnded(status=get_field(line, "status", str)), None


def _read_unknown(line: Line, _: _Reading) -> Iterator[Part]:
    yield Kind.NOTE, Note(label=str(line.get("type", ""))), None


_READERS: Mapping[str, Callable[[Line, _Reading], Iterator[Part]]] = {
    "session": _read_session,
    "decision": _read_decision,
    "tool_result": _read_result,
    "read": _read_read,
    "derived": _read_derived,
    "event": _read_event,
    "permission": _read_permission,
    "model_error": _read_model_error,
    "context_replaced": _read_context_replaced,
    "end": _read_end,
}

IMPORTER = InterchangeImporter()
