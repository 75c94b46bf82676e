"""Runs an MCP server in the sandbox, and speaks to it: for a listing, or as the worker of a run.

Knows confinements, the bridge to a server's standard input and output, and the client. Decides
nothing: what may be called is the broker's, which holds the listing that was judged; a tool that a
server adds later is not in it.

Source: DESIGN.md §6 "MCP listings walked".
"""

import asyncio
import os
import queue
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
from msgspec import Raw

from redrive.app.trial_mcp_client import ListedTool, McpAnswer, McpClient
from redrive.errors import PluginError, RedriveError
from redrive.sandbox.confinement import ConfinedResult, Confinement
from redrive.sandbox.door import run_at
from redrive.sandbox.loopback import Serve, open_channel, serve_loopback, shim_command
from redrive.sandbox.wiring import Wiring

START_TIMEOUT_S: Final = 30.0
CALL_TIMEOUT_S: Final = 60.0
_BRIDGE = Path(__file__).parent.parent / "sandbox" / "stdio_bridge.py"
_POLL_S = 0.05
_JOIN_S = 30.0
_SHOWN_CHARS = 300


class McpCommand(msgspec.Struct, frozen=True):
    """A server's process.

    Args:
        name: of the server.
        command: its words, looked up inside.
        confinement: all that it has.
        level: of the sandbox, proven before.
        port: of its own loopback, whose connections go to `forward`; 0 for none.
    """

    name: str
    command: tuple[str, ...]
    confinement: Confinement
    level: str
    port: int = 0


class McpWorker:
    """A server that runs, confined, from `start` to `close`; calls may come from any thread.

    Args:
        server: what is run.
        forward: serves the connections that the server makes to its loopback; awaited on a loop of
            this worker's own thread.
        start_s: how long it may take to introduce itself.
        call_s: how long it may take to answer a call.
    """

    def __init__(
        self,
        server: McpCommand,
        *,
        forward: Serve | None = None,
        start_s: float = START_TIMEOUT_S,
        call_s: float = CALL_TIMEOUT_S,
    ) -> None:
        self._server = server
        self._forward = forward
        self._start_s, self._call_s = start_s, call_s
        self._stop = threading.Event()
        self._streams: queue.Queue[socket.socket | None] = queue.Queue()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"mcp-{server.name}", daemon=True)
        self._client: McpClient | None = None
        self._result: ConfinedResult | None = None
        self._error: BaseException | None = None
        self._has_stream = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the server and introduce ourselves; a failure leaves nothing running.

        Raises:
            PluginError: it does not start, or does not answer in time.
            ContainmentError: the level is not proven here; nothing ran.
        """
        self._thread.start()
        try:
            try:
                stream = self._streams.get(timeout=self._start_s)
            except queue.Empty:
                raise self._fault("it does not start in time") from None
            if stream is None:
                self._thread.join(_JOIN_S)
                raise self._fault("it did not start")
            self._client = McpClient(stream, self._server.name)
            self._client.initialize(self._start_s)
        except PluginError as error:
            self.close()
            raise self._fault(error.message) from error
        except BaseException:
            self.close()
            raise

    def list_tools(self) -> tuple[ListedTool, ...]:
        """Read the whole listing.

        Raises:
            PluginError: see `McpClient.list_tools`; the server has been ended.
        """
        with self._lock:
            try:
                return self._running().list_tools(self._start_s)
            except PluginError as error:
                self.close()
                raise self._fault(error.message) from error

    def call(self, tool: str, arguments: bytes) -> McpAnswer:
        """Call a tool by the server's own name of it.

        Args:
            tool: as the server lists it.
            arguments: a JSON object.

        Raises:
            PluginError: the server does not answer in time, or not as it must, and has been ended:
                its next answer could be to this call.
        """
        with self._lock:
            try:
                return self._running().call(tool, Raw(arguments), self._call_s)
            except PluginError as error:
                self.close()
                raise self._fault(error.message) from error

    def close(self) -> None:
        """End the server and everything it started; a second time does nothing."""
        self._stop.set()
        if self._client is not None:
            self._client.close()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    @property
    def result(self) -> ConfinedResult | None:
        """How the process ended; `None` while it runs."""
        return self._result

    def _running(self) -> McpClient:
        if self._client is None or self._stop.is_set():
            raise self._fault("it does not run")
        return self._client

    def _fault(self, message: str) -> PluginError | RedriveError:
        """Say what went wrong, with the server's last words where it has ended."""
        if isinstance(self._error, RedriveError):
            return self._error
        start = f"MCP server {self._server.name}: "
        whole = message if message.startswith(start) else start + message
        stderr = b"" if self._result is None else self._result.stderr
        lines = stderr.decode("utf-8", "replace").strip().splitlines()
        last = f"; its last words: {lines[-1][:_SHOWN_CHARS]}" if lines else ""
        return PluginError(whole + last, hint="does it start by hand, in the workflow's folder?")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._error = error
        finally:
            self._streams.put(None)

    async def _serve(self) -> None:
        with open_channel() as (ours, theirs):
            argv = self._argv(theirs)
            wiring = Wiring(channel=theirs, stop=self._stop)
            confinement = self._server.confinement
            serving = asyncio.create_task(serve_loopback(ours, self._take, takes_pairs=True))
            running = asyncio.create_task(
                asyncio.to_thread(run_at, self._server.level, argv, confinement, b"", wiring)
            )
            try:
                self._result = await running
            finally:
                self._stop.set()
                theirs.close()
                await serving

    def _argv(self, channel: socket.socket) -> Sequence[str]:
        """Give the words that run the server behind the bridge, and behind the shim if need be."""
        python = os.path.realpath(sys.executable)
        port, command = self._server.port, self._server.command
        inner = shim_command(python, channel, command, port=port) if port else command
        source = _BRIDGE.read_text(encoding="utf-8")
        words = (python, "-I", "-S", "-B", "-c", source, str(channel.fileno()))
        return (*words, "1" if port else "0", *inner)

    async def _take(self, connection: socket.socket) -> None:
        """Take the server's stream, once; the others are its own connections to the network."""
        if connection.family != socket.AF_UNIX:
            if self._forward is None:
                connection.close()
            else:
                await self._forward(connection)
            return
        if self._has_stream:
            connection.close()
            return
        self._has_stream = True
        self._streams.put(connection)
        while not self._stop.is_set():  # noqa: ASYNC110 - it is set in any thread
            await asyncio.sleep(_POLL_S)
