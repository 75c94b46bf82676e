"""Lets agents in other processes speak to a backend here: the served side of `remote`.

Knows the messages of `remote_wire` and the port `Backend`. Does not know who carries the messages:
an HTTP server gives each handler a body and sends back what it returns. Every message is hostile
input: what is wrong with one raises `UsageError`, which the server answers with 400.

The backend is called in the context of the place that a message comes from, so that it tells flows
as if the agent were here; of one place one message at a time, in threads of their own.

Source: issue 4 §5.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from msgspec import UNSET, Raw

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
    AskedEvent,
    AskedNote,
    AskedRead,
    AskedReport,
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
from redrive.capture.tool_recording import ReportedResult
from redrive.errors import RerunStopped, StoreError, UsageError
from redrive.record.event import Event, Kind, Payload, Source, payload_of

Handler = Callable[[bytes], Awaitable[bytes]]
MAX_PLACES = 65_536
MAX_OPEN = 4096
_MAX_THREADS = 32
_READS = (Kind.CLOCK_READ, Kind.PRNG_READ)
_EVENTS = (Kind.TOOL_PERMISSION, Kind.USER_MESSAGE, Kind.CONTEXT_REPLACED, Kind.POLICY_ACTION)
_T = TypeVar("_T")


def serve_remote(backend: Backend) -> Mapping[str, Handler]:
    """Make the handlers of the control routes: route → what answers a body.

    Called in the context that the agents' first places inherit, such as the one that the backend
    was made in. A handler raises `UsageError` for a message that is none, with one line that does
    not repeat it.
    """
    return open_remote(backend).handlers


def open_remote(backend: Backend, routes: Collection[str] = tuple(ROUTES)) -> "RemoteServing":
    """Serve some of the routes, and let others act where an agent's message comes from.

    Called in the context that the agents' first places inherit; see `serve_remote`.
    """
    return RemoteServing(_Server(backend), routes)


class RemoteServing:
    """A backend as agents in other processes reach it; made by `open_remote`.

    Attributes:
        handlers: route → what answers a body.
    """

    def __init__(self, server: "_Server", routes: Collection[str]) -> None:
        self._server = server
        self.handlers = {route: partial(server.handle, route) for route in routes}

    def run_at(self, place: Place, act: Callable[[], _T]) -> _T:
        """Act in the context of an agent's place, one at a time; blocks while another acts there.

        Raises:
            RuntimeError: the place is acting already, in this very thread.
        """
        return self._server.run_at(place, act)

    def close(self) -> None:
        """Give up the threads; what is going on in them ends by itself."""
        self._server.close()


@runtime_checkable
class _Notebook(Protocol):
    """What a recording backend takes beside the port; one that serves writes nothing."""

    def report_result(self, reported: ReportedResult, seam: str) -> None: ...

    def add_event(self, kind: Kind, payload: Payload, call_id: str | None = None) -> None: ...

    def note(
        self,
        name: str,
        fields: Mapping[str, Any],
        call_id: str | None = None,
        *,
        is_durable: bool = False,
    ) -> None: ...


class _Open(Generic[_T]):
    """What is going on, by handle."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._items: dict[int, _T] = {}
        self._next = 0
        self._lock = threading.Lock()

    def add(self, item: _T) -> int:
        """Keep an item; give its handle."""
        with self._lock:
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


@dataclass(eq=False, slots=True)
class _Here:
    """A place: its context, and what `enter_flow` gave if it began with that."""

    context: Context
    lock: threading.Lock = field(default_factory=threading.Lock)
    entered: object = None


