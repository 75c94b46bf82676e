"""Where the first difference of a rerun lies, with both sides as people read them.

Knows the record's payloads and the ask. Must not know what the difference means (`rerun_verdict`).

Source: issue "The recorder" §5: with expected and found.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.audit.gaps import InputClass
from redrive.audit.reads import READ_CLASSES
from redrive.record.event import (
    Derived,
    Event,
    Kind,
    ModelRequest,
    ToolCall,
    ToolResult,
    dump_payload,
    payload_of,
)
from redrive.record.evidence import NearestCall, arguments_value, find_nearest
from redrive.record.session import EventReader
from redrive.record.texts import common_prefix
from redrive.replay.rerun import RerunState, list_waiting
from redrive.replay.rerun_bytes import without_added
from redrive.replay.rerun_exchange import (
    Ask,
    AskCall,
    AskEnd,
    AskExchange,
    AskRead,
    AskValue,
    Miss,
    Recomputed,
    What,
)
from redrive.replay.rerun_items import (
    Item,
    RecordedCall,
    RecordedExchange,
    RecordedRead,
    RecordedValue,
)

ReadArtefact = Callable[[str], bytes]
_SHOWN_CHARS = 300
_BEFORE_CHARS = 40
_MAX_DEPTH = 100
ABSENT = "(absent)"
NOTHING = "nothing"


class RerunDivergence(msgspec.Struct, frozen=True, rename={"input_class": "class"}):
    """The first thing that differs from the record.

    Attributes:
        what: its kind.
        input_class: the class of input that it belongs to; absent where that is not known.
        flow: the flow in which it was met.
        step: the step at which it was met.
        node_id: the recorded node at this place; absent beyond the record.
        where: path of the first value that differs, such as `/messages/2/content`; else `byte N`.
        offset: of the first byte that differs in a request's body.
        expected: what the record holds there, cut.
        found: what was asked instead, cut.
        reason: why the record cannot answer, where that is so.
        nearest: the recorded call nearest to one that has no answer.
    """

    what: What
    input_class: InputClass | None
    flow: str
    step: int
    node_id: str | None
    where: str | None = None
    offset: int | None = None
    expected: Any = None
    found: Any = None
    reason: str | None = None
    nearest: NearestCall | None = None


class _Spot(msgspec.Struct, frozen=True):
    """Where two byte strings part, and what stands there."""

    where: str
    offset: int | None
    expected: Any
    found: Any


def describe_miss(
    state: RerunState, miss: Miss, reader: EventReader, read_artefact: ReadArtefact
) -> RerunDivergence:
    """Describe the first difference.

    Args:
        state: the rerun as it stopped.
        miss: what stopped it.
        reader: gives the recorded payloads; asked for a few.
        read_artefact: gives verbatim bytes by sha256.
    """
    plain = RerunDivergence(
        what=miss.what,
        input_class=_class_of(miss),
        flow=miss.flow,
        step=miss.step,
        node_id=None if miss.expected is None else miss.expected.node_id,
        expected=NOTHING if miss.expected is None else _show_item(miss.expected, reader),
        found=_show_ask(miss.found),
        reason=None if miss.lack is None else miss.lack.value,
    )
    match miss.found, miss.expected:
        case AskExchange() as ask, RecordedExchange() as item if item.is_at(ask.method, ask.path):
            recorded = without_added(_body_of(item, reader, read_artefact), item.added)
            return _at(plain, find_spot(recorded, without_added(ask.body, ask.added)))
        case AskCall() as ask, _:
            return _describe_call(plain, state, ask, reader)
        case AskValue() as ask, RecordedValue() as item if miss.what is What.INPUT:
            return _describe_inputs(plain, ask, item, reader)
        case AskValue() as ask, RecordedValue() as item if (ask.name, ask.function) == item.key:
            return _at(plain, _Spot(f"{ask.function} version", None, item.version, ask.version))
        case Recomputed() as ask, RecordedValue() as item:
            return _describe_value(plain, ask, item, reader)
        case _:
            return plain


def _at(divergence: RerunDivergence, spot: _Spot | None) -> RerunDivergence:
    if spot is None:
        return divergence
    return msgspec.structs.replace(
        divergence,
        where=spot.where,
        offset=spot.offset,
        expected=spot.expected,
        found=spot.found,
    )


_CLASSES: Mapping[What, InputClass] = {
    What.CLOCK: InputClass.CLOCK,
    What.PRNG: InputClass.PRNG,
    What.INPUT: InputClass.ENVIRONMENT,
    What.VALUE: InputClass.ENVIRONMENT,
    What.DERIVATION: InputClass.ENVIRONMENT,
}


def _class_of(miss: Miss) -> InputClass | None:
    """Name the class of input that a difference belongs to, as far as it shows."""
    if miss.what is What.ORDER and isinstance(miss.found, AskRead):
        return READ_CLASSES[miss.found.kind]
    if miss.what is not What.UNSERVABLE:
        return _CLASSES.get(miss.what)
    if isinstance(miss.expected, RecordedRead):
        return READ_CLASSES[miss.expected.kind]
    return InputClass.INPUT if isinstance(miss.found, AskExchange) else InputClass.ENVIRONMENT


# --- bodies


def _body_of(item: RecordedExchange, reader: EventReader, read_artefact: ReadArtefact) -> bytes:
    if not item.is_model:
        return read_artefact(item.request_source) if item.request_source else b""
    request: ModelRequest = payload_of(next(iter(reader.read_events((item.seq,)))))
    return canonical.text_bytes(request.body or "")


def find_spot(expected: bytes, found: bytes) -> _Spot | None:
    """Find where two bodies part: a path where both are JSON and differ by value, else a byte.

    Returns:
        `None` where they are equal.
    """
    if expected == found:
        return None
    offset = common_prefix(expected, found)
    try:
        pair = canonical.decode_value(expected), canonical.decode_value(found)
    except ValueError:
        pair = None
    path = None if pair is None else find_path(*pair)
    if path is not None:
        where, ours, theirs = path
        return _Spot(where or "/", offset, *_show_pair(ours, theirs))
    start = max(0, offset - _BEFORE_CHARS)
    texts = (_text(expected[start:]), _text(found[start:]))
    return _Spot(f"byte {offset}", offset, *map(_cut, texts))


def _text(data: bytes) -> str:
    return data[: 4 * _SHOWN_CHARS].decode("utf-8", "backslashreplace")


def find_path(expected: Any, found: Any) -> tuple[str, Any, Any] | None:
    """Find the first value that differs, in the order of the expected side.

    Returns:
        Its path, and both values, `ABSENT` where one side has none; `None` where all are equal.
        What is nested more than 100 deep is compared whole.
    """
    return _find_path(expected, found, "", 0)


def _find_path(expected: Any, found: Any, path: str, depth: int) -> tuple[str, Any, Any] | None:
    if isinstance(expected, dict) and isinstance(found, dict) and depth < _MAX_DEPTH:
        pairs = _object_pairs(expected, found)
    elif isinstance(expected, list) and isinstance(found, list) and depth < _MAX_DEPTH:
        pairs = _list_pairs(expected, found)
    elif type(expected) is type(found) and expected == found:
        return None
    else:
        return path, expected, found
    for key, ours, theirs in pairs:
        spot = _find_path(ours, theirs, f"{path}/{key}", depth + 1)
        if spot is not None:
            return spot
    return None


def _object_pairs(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key, value in ours.items():
        yield key, value, theirs.get(key, ABSENT)
    for key, value in theirs.items():
        if key not in ours:
            yield key, ABSENT, value


def _list_pairs(ours: list[Any], theirs: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    for place in range(max(len(ours), len(theirs))):
        yield (
            str(place),
            ours[place] if place < len(ours) else ABSENT,
            theirs[place] if place < len(theirs) else ABSENT,
        )


def _show_pair(expected: Any, found: Any) -> tuple[Any, Any]:
    """Show two values that differ; of two texts the stretch around the first difference."""
    if isinstance(expected, str) and isinstance(found, str):
        start = max(0, common_prefix(expected, found) - _BEFORE_CHARS)
        lead = "…" if start else ""
        return _cut(lead + expected[start:]), _cut(lead + found[start:])
    return _show(expected), _show(found)


def _show(value: Any) -> Any:
    """Show a JSON value; a long one as the beginning of its text."""
    written = canonical.encode(value).decode()
    return value if len(written) <= _SHOWN_CHARS else _cut(written)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


# --- calls and derived values


def _describe_call(
    plain: RerunDivergence, state: RerunState, ask: AskCall, reader: EventReader
) -> RerunDivergence:
    """Name the recorded call nearest to one without an answer, of those that may still come."""
    waiting: Sequence[RecordedCall] = list_waiting(state, ask.flow)
    if not waiting:
        flows = state.recorded.flows.values()
        waiting = [call for flow in flows for call in flow.calls]
    same = [call for call in waiting if call.tool == ask.tool]
    events = _read_calls(same or waiting, reader)
    nearest = find_nearest(ask.tool, arguments_value(ask.arguments, None), events)
    if nearest is None or plain.reason is not None:
        return plain
    node_id = next(call.node_id for call in waiting if call.seq == nearest.call)
    return msgspec.structs.replace(
        plain,
        node_id=node_id,
        where=nearest.differs[0] if nearest.differs else None,
        expected={"tool": nearest.tool, "arguments": _show(nearest.arguments)},
        nearest=msgspec.structs.replace(nearest, arguments=_show(nearest.arguments)),
    )


def _read_calls(calls: Iterable[RecordedCall], reader: EventReader) -> Iterator[Event]:
    """Give recorded calls as events that say what was run, whoever asked for it."""
    for call in calls:
        seqs = (call.seq,) if call.result is None else (call.seq, call.result)
        events = list(reader.read_events(seqs))
        payload = dump_payload(_run_of(call, events))
        yield msgspec.structs.replace(events[0], kind=Kind.TOOL_CALL, payload=payload)


def _run_of(call: RecordedCall, events: Sequence[Event]) -> ToolCall:
    """Give the tool and the arguments that a call was run with."""
    if call.is_harness:
        data = bytes(payload_of(events[0]).data)
        arguments = dict(canonical.split_object(data)).get("arguments")
        return ToolCall(call.tool, UNSET if arguments is None else Raw(arguments))
    asked: ToolCall = payload_of(events[0])
    result: ToolResult | None = payload_of(events[1]) if len(events) > 1 else None
    if result is not None and not isinstance(result.executed, UnsetType):
        return ToolCall(call.tool, result.executed)
    return ToolCall(call.tool, asked.arguments, asked.arguments_text)


def _describe_inputs(
    plain: RerunDivergence, ask: AskValue, item: RecordedValue, reader: EventReader
) -> RerunDivergence:
    derived: Derived = payload_of(next(iter(reader.read_events((item.seq,)))))
    assert not isinstance(derived.inputs, UnsetType)  # noqa: S101 - it has a digest
    spot = find_spot(bytes(derived.inputs), bytes(ask.inputs))
    found = plain if spot is None else _at(plain, msgspec.structs.replace(spot, offset=None))
    return msgspec.structs.replace(
        found, where=f"{ask.function} inputs {found.where or ''}".strip()
    )


def _describe_value(
    plain: RerunDivergence, ask: Recomputed, item: RecordedValue, reader: EventReader
) -> RerunDivergence:
    derived: Derived = payload_of(next(iter(reader.read_events((item.seq,)))))
    recorded = canonical.decode_value(bytes(msgspec.json.encode(derived.value)))
    if ask.asked.version != item.version:
        reason = f"the function is another version: {ask.asked.version}, recorded {item.version}"
        plain = msgspec.structs.replace(plain, reason=reason)
    if ask.error is not None:
        found = f"raised {ask.error}"
        return _at(plain, _Spot(item.function, None, _show(recorded), found))
    path = find_path(recorded, canonical.decode_value(bytes(ask.value)))
    where, ours, theirs = path or ("", recorded, recorded)
    return _at(plain, _Spot(f"{item.function} {where}".strip(), None, *_show_pair(ours, theirs)))


# --- how things are shown


def _show_item(item: Item, reader: EventReader) -> Any:
    match item:
        case RecordedRead():
            return item.name
        case RecordedExchange():
            return f"{item.method} {item.path}"
        case RecordedCall():
            event = next(_read_calls((item,), reader))
            call: ToolCall = payload_of(event)
            arguments = arguments_value(call.arguments, call.arguments_text)
            return {"tool": item.tool, "arguments": _show(arguments)}
        case RecordedValue():
            return f"{item.name} = {item.function}(…)"
        case _ as never:
            assert_never(never)


def _show_ask(ask: Ask | None) -> Any:
    match ask:
        case AskRead():
            return ask.name
        case AskExchange():
            return f"{ask.method} {ask.path}"
        case AskCall():
            return {"tool": ask.tool, "arguments": _show(arguments_value(ask.arguments, None))}
        case AskValue():
            return f"{ask.name} = {ask.function}(…)"
        case Recomputed():
            return f"{ask.asked.name} = {ask.asked.function}(…)"
        case AskEnd() | None:
            return "the end"
        case _ as never:
            assert_never(never)
