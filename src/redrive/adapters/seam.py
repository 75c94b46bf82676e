"""One call of a library's own tool, put at the session's tool seam.

Knows the session. Must not know any library: how a result looks to the model is told by a `Shown`.

A library hands a tool's result to the model as text that it makes itself. So a result need not come
back as the very object: what the library makes the same text of will do. `Shown` says what that is;
a value of which this cannot be said is lacking in the record, by the name of its type.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from redrive import canonical
from redrive.capture.session import AgentSession
from redrive.errors import UsageError

Effects = Mapping[str, str]
"""Tool name → `pure`, `read_only`, `idempotent` or `unsafe`; one without counts as unsafe."""


def _same(value: Any) -> Any:
    return value


class Shown(msgspec.Struct, frozen=True):
    """How results of a library's tools are written down.

    Attributes:
        encode: gives plain JSON; what it raises means that the value has none.
        decode: gives what the library treats as it treated the value.
        raises: error classes of the library that a rerun may raise again.
    """

    encode: Callable[[Any], Any] = _same
    decode: Callable[[Any], Any] = _same
    raises: Sequence[type[Exception]] = ()


def call(
    session: AgentSession,
    name: str,
    arguments: Mapping[str, Any],
    run: Callable[[], Any],
    *,
    effect: str | None = None,
    shown: Shown,
) -> Any:
    """Call a tool, or get what is recorded of it.

    Args:
        session: records or serves.
        name: as the model calls it.
        arguments: as the model gave them: defaults that a library fills in would make two calls
            of one answer hard to tell apart.
        run: runs the tool. What it asks of a model meanwhile is a sub-agent's, and a flow of its
            own, named as the tool.
        effect: see `AgentSession.tool`.
        shown: how the result is written down.
    """

    def tool(**_: Any) -> Any:
        with session.flow(name):
            return run()

    return _wrap(session, tool, name, effect, shown)(**arguments)


async def call_async(
    session: AgentSession,
    name: str,
    arguments: Mapping[str, Any],
    run: Callable[[], Awaitable[Any]],
    *,
    effect: str | None = None,
    shown: Shown,
) -> Any:
    """Call an async tool; see `call`."""

    async def tool(**_: Any) -> Any:
        async with session.flow(name):
            return await run()

    return await _wrap(session, tool, name, effect, shown)(**arguments)


def tell(
    session: AgentSession,
    name: str,
    arguments: Mapping[str, Any],
    result: Any = None,
    *,
    error: Exception | None = None,
) -> None:
    """Tell what a library answers a call with by itself: a hand-off, a refusal of arguments.

    It computes that in a rerun again, so what is served is not used, but that it is asked for
    holds the call's place.
    """

    def answer() -> Any:
        if error is not None:
            raise error
        return result

    traceback = None if error is None else error.__traceback__
    with suppress(Exception):  # the error that was told, or what a rerun makes of it
        call(session, name, arguments, answer, effect="pure", shown=Shown())
    if error is not None:
        error.__traceback__ = traceback


def parse_arguments(text: str | None) -> dict[str, Any]:
    """Read arguments as the model wrote them; text that is no JSON object stands by itself."""
    try:
        value = canonical.decode_value(text or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def _wrap(session: AgentSession, tool: Any, name: str, effect: str | None, shown: Shown) -> Any:
    return session.tool(
        tool,
        name=name,
        effect=effect,
        encode=shown.encode,
        decode=shown.decode,
        raises=shown.raises,
    )


class AsyncClients:
    """HTTP clients that an adapter opened: `async with` closes them, as does the process's end."""

    def __init__(self, session: AgentSession) -> None:
        self._session = session
        self._opened: list[Any] = []

    def put_into(self, client: Any, make: Callable[..., Any]) -> Any:
        """Give an SDK's client that goes through the session.

        Args:
            client: one to copy, with its address, key and retries; `None` for one as the
                environment says.
            make: the SDK's class.
        """
        http = self._session.async_http_client()
        self._opened.append(http)
        return make(http_client=http) if client is None else client.copy(http_client=http)

    async def close(self) -> None:
        """Close all of them."""
        while self._opened:
            await self._opened.pop().aclose()


def missing(library: str, extra: str) -> UsageError:
    """Say that a library is not installed."""
    return UsageError(
        f"{library} is not installed", hint=f"pip install 'redrive[{extra}]', or {library} itself"
    )
