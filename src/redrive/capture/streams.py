"""Bodies of answers: live ones, handed on byte by byte while an observer looks, and recorded ones.

Knows how an answer can end, and the ports. Must not know which HTTP library the streams belong to:
`transports` makes them children of its stream classes.
"""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from time import time_ns  # bound here: an agent's intercepted clock is not ours
from typing import Any

from redrive.capture.ports import ExchangeObserver, Headers, Outcome

# More than a last event `data: [DONE]` with its line ends needs.
_TAIL_BYTES = 32
_LAST_EVENT = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\][\r\n]+\Z")


class Exchange:
    """One live exchange: counts what came, and tells the observer its end exactly once."""

    def __init__(self, observer: ExchangeObserver, method: str) -> None:
        self._observer = observer
        self._method = method
        self._lock = threading.Lock()  # a stream may be closed by another thread than its reader
        self._is_finished = False
        self._n_received = 0
        self._n_expected: int | None = None
        self._tail: bytes | None = None

    def respond(self, response: Any) -> None:
        """Take a response of the library, before its body is read."""
        headers = headers_of(response.headers)
        named = dict(headers)
        length = named.get("content-length", "")
        if self._method == "HEAD" or response.status_code in (204, 304):
            self._n_expected = 0
        elif length.isascii() and length.isdigit():
            self._n_expected = int(length)
        if named.get("content-type", "").startswith("text/event-stream"):
            self._tail = b""
        self._observer.responded(response.status_code, headers, time_ns())

    def receive(self, chunk: bytes) -> None:
        """Take the next bytes, before the agent gets them."""
        self._n_received += len(chunk)
        if self._tail is not None:
            self._tail = (self._tail + chunk[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        self._observer.received(chunk)

    def finish(self, outcome: Outcome, message: str = "") -> None:
        """Take the end; only the first counts."""
        with self._lock:
            if self._is_finished:
                return
            self._is_finished = True
        self._observer.finished(outcome, time_ns(), message)

    def close(self) -> None:
        """Take that the agent closed the answer, at its end or before.

        Nothing more was to come if the announced length is there, or after `data: [DONE]`, where
        the OpenAI SDK closes without reading on to the end of the transfer.
        """
        is_done = self._tail is not None and _LAST_EVENT.search(self._tail) is not None
        is_whole = is_done or self._n_received == self._n_expected
        self.finish(Outcome.COMPLETE if is_whole else Outcome.CANCELLED)

    def fail(self, error: BaseException) -> None:
        """Take that no answer came. Of the error its class is named: texts may hold credentials."""
        is_failure = isinstance(error, Exception)
        self.finish(Outcome.FAILED if is_failure else Outcome.CANCELLED, type(error).__name__)

    def stop(self, error: BaseException, timeout: type[Exception]) -> None:
        """Take what ended the answer's stream: the agent (its time-out, its cancelling) or not."""
        if isinstance(error, GeneratorExit):
            self.close()
            return
        is_cut = isinstance(error, Exception) and not isinstance(error, timeout)
        self.finish(Outcome.CUT if is_cut else Outcome.CANCELLED, type(error).__name__)


def headers_of(headers: Any) -> Headers:
    """Read the library's headers: in the order sent, names in lower case."""
    return tuple((name.lower(), value) for name, value in headers.multi_items())


class SyncTee:
    """The body of a live answer, handed on chunk by chunk after the observer saw it."""

    def __init__(self, stream: Any, exchange: Exchange, timeout: type[Exception]) -> None:
        self._stream = stream
        self._exchange = exchange
        self._timeout = timeout

    def __iter__(self) -> Iterator[bytes]:
        try:
            for chunk in self._stream:
                self._exchange.receive(chunk)
                yield chunk
        except BaseException as error:
            self._exchange.stop(error, self._timeout)
            raise
        self._exchange.finish(Outcome.COMPLETE)

    def close(self) -> None:
        """Close the stream; the end is told first, as closing may itself fail."""
        self._exchange.close()
        self._stream.close()


class AsyncTee:
    """As `SyncTee`, for an async client."""

    def __init__(self, stream: Any, exchange: Exchange, timeout: type[Exception]) -> None:
        self._stream = stream
        self._exchange = exchange
        self._timeout = timeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._stream:
                self._exchange.receive(chunk)
                yield chunk
        except BaseException as error:
            self._exchange.stop(error, self._timeout)
            raise
        self._exchange.finish(Outcome.COMPLETE)

    async def aclose(self) -> None:
        """Close the stream; the end is told first, as closing may be cancelled."""
        self._exchange.close()
        await self._stream.aclose()


class ServedStream:
    """A recorded body; behind its last byte comes the error that ended the recorded one, if any."""

    def __init__(self, body: bytes, error: Exception | None, *, is_cancelled: bool) -> None:
        self._body = body
        self._error = error
        self._is_cancelled = is_cancelled

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body
        if self._is_cancelled:
            await wait_for_cancelling()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Nothing is held."""

    async def aclose(self) -> None:
        """Nothing is held."""


async def wait_for_cancelling() -> None:
    """Wait as the recorded await did: until the agent's own time-out or task group ends it."""
    await asyncio.get_running_loop().create_future()
