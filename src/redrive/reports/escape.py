"""Makes text from a recording safe to show: control characters, bidi overrides, lone surrogates.

Knows characters. Must not know what is shown, nor where.

Source: DESIGN.md §8 "Text from a recording is escaped".
"""

import re

_KEPT = frozenset("\n\t")
_BIDI_CODES = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
_UNSAFE_IN_JSON = re.compile(
    "[\x7f-\x9f\u2028\u2029" + "".join(f"\\u{code:04x}" for code in _BIDI_CODES) + "]"
)


def escape(text: str, *, keep_lines: bool = False) -> str:
    """Make text from a recording safe for a terminal.

    Control characters, bidi overrides, U+2028/9 and lone surrogates become visible escapes; line
    ends and tabs stay only with `keep_lines`.
    """
    if text.isprintable():  # bidi marks and lone surrogates are not
        return text
    kept = _KEPT if keep_lines else frozenset[str]()
    return "".join(char if char in kept or _is_plain(char) else _spell(char) for char in text)


def _is_plain(char: str) -> bool:
    return char.isprintable() or char == "\u00a0"


def _spell(char: str) -> str:
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    if named:
        return named
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def escape_json(data: bytes) -> bytes:
    """Make a JSON text safe for a terminal; it stays the same JSON value.

    JSON escapes the control characters below U+0020 itself. The others can stand only inside its
    strings, where an escape means the same.
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    text = data.decode("utf-8", "replace")
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()


def cut(text: str, limit: int) -> str:
    """Escape text to one line of at most `limit` source characters; say how much was left out."""
    if len(text) <= limit:
        return escape(text)
    return f"{escape(text[:limit])}… ({len(text)} characters)"
