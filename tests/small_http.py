"""A small HTTP server on connected sockets: what stands in for the proxy behind a sandbox."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable

Respond = Callable[[str, str, bytes], Awaitable[tuple[int, bytes]]]


class SmallServer:
    """Serves sockets that it is handed; keeps (method, path, body) of each request."""

    def __init__(self, respond: Respond | None = None) -> None:
        self.seen: list[tuple[str, str, bytes]] = []
        self._respond = respond or self.hello

    async def hello(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        return 200, b'"hello"'

    async def serve(self, sock: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=sock)
        await self.converse(reader, writer)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.seen.append((method, path, body))
        status, answer = await self._respond(method, path, body)
        writer.write(
            b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % (status, len(answer))
        )
        writer.write(answer)
        await writer.drain()
        return headers.get("connection") != "close"


def chat_completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps(answer | {"choices": [choice]}).encode()
