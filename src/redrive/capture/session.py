"""`AgentSession`: the seams of one agent in one hand, while it is recorded and when it is rerun.

Knows which seams there are. Must not know whether a backend records or serves, so that an agent
cannot tell a rerun from its first run.

Source: issue 4 §2, §5.
"""

import functools
import hashlib
import inspect
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, MappingProxyType, TracebackType
from typing import Any, TypeVar, overload

from msgspec import UNSET, Raw

from redrive import canonical
from redrive.capture import dice, tools, transports
from redrive.capture.clock import Clock
from redrive.capture.dice import Dice
from redrive.capture.json_values import comparable
from redrive.capture.ports import Backend
from redrive.capture.route import Route, parse_route
from redrive.capture.tools import Codec, RecordedToolError
from redrive.errors import UsageError

__all__ = ["AgentSession", "FlowScope", "RecordedToolError"]

_F = TypeVar("_F", bound=Callable[..., Any])
_VERSION_CHARS = 16


class AgentSession:
    """What an agent's code uses of redrive. Safe to use from any thread and asyncio task.

    Args:
        backend: records what happens, or serves what was recorded.
        session_id: the id that the session has in the store.
        route: where our recording proxy is; absent, as the environment says.
        on_end: is told the status given to `end`.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        session_id: str = "",
        route: Route | None = None,
        on_end: Callable[[str], None] | None = None,
    ) -> None:
        self._backend = backend
        self._id = session_id
        self._route = parse_route(os.environ) if route is None else route
        self._on_end = on_end
        self._tools: dict[str, str] = {}
        self._clock = Clock(backend)
        self._dice = Dice(backend)

    @property
    def id(self) -> str:
        """The id that the session has in the store."""
        return self._id

    @property
    def tools(self) -> Mapping[str, str]:
        """The tools declared so far: name → effect."""
        return MappingProxyType(self._tools)

    @property
    def clock(self) -> Clock:
        """A clock whose reads are in the record: `session.clock.time()`, `.now(tz)`."""
        return self._clock

    @property
    def random(self) -> Dice:
        """Dice whose draws are in the record: a `random.Random` of the session's own."""
        return self._dice

    def uuid4(self) -> uuid.UUID:
        """Draw a random UUID."""
        return dice.uuid4(self._backend)

    def token_bytes(self, nbytes: int | None = None) -> bytes:
        """Draw random bytes, as `secrets.token_bytes`."""
        return dice.token_bytes(self._backend, nbytes)

    def token_hex(self, nbytes: int | None = None) -> str:
        """Draw random bytes as hexadecimal text, as `secrets.token_hex`."""
        return dice.token_hex(self._backend, nbytes)

    def token_urlsafe(self, nbytes: int | None = None) -> str:
        """Draw random bytes as URL-safe text, as `secrets.token_urlsafe`."""
        return dice.token_urlsafe(self._backend, nbytes)

    def randbelow(self, exclusive_upper_bound: int) -> int:
        """Draw an integer from 0 up, below a bound, as `secrets.randbelow`."""
        return dice.randbelow(self._backend, exclusive_upper_bound)

    def urandom(self, size: int) -> bytes:
        """Draw random bytes of the operating system, as `os.urandom`."""
        return dice.urandom(self._backend, size)

    def transport(self, inner: Any = None, *, library: str = "httpx2") -> Any:
        """Make a transport for a client of one's own; see `http_client` for a whole client.

        Args:
            inner: sends what goes out; absent, the library's own `HTTPTransport()`. A client that
                is given a transport reads no proxies from the environment.
            library: `httpx2`, which the OpenAI and Anthropic SDKs use, or `httpx`.

        Raises:
            UsageError: the library is unknown or missing, or `inner` is no transport of it.
        """
        return transports.wrap_transport(self._backend, inner, library=library, route=self._route)

    def async_transport(self, inner: Any = None, *, library: str = "httpx2") -> Any:
        """Make an async transport; see `transport`."""
        return transports.wrap_async_transport(
            self._backend, inner, library=library, route=self._route
        )

    def http_client(self, *, library: str = "httpx2", **options: Any) -> Any:
        """Open a client for an SDK: `OpenAI(http_client=session.http_client())`.

        Args:
            library: `httpx2` or `httpx`.
            options: of the library's `Client`. Redirects and limits default to those of the SDKs'
                own clients; proxies of the environment are used as theirs are.

        Raises:
            UsageError: the library is unknown or missing.
        """
        return transports.open_client(self._backend, library=library, route=self._route, **options)

    def async_http_client(self, *, library: str = "httpx2", **options: Any) -> Any:
        """Open an async client for an SDK; see `http_client`."""
        return transports.open_async_client(
            self._backend, library=library, route=self._route, **options
        )

    @overload
    def tool(self, fn: _F, /) -> _F: ...

    @overload
    def tool(
        self,
        fn: None = None,
        /,
        *,
        effect: str | None = None,
        name: str | None = None,
        encode: Codec | None = None,
        decode: Codec | None = None,
        raises: Sequence[type[Exception]] = (),
        omit: Sequence[str] = (),
    ) -> Callable[[_F], _F]: ...

    def tool(self, fn: Any = None, /, **options: Any) -> Any:
        """Make a function, sync or async, a tool: `@session.tool(effect="read_only")`.

        Each call is told before it runs, and its result or error after. What the caller sees does
        not change; in a rerun it gets the recorded result and nothing runs.

        Args:
            fn: the function, where the decorator stands bare.
            options: `effect` is `pure`, `read_only`, `idempotent` or `unsafe`; undeclared counts as
                unsafe. `name` as the model calls it. `encode` and `decode` turn a result that is
                not plain JSON into JSON and back. `raises` names error classes that a rerun may
                raise again. `omit` names parameters that are no arguments of the model, such as
                `ctx` or `self`.

        Raises:
            UsageError: a generator, a class, an unknown effect, or half a codec.
        """
        if fn is None:
            return lambda fn: self._wrap(fn, **options)
        return self._wrap(fn, **options)

    def _wrap(
        self,
        fn: Any,
        *,
        effect: str | None = None,
        name: str | None = None,
        encode: Codec | None = None,
        decode: Codec | None = None,
        raises: Sequence[type[Exception]] = (),
        omit: Sequence[str] = (),
    ) -> Any:
        spec = tools.declare(
            fn,
            effect=effect,
            name=name,
            encode=encode,
            decode=decode,
            raises=tuple(raises),
            omit=tuple(omit),
        )
        self._tools[spec.name] = spec.effect.value
        self._backend.declare_tool(spec.name, spec.effect.value)
        return tools.wrap(self._backend, fn, spec)

    def derive(
        self,
        fn: Callable[..., Any],
        inputs: Iterable[Any],
        *,
        name: str | None = None,
        version: str | None = None,
        encode: Codec | None = None,
        decode: Codec | None = None,
    ) -> Any:
        """Compute a value from ordered inputs, such as a summary that goes into a prompt.

        Args:
            fn: a plain function; called with the inputs in their order.
            inputs: a list or tuple, whose order is part of the record. Anything else, such as a
                set, has no order that could be recorded: the record then lacks the inputs.
            name: of the value; absent, the function's.
            version: of the function; absent, the first 16 hex digits of the sha256 of its source.
            encode: turns a value that is not plain JSON into JSON; comes with `decode`.
            decode: turns that JSON into the value again, in a rerun.

        Returns:
            What `fn` returned; in a rerun what is recorded.

        Raises:
            UsageError: `fn` is async, a generator or no function, or half a codec is given.
        """
        declared = tools.declare(
            fn, effect=None, name=name, encode=encode, decode=decode, raises=(), omit=()
        )
        if tools.is_async(fn):
            raise UsageError(
                f"derive: {declared.name} is async", hint="await it, and derive from what it gave"
            )
        ordered = list(inputs)
        has_order = isinstance(inputs, Sequence)
        live: list[tuple[Any, Any]] = []

        def compute() -> Any:
            value = fn(*ordered)
            form = tools.encode_exact(value, encode)
            told = canonical.decode_value(bytes(form)) if isinstance(form, Raw) else UNSET
            live.append((told, value))
            return told

        told = self._backend.derive(
            declared.name,
            _qualified_name(fn),
            version or _source_digest(fn),
            Raw(canonical.encode([comparable(v) for v in ordered] if has_order else None)),
            compute,
        )
        for known, value in live:
            if told is known:  # computed just now: the agent gets the very object
                return value
        return told if decode is None else decode(told)

    def flow(self, name: str) -> "FlowScope":
        """Name a flow of execution of its own, such as a sub-agent, for a `with` block.

        Args:
            name: not empty; the same name again is the same flow.
        """
        if not name:
            raise UsageError("a flow needs a name")
        return FlowScope(self._backend, name)

    def end(self, status: str) -> None:
        """Say how the run ended: `success`, `failure`, or a word of one's own."""
        if self._on_end is not None:
            self._on_end(status)


class FlowScope:
    """A flow of execution as a context manager, sync and async; it may be entered once at a time.

    The flow holds for the context that entered it: this thread or asyncio task and the tasks that
    are started inside. A thread of one's own starts outside every flow and enters one itself.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend = backend
        self._name = name
        self._token: object = None

    def __enter__(self) -> None:
        self._token = self._backend.enter_flow(self._name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        token, self._token = self._token, None
        self._backend.leave_flow(token)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, trace)


def _qualified_name(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    kind = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{kind.__module__}.{kind.__qualname__}"


def _source_digest(fn: Callable[..., Any]) -> str | None:
    """Give a version to a function: its source's; `None` where there is no source to read."""
    return _code_digest(getattr(inspect.unwrap(fn), "__code__", None))


@functools.lru_cache(maxsize=1024)
def _code_digest(code: CodeType | None) -> str | None:
    if code is None:
        return None
    try:
        source = inspect.getsource(code)
    except Exception:  # noqa: BLE001 - no file, or one that changed under way; no matter which
        return None
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:_VERSION_CHARS]
