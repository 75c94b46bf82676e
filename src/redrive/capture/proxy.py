"""The recording proxy: an HTTP/1.1 listener between an agent and its models.

Knows routes, who may ask, and whom to tell of what. Must not know stores or formats: a `Backend`
stands behind it, and answers in the upstream's place where a recorded session is served.

Source: issue "recorder" §1; docs/reliability.md "Every listener"; docs/recording-proxy.md.
"""

import asyncio
import hmac
import re
import secrets
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from redrive.capture import passed_headers as rules
from redrive.capture.agent_side import AgentSide, Head, Refusal
from redrive.capture.exchanges import find_api
from redrive.capture.ports import (
    Gate,
    HttpBackend,
    Outcome,
    Passing,
    SentRequest,
    ServedAnswer,
)
from redrive.capture.relay import NowNs, Outgoing, Relay, Told
from redrive.capture.route import CONTROL
from redrive.capture.token_evidence import ask_for_tokens
from redrive.capture.upstream import Upstream, UpstreamPool, parse_upstream
from redrive.capture.wire import Wire
from redrive.errors import RedriveError, UsageError

HOST = "127.0.0.1"
GRACE_S = 0.2
"""How long `close` waits for exchanges whose end is already on its way."""
MAX_FLOW_CHARS = 200

Control = Mapping[str, Callable[[bytes], Awaitable[bytes | ServedAnswer]]]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
# A TLS transport hands its loss on once, a plain one not at all.
_TURNS_TO_CLOSE = 3
_OUR_HOSTS = ("127.0.0.1", "localhost")
_SAME_SITE = frozenset((b"none", b"same-origin"))
_UNRECORDED = Passing(None)
_JSON = (("content-type", "application/json"), ("cache-control", "no-store"))


def _write_fault(line: str) -> None:
    sys.stderr.write(f"redrive: {line}\n")


class _Route(msgspec.Struct, frozen=True):
    name: str
    rest: bytes


