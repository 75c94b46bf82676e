"""An agent with one tool on an MCP server: asks its model, runs what it asks for, asks again."""

import asyncio
import json
import os
import sys
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

ASKED = [{"role": "user", "content": "What is 2 + 3?"}]


def ask(messages: list[Any]) -> Any:
    body = {"model": "m", "temperature": 0, "seed": 7, "messages": messages}
    answer = httpx2.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body)
    return answer.raise_for_status().json()["choices"][0]["message"]


async def main() -> None:
    command, *arguments = sys.argv[1:]
    # As this SDK has it, a server is given no variable that is not named.
    passed = {name: value for name, value in os.environ.items() if name.startswith("REDRIVE_")}
    server = StdioServerParameters(command=command, args=arguments, env=passed)
    said = ask(ASKED)
    call = said["tool_calls"][0]
    async with Client(stdio_client(server), mode="legacy") as client:
        await client.list_tools()
        result = await client.call_tool("add", json.loads(call["function"]["arguments"]))
    told = {"role": "tool", "tool_call_id": call["id"], "content": result.content[0].text}
    sys.stdout.write(ask([*ASKED, said, told])["content"] + "\n")


asyncio.run(main())
