"""Renderers: how recorded parts become the bytes of a context, and the comparison with these.

Knows message lists and bytes. Must not know events (that is `assembly`).

A renderer is a callable `render(parts) -> bytes`, registered under `NAME@VERSION`. One that can
render a list piece by piece (`GrowingRenderer`) makes the audit linear in the messages.

Source: DESIGN.md §4 "input", §10 "Renderers".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from redrive import canonical
from redrive.audit.gaps import ProvenanceGap, make_gap
from redrive.record.texts import common_prefix

Message = Mapping[str, Any]
CONTEXT = "context_mismatch"


class Renderer(Protocol):
    """Renders a message list, oldest first, to the bytes that entered the model."""

    def __call__(self, parts: Sequence[Message], /) -> bytes:
        """Render the whole list."""
        ...


@runtime_checkable
class GrowingRenderer(Protocol):
    """A renderer whose text of n messages begins its text of n + 1."""

    def render_piece(self, message: Message, *, is_first: bool) -> bytes:
        """Render one message with what parts it from the one before."""
        ...

    def close_pieces(self, pieces: bytes) -> bytes:
        """Make the whole context of the pieces so far."""
        ...


class JsonRenderer:
    """`json@1`: the message list as Python's `json.dumps` writes it by default."""

    def __call__(self, parts: Sequence[Message], /) -> bytes:
        """Render the whole list."""
        pieces = (self.render_piece(part, is_first=not n) for n, part in enumerate(parts))
        return self.close_pieces(b"".join(pieces))

    def render_piece(self, message: Message, *, is_first: bool) -> bytes:
        """Render one message with the comma before it."""
        text = json.dumps(message)  # noqa: TID251 - this renderer is defined as that function
        return (text if is_first else ", " + text).encode("ascii")

    def close_pieces(self, pieces: bytes) -> bytes:
        """Put the list's brackets around the pieces."""
        return b"[" + pieces + b"]"


render_json_v1 = JsonRenderer()


def compare_context(recorded: bytes | str, rendered: bytes | str) -> ProvenanceGap | None:
    """Compare the bytes that entered the model with what a renderer makes of the record.

    Nothing is normalised: equal JSON in other bytes is a mismatch, since the tokenizer sees bytes.

    Returns:
        `None` if they are equal, else the gap `context_mismatch` with the first byte that differs.
    """
    one, other = _bytes_of(recorded), _bytes_of(rendered)
    if one == other:
        return None
    return make_gap(CONTEXT, CONTEXT, byte=common_prefix(one, other))


def _bytes_of(text: bytes | str) -> bytes:
    return canonical.text_bytes(text) if isinstance(text, str) else text
