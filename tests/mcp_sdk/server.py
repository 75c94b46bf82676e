"""A server of the real SDK: on stdio, or with a port number, on streamable HTTP."""

import asyncio
import os
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations
from pydantic import BaseModel

app = MCPServer("disk", instructions="Be careful.")


class Sure(BaseModel):
    sure: bool


@app.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no such file: ä\u2028")


@app.tool()
async def slow(ctx: Context) -> str:
    """Report progress, and take longer than anyone waits."""
    for n in range(3):
        await ctx.report_progress(n, 3)
    await asyncio.sleep(30)
    return "too late"


@app.tool()
def big(megabytes: int) -> str:
    """Answer at length."""
    return "0123456789abcdef" * (megabytes * 65536)


@app.tool()
async def ask(ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit("Sure?", Sure)
    return f"{answer.action}"


@app.tool()
def crash() -> str:
    """End the server."""
    os._exit(3)


def main() -> None:
    if sys.argv[1:] == ["noisy"]:
        os.write(1, b'Server log line\n{"jsonrpc": "2.0", "id": 99999, "result": {}}\n\n')
        os.write(1, b"\x00 \x1b]0;title\x07\n")
    if not sys.argv[1:] or sys.argv[1] == "noisy":
        app.run()
        return
    port, *words = sys.argv[1:]
    app.run(
        "streamable-http",
        host="127.0.0.1",
        port=int(port),
        json_response="json" in words,
        stateless_http="stateless" in words,
    )


main()
