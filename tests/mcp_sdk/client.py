"""A client of the real SDK: does what it is told, and writes what it saw as JSON.

client.py MODE ACTION… -- COMMAND…      a server on stdio
client.py MODE ACTION… -- URL           a server on streamable HTTP; `-`: at $REDRIVE_MCP_URL
"""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult


def shown(result: Any) -> dict[str, Any]:
    text = result.content[0].text
    digest = hashlib.sha256(text.encode()).hexdigest()
    return {"is_error": result.is_error, "text": text[:100], "sha256": digest, "size": len(text)}


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    try:
        return shown(await client.call_tool(tool, arguments))
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is what an agent sees
        return {"raised": f"{type(error).__name__}: {error}"[:200]}


async def listing(client: Client) -> Any:
    return sorted(tool.name for tool in (await client.list_tools()).tools)


async def parallel(client: Client) -> Any:
    return await asyncio.gather(*(call(client, "add", a=n, b=n) for n in range(20)))


async def cancelled(client: Client) -> Any:
    task = asyncio.create_task(call(client, "slow"))
    await asyncio.sleep(1)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return "cancelled"


ACTIONS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "listing": listing,
    "parallel": parallel,
    "fail": lambda client: call(client, "fail"),
    "unknown": lambda client: call(client, "nope"),
    "cancelled": cancelled,
    "big": lambda client: call(client, "big", megabytes=10),
    "ask": lambda client: call(client, "ask"),
    "crash": lambda client: call(client, "crash"),
}


async def consent(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"sure": True})


async def main() -> None:
    at = sys.argv.index("--")
    mode, *actions = sys.argv[1:at]
    command = sys.argv[at + 1 :]
    url = os.environ["REDRIVE_MCP_URL"] if command == ["-"] else command[0]
    if url.startswith("http"):
        transport = streamable_http_client(url, max_sse_event_size=None)
    else:
        parameters = StdioServerParameters(
            command=command[0], args=command[1:], env=dict(os.environ)
        )
        transport = stdio_client(parameters)
    seen: dict[str, Any] = {}
    async with Client(transport, mode=mode, elicitation_callback=consent) as client:
        seen["protocol"] = client.protocol_version
        for action in actions:
            seen[action] = await ACTIONS[action](client)
    sys.stdout.write(json.dumps(seen))


asyncio.run(main())
