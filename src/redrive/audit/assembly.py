"""Rebuilds the message list of each step from recorded events, and renders it.

Knows the neutral message form and how events become messages. Must not know gaps of other kinds
than `context_mismatch`, nor where renderers are registered.

The neutral form, oldest first:

* `{"role": "user", "content"}`;
* `{"role": "assistant", "content", "tool_calls": [{"call_id", "name", "args" | "args_json"}]}`,
  without `tool_calls` where the decision made none or travelled as text;
* `{"role": "tool", "call_id", "content"}`, one per result in recorded order.

Source: DESIGN.md §4 "input", §10 "Renderers".
"""

from collections.abc import Sequence
from typing import Any

from msgspec import UnsetType

from redrive.audit.gaps import ProvenanceGap
from redrive.audit.renderers import GrowingRenderer, Message, Renderer, compare_context
from redrive.errors import PluginError
from redrive.record.event import (
    ContextReplaced,
    ToolCall,
    ToolResult,
    UserMessage,
    raw_value,
)

NOT_CHECKED = "assembly: not checked"


class Assembly:
    """The message list of one trajectory so far, and its rendered form.

    `why_not` says why the list is not known (no renderer, a missing result); once it is set, later
    steps are not checked, since a guessed list would blame the serialiser for the recorder's gap.
    """

    def __init__(self, renderer: Renderer | None, why_not: str, task: str | None) -> None:
        self._renderer = renderer
        self._messages: list[Message] = []
        self._pieces = b""
        self.why_not = why_not
        if task is not None:
            self.add({"role": "user", "content": task})

    @property
    def is_checked(self) -> bool:
        """Whether the next context can be compared."""
        return self._renderer is not None and not self.why_not

    def note(self) -> str:
        """Say that the assembly is not checked, and why, where there is more to say."""
        return f"{NOT_CHECKED} ({self.why_not})" if self.why_not else NOT_CHECKED

    def give_up(self, why: str) -> None:
        """Stop checking: the list from here on is not known."""
        if self.is_checked:
            self.why_not = why

    def add(self, message: Message) -> None:
        """Append a message."""
        if not self.is_checked:
            return
        if isinstance(self._renderer, GrowingRenderer):
            self._pieces += self._renderer.render_piece(message, is_first=not self._pieces)
        else:
            self._messages.append(message)

    def compare(self, context: str) -> ProvenanceGap | None:
        """Compare the recorded context of the next step with the rendered list.

        Raises:
            PluginError: the renderer failed.
        """
        renderer = self._renderer
        if renderer is None:
            return None
        if isinstance(renderer, GrowingRenderer):
            return compare_context(context, renderer.close_pieces(self._pieces))
        try:
            return compare_context(context, renderer(tuple(self._messages)))
        except Exception as error:
            raise PluginError(f"the renderer failed: {type(error).__name__}: {error}") from error

    def replace(self, replaced: ContextReplaced) -> None:
        """Start over from a compaction whose new list is recorded."""
        after = raw_value(replaced.after)
        if not isinstance(after, list) or not all(isinstance(part, dict) for part in after):
            self.give_up("a compaction's new message list is not recorded")
            return
        self._messages, self._pieces = [], b""
        for message in after:
            self.add(message)


def user_message(message: UserMessage) -> Message:
    """Write a user message in the neutral form."""
    is_text = isinstance(message.content, UnsetType)
    return {
        "role": message.role,
        "content": message.text if is_text else raw_value(message.content),
    }


def assistant_message(text: str, calls: Sequence[tuple[str | None, ToolCall]]) -> Message:
    """Write a decision in the neutral form; `calls` are (call id, call) in call order."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [_call(call_id, call) for call_id, call in calls]
    return message


def _call(call_id: str | None, call: ToolCall) -> dict[str, Any]:
    written: dict[str, Any] = {"call_id": call_id, "name": call.tool}
    if not isinstance(call.arguments, UnsetType):
        written["args"] = raw_value(call.arguments)
    elif call.arguments_text is not None:
        written["args_json"] = call.arguments_text
    return written


def tool_message(call_id: str | None, result: ToolResult) -> Message:
    """Write a recorded result in the neutral form."""
    return {"role": "tool", "call_id": call_id, "content": raw_value(result.result)}
