"""Builds sessions by hand, event by event, for tests of the functional core.

A session built without arguments is closed: every context is what `json@1` makes of the messages so
far, every call has its result, and clock and PRNG are vouched for.
"""

import json
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive.audit.closure import ClosedTrajectory, audit, try_close
from redrive.audit.renderers import Renderer, render_json_v1
from redrive.audit.report import AuditReport
from redrive.record.event import (
    Custom,
    Derived,
    Event,
    Kind,
    ModelRequest,
    ModelResponse,
    Payload,
    Read,
    Sampling,
    SessionStarted,
    Source,
    ToolCall,
    ToolResult,
    UserMessage,
    dump_payload,
    payload_of,
    raw_of,
)
from redrive.record.session import MemoryReader, SessionIndex, build_index
from redrive.record.trajectory import Trajectory, build_trajectory

RENDERERS: dict[str, Renderer] = {"json@1": render_json_v1}
CLOSED = {"clock": "captured", "prng": "captured", "tool_results": "captured"}
SEEDED = Sampling(temperature=0, top_p=1, seed=7)


class SessionBuilder:
    """Collects events in seq order; each call adds to one path unless `parent` says otherwise."""

    def __init__(self, session_id: str = "interchange:s", **started: Any) -> None:
        self.session_id = session_id
        self.started = SessionStarted(
            **{"task": "go", "captures": CLOSED, "basis": "vouched"} | started
        )
        self.events: list[Event] = []
        self.messages: list[dict[str, Any]] = [{"role": "user", "content": self.started.task}]
        self.n_decisions = 0
        self.head: str | None = None
        self.add(Kind.SESSION_STARTED, self.started, node="")

    def add(
        self,
        kind: Kind,
        payload: Payload,
        *,
        node: str | None = None,
        parent: str | None = None,
        call_id: str | None = None,
        actor: str = "main",
        flags: tuple[str, ...] = (),
    ) -> "SessionBuilder":
        """Add one event; a new node hangs off the newest one."""
        seq = len(self.events)
        name = f"n{seq}" if node is None else node
        above = self.head if parent is None else parent
        if name == self.head:
            above = next(e.parent_id for e in self.events if e.node_id == name)
        event = Event(
            id=f"e{seq}",
            session_id=self.session_id,
            seq=seq,
            kind=kind,
            node_id=name,
            source=Source("0" * 64, seq, 1),
            payload=dump_payload(payload),
            parent_id=above if name else None,
            actor=actor,
            call_id=call_id,
            flags=flags,
        )
        self.events.append(event)
        if name and actor == "main":
            self.head = name
        return self

    def decision(
        self,
        *calls: tuple[str, str, Any],
        text: str = "",
        context: str | UnsetType | None = UNSET,
        sampling: Sampling | None = SEEDED,
        request: ModelRequest | UnsetType | None = UNSET,
        response: ModelResponse | None = None,
        flags: tuple[str, ...] = (),
    ) -> "SessionBuilder":
        """Add a decision; `calls` are (call id, tool, arguments)."""
        self.n_decisions += 1
        step, node = self.n_decisions, f"d{self.n_decisions}"
        if isinstance(context, UnsetType):
            context = json.dumps(self.messages)
        if isinstance(request, UnsetType):
            request = ModelRequest(model="m-1", context=context, sampling=sampling, step=step)
        if request is not None:
            self.add(Kind.MODEL_REQUEST, request, node=node, flags=flags)
        if response is None:
            response = ModelResponse(text=text, model="m-1", fingerprint="fp", step=step)
        self.add(Kind.MODEL_RESPONSE, response, node=node)
        message: dict[str, Any] = {"role": "assistant", "content": response.text}
        for call_id, tool, arguments in calls:
            self.add(
                Kind.TOOL_CALL,
                ToolCall(tool, arguments=raw_of(arguments)),
                node=node,
                call_id=call_id,
            )
            written = {"call_id": call_id, "name": tool, "args": arguments}
            message.setdefault("tool_calls", []).append(written)
        self.messages.append(message)
        return self

    def call(self, call: ToolCall, call_id: str | None) -> "SessionBuilder":
        """Add a call to the newest decision, whose message it does not change."""
        return self.add(Kind.TOOL_CALL, call, node=f"d{self.n_decisions}", call_id=call_id)

    def result(self, call_id: str, value: Any, **fields: Any) -> "SessionBuilder":
        """Add a result; `result=UNSET` in `fields` leaves its value out."""
        payload = ToolResult(**{"result": raw_of(value)} | fields)
        self.messages.append({"role": "tool", "call_id": call_id, "content": value})
        return self.add(Kind.TOOL_RESULT, payload, call_id=call_id)

    def read(
        self, kind: str, name: str, value: Any = UNSET, step: int | None = None
    ) -> "SessionBuilder":
        """Add a `clock` or `prng` read."""
        payload = Read(name, _raw(value), step)
        return self.add(Kind.CLOCK_READ if kind == "clock" else Kind.PRNG_READ, payload)

    def derived(
        self, name: str, inputs: Any = UNSET, *, function: str | None, step: int | None = None
    ) -> "SessionBuilder":
        """Add a value that the harness computed."""
        return self.add(Kind.VALUE_DERIVED, Derived(name, function, "1", _raw(inputs), step=step))

    def user(self, text: str) -> "SessionBuilder":
        """Add a user message."""
        self.messages.append({"role": "user", "content": text})
        return self.add(Kind.USER_MESSAGE, UserMessage(text))

    def custom(self, **fields: Any) -> "SessionBuilder":
        """Add an event that means nothing to the audit."""
        return self.add(Kind.CUSTOM, Custom("beat"), **fields)

    def replace(self, seq: int, **changes: Any) -> "SessionBuilder":
        """Change fields of one event's payload."""
        event = self.events[seq]
        payload = msgspec.structs.replace(payload_of(event), **changes)
        self.events[seq] = msgspec.structs.replace(event, payload=dump_payload(payload))
        return self

    def seqs(self, kind: Kind) -> list[int]:
        """List the seqs of a kind."""
        return [event.seq for event in self.events if event.kind is kind]

    def index(self) -> SessionIndex:
        """Index the session."""
        return build_index(self.session_id, lambda: self.events)

    def build(self, actor: str = "main") -> tuple[SessionIndex, Trajectory, MemoryReader]:
        """Give what the audit takes."""
        index = self.index()
        return index, build_trajectory(index, actor=actor), MemoryReader(self.events)

    def audit(self, **options: Any) -> AuditReport:
        """Audit the main path."""
        given: dict[str, Any] = {"session_started": self.started, "renderers": RENDERERS} | options
        return audit(*self.build(), **given)

    def close(self, **options: Any) -> ClosedTrajectory | None:
        """Close the main path, if it can be."""
        given: dict[str, Any] = {"session_started": self.started, "renderers": RENDERERS} | options
        return try_close(*self.build(), **given)[1]


def _raw(value: Any) -> Raw | UnsetType:
    return UNSET if value is UNSET else raw_of(value)


def gaps_of(report: AuditReport) -> list[tuple[int, str, str]]:
    """List (step, class, cause) of every gap."""
    return [
        (step.step, gap.input_class.value, gap.cause)
        for step in report.steps
        for gap in step.missing
    ]
