"""The HTTP seam inside an agent: transports of `httpx2` and `httpx` that tell a backend.

Knows these two libraries, whose transports are alike, and the ports. Must not know
model APIs, stores or events. Bytes are seen below content decoding: what is observed is what came
over the wire, in the chunks that the agent gets.

Both libraries are imported on first use. The classes are built from the library that is asked for:
its client accepts only streams that derive from its own.

Source: DESIGN.md §3 "Evidence is bytes"; issue 4 §2.
"""

import asyncio
import functools
import importlib
from time import time_ns  # bound here: an agent's intercepted clock is not ours
from typing import Any, cast

from redrive.capture.ports import (
    Backend,
    ExchangeObserver,
    Outcome,
    SentRequest,
    ServedAnswer,
)
from redrive.capture.route import Route
from redrive.capture.streams import (
    AsyncTee,
    Exchange,
    ServedStream,
    SyncTee,
    headers_of,
    wait_for_cancelling,
)
from redrive.errors import UsageError

LIBRARIES = {"httpx2": "pip install 'redrive[http]'", "httpx": "pip install httpx"}
RECORDED_HEADER = "x-redrive-recorded"
_CANCELLED = asyncio.CancelledError.__name__


class _Transport:
    """What the sync and the async transport share."""

    def __init__(self, backend: Backend, inner: Any, route: Route, library: "_Library") -> None:
        self._backend = backend
        self._inner = inner
        self._route = route
        self._library = library

    def _send(self, request: Any) -> ExchangeObserver | ServedAnswer:
        """Tell the backend of a request whose body is read."""
        url = self._route.real_url(str(request.url))
        headers = headers_of(request.headers)
        return self._backend.sent(
            SentRequest(request.method, url, headers, request.content, time_ns())
        )

    def _outgoing(self, request: Any) -> Any:
        """Give what goes out: for our proxy a marked copy, as the agent may look at its own."""
        if not self._route.is_proxied(str(request.url)):
            return request
        return self._library.module.Request(
            request.method,
            request.url,
            headers=[*request.headers.raw, (RECORDED_HEADER.encode(), b"1")],
            stream=request.stream,
            extensions=request.extensions,
        )

    def _tee(self, response: Any, exchange: Exchange, tee: type) -> Any:
        """Tee the body of a live answer; one that an inner transport has read is taken at once."""
        module = self._library.module
        exchange.respond(response)
        if isinstance(response.stream, module.ByteStream):
            exchange.receive(b"".join(response.stream))
        elif not response.is_stream_consumed:
            response.stream = tee(response.stream, exchange, module.TimeoutException)
            return response
        else:
            exchange.receive(response.content)
        exchange.finish(Outcome.COMPLETE)
        return response

    def _serve(self, answer: ServedAnswer) -> Any:
        """Give a recorded answer, or raise the recorded failure; nothing touches the network."""
        error = self._library.recorded_error(answer)
        if error is not None and not answer.status:
            raise error
        headers = [(name.encode(), value.encode()) for name, value in answer.headers]
        is_cancelled = answer.message == _CANCELLED
        stream = self._library.served_stream(answer.body, error, is_cancelled=is_cancelled)
        return self._library.module.Response(answer.status, headers=headers, stream=stream)


class _SyncTransport(_Transport):
    """Sends, or serves, what a sync client asks for."""

    def __enter__(self) -> "_SyncTransport":
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._inner.__exit__(*error)

    def close(self) -> None:
        self._inner.close()

    def handle_request(self, request: Any) -> Any:
        request.read()
        observer = self._send(request)
        if isinstance(observer, ServedAnswer):
            return self._serve(observer)
        exchange = Exchange(observer, request.method)
        try:
            response = self._inner.handle_request(self._outgoing(request))
        except BaseException as error:
            exchange.fail(error)
            raise
        return self._tee(response, exchange, self._library.sync_tee)


class _AsyncTransport(_Transport):
    """Sends, or serves, what an async client asks for."""

    async def __aenter__(self) -> "_AsyncTransport":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._inner.__aexit__(*error)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: Any) -> Any:
        await request.aread()
        observer = self._send(request)
        if isinstance(observer, ServedAnswer):
            if not observer.status and observer.message == _CANCELLED:
                await wait_for_cancelling()
            return self._serve(observer)
        exchange = Exchange(observer, request.method)
        try:
            response = await self._inner.handle_async_request(self._outgoing(request))
        except BaseException as error:
            exchange.fail(error)
            raise
        return self._tee(response, exchange, self._library.async_tee)


