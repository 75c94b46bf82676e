"""A confined process of a run that speaks through one descriptor: started, served, ended.

Knows sandboxes and channels. Must not know what is spoken.

Source: DESIGN.md §6.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from redrive.sandbox.confinement import ConfinedResult, Confinement
from redrive.sandbox.loopback import LoopbackReport, Serve, open_channel, serve_loopback
from redrive.sandbox.wiring import Wiring


class RunConfined(Protocol):
    """Runs a command in the sandbox; see `redrive.sandbox.bubblewrap.run_confined`."""

    def __call__(
        self, argv: Sequence[str], confinement: Confinement, stdin: bytes, wiring: Wiring
    ) -> ConfinedResult:
        """Run it to its end."""
        ...


class ProcessEnd(msgspec.Struct, frozen=True):
    """How a process ended, and what came through its channel."""

    result: ConfinedResult
    report: LoopbackReport


Start = Callable[[socket.socket], tuple[Sequence[str], bytes]]
"""Gives the words that start a process, and its standard input, by the channel that it gets."""


class ProcessPlan(msgspec.Struct, frozen=True):
    """What is started: what it has, and how."""

    confinement: Confinement
    start: Start


def setup_start(argv: Sequence[str], setup: msgspec.Struct) -> Start:
    """Start one of our own modules, which reads a setup: its field `channel` is set for it."""

    def start(channel: socket.socket) -> tuple[Sequence[str], bytes]:
        told = msgspec.structs.replace(setup, channel=channel.fileno())
        return argv, msgspec.json.encode(told)

    return start


async def run_process(
    plan: ProcessPlan, run: RunConfined, serve: Serve, stop: threading.Event
) -> ProcessEnd:
    """Run a process to its end; a cancellation ends it first.

    Args:
        plan: what is started.
        run: the proven sandbox.
        serve: takes over each connection that comes out.
        stop: ends it.

    Raises:
        ContainmentError: the sandbox did not start it, or did not end.
    """
    with open_channel() as (ours, theirs):
        argv, stdin = plan.start(theirs)
        wiring = Wiring(channel=theirs, stop=stop)
        serving = asyncio.create_task(serve_loopback(ours, serve, takes_pairs=True))
        running = asyncio.create_task(asyncio.to_thread(run, argv, plan.confinement, stdin, wiring))
        try:
            result = await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.gather(running, return_exceptions=True)
            raise
        finally:
            # It was taken over, but for a sandbox that is not proven and runs nothing.
            theirs.close()
            report = await serving
    return ProcessEnd(result, report)


def is_stream(sock: socket.socket) -> bool:
    """Say whether a connection is one end of a pair, and not one to the process's own loopback."""
    return sock.family == socket.AF_UNIX


def describe_end(result: ConfinedResult) -> str:
    """Say in one line how a process ended."""
    if result.is_timeout:
        return "it took too long, and was ended"
    if result.is_process_flood:
        return "it had too many processes, and was ended"
    if result.is_disk_full:
        return "it filled the disk, and was ended"
    if result.is_stopped:
        return "it was ended"
    if result.signal is not None:
        return f"signal {result.signal} ended it"
    words = result.stderr.decode("utf-8", "replace").strip().splitlines()
    tail = f": {words[-1][:300]}" if words else ""
    return f"it exited with {result.exit_code}{tail}"
