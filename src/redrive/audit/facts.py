"""What the record holds of one step, decoded: the audit never holds more than this.

Knows events and their payloads. Must not know what counts as a gap.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

from redrive.audit.redaction import find_mark, may_hold_mark
from redrive.record.event import Event, Kind, ModelRequest, payload_of
from redrive.record.session import EventReader
from redrive.record.trajectory import Step

# An event, its payload, and the redaction mark that its payload holds, if any.
Item = tuple[Event, Any, str | None]


@dataclass(slots=True)
class StepFacts:
    """The events of one step by what they are to the audit, each list in seq order.

    `attached` are reads and derived values; `others` are events whose payload was not needed (user
    messages, errors, notes), and `masked` those of them that list redactions, with their payloads;
    `flagged` are those of any kind whose record says of itself that it is not plainly what it
    seems.
    """

    step: Step
    request: ModelRequest | None = None
    responses: list[Item] = field(default_factory=list)
    calls: list[Item] = field(default_factory=list)
    results: list[Item] = field(default_factory=list)
    attached: list[Item] = field(default_factory=list)
    others: list[Event] = field(default_factory=list)
    masked: list[tuple[Event, Any]] = field(default_factory=list)
    flagged: list[Event] = field(default_factory=list)

    @property
    def sent(self) -> str | None:
        """The bytes that entered the model: the request body, else the context."""
        request = self.request
        if request is None:
            return None
        return request.context if request.body is None else request.body

    @property
    def recorded_step(self) -> int | None:
        """The step number that the record itself gives."""
        request = self.request
        if request is not None and request.step is not None:
            return request.step
        return next((item[1].step for item in self.responses if item[1].step is not None), None)


_ATTACHED = frozenset({Kind.CLOCK_READ, Kind.PRNG_READ, Kind.VALUE_DERIVED})
# Of the other kinds, those through which something reaches the agent.
_REACHING = frozenset(
    {Kind.USER_MESSAGE, Kind.CONTEXT_REPLACED, Kind.MODEL_ERROR, Kind.STATE_INFERRED, Kind.CUSTOM}
)


def read_facts(step: Step, seqs: Iterable[int], reader: EventReader) -> StepFacts:
    """Read and decode these events of a step."""
    facts = StepFacts(step)
    responses, calls, results = facts.responses, facts.calls, facts.results
    scanned: list[Raw] = []
    for event in reader.read_events(seqs):
        kind = event.kind
        if event.flags:
            facts.flagged.append(event)
        if kind is Kind.MODEL_REQUEST:
            facts.request = payload_of(event)
            continue
        if kind is Kind.MODEL_RESPONSE:
            items = responses
        elif kind is Kind.TOOL_CALL:
            items = calls
        elif kind is Kind.TOOL_RESULT:
            items = results
        elif kind in _ATTACHED:
            items = facts.attached
        else:
            _take_other(facts, event)
            continue
        scanned.append(event.payload)
        items.append((event, payload_of(event), None))
    if may_hold_mark(b"".join(scanned)):
        _find_marks(facts)
    return facts


def _take_other(facts: StepFacts, event: Event) -> None:
    facts.others.append(event)
    if event.kind in _REACHING and b"redactions" in bytes(event.payload):
        payload = payload_of(event)
        if payload.redactions:
            facts.masked.append((event, payload))


def _find_marks(facts: StepFacts) -> None:
    """Say for each item which mark it holds; the request is scanned as a text of its own."""
    for items in (facts.responses, facts.calls, facts.results, facts.attached):
        for at, (event, payload, _) in enumerate(items):
            items[at] = (event, payload, find_mark(bytes(event.payload).decode()))
