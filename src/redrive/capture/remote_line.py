"""The line to a recorder in another process, and who speaks on it.

Knows sockets, threads, tasks and processes. Must not know what is said.

Source: `redrive.capture.remote_wire`, "Places" and "Numbers".
"""

import asyncio
import http.client
import os
import secrets
import select
import socket
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar, Token
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import msgspec

from redrive.capture.remote_wire import MAX_MESSAGE_BYTES, Place, Told, parse_told
from redrive.errors import UsageError

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_ERROR_CHARS = 200
_OK = 200


class _Connection(http.client.HTTPConnection):
    """Is closed, without a warning, when its thread is gone.

    Not by `__del__`: of a reference cycle, the socket may be finalised before what holds it, and
    warns then. A finaliser keeps the socket out of the cycle.
    """

    opener: Callable[[], socket.socket] | None = None

    def connect(self) -> None:
        """Connect, by another way than an address where there is one."""
        if self.opener is None:
            super().connect()
        else:
            self.sock = self.opener()
            self.sock.settimeout(self.timeout)
        weakref.finalize(self, self.sock.close)


class Line:
    """Connections to the other side, one for each thread of each process.

    Args:
        url: of plain HTTP on loopback.
        timeout_s: of one exchange.
        connect: opens a connection where no address leads there.

    Raises:
        UsageError: the URL leads elsewhere.
    """

    def __init__(
        self, url: str, timeout_s: float, connect: Callable[[], socket.socket] | None = None
    ) -> None:
        self.url = url
        self._connect = connect
        self._host, self._port, self._path = _parse_url(url)
        self._timeout_s = timeout_s
        self._local = threading.local()
        self.is_lost = False

    def ask(self, route: str, body: bytes) -> Told:
        """Send a message and read its answer; once more where a kept connection had ended.

        Raises:
            OSError, HTTPException: nobody answers, or not in time.
            ValueError: what is answered is no answer.
        """
        kept = self._kept()
        if kept is not None:
            try:
                return self._exchange(kept, route, body)
            except (ConnectionError, http.client.RemoteDisconnected):
                kept.close()
        fresh = _Connection(self._host, self._port, timeout=self._timeout_s)
        fresh.opener = self._connect
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


class Whereabouts:
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


def _parse_url(url: str) -> tuple[str, int, str]:
    """Give host, port and path.

    Raises:
        UsageError: it is no URL of plain HTTP on loopback with a port.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port, path = parts.scheme, parts.hostname, parts.port, parts.path
    except ValueError:  # brackets that do not match, a port that is none
        scheme, host, port, path = "", None, None, ""
    if scheme != "http" or host not in _LOOPBACK or not port:
        raise UsageError(
            "a recorder in another process is reached over http on loopback, with a port",
            hint="such as http://127.0.0.1:8000/TOKEN/redrive",
        )
    return host, port, path.rstrip("/")
