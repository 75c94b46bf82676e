"""A recording proxy in a thread of its own, for callers without an event loop.

Knows when a `Proxy` starts and stops. Must not know what it does meanwhile.
"""

import asyncio
import socket
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from redrive.capture.proxy import Proxy
from redrive.errors import UsageError


class ProxyThread:
    """Runs a proxy while the context is open; on leaving, every exchange has its end told.

    Args:
        proxy: not yet started; used by this thread alone.
    """

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._fault: BaseException | None = None
        # A forgotten proxy must not keep a program from ending.
        self._thread = threading.Thread(target=self._run, name="redrive-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._fault is not None:
            self._thread.join()
            raise self._fault
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def url_for(self, name: str) -> str:
        """Give the URL of an upstream, or of `redrive`, without a last slash."""
        return self._proxy.url_for(name)

    def add_upstreams(self, upstreams: Mapping[str, str]) -> None:
        """Pass requests on to further servers; see `Proxy.add_upstreams`."""
        self._proxy.add_upstreams(upstreams)

    def serve_connection(self, sock: socket.socket) -> None:
        """Serve an agent on a connected socket; see `Proxy.serve_connection`.

        Raises:
            UsageError: the proxy does not run.
        """
        if self._loop is None:
            raise UsageError("the recording proxy does not run")
        asyncio.run_coroutine_threadsafe(self._proxy.serve_connection(sock), self._loop).result()

    def close(self) -> None:
        """Stop the proxy and wait for its end. Idempotent."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None:
            self._loop = None
            loop.call_soon_threadsafe(stopping.set)
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - raised again where the thread was started
            self._fault = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        try:
            await self._proxy.start()
            self._loop = asyncio.get_running_loop()
            self._ready.set()
            await self._stopping.wait()
        finally:
            await self._proxy.close()
