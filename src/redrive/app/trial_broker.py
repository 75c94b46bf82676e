"""The broker of one run: one proxy, and all that the run may say to the outside.

Wires the gate before the models, the desk of the tools and the recording to the proxy of
`redrive.capture`. Must not know how processes are started.

Source: DESIGN.md §6 "It holds one descriptor, a socket to the broker".
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import Any, NoReturn

from msgspec import UNSET

from redrive import canonical
from redrive.app.trial_calls import SIMULATED, ToolDesk, ToolRunner
from redrive.app.trial_gate import ModelGate
from redrive.app.trial_mcp_endpoint import MCP, McpEndpoint
from redrive.app.trial_messages import (
    CALL,
    END,
    HELLO,
    CallAsked,
    EndAsked,
    Failure,
    HelloAsked,
    dump_message,
    parse_message,
)
from redrive.app.trial_ports import Account, EpisodeJob
from redrive.app.trial_session import EpisodeSession
from redrive.app.trial_state import RunEnd, RunState
from redrive.capture.ports import SentRequest, ServedAnswer
from redrive.capture.proxy import Proxy
from redrive.capture.recording import RecordingBackend
from redrive.capture.remote_serving import RemoteServing, open_remote
from redrive.capture.remote_wire import parse_asked, parse_text
from redrive.errors import UsageError, quote

# What a workflow's process may have recorded by its own word. Its calls of tools and models are
# recorded by what passes here, so that it cannot make any up.
OWN_ROUTES = ("hello", "read", "derive", "enter", "leave", "note")
# What redrive notes of a run: no run says so of itself.
OWN_NOTES = ("trial.", SIMULATED)
Handler = Callable[[bytes], Awaitable[bytes | ServedAnswer]]


class _Gated:
    """Stands where a proxy without a gate has its backend."""

    is_serving = False

    def sent(self, request: SentRequest) -> NoReturn:
        raise UsageError(f"{request.method} went past the gate")


class Broker:
    """Everything that one run can reach.

    Args:
        job: the run.
        account: meters it.
        state: of the run.
        session: its episode.
        runner: runs its tools.
    """

    def __init__(
        self,
        job: EpisodeJob,
        account: Account,
        state: RunState,
        session: EpisodeSession,
        runner: ToolRunner,
    ) -> None:
        self._state = state
        self._session = session
        self._most_bytes = job.limits.output_bytes
        self._lock = threading.Lock()
        self._seams: tuple[RecordingBackend, RemoteServing] | None = None
        self.gate = ModelGate(job.models, account, state, self.seams)
        self.desk = ToolDesk(job.eligible, state, runner, lambda: self.seams()[0])
        control: dict[str, Handler] = {
            HELLO: self._hello,
            CALL: self._call,
            END: self._end,
            MCP: McpEndpoint(self.desk, state).handle,
            **{route: partial(self._record, route) for route in OWN_ROUTES},
        }
        self.proxy = Proxy(
            _Gated(),
            self.gate.upstreams,
            control=control,
            gate=self.gate,
            on_fault=state.note,
        )

    @property
    def path(self) -> str:
        """The path of the proxy, its token included."""
        return self.proxy.path_for("").rstrip("/")

    def seams(self) -> tuple[RecordingBackend, RemoteServing]:
        """Give the session's backend and the places; begun now if nothing was told before."""
        return self._begin((), {})

    def close(self) -> None:
        """Settle what is open, after the proxy and every process has ended."""
        self.gate.close()
        self.seams()[1].close()

    def _begin(
        self, intercepted: tuple[str, ...], environment: Mapping[str, Any]
    ) -> tuple[RecordingBackend, RemoteServing]:
        def begin() -> tuple[RecordingBackend, RemoteServing]:
            backend = self._session.begin(intercepted, environment)
            return backend, open_remote(backend, OWN_ROUTES)

        with self._lock:
            if self._seams is None:
                # A context of its own, which the places of the workflow's process inherit.
                self._seams = copy_context().run(begin)
            return self._seams

    async def _hello(self, body: bytes) -> bytes:
        asked = parse_message(body, HelloAsked)
        environment = _object(asked.environment)
        await asyncio.to_thread(self._begin, asked.names, environment)
        return b"{}"

    async def _record(self, route: str, body: bytes) -> bytes:
        if not self._state.count_told(len(body)):
            raise UsageError("the run has told too much")
        if route == "note":
            name = parse_text(parse_asked(route, body).name)
            if name.startswith(OWN_NOTES):
                raise UsageError(f"a run does not note {quote(name)} of itself")
        _, serving = await asyncio.to_thread(self.seams)
        return await serving.handlers[route](body)

    async def _call(self, body: bytes) -> bytes:
        asked = parse_message(body, CallAsked)
        _, serving = await asyncio.to_thread(self.seams)
        at = partial(serving.run_at, asked.place)
        told = await self.desk.call(asked.tool, asked.capability, asked.arguments, at)
        return dump_message(told)

    async def _end(self, body: bytes) -> bytes:
        asked = parse_message(body, EndAsked)
        output: Any = UNSET
        if asked.output is not None:
            try:
                output = canonical.take_json(asked.output)
            except ValueError as error:
                raise UsageError(f"no output: {error}") from error
        end = RunEnd(output, asked.failure)
        if len(asked.output or b"") > self._most_bytes:
            # The workflow's process looks first; this one said so by itself.
            end = RunEnd(failure=Failure("OverflowError", "what it gives back is too long"))
        self._state.take_end(end)
        return b"{}"


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        value = canonical.decode_value(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no environment: {str(error)[:200]}") from error
    return value if isinstance(value, dict) else {}
