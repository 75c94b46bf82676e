"""One decision as a report shows it, from the record or from a replay.

Knows events and replies. Must not know how decisions are compared.

Source: DESIGN.md §8 "JSON contract", `expected` and `found`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive.record.event import ModelResponse, ToolCall, ToolResult, payload_of
from redrive.record.evidence import arguments_value
from redrive.record.session import EventReader
from redrive.record.signature import DecisionSignature, Signature, event_signatures
from redrive.record.trajectory import Step
from redrive.replay.exchange import ReplayedDecision
from redrive.replay.ports import ModelReply


class CallView(msgspec.Struct, frozen=True):
    """One call as a report shows it.

    `arguments` is the JSON value, or text that is no JSON; `status` and `result` are its answer,
    where results are compared and one is recorded.
    """

    tool: str
    arguments: Any
    call_id: str | None = None
    status: str | None = None
    result: Raw | UnsetType = UNSET


class DecisionView(msgspec.Struct, frozen=True):
    """One decision as a report shows it; `signatures` is what was compared, event by event."""

    text: str
    calls: tuple[CallView, ...]
    is_final: bool
    signatures: tuple[Signature, ...] = ()


def view_recorded(
    step: Step,
    signature: DecisionSignature,
    reader: EventReader,
    answers: Mapping[int, int] | None = None,
) -> DecisionView:
    """Show a recorded decision; reads its events.

    Args:
        step: the decision.
        signature: what was compared.
        reader: gives payloads.
        answers: call seq → result seq, where results are to be shown.
    """
    responses: list[ModelResponse] = [payload_of(e) for e in reader.read_events(step.responses)]
    calls: list[CallView] = []
    for event in reader.read_events(step.calls):
        call: ToolCall = payload_of(event)
        answer = _answer((answers or {}).get(event.seq), reader)
        calls.append(
            CallView(
                tool=call.tool,
                arguments=arguments_value(call.arguments, call.arguments_text),
                call_id=event.call_id,
                status=None if answer is None else answer.status,
                result=UNSET if answer is None else answer.result,
            )
        )
    return DecisionView(
        text="".join(response.text for response in responses),
        calls=tuple(calls),
        is_final=signature.is_final,
        signatures=event_signatures(signature),
    )


def _answer(seq: int | None, reader: EventReader) -> ToolResult | None:
    if seq is None:
        return None
    result: ToolResult = payload_of(next(iter(reader.read_events((seq,)))))
    return result


def view_replayed(decision: ReplayedDecision) -> DecisionView:
    """Show a replayed decision that differs from the record."""
    reply = decision.reply or ModelReply()
    return DecisionView(
        text=reply.text,
        calls=tuple(
            CallView(
                tool=call.tool,
                arguments=arguments_value(call.arguments, call.arguments_text),
                call_id=call.call_id,
            )
            for call in reply.calls
        ),
        is_final=decision.signature.is_final,
        signatures=event_signatures(decision.signature),
    )