class _Library:
    """One of the two libraries, with our classes as children of its own."""

    def __init__(self, name: str, module: Any) -> None:
        self.name = name
        self.module = module
        both = (module.SyncByteStream, module.AsyncByteStream)
        self.sync_tee: Any = type("RecordedStream", (SyncTee, both[0]), {})
        self.async_tee: Any = type("AsyncRecordedStream", (AsyncTee, both[1]), {})
        self.served_stream: Any = type("ServedStream", (ServedStream, *both), {})
        self.sync_transport: Any = type(
            "RecordingTransport", (_SyncTransport, module.BaseTransport), {}
        )
        self.async_transport: Any = type(
            "AsyncRecordingTransport", (_AsyncTransport, module.AsyncBaseTransport), {}
        )

    def recorded_error(self, answer: ServedAnswer) -> Exception | None:
        """Give the library's error by the recorded name; a body that was cut ends in one."""
        if answer.outcome is Outcome.COMPLETE:
            return None
        kind: Any = getattr(self.module, answer.message, None)
        if not (isinstance(kind, type) and issubclass(kind, self.module.TransportError)):
            kind = self.module.RemoteProtocolError
        return cast("Exception", kind(f"the recorded answer was {answer.outcome.value} here"))


@functools.cache
def _get_library(name: str) -> _Library:
    """Import a library.

    Raises:
        UsageError: it is none of `LIBRARIES`, or is not installed.
    """
    if name not in LIBRARIES:
        raise UsageError(f"no transport for {name!r}", hint=f"one of {', '.join(LIBRARIES)}")
    try:
        return _Library(name, importlib.import_module(name))
    except ImportError as error:
        raise UsageError(f"{name} is not installed", hint=LIBRARIES[name]) from error


def wrap_transport(
    backend: Backend, inner: Any = None, *, library: str = "httpx2", route: Route | None = None
) -> Any:
    """Make a transport that tells a backend what goes through it.

    Args:
        backend: is told of each request and answer, or serves them.
        inner: sends what goes out; absent, the library's own `HTTPTransport()`.
        library: `httpx2` or `httpx`.
        route: where our proxy is, if agent and transport are below one.

    Returns:
        A `BaseTransport` of the library. Requests are read into memory before they are sent.

    Raises:
        UsageError: unknown or missing library, or `inner` is no transport of it.
    """
    chosen = _get_library(library)
    inner = chosen.module.HTTPTransport() if inner is None else inner
    _require(inner, chosen.module.BaseTransport, library)
    return chosen.sync_transport(backend, inner, route or Route(), chosen)


def wrap_async_transport(
    backend: Backend, inner: Any = None, *, library: str = "httpx2", route: Route | None = None
) -> Any:
    """Make an async transport; see `wrap_transport`."""
    chosen = _get_library(library)
    inner = chosen.module.AsyncHTTPTransport() if inner is None else inner
    _require(inner, chosen.module.AsyncBaseTransport, library)
    return chosen.async_transport(backend, inner, route or Route(), chosen)


def _require(inner: Any, kind: type, library: str) -> None:
    if not isinstance(inner, kind):
        found = f"{type(inner).__module__}.{type(inner).__qualname__}"
        raise UsageError(f"{found} is no {library}.{kind.__name__}")


def open_client(
    backend: Backend, *, library: str = "httpx2", route: Route | None = None, **options: Any
) -> Any:
    """Open a client whose every transport tells a backend.

    Args:
        backend: is told of each request and answer, or serves them.
        library: `httpx2` or `httpx`.
        route: where our proxy is.
        options: of the library's `Client`. Redirects and limits default to what the OpenAI and
            Anthropic SDKs choose for a client of their own.

    Raises:
        UsageError: unknown or missing library.
    """
    chosen = _get_library(library)
    client = chosen.module.Client(**_sdk_options(chosen, options))
    wrap = functools.partial(wrap_transport, backend, library=library, route=route)
    return _instrument(client, wrap)


def open_async_client(
    backend: Backend, *, library: str = "httpx2", route: Route | None = None, **options: Any
) -> Any:
    """Open an async client; see `open_client`."""
    chosen = _get_library(library)
    client = chosen.module.AsyncClient(**_sdk_options(chosen, options))
    wrap = functools.partial(wrap_async_transport, backend, library=library, route=route)
    return _instrument(client, wrap)


def _sdk_options(library: _Library, options: dict[str, Any]) -> dict[str, Any]:
    limits = library.module.Limits(max_connections=1000, max_keepalive_connections=100)
    return {"follow_redirects": True, "limits": limits, **options}


def _instrument(client: Any, wrap: Any) -> Any:
    """Wrap the transports that a client made for itself.

    A client that is given a transport ignores `verify`, `proxy`, `http2`, `limits` and the proxies
    of the environment; so it is left to make its own, which only these attributes reach.
    """
    client._transport = wrap(client._transport)
    client._mounts = {
        pattern: None if transport is None else wrap(transport)
        for pattern, transport in client._mounts.items()
    }
    return client
