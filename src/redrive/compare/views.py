"""One decision as a report shows it, from the record or from a replay.

Knows events and replies. Must not know how decisions are compared.

Source: DESIGN.md §8 "JSON contract", `expected` and `found`.
"""

from typing import Any

import msgspec

from redrive.record.event import ModelResponse, ToolCall, payload_of
from redrive.record.evidence import arguments_value
from redrive.record.session import EventReader
from redrive.record.signature import DecisionSignature, Signature, event_signatures
from redrive.record.trajectory import Step
from redrive.replay.exchange import ReplayedDecision
from redrive.replay.ports import ModelReply


class CallView(msgspec.Struct, frozen=True):
    """One call as a report shows it; `arguments` is the JSON value, or text that is no JSON."""

    tool: str
    arguments: Any
    call_id: str | None = None


class DecisionView(msgspec.Struct, frozen=True):
    """One decision as a report shows it; `signatures` is what was compared, event by event."""

    text: str
    calls: tuple[CallView, ...]
    is_final: bool
    signatures: tuple[Signature, ...] = ()


def view_recorded(step: Step, signature: DecisionSignature, reader: EventReader) -> DecisionView:
    """Show a recorded decision; reads its events."""
    responses: list[ModelResponse] = [payload_of(e) for e in reader.read_events(step.responses)]
    calls: list[CallView] = []
    for event in reader.read_events(step.calls):
        call: ToolCall = payload_of(event)
        calls.append(
            CallView(
                tool=call.tool,
                arguments=arguments_value(call.arguments, call.arguments_text),
                call_id=event.call_id,
            )
        )
    return DecisionView(
        text="".join(response.text for response in responses),
        calls=tuple(calls),
        is_final=signature.is_final,
        signatures=event_signatures(signature),
    )


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
