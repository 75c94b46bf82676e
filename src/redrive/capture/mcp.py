"""Observes one connection between an MCP client and a server, and reports what it saw.

Is given every message of both directions and changes none. Knows the protocol's methods. Must not
know how messages travel, nor who keeps what is reported.

What it reports: the server and each listing (`mcp.server`, `mcp.listing`), each call of a tool with
how it ended, what else was asked for in either direction (`mcp.exchange`, `mcp.server_request`),
cancellations, changed listings, and what could not be read (`mcp.damage`). Whatever is on the
stream, the observer does not fail: a message that it does not understand is noted and counted.

A tool is reported as `SERVER__TOOL`, since two servers may have a tool of one name.

Calls are told apart by their JSON-RPC id. Three things end a call later than its first answer: a
task (2025-11-25), whose result is asked for by itself; an answer that asks for input (2026-07-28),
after which the client calls again with what was asked for; and a cancellation, which ends it at
once, since whatever the server still answers is ignored by the client.

Source: Model Context Protocol 2024-11-05 to 2026-07-28; DESIGN.md §3.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from msgspec import Raw

from redrive import canonical
from redrive.audit.effects import Effect, parse_effect
from redrive.capture.json_members import NOTHING, find_members, is_true, text_in
from redrive.capture.mcp_answers import (
    CANCELLED,
    CLOSED,
    NOT_SERVED,
    RPC_ERROR,
    answer_served,
    join,
    refuse,
)
from redrive.capture.mcp_calls import Call, Calls
from redrive.capture.mcp_listing import describe, describe_listing
from redrive.capture.mcp_messages import Id, Message, Shape, id_of, parse_messages
from redrive.capture.mcp_notes import Notes, Side
from redrive.capture.ports import CallObserver, ServedResult
from redrive.capture.tool_recording import MCP_SEPARATOR
from redrive.errors import StoreError

MAX_PENDING = 10_000
# What is asked on the way to a call, and tells nothing of it.
_PLUMBING = frozenset(
    {"ping", "logging/setLevel", "tasks/get", "tasks/list", "tasks/cancel", "subscriptions/listen"}
)


class Seen(NamedTuple):
    """What a message was.

    Attributes:
        requests: ids of the requests in it.
        answer: goes back to the client, and the message goes nowhere; empty: nothing goes back.
            Absent: the message is passed on.
    """

    requests: tuple[Id, ...]
    answer: bytes | None


class Reporter(Protocol):
    """Is told what was seen; `RecordingBackend` and its remote form are such."""

    @property
    def is_serving(self) -> bool:
        """Whether results are served, and no call may reach the server."""
        ...

    def begin_call(
        self, tool: str, effect: str, arguments: Raw, *, is_unsafe: bool, seam: str = "tool"
    ) -> CallObserver | ServedResult:
        """Take a tool's call before it runs; with `is_unsafe`, durable on return."""
        ...

    def note(self, name: str, fields: Mapping[str, Any], call_id: str | None = None) -> None:
        """Take a fact of a kind of its own."""
        ...


