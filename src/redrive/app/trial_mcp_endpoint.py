"""A run's tools as an MCP server over HTTP, for a command: stateless, each answer one JSON.

Knows the protocol and the desk. Whoever reaches it holds the run's token, which is the right to
call that run's tools, and no more.

Source: Model Context Protocol 2025-06-18, "Streamable HTTP", "Tools".
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Raw, UnsetType

from redrive import canonical
from redrive.app.trial_calls import ToolDesk
from redrive.app.trial_messages import CallTold
from redrive.app.trial_state import RunState
from redrive.audit.workflow import ToolSpec
from redrive.capture.json_members import find_members, text_in
from redrive.capture.mcp_messages import Message, Shape, parse_messages
from redrive.capture.ports import ServedAnswer
from redrive.version import __version__

MCP = "mcp"
VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
MAX_BATCH = 100
"""Requests in one body: each listing may be long, and all answers are held at once."""
_NO_METHOD, _NO_MESSAGE, _NO_PARAMS = -32601, -32700, -32602
_ANY = Raw(b'{"type":"object"}')
_ACCEPTED = ServedAnswer(202, (), b"")


class McpEndpoint:
    """Answers the requests of one run.

    Args:
        desk: takes the calls.
        state: of the run.
    """

    def __init__(self, desk: ToolDesk, state: RunState) -> None:
        self._desk = desk
        self._state = state
        self._methods: Mapping[str, Callable[[Raw], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._list,
            "tools/call": self._call,
        }

    async def handle(self, body: bytes) -> bytes | ServedAnswer:
        """Answer one body: a message, or a batch of them as older clients send."""
        if not self._state.count_told(len(body)):
            return _dump(_error(None, _NO_MESSAGE, "the run has sent too much"))
        try:
            messages = parse_messages(body)
        except (ValueError, RecursionError) as error:
            return _dump(_error(None, _NO_MESSAGE, str(error)[:200]))
        asked = [message for message in messages if message.shape is Shape.REQUEST]
        if not asked:
            return _ACCEPTED
        if len(asked) > MAX_BATCH:
            return _dump(_error(None, _NO_MESSAGE, f"a batch of more than {MAX_BATCH} requests"))
        answers = [await self._answer(message) for message in asked]
        return _dump(answers if body.lstrip()[:1] == b"[" else answers[0])

    async def _answer(self, message: Message) -> dict[str, Any]:
        assert message.id is not None  # noqa: S101 - a request has one
        number = message.id[1]
        method = self._methods.get(message.method)
        if method is None:
            return _error(number, _NO_METHOD, f"no method {message.method[:100]}")
        try:
            return {"jsonrpc": "2.0", "id": number, "result": await method(message.body)}
        except ValueError as error:
            return _error(number, _NO_PARAMS, str(error)[:200])

    async def _initialize(self, params: Raw) -> Any:
        wanted = text_in(find_members(params), "protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "redrive", "version": __version__},
        }

    async def _ping(self, _: Raw) -> Any:
        return {}

    async def _list(self, _: Raw) -> Any:
        return {"tools": [_listed(name, tool) for name, tool in self._desk.tools.items()]}

    async def _call(self, params: Raw) -> Any:
        fields = find_members(params)
        name = text_in(fields, "name")
        if name is None:
            raise ValueError("tools/call names no tool")
        capability = self._desk.capabilities.get(name, "")
        arguments = bytes(fields.get("arguments", Raw(b"{}")))
        return _result(await self._desk.call(name, capability, arguments, lambda act: act()))


def _listed(name: str, tool: ToolSpec) -> dict[str, Any]:
    schema = _ANY if isinstance(tool.parameters, UnsetType) else tool.parameters
    return {"name": name, "description": tool.description, "inputSchema": schema}


def _result(told: CallTold) -> dict[str, Any]:
    if told.denied is not None:
        return _texts(f"denied: {told.denied}", is_error=True)
    if told.error is not None:
        return _texts(": ".join(told.error), is_error=True)
    value = canonical.decode_value(told.result or b"null")
    shown = _texts(value if isinstance(value, str) else (told.result or b"null").decode())
    return {**shown, "structuredContent": value} if isinstance(value, dict) else shown


def _texts(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def _dump(value: Any) -> bytes:
    return canonical.encode(value)
