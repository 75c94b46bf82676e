"""A backend behind real loopback HTTP: the control routes on a small server, in a thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from redrive.capture.ports import Backend
from redrive.capture.remote_serving import serve_remote
from redrive.errors import UsageError
from tests.small_http import SmallServer

PREFIX = "/t0ken/redrive/"


class ControlServer(SmallServer):
    """Answers the control routes of a backend; counts connections."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(self._control)
        self.n_connections = 0
        self.statuses: list[int] = []
        self._handlers = serve_remote(backend)

    async def _control(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        try:
            status, answer = 200, await self._handlers[path.removeprefix(PREFIX)](body)
        except UsageError as error:
            status, answer = 400, error.message.encode()
        self.statuses.append(status)
        return status, answer

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        await super().converse(reader, writer)


@contextmanager
def listening(server: SmallServer) -> Iterator[str]:
    """Let a server answer on a port of 127.0.0.1; give the URL of its control routes."""
    started, ports = threading.Event(), []
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        listener = await asyncio.start_server(server.converse, "127.0.0.1", 0)
        async with listener:
            ports.append(listener.sockets[0].getsockname()[1])
            stop.append((asyncio.get_running_loop(), asyncio.Event()))
            started.set()
            await stop[0][1].wait()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{ports[0]}{PREFIX}"
    finally:
        loop, event = stop[0]
        loop.call_soon_threadsafe(event.set)
        thread.join()