class _Places:
    """The places, and the last answer to each thread; those not heard of for long are forgotten."""

    def __init__(self) -> None:
        self._base = copy_context()
        self._places: OrderedDict[str, _Here] = OrderedDict()
        self._last: OrderedDict[str, tuple[int, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, place: Place) -> _Here:
        """Give what is known of a place; a new one inherits the context of its parent."""
        with self._lock:
            here = self._places.get(place.id)
            if here is None:
                parent = self._places.get(place.parent or "")
                here = _Here((self._base if parent is None else parent.context).copy())
                here.context.run(act_as, place.thread, place.task)
            _remember(self._places, place.id, here, MAX_PLACES)
            return here

    def last_answer(self, asked: Asked) -> bytes | None:
        """Give the answer that a message had before, if this is the thread's last one again."""
        with self._lock:
            number, answer = self._last.get(asked.place.thread, (-1, b""))
        return answer if number == asked.number else None

    def keep_answer(self, asked: Asked, answer: bytes) -> None:
        """Remember how a message was answered."""
        with self._lock:
            _remember(self._last, asked.place.thread, (asked.number, answer), MAX_OPEN)


def _remember(table: "OrderedDict[str, _T]", key: str, item: _T, n_most: int) -> None:
    table[key] = item
    table.move_to_end(key)
    if len(table) > n_most:
        table.popitem(last=False)


class _Server:
    """One backend, and what agents have going on with it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._places = _Places()
        self._exchanges: _Open[ExchangeObserver] = _Open("exchange")
        self._calls: _Open[CallObserver] = _Open("call")
        self._executor = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="redrive-remote")
        self._answers: Mapping[str, Callable[[Any, _Here], Told]] = {
            "hello": self._hello,
            "sent": self._sent,
            "response": self._response,
            "read": self._read,
            "derive": self._derive,
            "call": self._call,
            "returned": self._returned,
            "enter": self._enter,
            "leave": self._leave,
            "report": self._report,
            "note": self._note,
            "event": self._event,
        }

    def run_at(self, place: Place, act: Callable[[], _T]) -> _T:
        """Act in a place."""
        here = self._places.find(place)
        with here.lock:
            return here.context.run(act)

    def close(self) -> None:
        """Give up the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def handle(self, route: str, body: bytes) -> bytes:
        """Answer one message of a route."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._answer, route, body)

    def _answer(self, route: str, body: bytes) -> bytes:
        asked: Asked = parse_asked(route, body)
        here = self._places.find(asked.place)
        with here.lock:
            answer = self._places.last_answer(asked)
            if answer is None:
                answer = dump_message(here.context.run(self._ask, route, asked, here))
                self._places.keep_answer(asked, answer)
        return answer

    def _ask(self, route: str, asked: Asked, here: _Here) -> Told:
        try:
            return self._answers[route](asked, here)
        except RerunStopped as stop:
            return Told(stopped=dump_text(str(stop)))
        except StoreError as error:
            return Told(refused=dump_text(error.message))

    def _hello(self, _: Asked, here: _Here) -> Told:  # noqa: ARG002 - as the others
        return Told(is_serving=self._backend.is_serving)

    def _sent(self, asked: AskedSent, _: _Here) -> Told:
        answer = self._backend.sent(asked.request)
        if isinstance(answer, ServedAnswer):
            return Told(answer=answer)
        return Told(handle=self._exchanges.add(answer))

    def _response(self, asked: AskedResponse, _: _Here) -> Told:
        message = parse_text(asked.message)
        observer = self._exchanges.get(asked.handle, is_last=asked.outcome is not None)
        if asked.status is not None:
            observer.responded(asked.status, asked.headers, asked.at_ns)
        if asked.data:
            observer.received(asked.data)
        if asked.outcome is not None:
            observer.finished(asked.outcome, asked.ended_ns, message)
        return Told()

    def _read(self, asked: AskedRead, _: _Here) -> Told:
        if asked.kind not in _READS:
            raise UsageError(f"{asked.kind} is no read")
        if asked.value is None and not self._backend.is_serving:
            raise UsageError("a read without its value")
        value = None if asked.value is None else _decode(asked.value)
        return _value(self._backend.read(asked.kind, parse_text(asked.name), lambda: value))

    def _derive(self, asked: AskedDerive, _: _Here) -> Told:
        version = None if asked.version is None else parse_text(asked.version)
        names = (parse_text(asked.name), parse_text(asked.function), version)
        value = UNSET if asked.value is None else _decode(asked.value)
        error = None if asked.error is None else _error_of(*map(parse_text, asked.error))

        def compute() -> Any:
            if error is not None:
                raise error
            return value

        inputs = _raw(asked.inputs)
        if error is not None and not self._backend.is_serving:
            raise UsageError("what was not computed is not recorded")
        return _value(self._backend.derive(*names, inputs, compute))

    def _call(self, asked: AskedCall, _: _Here) -> Told:
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

    def _returned(self, asked: AskedReturned, _: _Here) -> Told:
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

    def _enter(self, asked: AskedEnter, here: _Here) -> Told:
        here.entered = self._backend.enter_flow(parse_text(asked.name))
        return Told()

    def _leave(self, _: Asked, here: _Here) -> Told:
        token, here.entered = here.entered, None
        if token is not None:
            self._backend.leave_flow(token)
        return Told()

    def _report(self, asked: AskedReport, _: _Here) -> Told:
        reported = ReportedResult(
            None if asked.call_id is None else parse_text(asked.call_id),
            parse_text(asked.tool),
            _raw(asked.arguments),
            _raw(asked.result),
            asked.status,
        )
        for notebook in self._notebooks():
            notebook.report_result(reported, asked.seam)
        return Told()

    def _note(self, asked: AskedNote, _: _Here) -> Told:
        name, call_id = parse_text(asked.name), _call_id(asked)
        try:
            fields = {key: Raw(value) for key, value in canonical.split_object(asked.fields)}
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the fields of a note are none: {error}") from error
        for notebook in self._notebooks():
            notebook.note(name, fields, call_id, is_durable=asked.is_durable)
        return Told()

    def _event(self, asked: AskedEvent, _: _Here) -> Told:
        if asked.kind not in _EVENTS:
            raise UsageError(f"a seam makes no {asked.kind}")
        payload, call_id = _payload(asked), _call_id(asked)
        for notebook in self._notebooks():
            notebook.add_event(asked.kind, payload, call_id)
        return Told()

    def _notebooks(self) -> tuple[_Notebook, ...]:
        """Give the backend if it writes things down."""
        backend: object = self._backend
        return (backend,) if isinstance(backend, _Notebook) else ()


def _call_id(asked: AskedNote | AskedEvent) -> str | None:
    return None if asked.call_id is None else parse_text(asked.call_id)


def _payload(asked: AskedEvent) -> Payload:
    raw = _raw(asked.payload)
    event = Event("", "", 0, asked.kind, "", Source("", 0, 0), raw)
    try:
        payload: Payload = payload_of(event)
    except ValueError as error:
        raise UsageError(f"no payload of {asked.kind}: {str(error)[:200]}") from error
    return payload


def _error_of(kind: str, message: str) -> Exception:
    """Make an error that names itself as the agent's did."""
    name = kind.encode("utf-8", "replace").decode().replace("\0", "?")
    error: Exception = type(name, (Exception,), {})(message)
    return error


def _raw(data: bytes) -> Raw:
    """Take a JSON text of an agent, unchanged.

    Raises:
        UsageError: it is no JSON.
    """
    try:
        return canonical.take_json(data)
    except ValueError as error:
        raise UsageError(f"a value is no JSON: {error}") from error


def _decode(data: bytes) -> Any:
    try:
        return canonical.decode_value(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"a value is no JSON: {str(error)[:200]}") from error


def _value(value: Any) -> Told:
    return Told(value=None if value is UNSET else canonical.encode(value))
