"""Lets agents in other processes speak to a backend here: the served side of `remote`.

Knows the messages of `remote_wire` and the port `Backend`. Does not know who carries the messages:
an HTTP server gives each handler a body and sends back what it returns. Every message is hostile
input: what is wrong with one raises `UsageError`, which the server answers with 400.

The backend is called from one thread, one message after the other, each in the context of the place
that it comes from, so that it tells flows as if the agent were here.

Source: issue 4 §5.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Raw

from redrive import canonical
from redrive.capture.flows import act_as
from redrive.capture.ports import (
    Backend,
    CallObserver,
    ExchangeObserver,
    ServedAnswer,
    ServedResult,
)
from redrive.capture.remote_wire import (
    ROUTES,
    Asked,
    AskedCall,
    AskedDerive,
    AskedEnter,
    AskedRead,
    AskedResponse,
    AskedReturned,
    AskedSent,
    Place,
    Told,
    dump_message,
    dump_text,
    parse_asked,
    parse_text,
)
from redrive.errors import RedriveError, RerunStopped, StoreError, UsageError
from redrive.record.event import Kind

Handler = Callable[[bytes], Awaitable[bytes]]
MAX_PLACES = 65_536
MAX_OPEN = 4096
_READS = (Kind.CLOCK_READ, Kind.PRNG_READ)
_T = TypeVar("_T")
_OK, _BAD_REQUEST, _NOT_FOUND, _INTERNAL_ERROR = 200, 400, 404, 500


def serve_remote(backend: Backend) -> Mapping[str, Handler]:
    """Make the handlers of the control routes: route → what answers a body.

    Called in the context that the agents' first places inherit, such as the one that the backend
    was made in. A handler raises `UsageError` for a message that is none.
    """
    server = _Server(backend)
    return {route: partial(server.handle, route) for route in ROUTES}


async def answer_control(
    handlers: Mapping[str, Handler], route: str, body: bytes
) -> tuple[int, bytes]:
    """Answer one message: HTTP status and body; it never raises for what the message holds.

    The body of a refusal is one line of text that says what was wrong, without what was sent.
    """
    handler = handlers.get(route)
    if handler is None:
        return _NOT_FOUND, b"no such route\n"
    try:
        return _OK, await handler(body)
    except UsageError as error:
        return _BAD_REQUEST, f"{error.message}\n".encode("utf-8", "replace")
    except RedriveError as error:
        return _INTERNAL_ERROR, f"{error.message}\n".encode("utf-8", "replace")
    except Exception as error:  # noqa: BLE001 - a fault of ours must not end the server
        return _INTERNAL_ERROR, f"{type(error).__name__}\n".encode()


class _MustTakeError(BaseException):
    """The backend wants the real value, and only the agent can take it.

    Not an `Exception`: a backend that computes again would take that for the computation's own.
    """


def _refuse_taking() -> Any:
    raise _MustTakeError


class _Open(Generic[_T]):
    """What is going on, by handle."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._items: dict[int, _T] = {}
        self._next = 0

    def add(self, item: _T) -> int:
        """Keep an item; give its handle."""
        if len(self._items) >= MAX_OPEN:
            raise UsageError(f"more than {MAX_OPEN} {self._what}s are open")
        self._next += 1
        self._items[self._next] = item
        return self._next

    def get(self, handle: int, *, is_last: bool) -> _T:
        """Give an item; with `is_last` it is kept no longer."""
        try:
            return self._items.pop(handle) if is_last else self._items[handle]
        except KeyError:
            raise UsageError(f"no {self._what} {handle} is open") from None


class _Places:
    """The contexts of the places; those not heard of for long are forgotten first."""

    def __init__(self) -> None:
        self._base = copy_context()
        self._contexts: OrderedDict[str, Context] = OrderedDict()

    def context(self, place: Place) -> Context:
        """Give the context of a place; a new one inherits that of its parent."""
        context = self._contexts.get(place.id)
        if context is None:
            parent = self._base if place.parent is None else self._contexts.get(place.parent)
            context = (parent or self._base).copy()
            context.run(act_as, place.thread, place.task)
            self._contexts[place.id] = context
        self._contexts.move_to_end(place.id)
        if len(self._contexts) > MAX_PLACES:
            self._contexts.popitem(last=False)
        return context


