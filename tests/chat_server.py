"""A scripted model behind the Chat Completions API, and a store to record agents that ask it.

The script is a function of the request, so that agents may ask at the same time. It gives a text,
or the tool calls as (id, name, arguments); streamed where the request says so.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Raw

import redrive
from redrive.app.auditing import audit_session
from redrive.app.opening import open_session
from redrive.record.event import Event, Kind, payload_of
from redrive.stores.sqlite import open_store
from tests.loopback_server import Answer, LoopbackServer, Received, run_server

Call = tuple[str, str, Any]
Script = Callable[[list[dict[str, Any]], dict[str, Any]], str | list[Call]]
"""Is given the messages and the whole request."""

SSE = (("content-type", "text/event-stream"),)
MODEL = "scripted"


def answer_with(script: Script) -> Callable[[Received], Answer]:
    """Make a server's `answer` of a script."""

    def answer(received: Received) -> Answer:
        request = json.loads(received.body)
        said = script(request["messages"], request)
        head = {"id": "c1", "created": 1, "model": MODEL, "system_fingerprint": "fp1"}
        if request.get("stream"):
            return Answer(tuple(_events(head, said)), headers=SSE)
        finish = "stop" if isinstance(said, str) else "tool_calls"
        choice = {"index": 0, "finish_reason": finish, "message": _message(said)}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
        body = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return Answer((json.dumps(body).encode(),))

    return answer


def answer_responses(calls: list[Call], text: str) -> Callable[[Received], Answer]:
    """Answer as the Responses API does: with calls, and with a text once there are results."""

    def answer(received: Received) -> Answer:
        request = json.loads(received.body)
        is_done = any(one.get("type") == "function_call_output" for one in request["input"][1:])
        part = {"type": "output_text", "text": text, "annotations": []}
        head = {"status": "completed", "id": "i1"}
        output: list[dict[str, Any]] = [
            {**head, "type": "message", "role": "assistant", "content": [part]}
        ]
        if not is_done:
            output = [
                {**head, "type": "function_call", "call_id": call_id, "name": name}
                | {"arguments": json.dumps(arguments)}
                for call_id, name, arguments in calls
            ]
        body = {"id": "r1", "object": "response", "created_at": 1, "model": MODEL}
        body |= {"status": "completed", "output": output, "tools": [], "tool_choice": "auto"}
        body |= {"parallel_tool_calls": True}
        return Answer((json.dumps(body).encode(),))

    return answer


def _message(said: str | list[Call]) -> dict[str, Any]:
    if isinstance(said, str):
        return {"role": "assistant", "content": said}
    return {"role": "assistant", "content": None, "tool_calls": [_call(*one) for one in said]}


def _call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def _events(head: dict[str, Any], said: str | list[Call]) -> Iterator[bytes]:
    """Stream a message in small pieces: a call's arguments come in two."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    if isinstance(said, str):
        deltas += [{"content": word} for word in said.split(" ")]
    else:
        for index, one in enumerate(said):
            call = _call(*one)
            text = call["function"].pop("arguments")
            deltas.append({"tool_calls": [{"index": index, **call}]})
            for part in (text[:3], text[3:]):
                piece = {"index": index, "function": {"arguments": part}}
                deltas.append({"tool_calls": [piece]})
    finish = "stop" if isinstance(said, str) else "tool_calls"
    choices = [({"index": 0, "delta": delta, "finish_reason": None}) for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    for choice in choices:
        chunk = {**head, "object": "chat.completion.chunk", "choices": [choice]}
        yield f"data: {json.dumps(chunk)}\n\n".encode()
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    last = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
    yield f"data: {json.dumps(last)}\n\n".encode()
    yield b"data: [DONE]\n\n"


def results_in(messages: list[dict[str, Any]]) -> dict[str, str]:
    """Give the tool results of a request by call id."""
    return {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}


@dataclass
class Bench:
    """Records an agent against a scripted model, and runs it again without one."""

    store: Path
    code: Path
    server: LoopbackServer

    @property
    def url(self) -> str:
        return f"{self.server.url}/v1"

    def record(self, agent: Callable[..., Any], **options: Any) -> tuple[str, Any]:
        """Record one run; give the session's id and what the agent returned."""
        where = {"store": self.store, "code": self.code}
        with redrive.record("agent", intercept=True, **where, **options) as session:
            value = agent(session)
            session.end("success")
        return session.id, value

    def rerun(self, agent: Callable[..., Any], session_id: str) -> Any:
        """Run it again; a request that reaches the model's server is an error of the test."""
        before = len(self.server.received)
        report = redrive.rerun(agent, session_id, store=self.store, code=self.code)
        assert len(self.server.received) == before
        return report

    def events(self, session_id: str) -> list[Event]:
        with contextlib.closing(open_store(self.store, create=False)) as store:
            session = open_session(store, session_id)
            return list(session.reader.read_events(range(len(session.index))))

    def results(self, session_id: str) -> list[tuple[str, str, Any]]:
        """Give the results of a session in order: (tool, seam, JSON)."""
        kept = []
        for event in self.events(session_id):
            if event.kind is Kind.TOOL_RESULT:
                payload: Any = payload_of(event)
                kept.append((payload.tool, payload.seam, json.loads(bytes(payload.result))))
        return kept

    def executed(self, session_id: str) -> list[Any]:
        """Give the arguments of each call that ran with others than the model gave."""
        events = [e for e in self.events(session_id) if e.kind is Kind.TOOL_RESULT]
        values = [payload_of(event).executed for event in events]
        return [self.decode(value) for value in values if isinstance(value, Raw)]

    def decode(self, data: Raw) -> Any:
        return json.loads(bytes(data))

    def statuses(self, session_id: str) -> dict[str, str]:
        """Audit each flow of a session: actor → `closed` or `open`."""
        actors = dict.fromkeys(event.actor for event in self.events(session_id))
        with contextlib.closing(open_store(self.store, create=False)) as store:
            session = open_session(store, session_id)
            audits = {a: audit_session(session, session.trajectory(a))[0] for a in actors}
            return {actor: report.status for actor, report in audits.items()}


@contextlib.contextmanager
def open_bench(folder: Path, code: Path) -> Iterator[Bench]:
    """Open one with a store of its own and a server whose script the test sets.

    Args:
        folder: where the store lies.
        code: the folder of the agents' code.
    """
    with run_server() as server:
        yield Bench(folder / "store.db", code, server)
