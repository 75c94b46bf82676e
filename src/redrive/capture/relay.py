"""One request's way to its upstream, and the answer's way back, byte for byte as it comes.

Knows both sides of an exchange, and whom to tell. Must not know routes or listeners. Nothing is
retried, nothing is made up: what breaks on one side breaks on the other.
"""

from collections.abc import Callable
from typing import NoReturn, assert_never

import msgspec

from redrive.capture import passed_headers as rules
from redrive.capture.agent_side import AgentSide, Refusal
from redrive.capture.ports import ExchangeObserver, Headers, Outcome
from redrive.capture.upstream import (
    Began,
    Broken,
    Ended,
    Piece,
    Upstream,
    UpstreamConnection,
    UpstreamPool,
    failure_of,
)
from redrive.errors import RedriveError

NowNs = Callable[[], int]

_CLOSED = "the server closed its side before the end"
_MALFORMED = "the server's answer is not well-formed HTTP/1.1"


class Outgoing(msgspec.Struct, frozen=True):
    """A request as it goes to the upstream.

    Attributes:
        upstream: the server.
        method: of HTTP.
        target: path and query, the path of the upstream's URL included.
        headers: raw, in order.
        body: whole.
        base: the proxy's URL for this upstream, as the agent knows it.
    """

    upstream: Upstream
    method: bytes
    target: bytes
    headers: rules.RawHeaders
    body: bytes
    base: bytes


class Told:
    """An observer that can neither harm an exchange nor be told of two ends.

    It may end one on purpose: a `RedriveError` of a recorder that is fail-closed goes through.

    Args:
        observer: who is told; `None` where nobody is.
        now_ns: the clock, in UTC nanoseconds.
        on_fault: told once, in one line, if the observer fails; it then hears no more.
    """

    def __init__(
        self, observer: ExchangeObserver | None, now_ns: NowNs, on_fault: Callable[[str], None]
    ) -> None:
        self._observer = observer
        self._now_ns = now_ns
        self._on_fault = on_fault

    def responded(self, status: int, headers: Headers) -> None:
        """Tell status and headers of the answer."""
        if self._observer is not None:
            try:
                self._observer.responded(status, headers, self._now_ns())
            except RedriveError:
                self._observer = None
                raise
            except Exception as error:  # noqa: BLE001 - a recorder's fault is none of the agent's
                self._fail(error)

    def received(self, data: bytes) -> None:
        """Tell bytes of the body."""
        if self._observer is not None:
            try:
                self._observer.received(data)
            except RedriveError:
                self._observer = None
                raise
            except Exception as error:  # noqa: BLE001 - see above
                self._fail(error)

    def finished(self, outcome: Outcome, message: str = "") -> None:
        """Tell the end; a second one is not told."""
        observer, self._observer = self._observer, None
        if observer is not None:
            try:
                observer.finished(outcome, self._now_ns(), message)
            except RedriveError:
                raise
            except Exception as error:  # noqa: BLE001 - see above
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._observer = None
        self._on_fault(f"an exchange is not recorded: {type(error).__name__}: {error}")


class Relay:
    """Passes one exchange.

    Args:
        agent: who asks.
        outgoing: what it asks, as it goes on.
        told: who is told.
        pool: the connections to upstreams.
    """

    def __init__(
        self, agent: AgentSide, outgoing: Outgoing, told: Told, pool: UpstreamPool
    ) -> None:
        self._agent = agent
        self._outgoing = outgoing
        self._told = told
        self._pool = pool
        self._has_answer = False
        self._is_done = False

    async def run(self) -> None:
        """Send the request, pass the answer on.

        Raises:
            ConnectionError: the agent's connection cannot be used any more; the end is told,
                but for the agent's own leaving, which whoever cancels this tells.
            Refusal: no answer came; the end is told.
        """
        upstream = self._outgoing.upstream
        try:
            connection = await self._pool.acquire(upstream)
        except OSError as error:
            message = f"{upstream.authority} cannot be reached: {failure_of(error)}"
            self._told.finished(Outcome.FAILED, message)
            words = f"redrive's recording proxy: {message}"
            raise Refusal(502, "upstream_unreachable", words) from error
        try:
            await self._pass(connection)
        except BaseException:
            connection.wire.abort()
            raise
        self._pool.release(connection)

    async def _pass(self, connection: UpstreamConnection) -> None:
        out = self._outgoing
        wire, agent = connection.wire, self._agent.wire
        try:
            connection.send(out.method, out.target, out.headers, out.body)
        except ConnectionError:
            self._break_off(_CLOSED)
        while not self._is_done:
            try:
                data = await wire.read()
            except ConnectionError:
                self._break_off(_CLOSED)
            passed: list[bytes] = []
            fault = ""
            for event in connection.take(data):
                if isinstance(event, Broken):
                    fault = _CLOSED if event.is_closed else _MALFORMED
                else:
                    passed.append(self._pass_event(event))
            # Told before it is written: what an agent does with an answer is recorded behind it.
            if passed:
                agent.write(b"".join(passed))
            if fault:
                self._break_off(fault)
            await agent.drain()

    def _pass_event(self, event: Began | Piece | Ended) -> bytes:
        """Turn what the upstream says into bytes for the agent, telling of it."""
        agent = self._agent
        match event:
            case Piece():
                self._told.received(event.data)
                return agent.dump_data(event.data)
            case Ended():
                self._is_done = True
                self._told.finished(Outcome.COMPLETE)
                return agent.dump_end(event.trailers)
            case Began() if event.status < 200:
                headers = rules.response_headers(event.headers)
                return agent.dump_early(event.status, event.reason, headers)
            case Began():
                self._has_answer = True
                self._told.responded(event.status, rules.lowered(event.headers))
                headers = self._headers_for(event.headers)
                return agent.dump_head(event.status, event.reason, headers)
            case _:
                assert_never(event)

    def _headers_for(self, raw: rules.RawHeaders) -> rules.RawHeaders:
        kept = rules.response_headers(raw)
        for at, (name, value) in enumerate(kept):
            if name.lower() == b"location":
                out = self._outgoing
                root, path = out.upstream.root.encode(), out.upstream.path.encode()
                kept[at] = (name, rules.moved_location(value, root, path, out.base))
        return kept

    def _break_off(self, fault: str) -> NoReturn:
        """Let the agent see what we saw: an end that is none.

        Raises:
            ConnectionError: always, but where no answer came that could be broken off;
            Refusal: then.
        """
        if self._has_answer:
            self._told.finished(Outcome.CUT, fault)
            self._agent.break_off()
            raise ConnectionResetError(fault)
        self._told.finished(Outcome.FAILED, fault)
        if fault == _MALFORMED:
            words = f"redrive's recording proxy: {fault}"
            raise Refusal(502, "upstream_malformed", words)
        self._agent.wire.close()
        raise ConnectionResetError(fault)
