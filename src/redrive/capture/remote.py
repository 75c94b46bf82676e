"""A backend that lies in another process, reached over loopback HTTP.

For a Python agent in a sandbox, and for whatever reports to a recorder that runs already: proxies,
hooks, child processes. Knows the messages of `remote_wire`; `remote_serving` is the other side.
Speaks with the standard library's client alone, so that no HTTP library that is being recorded
records this. Must not know whether the other side records or serves, beyond that it says so.

Calls block for one exchange on loopback; never call it on the event loop that answers it.

Source: issue 4 §5.
"""

import asyncio
import http.client
import os
import secrets
import select
import sys
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar, Token
from itertools import count
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw

from redrive import canonical
from redrive.capture.ports import (
    CallObserver,
    ExchangeObserver,
    Headers,
    Outcome,
    SentRequest,
    ServedAnswer,
    ServedResult,
)
from redrive.capture.remote_wire import (
    MAX_MESSAGE_BYTES,
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
    parse_told,
)
from redrive.errors import RerunStopped, StoreError, UsageError
from redrive.record.event import Kind

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_FLUSH_BYTES = 256 * 1024
_ERROR_CHARS = 200
_OK = 200


class RemoteBackend:
    """Asks another process; see `redrive.capture.ports.Backend`.

    Args:
        url: where the other side answers, such as `http://127.0.0.1:8000/TOKEN/redrive`.
        fails_open: whether the agent goes on, unrecorded, when the other side is lost; else what it
            asked for raises `RerunStopped`, since a rerun must not become a real run.
        timeout_s: how long one exchange may take.
        on_fault: told once, with one line, when something could not be told.

    Raises:
        UsageError: the URL is not one of plain HTTP on loopback.
    """

    def __init__(
        self,
        url: str,
        *,
        fails_open: bool = False,
        timeout_s: float = 60.0,
        on_fault: Callable[[str], object] | None = None,
    ) -> None:
        self._line = _Line(url, timeout_s)
        self._whereabouts = _Whereabouts()
        self._fails_open = fails_open
        self._on_fault = on_fault or _tell_stderr
        self._is_serving: bool | None = None
        self.fault: str | None = None

    @property
    def is_serving(self) -> bool:
        """Whether what is recorded is served; asked of the other side once."""
        if self._is_serving is None:
            told = self._ask("hello", Asked)
            self._is_serving = told is not None and bool(told.is_serving)
        return self._is_serving

    def sent(self, request: SentRequest) -> ExchangeObserver | ServedAnswer:
        """Tell of a request before it goes out; see the port."""
        told = self._ask("sent", AskedSent, request=request)
        if told is not None and told.answer is not None:
            return told.answer
        return _RemoteExchange(self, None if told is None else told.handle)

    def read(self, kind: Kind, name: str, take: Callable[[], Any]) -> Any:
        """Take or be served a read; see the port."""
        return self._obtain("read", AskedRead, take, kind=kind, name=dump_text(name))

    def derive(
        self, name: str, function: str, version: str | None, inputs: Raw, compute: Callable[[], Any]
    ) -> Any:
        """Compute or be served a value; see the port."""
        fields = {
            "name": dump_text(name),
            "function": dump_text(function),
            "version": None if version is None else dump_text(version),
            "inputs": bytes(inputs),
        }
        return self._obtain("derive", AskedDerive, compute, **fields)

    def begin_call(
        self, tool: str, effect: str, arguments: Raw, *, is_unsafe: bool, seam: str = "tool"
    ) -> CallObserver | ServedResult:
        """Tell of a tool's call before it runs; see the port."""
        told = self._ask(
            "call",
            AskedCall,
            tool=dump_text(tool),
            effect=effect,
            arguments=bytes(arguments),
            is_unsafe=is_unsafe,
            seam=seam,
        )
        if told is None or told.handle is not None:
            return _RemoteCall(self, None if told is None else told.handle)
        if told.error is not None:
            kind, message = (text.decode("utf-8", "surrogatepass") for text in told.error)
            return ServedResult(error=(kind, message))
        return ServedResult(UNSET if told.result is None else Raw(told.result))

    def enter_flow(self, name: str) -> object:
        """Begin a named flow in this context; give what `leave_flow` takes."""
        token = self._whereabouts.enter()
        self._ask("enter", AskedEnter, name=dump_text(name))
        return token

    def leave_flow(self, token: object) -> None:
        """Go back to the flow before."""
        self._ask("leave", Asked)
        self._whereabouts.leave(token)

    def tell(self, route: str, message: type[Asked], **fields: Any) -> None:
        """Tell the other side something that is answered with nothing."""
        self._ask(route, message, **fields)

    def _obtain(
        self, route: str, message: type[Asked], take: Callable[[], Any], **fields: Any
    ) -> Any:
        """Be served a value, or take it and tell it."""
        if self.is_serving:
            told = self._ask(route, message, **fields)
            if told is not None and told.value is not None:
                return canonical.decode_value(told.value)
            if told is not None and not told.must_take:
                self._stop("the other side answered without a value")
        value = take()
        try:
            fields["value"] = canonical.encode(value)
        except (TypeError, ValueError) as error:
            self._note(f"not recorded: {route} gave what has no JSON form: {error}")
            return value
        self._ask(route, message, **fields)
        return value

    def _ask(self, route: str, message: type[Asked], **fields: Any) -> Told | None:
        """Ask the other side; `None` where it is lost and the agent goes on."""
        if self._line.is_lost and self._fails_open:
            return None
        try:
            place, number = self._whereabouts.here()
            asked = message(place=place, number=number, **fields)
            told = self._line.ask(route, dump_message(asked))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._line.is_lost = True
            what = f"the recorder is lost: {type(error).__name__}: {str(error)[:_ERROR_CHARS]}"
            if not self._fails_open:
                self._stop(what)
            self._note(what)
            return None
        if told.stopped is not None:
            self._stop(told.stopped.decode("utf-8", "surrogatepass"))
        if told.refused is not None:
            raise StoreError(told.refused.decode("utf-8", "surrogatepass"))
        return told

    def _stop(self, why: str) -> NoReturn:
        raise RerunStopped(why)

    def _note(self, what: str) -> None:
        if self.fault is None:
            self.fault = what
            self._on_fault(what)


