"""Speaks the Model Context Protocol to a server over one stream: initialize, list, call.

Knows JSON-RPC lines on a connected socket. Does not know what the server is, nor where it runs.
Everything that comes is hostile: lines, pages and tools are bounded, and so is the time.

Source: Model Context Protocol 2025-06-18, "Lifecycle", "Tools", "stdio".
"""

import socket
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.capture.json_members import find_members, is_true, list_items, members, text_in
from redrive.capture.mcp_messages import Message, Shape, parse_messages
from redrive.errors import PluginError, quote
from redrive.version import __version__

PROTOCOL_VERSION: Final = "2025-06-18"
MAX_LINE_BYTES: Final = 8 * 1024 * 1024
MAX_PAGES: Final = 100
MAX_TOOLS: Final = 1000
_CHUNK_BYTES = 65536
_NO_SUCH_METHOD = -32601
_SHOWN_CHARS = 300


class ListedTool(msgspec.Struct, frozen=True):
    """One tool as a server lists it.

    Attributes:
        name: the server's own name of it.
        description: for the model.
        parameters: JSON Schema of its arguments.
        hints: what the server says of its effect; its word on itself.
    """

    name: str
    description: str = ""
    parameters: Raw = Raw(b'{"type":"object"}')
    hints: Mapping[str, object] = {}


class McpAnswer(msgspec.Struct, frozen=True):
    """What a server answered to a call.

    Attributes:
        result: the whole result of `tools/call`, as it came.
        is_error: the tool says that it failed.
    """

    result: Raw
    is_error: bool = False

    def value(self) -> Any:
        """Give the result as plain JSON: what is structured, else the text, else the content."""
        fields = members(self.result)
        if "structuredContent" in fields:
            return canonical.decode_value(bytes(fields["structuredContent"]))
        content = fields.get("content", Raw(b"[]"))
        parts = [find_members(item) for item in list_items(content)]
        texts = [text_in(part, "text") for part in parts if text_in(part, "type") == "text"]
        if len(texts) == len(parts):
            return "\n".join(text or "" for text in texts)
        return canonical.decode_value(bytes(content))


class _AnsweredError(PluginError):
    """The server answered, with an error: it still runs."""