class _Server:
    """One backend, and what agents have going on with it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._places = _Places()
        self._exchanges: _Open[ExchangeObserver] = _Open("exchange")
        self._calls: _Open[CallObserver] = _Open("call")
        self._entered: OrderedDict[str, object] = OrderedDict()
        self._last: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="redrive-remote")
        self._answers: Mapping[str, Callable[[Any], Told]] = {
            "hello": self._hello,
            "sent": self._sent,
            "response": self._response,
            "read": self._read,
            "derive": self._derive,
            "call": self._call,
            "returned": self._returned,
            "enter": self._enter,
            "leave": self._leave,
        }

    async def handle(self, route: str, body: bytes) -> bytes:
        """Answer one message of a route."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._answer, route, body)

    def _answer(self, route: str, body: bytes) -> bytes:
        asked: Asked = parse_asked(route, body)
        thread = asked.place.thread
        number, before = self._last.get(thread, (-1, b""))
        if asked.number == number:
            return before
        told = self._places.context(asked.place).run(self._ask, route, asked)
        answer = dump_message(told)
        self._last[thread] = (asked.number, answer)
        self._last.move_to_end(thread)
        if len(self._last) > MAX_OPEN:
            self._last.popitem(last=False)
        return answer

    def _ask(self, route: str, asked: Asked) -> Told:
        try:
            return self._answers[route](asked)
        except RerunStopped as stop:
            return Told(stopped=dump_text(str(stop)))
        except StoreError as error:
            return Told(refused=dump_text(error.message))

    def _hello(self, _: Asked) -> Told:
        return Told(is_serving=self._backend.is_serving)

    def _sent(self, asked: AskedSent) -> Told:
        answer = self._backend.sent(asked.request)
        if isinstance(answer, ServedAnswer):
            return Told(answer=answer)
        return Told(handle=self._exchanges.add(answer))

    def _response(self, asked: AskedResponse) -> Told:
        message = parse_text(asked.message)
        observer = self._exchanges.get(asked.handle, is_last=asked.outcome is not None)
        if asked.status is not None:
            observer.responded(asked.status, asked.headers, asked.at_ns)
        if asked.data:
            observer.received(asked.data)
        if asked.outcome is not None:
            observer.finished(asked.outcome, asked.ended_ns, message)
        return Told()

    def _read(self, asked: AskedRead) -> Told:
        if asked.kind not in _READS:
            raise UsageError(f"{asked.kind} is no read")
        name, take = parse_text(asked.name), _taker(asked.value)
        try:
            return _value(self._backend.read(asked.kind, name, take))
        except _MustTakeError:
            return Told(must_take=True)

    def _derive(self, asked: AskedDerive) -> Told:
        version = None if asked.version is None else parse_text(asked.version)
        names = (parse_text(asked.name), parse_text(asked.function), version)
        inputs, compute = _raw(asked.inputs), _taker(asked.value)
        try:
            return _value(self._backend.derive(*names, inputs, compute))
        except _MustTakeError:
            return Told(must_take=True)

    def _call(self, asked: AskedCall) -> Told:
        arguments, tool = _raw(asked.arguments), parse_text(asked.tool)
        answer = self._backend.begin_call(
            tool, asked.effect, arguments, is_unsafe=asked.is_unsafe, seam=asked.seam
        )
        if not isinstance(answer, ServedResult):
            return Told(handle=self._calls.add(answer))
        if answer.error is not None:
            kind, message = answer.error
            return Told(error=(dump_text(kind), dump_text(message)))
        return Told(result=bytes(answer.result) if isinstance(answer.result, Raw) else None)

    def _returned(self, asked: AskedReturned) -> Told:
        given = (asked.result, asked.unknown, asked.error)
        if sum(one is not None for one in given) != 1:
            raise UsageError("a call ends with one of result, unknown and error")
        result = None if asked.result is None else _raw(asked.result)
        texts = tuple(parse_text(text) for text in asked.error or (asked.unknown or b"",))
        observer = self._calls.get(asked.handle, is_last=True)
        if result is not None:
            observer.returned(result, is_error=asked.is_error)
        elif asked.error is not None:
            observer.raised(*texts)
        else:
            observer.returned_unknown(*texts)
        return Told()

    def _enter(self, asked: AskedEnter) -> Told:
        self._entered[asked.place.id] = self._backend.enter_flow(parse_text(asked.name))
        if len(self._entered) > MAX_PLACES:
            self._entered.popitem(last=False)
        return Told()

    def _leave(self, asked: Asked) -> Told:
        if asked.place.id in self._entered:
            self._backend.leave_flow(self._entered.pop(asked.place.id))
        return Told()


def _raw(data: bytes) -> Raw:
    """Take a JSON text of an agent, unchanged.

    Raises:
        UsageError: it is no JSON.
    """
    _decode(data)
    return Raw(data)


def _decode(data: bytes) -> Any:
    try:
        return canonical.decode_value(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"a value is no JSON: {str(error)[:200]}") from error


def _taker(value: bytes | None) -> Callable[[], Any]:
    if value is None:
        return _refuse_taking
    decoded = _decode(value)
    return lambda: decoded


def _value(value: Any) -> Told:
    return Told(value=canonical.encode(value))
