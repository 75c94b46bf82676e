"""Builds a request body for a decision whose request was not recorded.

What it builds is a guess at what was sent, and every figure that rests on it is labelled
*reconstruction*. Knows the neutral history and the forms of three APIs. Must not know files.

Source: DESIGN.md §5 "Open trajectories".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from redrive import canonical
from redrive.errors import UsageError

MAX_TOKENS = 4096

Item = dict[str, Any]


class Frame(msgspec.Struct, frozen=True):
    """What stands around the messages: none of it is in the history.

    Attributes:
        model: the model to ask for; absent leaves it to the endpoint.
        system: the system prompt.
        tools: tool schemas, in the form of the API that is asked.
    """

    model: str | None = None
    system: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()


def reconstruct_body(api: str, frame: Frame, messages: Sequence[Mapping[str, Any]]) -> str:
    """Build a request body.

    Args:
        api: `openai.chat`, `openai.responses` or `anthropic.messages`.
        frame: model, system prompt and tools.
        messages: neutral history, oldest first, as `rebuild.read_messages` gives it.

    Returns:
        The body as compact JSON.

    Raises:
        UsageError: another API.
    """
    build = _BUILDERS.get(api)
    if build is None:
        raise UsageError(f"no request can be built for {api!r}", hint=", ".join(_BUILDERS))
    body: Item = {} if frame.model is None else {"model": frame.model}
    body |= build(frame, messages)
    if frame.tools:
        body["tools"] = list(frame.tools)
    return canonical.encode(body).decode()


def _chat(frame: Frame, messages: Sequence[Mapping[str, Any]]) -> Item:
    system = [] if frame.system is None else [{"role": "system", "content": frame.system}]
    return {"messages": [*system, *(_chat_item(message) for message in messages)]}


def _chat_item(message: Mapping[str, Any]) -> Item:
    match message["role"]:
        case "assistant" if message.get("tool_calls"):
            calls = [
                {
                    "id": call["call_id"],
                    "type": "function",
                    "function": {"name": call["name"], "arguments": _text(call["arguments"])},
                }
                for call in message["tool_calls"]
            ]
            return {
                "role": "assistant",
                "content": message["content"] or None,
                "tool_calls": calls,
            }
        case "tool":
            content = _text(message["content"])
            return {"role": "tool", "tool_call_id": message["call_id"], "content": content}
        case role:
            return {"role": role, "content": message["content"]}


def _responses(frame: Frame, messages: Sequence[Mapping[str, Any]]) -> Item:
    items = [item for message in messages for item in _response_items(message)]
    return ({} if frame.system is None else {"instructions": frame.system}) | {"input": items}


def _response_items(message: Mapping[str, Any]) -> list[Item]:
    if message["role"] == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": message["call_id"],
                "output": _text(message["content"]),
            }
        ]
    said = {"role": message["role"], "content": message["content"]}
    calls = [
        {
            "type": "function_call",
            "call_id": call["call_id"],
            "name": call["name"],
            "arguments": _text(call["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return [said, *calls] if message["content"] or not calls else calls


def _messages(frame: Frame, messages: Sequence[Mapping[str, Any]]) -> Item:
    """Write Anthropic messages; the results of one answer go back in one message."""
    items: list[Item] = []
    for message in messages:
        item = _message_item(message)
        is_result = message["role"] == "tool"
        if is_result and items and _holds_results(items[-1]):
            items[-1]["content"].extend(item["content"])
        else:
            items.append(item)
    system = {} if frame.system is None else {"system": frame.system}
    return {"max_tokens": MAX_TOKENS} | system | {"messages": items}


def _holds_results(item: Item) -> bool:
    content = item["content"]
    return isinstance(content, list) and content[0]["type"] == "tool_result"


def _message_item(message: Mapping[str, Any]) -> Item:
    match message["role"]:
        case "assistant":
            said = [{"type": "text", "text": message["content"]}] if message["content"] else []
            calls = [
                {
                    "type": "tool_use",
                    "id": call["call_id"],
                    "name": call["name"],
                    "input": call["arguments"],
                }
                for call in message.get("tool_calls", ())
            ]
            return {"role": "assistant", "content": [*said, *calls]}
        case "tool":
            result: Item = {
                "type": "tool_result",
                "tool_use_id": message["call_id"],
                "content": _blocks(message["content"]),
            }
            if message.get("status") == "error":
                result["is_error"] = True
            return {"role": "user", "content": [result]}
        case role:
            return {"role": role, "content": message["content"]}


def _blocks(content: object) -> object:
    """Keep recorded content blocks as they are; anything else is text."""
    is_blocks = isinstance(content, list) and all(
        isinstance(block, dict) and "type" in block for block in content
    )
    return content if is_blocks and content else _text(content)


def _text(value: object) -> str:
    return value if isinstance(value, str) else canonical.encode(value).decode()


_BUILDERS: Mapping[str, Callable[[Frame, Sequence[Mapping[str, Any]]], Item]] = {
    "openai.chat": _chat,
    "openai.responses": _responses,
    "anthropic.messages": _messages,
}