def _tell_stderr(what: str) -> None:
    sys.stderr.write(f"redrive: {what}\n")


class _Connection(http.client.HTTPConnection):
    """Is closed, without a warning, when its thread is gone."""

    def __del__(self) -> None:
        self.close()


class _Line:
    """Connections to the other side, one for each thread of each process."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in _LOOPBACK or not parts.port:
            raise UsageError(
                "a recorder in another process is reached over http on loopback, with a port",
                hint="such as http://127.0.0.1:8000/TOKEN/redrive",
            )
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")
        self._timeout_s = timeout_s
        self._local = threading.local()
        self.is_lost = False

    def ask(self, route: str, body: bytes) -> Told:
        """Send a message and read its answer; once more where a kept connection had ended."""
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(body)} bytes is too large")
        kept = self._kept()
        if kept is not None:
            try:
                return self._exchange(kept, route, body)
            except (ConnectionError, http.client.RemoteDisconnected):
                kept.close()
        fresh = _Connection(self._host, self._port, timeout=self._timeout_s)
        self._local.connection, self._local.pid = fresh, os.getpid()
        return self._exchange(fresh, route, body)

    def _kept(self) -> http.client.HTTPConnection | None:
        """Give this thread's connection if it is still open, and not a parent process's."""
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if kept is None or kept.sock is None or self._local.pid != os.getpid():
            return None
        # Nothing is to be read between two exchanges but the end.
        if select.select([kept.sock], [], [], 0)[0]:
            kept.close()
            return None
        return kept

    def _exchange(self, connection: http.client.HTTPConnection, route: str, body: bytes) -> Told:
        try:
            connection.request(
                "POST", f"{self._path}/{route}", body, {"content-type": "application/json"}
            )
            response = connection.getresponse()
            data = response.read(MAX_MESSAGE_BYTES)
            if response.status != _OK or not response.isclosed():
                words = " ".join(data[:_ERROR_CHARS].decode("utf-8", "replace").split())
                raise ValueError(f"status {response.status}: {words}")
            return parse_told(data)
        except BaseException:
            connection.close()
            raise


class _Here(msgspec.Struct, frozen=True):
    """The place of a context, and who acts there."""

    place: Place
    owner: tuple[str, str | None]


class _Whereabouts:
    """Tells the place of whoever calls; see `remote_wire`, "Places"."""

    def __init__(self) -> None:
        self._nonce = secrets.token_hex(8)
        self._local = threading.local()
        self._threads, self._ids, self._task_names = count(1), count(1), count(1)
        self._tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()
        self._current: ContextVar[_Here | None] = ContextVar("redrive_remote_place", default=None)

    def here(self) -> tuple[Place, int]:
        """Give the place of this context, and the number of this message."""
        found, owner = self._current.get(), self._owner()
        if found is None or found.owner != owner:
            found = self._begin(owner, found)
            self._current.set(found)
        self._local.number += 1
        return found.place, self._local.number

    def enter(self) -> Token[_Here | None]:
        """Begin a place in this one."""
        return self._current.set(self._begin(self._owner(), self._current.get()))

    def leave(self, token: object) -> None:
        """Go back to the place before `enter`; in another context there is nothing to go back."""
        if isinstance(token, Token):
            try:
                self._current.reset(token)
            except ValueError:
                return

    def _begin(self, owner: tuple[str, str | None], parent: _Here | None) -> _Here:
        name = f"{os.getpid()}.{self._nonce}.{next(self._ids)}"
        above = None if parent is None else parent.place.id
        return _Here(Place(id=name, parent=above, thread=owner[0], task=owner[1]), owner)

    def _owner(self) -> tuple[str, str | None]:
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            local.pid, local.number = os.getpid(), 0
            local.thread = f"{local.pid}.{self._nonce}.{next(self._threads)}"
        try:
            task = asyncio.current_task()
        except RuntimeError:  # no event loop runs in this thread
            task = None
        if task is None:
            return local.thread, None
        return local.thread, self._tasks.setdefault(task, f"{next(self._task_names)}")


class _RemoteExchange:
    """Tells what came back for one request, in pieces of some size; see `ExchangeObserver`."""

    def __init__(self, backend: RemoteBackend, handle: int | None) -> None:
        self._backend = backend
        self._handle = handle
        self._data = bytearray()
        self._head: dict[str, Any] = {}

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:
        """Take status and headers of the answer."""
        self._head = {"status": status, "headers": headers, "at_ns": at_ns}

    def received(self, data: bytes) -> None:
        """Take the next bytes of the answer's body."""
        if self._handle is not None:
            self._data += data
            if len(self._data) >= _FLUSH_BYTES:
                self._flush()

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:
        """Take the end."""
        self._flush(outcome=outcome, ended_ns=at_ns, message=dump_text(message))
        self._handle = None

    def _flush(self, **end: Any) -> None:
        if self._handle is None:
            return
        head, self._head = self._head, {}
        data, self._data = bytes(self._data), bytearray()
        self._backend.tell("response", AskedResponse, handle=self._handle, data=data, **head, **end)


class _RemoteCall:
    """Tells how a tool ended; see `CallObserver`."""

    def __init__(self, backend: RemoteBackend, handle: int | None) -> None:
        self._backend = backend
        self._handle = handle

    def returned(self, result: Raw, *, is_error: bool = False) -> None:
        """Take the result as JSON."""
        self._tell(result=bytes(result), is_error=is_error)

    def returned_unknown(self, type_name: str) -> None:
        """Take that the result has no JSON form."""
        self._tell(unknown=dump_text(type_name))

    def raised(self, type_name: str, message: str) -> None:
        """Take the error that the tool ended with."""
        self._tell(error=(dump_text(type_name), dump_text(message)))

    def _tell(self, **how: Any) -> None:
        if self._handle is not None:
            self._backend.tell("returned", AskedReturned, handle=self._handle, **how)
