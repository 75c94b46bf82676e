"""Decisions of a live model in a rerun, beside the recorded ones.

Knows answers of the three APIs as decisions. Must not know who asked.

Source: DESIGN.md §5 "Decisions", "Two comparisons".
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.record.event import Event, Kind, ModelResponse, ToolCall, payload_of
from redrive.record.evidence import arguments_value
from redrive.record.signature import CallSignature, argument_digests
from redrive.replay.ports import CallAsked, ModelReply


class CallShown(msgspec.Struct, frozen=True):
    """A tool and its arguments: the JSON value, or the text where it is none."""

    tool: str
    arguments: Any


class LiveDecision(msgspec.Struct, frozen=True):
    """One decision of the live model, and the recorded one at the same place of its flow.

    Attributes:
        flow: the flow of execution.
        step: 1-based ordinal of the request in its flow.
        equal: whether tools and canonical arguments are equal, in call order.
        expected: the recorded calls; absent beyond the record.
        found: the model's calls.
        text: whether the texts are equal too.
    """

    flow: str
    step: int
    equal: bool
    expected: tuple[CallShown, ...] | None
    found: tuple[CallShown, ...]
    text_equal: bool = True


def compare_decision(
    flow: str, step: int, recorded: Sequence[Event] | None, reply: ModelReply
) -> LiveDecision:
    """Compare a live answer with the recorded one.

    Args:
        flow: the flow of execution.
        step: ordinal of the request in its flow.
        recorded: the events of the recorded answer's node; absent beyond the record.
        reply: what the model answered.
    """
    found = tuple(reply.calls)
    expected = None if recorded is None else _calls_of(recorded)
    return LiveDecision(
        flow=flow,
        step=step,
        equal=expected is not None and _sign(expected) == _sign(found),
        expected=None if expected is None else _show(expected),
        found=_show(found),
        text_equal=recorded is not None and _text_of(recorded) == reply.text,
    )


def _calls_of(events: Sequence[Event]) -> tuple[CallAsked, ...]:
    calls: list[ToolCall] = [payload_of(e) for e in events if e.kind is Kind.TOOL_CALL]
    return tuple(CallAsked(call.tool, call.arguments, call.arguments_text) for call in calls)


def _text_of(events: Sequence[Event]) -> str:
    answers: list[ModelResponse] = [payload_of(e) for e in events if e.kind is Kind.MODEL_RESPONSE]
    return "".join(answer.text for answer in answers)


def _sign(calls: Sequence[CallAsked]) -> tuple[CallSignature, ...]:
    return tuple(
        CallSignature(call.tool, argument_digests(call.arguments, call.arguments_text).value)
        for call in calls
    )


def _show(calls: Sequence[CallAsked]) -> tuple[CallShown, ...]:
    return tuple(
        CallShown(call.tool, arguments_value(call.arguments, call.arguments_text)) for call in calls
    )
