"""Records sessions in memory: a sink that holds events, and exchanges without a network."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from redrive.audit.closure import audit
from redrive.audit.report import AuditReport
from redrive.capture.ports import Outcome, SentRequest
from redrive.capture.recording import RecordingBackend
from redrive.record.event import Event, SessionStarted
from redrive.record.session import MemoryReader, SessionIndex, build_index
from redrive.record.trajectory import build_trajectory

CHAT_URL = "https://api.example/v1/chat/completions"
CAPTURED = dict.fromkeys(
    ("context", "tool_results", "sampling", "clock", "prng", "environment"), "captured"
)


class MemorySink:
    """Keeps what it is given; `n_flushed` counts the events that were there at the last flush."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.artefacts: list[bytes] = []
        self.n_flushed = 0
        self.error: Exception | None = None

    def put(self, events: Sequence[Event], artefacts: Sequence[bytes] = ()) -> None:
        if self.error is not None:
            raise self.error
        self.events += events
        self.artefacts += artefacts

    def flush(self) -> None:
        self.n_flushed = len(self.events)

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def index(self) -> SessionIndex:
        return build_index("redrive:t", lambda: iter(self.events))

    def audit(self, started: SessionStarted, actor: str = "main") -> AuditReport:
        index = self.index()
        return audit(
            index,
            build_trajectory(index, actor=actor),
            MemoryReader(self.events),
            session_started=started,
            renderers={},
        )


class Recorded:
    """A backend on a memory sink, and an agent's side of its exchanges."""

    def __init__(self, *, by_context: bool = True, decisions: str = "tool_calls") -> None:
        self.sink = MemorySink()
        self.faults: list[str] = []
        self.started = SessionStarted(
            task="t", captures=CAPTURED, basis="intercepted", decisions=decisions
        )
        clock = count(1_000_000_000)
        self.backend = RecordingBackend(
            self.sink,
            "redrive:t",
            self.started,
            now_ns=lambda: next(clock),
            by_context=by_context,
            on_fault=self.faults.append,
        )

    def send(self, body: bytes, url: str = CHAT_URL, **fields: Any) -> Any:
        return self.backend.sent(SentRequest("POST", url, (), body, 1, **fields))

    def exchange(self, body: bytes, answer: bytes, status: int = 200, **fields: Any) -> None:
        observer = self.send(body, **fields)
        observer.responded(status, (("content-type", "application/json"),), 2)
        observer.received(answer)
        observer.finished(Outcome.COMPLETE, 3)


def chat_body(*messages: dict[str, Any], **fields: Any) -> bytes:
    settings = {"model": "m", "temperature": 0, "seed": 7}
    return json.dumps(settings | fields | {"messages": messages}).encode()


def said(role: str, content: str, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content} | fields


def asks(call_id: str, tool: str, arguments: str) -> dict[str, Any]:
    function = {"name": tool, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def chat_answer(text: str = "", *calls: dict[str, Any]) -> bytes:
    message = {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(
        {"id": f"r-{text}-{len(calls)}", "model": "m-1", "choices": [choice]}
    ).encode()
