"""Runs a command again in the sandbox, with a recorded session behind its loopback.

Wires the sandbox, the proxy and the control routes to a serving backend. Decides nothing.

An agent in any language finds the proxy in the variables of its SDK; a Python agent that records
itself finds the backend in `REDRIVE_RERUN`, and is served its reads, tools and derived values too.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from redrive.app.confined_agent import (
    AgentCommand,
    AgentServer,
    ConfinedRun,
    Variation,
    run_agent_async,
)
from redrive.app.recording import RERUN_VARIABLE
from redrive.app.rerun_serving import CommandEnd
from redrive.capture.agent_code import find_root
from redrive.capture.manifest import digest_code
from redrive.capture.remote_serving import serve_remote
from redrive.capture.route import CONTROL, PROXY_VARIABLE, UPSTREAMS_VARIABLE
from redrive.capture.serving import ServingBackend
from redrive.capture.targets import point_at
from redrive.compare.rerun_document import Variant
from redrive.sandbox.bubblewrap import probe
from redrive.sandbox.loopback import LOOPBACK_ORIGIN

if TYPE_CHECKING:
    from redrive.capture.proxy import Proxy

_POLL_S = 0.1
_GRACE_S = 5.0
_SHOWN_CHARS = 500
Handler = Callable[[bytes], Awaitable[bytes]]


class ConfinedRerun:
    """Runs commands for a rerun; see `redrive.app.rerun_serving.CommandRunner`.

    Args:
        cwd: the agent's folder.
        caller: the caller's environment; the agent gets none of it but what `passed` names.
        passed: names of variables that the agent gets.
        readable: further files and folders that it sees, read-only.
        is_cwd_copied: whether it works in a private copy of `cwd` instead of reading it only.
        on_output: told what the agent wrote to stdout and stderr, at its end.
    """

    def __init__(
        self,
        cwd: Path,
        caller: Mapping[str, str],
        *,
        passed: Sequence[str] = (),
        readable: Sequence[str] = (),
        is_cwd_copied: bool = False,
        on_output: Callable[[bytes, bytes], None] = lambda _out, _err: None,
    ) -> None:
        self._cwd = cwd
        self._caller = caller
        self._passed = tuple(passed)
        self._readable = tuple(readable)
        self._is_cwd_copied = is_cwd_copied
        self._on_output = on_output

    def __call__(
        self,
        command: Sequence[str],
        backend: ServingBackend,
        variant: Variant,
        stop: threading.Event,
    ) -> CommandEnd:
        """Run a command to its end.

        Raises:
            ContainmentError: the sandbox is not proven here; nothing ran.
            UsageError: there is no such command, or a folder cannot be shown.
        """
        return asyncio.run(self._run(command, backend, variant, stop))

    async def _run(
        self,
        command: Sequence[str],
        backend: ServingBackend,
        variant: Variant,
        stop: threading.Event,
    ) -> CommandEnd:
        asked: set[str] = set()
        control = {
            route: _noting(asked, route, handler)
            for route, handler in serve_remote(backend).items()
        }
        from redrive.capture.proxy import Proxy  # late: it needs an optional library

        proxy = Proxy(backend, control=control)
        try:
            agent = self._agent(command, proxy, variant)
            ended = await self._run_until(agent, AgentServer(proxy.serve_connection), stop)
        finally:
            await proxy.close()
        result = ended.result
        self._on_output(result.stdout, result.stderr)
        return CommandEnd(
            exit_code=result.exit_code,
            error=_error_of(result.exit_code, result.stderr, is_timeout=result.is_timeout),
            isolation=probe().name,
            environment={"code": digest_code(find_code(command, self._cwd))},
            has_read=bool(asked),
            notes=ended.notes,
        )

    async def _run_until(
        self, agent: AgentCommand, server: AgentServer, stop: threading.Event
    ) -> ConfinedRun:
        """Run the agent; once the rerun has stopped it has a moment to end by itself."""
        ending = threading.Event()
        watching = asyncio.create_task(_end_after(stop, ending))
        try:
            return await run_agent_async(agent, server=server, stop=ending)
        finally:
            watching.cancel()

    def _agent(self, command: Sequence[str], proxy: "Proxy", variant: Variant) -> AgentCommand:
        pointing = point_at(self._caller, lambda name: LOOPBACK_ORIGIN + proxy.path_for(name))
        proxy.add_upstreams(pointing.upstreams)
        root = LOOPBACK_ORIGIN + proxy.path_for(CONTROL).rpartition("/")[0]
        upstreams = {f"{root}/{name}": url for name, url in pointing.upstreams.items()}
        own = {
            RERUN_VARIABLE: f"{root}/{CONTROL}",
            PROXY_VARIABLE: root,
            UPSTREAMS_VARIABLE: msgspec.json.encode(upstreams).decode(),
        }
        passed = {name: self._caller[name] for name in self._passed if name in self._caller}
        return AgentCommand(
            command=tuple(command),
            cwd=str(self._cwd),
            caller=self._caller,
            environment={**passed, **pointing.changes, **own},
            readable=self._readable,
            variation=Variation(variant.hash_seed, variant.time_zone, variant.n_cpus),
            is_cwd_copied=self._is_cwd_copied,
        )


async def _end_after(stop: threading.Event, ending: threading.Event) -> None:
    """Set `ending` a moment after `stop` was set."""
    while not stop.is_set():  # noqa: ASYNC110 - it is set in any thread
        await asyncio.sleep(_POLL_S)
    await asyncio.sleep(_GRACE_S)
    ending.set()


def _noting(asked: set[str], route: str, handler: Handler) -> Handler:
    """Note which routes were asked: an agent in another language asks none."""

    async def handle(body: bytes) -> bytes:
        asked.add(route)
        return await handler(body)

    return handle


def _error_of(exit_code: int | None, stderr: bytes, *, is_timeout: bool) -> str | None:
    """Say in one line what went wrong; the end of what the agent wrote to stderr tells it best."""
    if is_timeout:
        return "it took too long, and was ended"
    if not exit_code:
        return None if exit_code == 0 else "it was ended"
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return (lines[-1] if lines else f"exit {exit_code}")[:_SHOWN_CHARS]


def find_code(command: Sequence[str], cwd: Path) -> Path:
    """Find the folder of an agent's code: of the first file that the command names, else `cwd`."""
    for word in command:
        file = cwd / word
        if file.suffix == ".py" and file.is_file():
            return find_root(file)
    return find_root(cwd / "_")
