"""Observes one connection between an MCP client and a server, and reports what it saw.

Is given every message of both directions and changes none. Knows the protocol's methods. Must not
know how messages travel, nor who keeps what is reported.

What it reports: the server and each listing (`mcp.server`, `mcp.listing`), each call of a tool with
how it ended, what else was asked for in either direction (`mcp.exchange`, `mcp.server_request`),
cancellations, changed listings, and what could not be read (`mcp.damage`). Whatever is on the
stream, the observer does not fail: a message that it does not understand is noted and counted.

Calls are told apart by their JSON-RPC id. Three things end a call later than its first answer: a
task (2025-11-25), whose result is asked for by itself; an answer that asks for input (2026-07-28),
after which the client calls again with what was asked for; and a cancellation, which ends it at
once, since whatever the server still answers is ignored by the client.

Source: Model Context Protocol 2024-11-05 to 2026-07-28; DESIGN.md §3.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Raw

from redrive import canonical
from redrive.audit.effects import Effect, parse_effect
from redrive.capture.json_members import NOTHING, find_members, is_true, text_in
from redrive.capture.mcp_calls import Call, Calls
from redrive.capture.mcp_listing import describe, describe_listing
from redrive.capture.mcp_messages import Id, Message, Shape, id_of, parse_messages
from redrive.capture.ports import CallObserver, ServedResult
from redrive.errors import StoreError

SEAM = "mcp"
MAX_DAMAGE_NOTES = 100
MAX_PENDING = 10_000
_MAX_METHODS = 100
_META_VERSION = "io.modelcontextprotocol/protocolVersion"
_META_SERVER = "io.modelcontextprotocol/serverInfo"
_META_CLIENT = "io.modelcontextprotocol/clientInfo"
# What is asked on the way to a call, and tells nothing of it.
_PLUMBING = frozenset(
    {"ping", "logging/setLevel", "tasks/get", "tasks/list", "tasks/cancel", "subscriptions/listen"}
)


class Side(StrEnum):
    """Who sent a message."""

    CLIENT = "client"
    SERVER = "server"


class Reporter(Protocol):
    """Is told what was seen; `RecordingBackend` and its remote form are such."""

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
        is_fail_closed: whether a `StoreError` of the reporter is raised, so that what could not be
            recorded is not passed on.
    """

    def __init__(
        self,
        server: str,
        reporter: Reporter,
        effects: Mapping[str, str] | None = None,
        *,
        is_fail_closed: bool = False,
    ) -> None:
        self._server = server
        self._reporter = reporter
        self._effects = effects or {}
        self._is_fail_closed = is_fail_closed
        self._lock = threading.RLock()
        self._calls = Calls()
        self._asked: dict[Side, dict[Id, Message]] = {side: {} for side in Side}
        self._cancelled: dict[Id | None, str] = {}
        self._known: dict[str, Any] = {}
        self._counts: dict[Side, Counter[str]] = {side: Counter() for side in Side}
        self._n_damaged = 0
        self._n_unreadable = 0
        self._is_closed = False

    def from_client(self, data: bytes, scope: str = "") -> tuple[Id, ...]:
        """Take one message that the client sent, before it is passed on; give its requests' ids.

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
            self._damage(Side(side), n_bytes, reason, b"")

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
                if self._n_unreadable:  # its answer may be among what could not be read
                    call.observer.returned_unknown("an answer that could not be read")
                else:
                    call.observer.raised("ConnectionClosed", reason)
            counts: dict[str, Any] = {
                f"from_{side.value}": dict(self._counts[side]) for side in Side
            }
            counts |= {"n_unanswered": len(pending), "n_unreadable": self._n_unreadable}
            self._note("closed", {"reason": reason} | counts)

    def _take(self, side: Side, data: bytes, scope: str) -> tuple[Id, ...]:
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
                self._damage(side, len(data), f"{type(error).__name__}: {error}", data)
        return tuple(requests)

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
        counted = message.method or message.shape.value
        counts = self._counts[side]
        counts[counted if counted in counts or len(counts) < _MAX_METHODS else "other"] += 1
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
            self._damage(side, 0, f"more than {MAX_PENDING} requests without an answer", b"")
            return
        if message.id in asked:
            self._damage(side, 0, "the id of a request that has no answer yet", b"")
            self._forget(side, message.id)
        asked[message.id] = message
        if side is Side.SERVER:
            if message.method != "ping":
                fields = {"method": message.method} | describe(message.body, "params")
                self._note("server_request", fields)
            return
        params = find_members(message.body)
        self._learn_meta(params)
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
            self._note("input", {"tool": tool} | describe(responses, "responses"))
            return
        arguments = params.get("arguments", Raw(b"{}"))
        effect = parse_effect(self._effects.get(tool))
        begun = self._reporter.begin_call(
            tool, effect.value, arguments, is_unsafe=effect is Effect.UNSAFE, seam=SEAM
        )
        if not isinstance(begun, ServedResult):
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
            self._damage(side, n_bytes, "an answer to nothing that was asked", b"")
        else:
            fields = describe(message.body, message.shape.value)
            self._note("late_answer", {"tool": tool} | fields)

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
            self._note("input_required", {"tool": call.tool} | describe(message.body, "result"))
        elif task is not None and "content" not in fields:
            self._calls.defer(call, task)
            self._note("task", {"tool": call.tool, "task": fields["task"]})
        else:
            self._finish(call)
            call.observer.returned(message.body, is_error=is_true(fields, "isError"))

    def _end_in_error(self, call: Call, body: Raw) -> None:
        """End a call that was refused; the whole error is noted, for it may hold more data."""
        fields = find_members(body)
        code = bytes(fields.get("code", b"?")).decode("utf-8", "replace")
        self._finish(call)
        self._note("error", {"tool": call.tool} | describe(body, "error"))
        call.observer.raised(f"JSON-RPC error {code}", text_in(fields, "message") or "")

    def _finish(self, call: Call) -> None:
        """Forget a call, and sum up its progress; what it ended with comes next."""
        self._calls.end(call)
        if call.n_progress:
            fields = {"tool": call.tool, "n": call.n_progress, "last": call.last_progress}
            self._note("progress", fields)

    def _see_other_answer(self, request: Message, message: Message) -> None:
        is_result = message.shape is Shape.RESULT
        if request.method in ("initialize", "server/discover") and is_result:
            self._learn_server(request, message.body)
        elif request.method == "tools/list" and is_result:
            self._learn_meta(find_members(message.body))
            cursor = text_in(find_members(request.body), "cursor")
            self._note("listing", describe_listing(message.body, cursor))
        elif request.method not in _PLUMBING:
            self._note_exchange("exchange", request, message)

    def _note_exchange(self, name: str, request: Message, message: Message) -> None:
        if request.method in _PLUMBING:
            return
        fields = {"method": request.method} | describe(request.body, "params")
        self._note(name, fields | describe(message.body, message.shape.value))

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
                self._note("listing_changed", {})
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
        self._note("cancelled", {"by": side.value, "reason": reason} | about)
        if call is not None:
            self._finish(call)
            self._cancelled[identity] = call.tool
            if len(self._cancelled) > MAX_PENDING:
                del self._cancelled[next(iter(self._cancelled))]
            call.observer.raised("Cancelled", reason)

    # --- who is there --------------------------------------------------------------------------
    def _learn_server(self, request: Message, result: Raw) -> None:
        asked, fields = find_members(request.body), find_members(result)
        told = _META_SERVER in (meta := find_members(fields.get("_meta")))
        known: dict[str, Any] = {
            "info": meta[_META_SERVER] if told else fields.get("serverInfo"),
            "protocol": text_in(fields, "protocolVersion"),
            "client": asked.get("clientInfo"),
            "capabilities": fields.get("capabilities"),
        }
        instructions = text_in(fields, "instructions")
        if instructions is not None:
            known["instructions_sha256"] = canonical.text_digest(instructions)
        self._learn({key: value for key, value in known.items() if value is not None})

    def _learn_meta(self, params: Mapping[str, Raw]) -> None:
        """Learn what messages of 2026-07-28 say of themselves, where there is no handshake."""
        meta = find_members(params.get("_meta"))
        version = text_in(meta, _META_VERSION)
        told = {"info": meta.get(_META_SERVER), "client": meta.get(_META_CLIENT)}
        known: dict[str, Any] = {key: raw for key, raw in told.items() if raw is not None}
        self._learn(known if version is None else known | {"protocol": version})

    def _learn(self, known: Mapping[str, Any]) -> None:
        news = {
            key: value for key, value in known.items() if not _same(self._known.get(key), value)
        }
        if news:
            self._known |= news
            self._note("server", self._known)

    # --- notes ---------------------------------------------------------------------------------
    def _damage(self, side: Side, n_bytes: int, reason: str, data: bytes) -> None:
        """Note what was passed on and not understood, at most a hundred times; count the rest."""
        self._n_damaged += 1
        self._n_unreadable += side is Side.SERVER and bool(n_bytes)
        if self._n_damaged <= MAX_DAMAGE_NOTES:
            fields: dict[str, Any] = {"from": side.value, "bytes": n_bytes, "reason": reason}
            if data:
                fields |= {"sha256": canonical.digest(data)}
            self._note("damage", fields)

    def _note(self, name: str, fields: Mapping[str, Any]) -> None:
        self._reporter.note(f"mcp.{name}", {"server": self._server} | dict(fields))


def _token_of(raw: Raw | None) -> Id | None:
    try:
        return None if raw is None else id_of(canonical.decode_value(bytes(raw)))
    except ValueError:
        return None


def _same(known: Any, value: Any) -> bool:
    if isinstance(known, Raw) and isinstance(value, Raw):
        return bytes(known) == bytes(value)
    return bool(known == value)
