"""Builds Claude Code lines for tests; every id, name and text is invented."""

from collections.abc import Iterable
from typing import Any

import msgspec

SESSION = "5e55a000-0000-4000-8000-0000000000aa"


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def line(number: int, parent: int | None, kind: str, **fields: Any) -> dict[str, Any]:
    """Give a line with the usual envelope; its time is its number in seconds."""
    return {
        "parentUuid": None if parent is None else uuid(parent),
        "isSidechain": False,
        "cwd": "/srv/demo",
        "sessionId": SESSION,
        "version": "2.1.0",
        "gitBranch": "main",
        "type": kind,
        "uuid": uuid(number),
        "timestamp": f"2026-03-02T09:{number // 60:02d}:{number % 60:02d}.000Z",
        **fields,
    }


def user(number: int, parent: int | None, content: Any, **fields: Any) -> dict[str, Any]:
    return line(number, parent, "user", message={"role": "user", "content": content}, **fields)


def assistant(
    number: int, parent: int | None, *blocks: dict[str, Any], answer: str = "", **fields: Any
) -> dict[str, Any]:
    message = {
        "id": answer or f"msg_{number}",
        "role": "assistant",
        "model": fields.pop("model", "model-x"),
        "content": list(blocks),
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 10, "output_tokens": 20},
    }
    return line(number, parent, "assistant", message=message, **fields)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, tool: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}


def result(call_id: str, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **fields}


def dump(lines: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in lines)