class McpObserver:
    """Observes one connection; safe to call from a thread per direction.

    Args:
        server: the name that the user gave the server.
        reporter: who is told.
        effects: tool → effect class, declared by the user; an undeclared tool is unsafe, whatever
            its hints say.
        seam: what results are said to be seen at; see `record.event.ToolResult`.
        is_fail_closed: whether a `StoreError` of the reporter is raised, so that what could not be
            recorded is not passed on.
    """

    def __init__(
        self,
        server: str,
        reporter: Reporter,
        effects: Mapping[str, str] | None = None,
        *,
        seam: str = "mcp",
        is_fail_closed: bool = False,
    ) -> None:
        self._reporter = reporter
        self._notes = Notes(server, reporter)
        self._effects = effects or {}
        self._seam = seam
        self._server = server
        self._is_fail_closed = is_fail_closed
        self._lock = threading.RLock()
        self._calls = Calls()
        self._asked: dict[Side, dict[Id, Message]] = {side: {} for side in Side}
        self._cancelled: dict[Id | None, str] = {}
        self._served: dict[Id, bytes] = {}
        self._is_closed = False

    @property
    def is_serving(self) -> bool:
        """Whether results are served, so that a message may have to be answered here."""
        return self._reporter.is_serving

    def from_client(self, data: bytes, scope: str = "") -> Seen:
        """Take one message that the client sent, before it is passed on.

        A call that may change something is durable on return. `scope` says where its ids hold: a
        session or an exchange of HTTP, or empty, the connection.

        Raises:
            StoreError: with `is_fail_closed`; the message must not be passed on.
        """
        return self._take(Side.CLIENT, data, scope)

    def from_server(self, data: bytes, scope: str = "") -> None:
        """Take one message that the server sent, before it is passed on.

        Before: the record then holds a result ahead of what the agent does with it.
        """
        self._take(Side.SERVER, data, scope)

    def skipped(self, side: str, n_bytes: int, reason: str) -> None:
        """Take that a message was passed on which is not observed, such as one that is too long."""
        with self._guarded():
            self._notes.damage(Side(side), n_bytes, reason, b"")

    def gave_up(self, identities: Iterable[Id], reason: str) -> None:
        """Take that the client wants no answer any more, which it said by leaving."""
        with self._guarded():
            for identity in identities:
                self._cancel(Side.CLIENT, identity, reason)

    def lost(self, identities: Iterable[Id], type_name: str, reason: str) -> None:
        """Take that no answer comes any more to requests; those that were answered stay so."""
        with self._guarded():
            for identity in identities:
                call = self._calls.take(identity)
                if self._asked[Side.CLIENT].pop(identity, None) is not None and call is not None:
                    self._finish(call)
                    call.observer.raised(type_name, reason)

    def lost_all(self, scope: str, type_name: str, reason: str) -> None:
        """Take that no answer comes any more to what was asked in a scope."""
        with self._guarded():
            identities = [asked for asked in self._asked[Side.CLIENT] if asked[2] == scope]
            self.lost(identities, type_name, reason)

    def closed(self, reason: str) -> None:
        """Take the end of the connection; what is unanswered ends with it. Idempotent."""
        with self._guarded():
            if self._is_closed:
                return
            self._is_closed = True
            pending = self._calls.drain()
            for call in pending:
                if self._notes.n_unreadable:  # its answer may be among what could not be read
                    call.observer.returned_unknown("an answer that could not be read")
                else:
                    call.observer.raised(CLOSED, reason)
            self._notes.close(reason, len(pending))

    def _take(self, side: Side, data: bytes, scope: str) -> Seen:
        requests: list[Id] = []
        with self._guarded():
            try:
                if data.strip() and not self._is_closed:
                    for message in parse_messages(data, scope):
                        if message.shape is Shape.REQUEST and message.id is not None:
                            requests.append(message.id)
                        self._see(side, message, len(data))
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - garbage is passed on, never fatal
                self._notes.damage(side, len(data), f"{type(error).__name__}: {error}", data)
        return self._answered(requests)

    def _answered(self, requests: list[Id]) -> Seen:
        """Give what takes the place of a message that is not passed on, since it was served."""
        served, self._served = self._served, {}
        if not served:
            return Seen(tuple(requests), None)
        missing = {i: refuse(i, NOT_SERVED) for i in requests if i not in served}
        answers = [answer for answer in (served | missing).values() if answer]
        return Seen(tuple(requests), join(answers))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Hold the lock, and keep what the reporter raises from whoever passes messages on."""
        try:
            with self._lock:
                yield
        except StoreError:
            if self._is_fail_closed:
                raise
        except Exception:  # noqa: BLE001 - a reporter that fails says so itself
            return

    def _see(self, side: Side, message: Message, n_bytes: int) -> None:
        self._notes.count(side, message.method or message.shape.value)
        match message.shape:
            case Shape.REQUEST:
                self._see_request(side, message)
            case Shape.NOTIFICATION:
                self._see_notification(side, message)
            case Shape.RESULT | Shape.ERROR:
                self._see_answer(side, message, n_bytes)

    # --- requests ------------------------------------------------------------------------------
    def _see_request(self, side: Side, message: Message) -> None:
        assert message.id is not None  # noqa: S101 - a request has one
        asked = self._asked[side]
        if max(len(asked), len(self._calls)) >= MAX_PENDING:
            self._notes.damage(side, 0, f"more than {MAX_PENDING} requests without an answer", b"")
            return
        if message.id in asked:
            self._notes.damage(side, 0, "the id of a request that has no answer yet", b"")
            self._forget(side, message.id)
        asked[message.id] = message
        if side is Side.SERVER:
            if message.method != "ping":
                fields = {"method": message.method} | describe(message.body, "params")
                self._notes.add("server_request", fields)
            return
        params = find_members(message.body)
        self._notes.learn_meta(params)
        if message.method == "tools/call":
            self._begin(message.id, params)
        elif message.method == "tasks/result":
            self._calls.await_task(text_in(params, "taskId"), message.id)

    def _forget(self, side: Side, identity: Id) -> None:
        call = self._calls.take(identity) if side is Side.CLIENT else None
        if call is not None:
            self._finish(call)
            call.observer.returned_unknown("an id that was used again")

    def _begin(self, identity: Id, params: Mapping[str, Raw]) -> None:
        tool = text_in(params, "name")
        if tool is None:
            raise ValueError("a call without the name of a tool")
        goes_on = "requestState" in params or "inputResponses" in params
        if goes_on and self._calls.resume(tool, text_in(params, "requestState"), identity):
            responses = params.get("inputResponses", NOTHING)
            self._notes.add("input", {"tool": tool} | describe(responses, "responses"))
            return
        arguments = params.get("arguments", Raw(b"{}"))
        effect = parse_effect(self._effects.get(tool))
        begun = self._reporter.begin_call(
            name_tool(self._server, tool),
            effect.value,
            arguments,
            is_unsafe=effect is Effect.UNSAFE,
            seam=self._seam,
        )
        if isinstance(begun, ServedResult):
            del self._asked[Side.CLIENT][identity]
            self._served[identity] = answer_served(identity, begun)
            return
        token = find_members(params.get("_meta")).get("progressToken")
        self._calls.begin(Call(tool, begun, _token_of(token)), identity)

    # --- answers -------------------------------------------------------------------------------
    def _see_answer(self, side: Side, message: Message, n_bytes: int) -> None:
        other = Side.SERVER if side is Side.CLIENT else Side.CLIENT
        request = None if message.id is None else self._asked[other].pop(message.id, None)
        if request is None or message.id is None:
            self._see_stray_answer(side, message, n_bytes)
        elif other is Side.SERVER:
            self._note_exchange("client_answer", request, message)
        elif request.method in ("tools/call", "tasks/result"):
            self._end(message.id, message)
        else:
            self._see_other_answer(request, message)

    def _see_stray_answer(self, side: Side, message: Message, n_bytes: int) -> None:
        tool = self._cancelled.pop(message.id, None) if side is Side.SERVER else None
        if tool is None:
            self._notes.damage(side, n_bytes, "an answer to nothing that was asked", b"")
        else:
            fields = describe(message.body, message.shape.value)
            self._notes.add("late_answer", {"tool": tool} | fields)

    def _end(self, identity: Id, message: Message) -> None:
        call = self._calls.take(identity)
        if call is None:
            return
        if message.shape is Shape.ERROR:
            self._end_in_error(call, message.body)
            return
        fields = find_members(message.body)
        task = text_in(find_members(fields.get("task")), "taskId")
        if text_in(fields, "resultType") == "input_required":
            self._calls.pause(call, text_in(fields, "requestState"))
            self._notes.add(
                "input_required", {"tool": call.tool} | describe(message.body, "result")
            )
        elif task is not None and "content" not in fields:
            self._calls.defer(call, task)
            self._notes.add("task", {"tool": call.tool, "task": fields["task"]})
        else:
            self._finish(call)
            call.observer.returned(message.body, is_error=is_true(fields, "isError"))

    def _end_in_error(self, call: Call, body: Raw) -> None:
        """End a call that was refused; the whole error is noted, for it may hold more data."""
        fields = find_members(body)
        code = bytes(fields.get("code", b"?")).decode("utf-8", "replace")
        self._finish(call)
        self._notes.add("error", {"tool": call.tool} | describe(body, "error"))
        call.observer.raised(f"{RPC_ERROR}{code}", text_in(fields, "message") or "")

    def _finish(self, call: Call) -> None:
        """Forget a call, and sum up its progress; what it ended with comes next."""
        self._calls.end(call)
        if call.n_progress:
            fields = {"tool": call.tool, "n": call.n_progress, "last": call.last_progress}
            self._notes.add("progress", fields)

    def _see_other_answer(self, request: Message, message: Message) -> None:
        is_result = message.shape is Shape.RESULT
        if request.method in ("initialize", "server/discover") and is_result:
            self._notes.learn_server(request.body, message.body)
        elif request.method == "tools/list" and is_result:
            self._notes.learn_meta(find_members(message.body))
            cursor = text_in(find_members(request.body), "cursor")
            self._notes.add("listing", describe_listing(message.body, cursor))
        elif request.method not in _PLUMBING:
            self._note_exchange("exchange", request, message)

    def _note_exchange(self, name: str, request: Message, message: Message) -> None:
        if request.method in _PLUMBING:
            return
        fields = {"method": request.method} | describe(request.body, "params")
        self._notes.add(name, fields | describe(message.body, message.shape.value))

    # --- notifications -------------------------------------------------------------------------
    def _see_notification(self, side: Side, message: Message) -> None:
        params = find_members(message.body)
        match message.method:
            case "notifications/cancelled" if "requestId" in params:
                identity = id_of(canonical.decode_value(bytes(params["requestId"])))
                self._cancel(side, identity, text_in(params, "reason") or "")
            case "notifications/progress" if side is Side.SERVER:
                self._calls.progressed(_token_of(params.get("progressToken")), message.body)
            case "notifications/tools/list_changed":
                self._notes.add("listing_changed", {})
            case _:
                return  # counted

    def _cancel(self, side: Side, identity: Id, reason: str) -> None:
        asked = self._asked[side]
        same = [other for other in asked if other[:2] == identity[:2]]
        if identity not in asked and len(same) == 1:  # asked in another exchange
            identity = same[0]
        request = asked.pop(identity, None)
        if request is None:
            return  # it was answered meanwhile, which is no fault of either
        call = self._calls.take(identity) if side is Side.CLIENT else None
        about = {"method": request.method} if call is None else {"tool": call.tool}
        self._notes.add("cancelled", {"by": side.value, "reason": reason} | about)
        if call is not None:
            self._finish(call)
            self._cancelled[identity] = call.tool
            if len(self._cancelled) > MAX_PENDING:
                del self._cancelled[next(iter(self._cancelled))]
            call.observer.raised(CANCELLED, reason)


def name_tool(server: str, tool: str) -> str:
    """Name a tool of a server as it is recorded: up to the first `__` the server, then the tool."""
    return f"{server.replace(MCP_SEPARATOR, '_')}{MCP_SEPARATOR}{tool}"


def _token_of(raw: Raw | None) -> Id | None:
    try:
        return None if raw is None else id_of(canonical.decode_value(bytes(raw)))
    except ValueError:
        return None
