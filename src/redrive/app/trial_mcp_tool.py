"""An MCP server of a workflow as the worker of its tools.

Knows `McpWorker` and the names of tools. What may be called was judged before, by the listing that
was read at load; a tool that the server adds later has no name here.

Source: DESIGN.md §6 "MCP listings walked".
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from redrive import canonical
from redrive.app.trial_forwarder import OnDenied, forward
from redrive.app.trial_mcp import McpCommand, McpWorker
from redrive.app.trial_messages import WorkerTold, cut_text
from redrive.app.trial_worker_process import WorkerLost
from redrive.audit.workflow_checks import mcp_tool_id
from redrive.errors import PluginError

TOOL_ERROR = "McpToolError"


class McpToolWorker:
    """One server; see `ToolWorker`.

    Args:
        server: its process.
        granted: places of the network.
        on_denied: told of others.
    """

    def __init__(self, server: McpCommand, granted: tuple[str, ...], on_denied: OnDenied) -> None:
        self._name = server.name
        self._server = server
        self._granted = granted
        self._on_denied = on_denied
        self._worker: McpWorker | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it runs, as far as is known."""
        return self._worker is not None and self._worker.result is None

    async def start(self, timeout_s: float) -> None:
        """Start the server.

        Raises:
            PluginError: it does not start, or does not answer in time.
        """
        self._worker = McpWorker(
            self._server,
            forward=lambda sock: forward(sock, self._granted, self._on_denied),
            start_s=timeout_s,
            call_s=timeout_s,
        )
        await asyncio.to_thread(self._worker.start)

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> WorkerTold:
        """Call a tool by its id.

        Raises:
            WorkerLost: the server does not answer in time, or not as it must; it was ended.
        """
        worker, own = self._worker, tool.removeprefix(mcp_tool_id(self._name, ""))
        assert worker is not None  # noqa: S101 - started before it is asked
        try:
            async with asyncio.timeout(timeout_s):
                asked = canonical.encode(dict(arguments))
                answer = await asyncio.to_thread(worker.call, own, asked)
        except TimeoutError:
            await self.close()
            raise WorkerLost("it took too long, and was ended") from None
        except PluginError as error:
            await self.close()
            raise WorkerLost(error.message) from error
        value = answer.value()
        if answer.is_error:
            text = value if isinstance(value, str) else canonical.encode(value).decode()
            return WorkerTold(0, error=(TOOL_ERROR, cut_text(text)))
        return WorkerTold(0, result=canonical.encode(value))

    async def close(self) -> None:
        """End the server."""
        if self._worker is not None:
            await asyncio.to_thread(self._worker.close)
