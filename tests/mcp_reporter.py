"""Keeps what an MCP observer reports, in order, as a test can compare it."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from redrive import canonical
from redrive.capture.mcp import McpObserver
from redrive.capture.ports import ServedResult


class Reporter:
    """A reporter in memory; `told` holds a tuple per report, `error` is raised instead of one."""

    is_serving = False

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.served: ServedResult | None = None

    def begin_call(
        self, tool: str, effect: str, arguments: Raw, *, is_unsafe: bool, seam: str = "tool"
    ) -> Any:
        if self.error is not None:
            raise self.error
        assert tool.startswith("files__")
        tool = tool.removeprefix("files__")
        self.told.append(("call", tool, effect, bytes(arguments), is_unsafe, seam))
        return self.served or _Call(self.told, tool)

    def note(self, name: str, fields: Mapping[str, Any], call_id: str | None = None) -> None:
        if self.error is not None:
            raise self.error
        self.told.append((name, json.loads(canonical.encode(dict(fields)))))

    def notes(self, name: str) -> list[Any]:
        return [entry[1] for entry in self.told if entry[0] == f"mcp.{name}"]

    def calls(self) -> list[tuple[Any, ...]]:
        return [entry for entry in self.told if not entry[0].startswith("mcp.")]


class _Call:
    def __init__(self, told: list[tuple[Any, ...]], tool: str) -> None:
        self._told = told
        self._tool = tool

    def returned(self, result: Raw, *, is_error: bool = False) -> None:
        self._told.append(("returned", self._tool, bytes(result), is_error))

    def returned_unknown(self, type_name: str) -> None:
        self._told.append(("unknown", self._tool, type_name))

    def raised(self, type_name: str, message: str) -> None:
        self._told.append(("raised", self._tool, type_name, message))


class Connection:
    """An observer, and both sides of what it observes."""

    def __init__(self, effects: Mapping[str, str] | None = None, **fields: bool) -> None:
        self.reporter = Reporter()
        self.observer = McpObserver("files", self.reporter, effects, **fields)

    def client(self, *messages: Any, scope: str = "") -> None:
        for message in messages:
            self.observer.from_client(_bytes(message), scope)

    def server(self, *messages: Any, scope: str = "") -> None:
        for message in messages:
            self.observer.from_server(_bytes(message), scope)


def _bytes(message: Any) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def request(identity: Any, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}


def call(identity: Any, tool: str, **params: Any) -> dict[str, Any]:
    return request(identity, "tools/call", name=tool, **params)


def notification(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(identity: Any, **fields: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identity, "result": fields}


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def error(identity: Any, code: int, message: str, **fields: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": identity,
        "error": {"code": code, "message": message} | fields,
    }
