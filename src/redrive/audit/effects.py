"""Effect classes of tools: what running one may do to the world.

Knows the four classes. Must not know tools, sandboxes or sessions.

Source: DESIGN.md §1, §6.
"""

from enum import StrEnum


class Effect(StrEnum):
    """What a tool may do; an undeclared tool is `UNSAFE`."""

    PURE = "pure"
    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"


_BY_WORD = {effect.value: effect for effect in Effect}


def parse_effect(word: object) -> Effect:
    """Read a declared effect; whatever is not exactly one of the four words is `UNSAFE`."""
    return _BY_WORD.get(word, Effect.UNSAFE) if isinstance(word, str) else Effect.UNSAFE