class Proxy:
    """A recording proxy; made anywhere, started and used in one event loop.

    Args:
        backend: is told of every exchange, and may answer it.
        upstreams: name → base URL; see `add_upstreams`.
        control: further POST routes, below `/TOKEN/redrive/`: body in, JSON out, or an answer of
            any kind.
        gate: decides for each request whether it goes out, in the backend's place; one that fails
            lets nothing out.
        token_evidence: members that are added to chat requests, such as `CHAT_EVIDENCE`; none
            leave every body as it is.
        token: the secret in its URLs; by default 192 random bits.
        ssl_context: what upstream certificates are verified with; see `UpstreamPool`.
        now_ns: the clock, in UTC nanoseconds.
        on_fault: told in one line when something cannot be recorded; by default standard error.

    Raises:
        UsageError: an upstream is named or addressed in a way that cannot be.
    """

    def __init__(
        self,
        backend: HttpBackend,
        upstreams: Mapping[str, str] | None = None,
        *,
        control: Control | None = None,
        gate: Gate | None = None,
        token_evidence: tuple[str, ...] = (),
        token: str = "",
        ssl_context: ssl.SSLContext | None = None,
        now_ns: NowNs = time.time_ns,
        on_fault: Callable[[str], None] = _write_fault,
    ) -> None:
        self._backend = backend
        self._control = dict(control or {})
        self._gate = gate
        self._token_evidence = token_evidence
        self._token = token or secrets.token_urlsafe(24)
        self._now_ns = now_ns
        self._on_fault = on_fault
        self._pool = UpstreamPool(ssl_context)
        self._upstreams: dict[str, Upstream] = {}
        self._server: asyncio.Server | None = None
        self._port = 0
        self._connections: dict[asyncio.Task[None], Wire] = {}
        self._exchanging: set[asyncio.Task[None]] = set()
        self.n_unrecorded = 0
        self.add_upstreams(upstreams or {})

    # --- the outside ----------------------------------------------------------------------------

    def add_upstreams(self, upstreams: Mapping[str, str]) -> None:
        """Pass requests on to further servers; from any thread, before or while it runs.

        Raises:
            UsageError: a name is `redrive` or unfit for a URL, or a URL is; see `parse_upstream`.
        """
        for name in upstreams:
            if name == CONTROL or not _NAME.fullmatch(name):
                raise UsageError(f"no name for an upstream: {name!r}")
        parsed = {name: parse_upstream(url) for name, url in upstreams.items()}
        self._upstreams = {**self._upstreams, **parsed}

    def path_for(self, name: str) -> str:
        """Give the path of an upstream, or of `redrive`, without a last slash."""
        return f"/{self._token}/{name}"

    def url_for(self, name: str) -> str:
        """Give the URL of an upstream, or of `redrive`, without a last slash; once started."""
        return f"http://{HOST}:{self._port}{self.path_for(name)}"

    async def start(self) -> None:
        """Listen on a random port of loopback."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepting(is_listening=True), HOST, 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def serve_connection(self, sock: socket.socket) -> None:
        """Serve an agent on a socket that is connected already; the proxy owns it from now on.

        Its `Host` may name any port of loopback, since whoever passed it knows where it came from.
        """
        factory = self._accepting(is_listening=False)
        await asyncio.get_running_loop().connect_accepted_socket(factory, sock)

    async def close(self) -> None:
        """Stop listening and end every connection; open exchanges are told as cut. Idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._exchanging:
            await asyncio.wait(self._exchanging, timeout=GRACE_S)
        open_now = dict(self._connections)
        for task in open_now:
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        await asyncio.sleep(0)
        for wire in open_now.values():
            wire.abort()
        self._pool.close()
        for _ in range(_TURNS_TO_CLOSE):
            await asyncio.sleep(0)

    # --- connections ----------------------------------------------------------------------------

    def _accepting(self, *, is_listening: bool) -> Callable[[], Wire]:
        def on_open(wire: Wire) -> None:
            task = asyncio.get_running_loop().create_task(self._serve(wire, is_listening))
            self._connections[task] = wire
            task.add_done_callback(lambda done: self._connections.pop(done, None))

        return lambda: Wire(on_open)

    async def _serve(self, wire: Wire, is_listening: bool) -> None:  # noqa: FBT001 - of a socket
        agent = AgentSide(wire)
        hosts = frozenset(f"{host}:{self._port}".encode() for host in _OUR_HOSTS if is_listening)
        try:
            while await self._serve_one(agent, hosts):
                pass
            wire.close()
        except ConnectionError:
            wire.close()
        except Exception as error:  # noqa: BLE001 - one connection's fault is no other's
            wire.reset()
            self._on_fault(f"a connection failed: {type(error).__name__}: {error}")
        except asyncio.CancelledError:
            wire.close()
            raise

    async def _serve_one(self, agent: AgentSide, hosts: frozenset[bytes]) -> bool:
        """Serve one request; false where the connection is at its end."""
        try:
            head = await agent.read_head()
            if head is None:
                return False
            route = self._route(head, hosts)
            body = await agent.read_body(head)
            if route.name == CONTROL:
                await self._run_control(agent, head, route, body)
            else:
                await self._exchange(agent, head, route, body)
        except Refusal as refusal:
            await agent.refuse(refusal)
            if not agent.is_read:
                await agent.linger()
                return False
        return agent.begin_next()

    def _route(self, head: Head, hosts: frozenset[bytes]) -> _Route:
        """Tell where a request goes, or that it goes nowhere; before its body is read.

        Raises:
            Refusal: a foreign host, a wrong token (nothing is told), a page of another site,
                a name that is no upstream, an upgrade.
        """
        host = (head.fields.get(b"host") or b"").lower()
        bare = host.rpartition(b":")[0] or host
        if host not in hosts and (hosts or bare.decode("latin-1") not in _OUR_HOSTS):
            raise Refusal(421)
        parts = head.target.split(b"/", 3)
        token = parts[1] if head.target.startswith(b"/") and len(parts) > 2 else b""
        if not hmac.compare_digest(token, self._token.encode()):
            raise Refusal(404)
        site = head.fields.get(b"sec-fetch-site")
        if site is not None and site not in _SAME_SITE:
            raise Refusal(403, "cross_site", "a page of another site may not ask")
        name, mark, query = parts[2].partition(b"?")
        rest = b"/" + parts[3] if len(parts) > 3 else b""
        route = _Route(name.decode("latin-1"), mark + query + rest if mark else rest)
        if route.name != CONTROL and route.name not in self._upstreams:
            raise Refusal(404, "unknown_upstream", "redrive's recording proxy has no such upstream")
        if b"websocket" in (head.fields.get(b"upgrade") or b"").lower():
            # Codex goes over to HTTP at once on exactly this status.
            message = "redrive's recording proxy carries no WebSockets: use HTTP"
            raise Refusal(426, "no_websocket", message)
        return route

    async def _run_control(self, agent: AgentSide, head: Head, route: _Route, body: bytes) -> None:
        handler = self._control.get(route.rest[1:].decode("latin-1"))
        if handler is None:
            raise Refusal(404, "unknown_route", "redrive's recording proxy has no such route")
        if head.method != b"POST":
            raise Refusal(405, "method_not_allowed", "this route takes POST")
        try:
            answer = await handler(body)
        except UsageError as error:  # said on purpose: the body is not what the route takes
            raise Refusal(400, "bad_message", error.message) from None
        except Exception as error:  # noqa: BLE001 - said to both sides, without a trace
            self._on_fault(
                f"control route {route.rest.decode()!r}: {type(error).__name__}: {error}"
            )
            raise Refusal(500, "control_failed", "the route failed") from None
        if isinstance(answer, bytes):
            answer = ServedAnswer(200, _JSON, answer)
        await agent.answer_ours(answer)

    # --- exchanges ------------------------------------------------------------------------------

    async def _exchange(self, agent: AgentSide, head: Head, route: _Route, body: bytes) -> None:
        """Tell the backend, then serve its answer or pass the request on."""
        upstream = self._upstreams[route.name]
        url = upstream.root + route.rest.decode("latin-1")
        at_ns = self._now_ns()
        body, added = self._with_evidence(head, url, body)
        headers = rules.request_headers(head.headers, upstream.authority.encode(), len(body))
        sent = SentRequest(
            method=head.method.decode(),
            url=url,
            headers=rules.lowered(headers),
            body=body,
            at_ns=at_ns,
            flow=_flow_of(head.fields),
            added=added,
        )
        if self._gate is not None:
            passing = await self._admit(self._gate, route.name, sent, head.fields)
        else:
            passing = self._tell(sent, is_recorded=head.fields.get(rules.RECORDED) == b"1")
        if isinstance(passing, ServedAnswer):
            await agent.answer(passing)
            return
        if passing.body is not None:
            body = passing.body
            headers = rules.request_headers(head.headers, upstream.authority.encode(), len(body))
        if passing.headers or passing.dropped:
            headers = rules.replaced(headers, passing.headers, passing.dropped)
        base = b"http://" + (head.fields.get(b"host") or b"") + self.path_for(route.name).encode()
        target = upstream.path.encode() + route.rest
        if not target.startswith(b"/"):
            target = b"/" + target
        outgoing = Outgoing(upstream, head.method, target, headers, body, base)
        told = Told(passing.observer, self._now_ns, self._on_fault)
        await self._relay(agent, outgoing, told)

    def _with_evidence(self, head: Head, url: str, body: bytes) -> tuple[bytes, tuple[str, ...]]:
        """Ask for token evidence where that is allowed; give the body and what was added."""
        if not self._token_evidence:
            return body, ()
        api = find_api(head.method.decode(), url)
        names = (name.decode("latin-1") for name in head.fields)
        return ask_for_tokens(body, api, names, self._token_evidence)

    def _tell(self, sent: SentRequest, *, is_recorded: bool) -> Passing | ServedAnswer:
        """Tell the backend of a request.

        A backend that fails is no reason to stop the agent: the request goes on unrecorded. One
        that says so (`RedriveError`, or no `Exception` at all) is.

        Raises:
            Refusal: the backend stops the agent here.
        """
        if is_recorded and not self._backend.is_serving:
            self.n_unrecorded += 1
            return _UNRECORDED
        try:
            answer = self._backend.sent(sent)
        except RedriveError as error:  # said on purpose: a recorder that is fail-closed
            self._on_fault(f"a request is refused: {error}")
            raise _not_recorded() from error
        except Exception as error:  # noqa: BLE001 - a recorder's fault is none of the agent's
            self._on_fault(f"a request is not recorded: {type(error).__name__}: {error}")
            return _UNRECORDED
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as stop:  # noqa: BLE001 - a rerun's end is none an agent may swallow
            raise _stopped(stop) from None
        if isinstance(answer, ServedAnswer):
            return answer
        return Passing(answer)

    async def _admit(
        self, gate: Gate, name: str, sent: SentRequest, fields: rules.Fields
    ) -> Passing | ServedAnswer:
        """Ask the gate.

        Raises:
            Refusal: the gate stops the agent here, or failed: what it did not admit goes nowhere.
        """
        try:
            return await gate.admit(name, sent, fields)
        except Exception as error:  # what was not admitted must not go out
            self._on_fault(f"a request is refused: {type(error).__name__}: {error}")
            raise Refusal(503, "gate_failed", "redrive let nothing out", is_final=True) from error
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as stop:  # noqa: BLE001 - the run's end is none an agent may swallow
            raise _stopped(stop) from None

    async def _relay(self, agent: AgentSide, outgoing: Outgoing, told: Told) -> None:
        """Pass an exchange on for as long as the agent is there.

        Raises:
            Refusal, ConnectionError: see `Relay.run`.
        """
        if self._backend.is_serving:
            told.finished(Outcome.FAILED, "no upstream may be asked")
            message = "redrive's proxy serves a recording, and asks no upstream"
            raise Refusal(502, "no_upstream", message, is_final=True)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - inside a coroutine of a loop
        wire = agent.wire
        if wire.is_ended:
            told.finished(Outcome.CANCELLED, "the agent left before its request went out")
            raise ConnectionResetError
        wire.on_gone = task.cancel
        self._exchanging.add(task)
        try:
            await Relay(agent, outgoing, told, self._pool).run()
        except asyncio.CancelledError:
            if not wire.is_ended:
                told.finished(Outcome.CUT, "the recording proxy was stopped")
                agent.break_off()
                raise
            task.uncancel()
            told.finished(Outcome.CANCELLED, "the agent closed its side")
            raise ConnectionResetError from None
        except ConnectionError:
            told.finished(Outcome.CANCELLED, "the agent closed its side")
            raise
        except RedriveError as error:  # the recorder is fail-closed
            self._on_fault(f"an exchange is broken off: {error}")
            if not agent.is_answering:
                raise _not_recorded() from error
            agent.break_off()
            raise ConnectionResetError from error
        finally:
            self._exchanging.discard(task)
            wire.on_gone = None


def _stopped(stop: BaseException) -> Refusal:
    message = f"redrive stopped the run here: {type(stop).__name__}"
    return Refusal(400, "run_stopped", message, is_final=True)


def _not_recorded() -> Refusal:
    message = "redrive's recorder failed, and was told to stop the agent then"
    return Refusal(503, "recorder_failed", message, is_final=True)


def _flow_of(fields: rules.Fields) -> str | None:
    """Give the flow that a request names, if it does."""
    name = (fields.get(rules.FLOW) or b"").decode("utf-8", "replace").strip()
    return name[:MAX_FLOW_CHARS] or None