class McpClient:
    """One connection to one server; one caller at a time.

    Args:
        connection: a connected stream socket; closed by `close`.
        name: of the server, for messages.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        self._connection = connection
        self._name = name
        self._buffer = bytearray()
        self._number = 0

    def close(self) -> None:
        """Close the stream, at which a server ends."""
        self._connection.close()

    def initialize(self, timeout_s: float) -> None:
        """Introduce this client.

        Raises:
            PluginError: the server does not answer, or with an error.
        """
        client = {"name": "redrive", "version": __version__}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        self._ask("initialize", params, timeout_s)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"}, timeout_s)

    def list_tools(self, timeout_s: float) -> tuple[ListedTool, ...]:
        """Read the whole listing, page by page, in the server's order.

        Args:
            timeout_s: for all pages together.

        Raises:
            PluginError: no answer, no listing, or one without end.
        """
        deadline_s = time.monotonic() + timeout_s
        tools: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            left_s = deadline_s - time.monotonic()
            page = find_members(self._ask("tools/list", params, left_s))
            if "tools" not in page:
                raise self._fault("a listing without tools")
            tools += map(self._listed, self._items(page["tools"]))
            if len(tools) > MAX_TOOLS:
                raise self._fault(f"it lists more than {MAX_TOOLS} tools")
            cursor = text_in(page, "nextCursor")
            if cursor is None:
                return tuple(tools)
        raise self._fault(f"its listing does not end within {MAX_PAGES} pages")

    def call(self, tool: str, arguments: Raw, timeout_s: float) -> McpAnswer:
        """Call a tool by the server's own name of it; `arguments` is a JSON object.

        Returns:
            The answer; an error of the protocol, such as wrong arguments, is one of the tool's.

        Raises:
            PluginError: no answer, or one without content.
        """
        try:
            result = self._ask("tools/call", {"name": tool, "arguments": arguments}, timeout_s)
        except _AnsweredError as error:
            told = {"content": [{"type": "text", "text": error.message}], "isError": True}
            return McpAnswer(Raw(canonical.encode(told)), is_error=True)
        fields = find_members(result)
        if "content" not in fields and "structuredContent" not in fields:
            raise self._fault(f"it answers {quote(tool)} with no content")
        return McpAnswer(result, is_true(fields, "isError"))

    def _items(self, raw: Raw) -> list[Raw]:
        try:
            return list_items(raw)
        except ValueError as error:
            raise self._fault(f"no list: {error}") from error

    def _listed(self, item: Raw) -> ListedTool:
        fields = find_members(item)
        name = text_in(fields, "name")
        if name is None:
            raise self._fault("it lists a tool without a name")
        hints = find_members(fields.get("annotations"))
        return ListedTool(
            name,
            text_in(fields, "description") or "",
            fields.get("inputSchema", ListedTool("").parameters),
            {key: canonical.decode_value(bytes(raw)) for key, raw in hints.items()},
        )

    def _ask(self, method: str, params: Mapping[str, Any], timeout_s: float) -> Raw:
        deadline_s = time.monotonic() + timeout_s
        self._number += 1
        asked = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._send(asked, timeout_s)
        while True:
            for message in self._receive(method, deadline_s):
                if message.shape is Shape.REQUEST:
                    self._refuse(message, deadline_s)
                elif message.id == ("number", self._number, ""):
                    if message.shape is Shape.RESULT:
                        return message.body
                    words = bytes(message.body)[:_SHOWN_CHARS].decode("utf-8", "replace")
                    what = f"it answers {method} with an error: {words}"
                    raise _AnsweredError(f"MCP server {self._name}: {what}")

    def _refuse(self, message: Message, deadline_s: float) -> None:
        """Answer what the server asks: it is alive, and nothing else is offered here."""
        assert message.id is not None  # noqa: S101 - a request has one
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message.id[1]}
        if message.method == "ping":
            answer["result"] = {}
        else:
            answer["error"] = {"code": _NO_SUCH_METHOD, "message": "not offered"}
        self._send(answer, deadline_s - time.monotonic())

    def _send(self, message: Mapping[str, Any], timeout_s: float) -> None:
        try:
            self._connection.settimeout(max(timeout_s, 0.001))
            self._connection.sendall(canonical.encode(message) + b"\n")
        except OSError as error:
            raise self._fault("it takes no message, or has ended") from error

    def _receive(self, method: str, deadline_s: float) -> tuple[Message, ...]:
        """Wait for the next line that is a message; what is none is passed over."""
        while True:
            line, found, rest = self._buffer.partition(b"\n")
            if found:
                self._buffer = bytearray(rest)
                try:
                    return parse_messages(bytes(line))
                except (ValueError, RecursionError):
                    continue
            if len(self._buffer) > MAX_LINE_BYTES:
                raise self._fault(f"a line of more than {MAX_LINE_BYTES} bytes")
            self._buffer += self._read(method, deadline_s)

    def _read(self, method: str, deadline_s: float) -> bytes:
        left_s = deadline_s - time.monotonic()
        try:
            if left_s <= 0:
                raise TimeoutError
            self._connection.settimeout(left_s)
            data = self._connection.recv(_CHUNK_BYTES)
        except TimeoutError as error:
            raise self._fault(f"it does not answer {method} in time") from error
        except OSError as error:
            raise self._fault(f"it ended before it answered {method}") from error
        if not data:
            raise self._fault(f"it ended before it answered {method}")
        return data

    def _fault(self, message: str) -> PluginError:
        return PluginError(f"MCP server {self._name}: {message}")
