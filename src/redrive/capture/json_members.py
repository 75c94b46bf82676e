"""Takes JSON apart without decoding more than is asked for: every part stays the bytes that came.

Pure. Must not know what the JSON is about.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from redrive import canonical

NOTHING = Raw(b"null")
_split_fast = msgspec.json.Decoder(dict[str, Raw]).decode
_split_list = msgspec.json.Decoder(list[Raw]).decode


def members(data: bytes | Raw) -> Mapping[str, Raw]:
    """Split a JSON object into its members, each as it came; of a repeated key, the last.

    Raises:
        ValueError: it is no JSON object, or nested too deeply.
    """
    try:
        return _split_fast(data)
    except (msgspec.MsgspecError, RecursionError):
        # Lone surrogates: JSON that a strict decoder refuses.
        return {key: Raw(value) for key, value in canonical.split_object(bytes(data))}


def find_members(raw: Raw | None) -> Mapping[str, Raw]:
    """Split what may be an object; whatever else it is has no members."""
    try:
        return {} if raw is None else members(raw)
    except ValueError:
        return {}


def list_items(data: bytes | Raw) -> list[Raw]:
    """Split a JSON array into its items.

    Raises:
        ValueError: it is none that a strict decoder takes.
    """
    try:
        return _split_list(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"no JSON array: {error}") from error


def text_in(fields: Mapping[str, Raw], name: str) -> str | None:
    """Find the text that a member holds."""
    raw = fields.get(name)
    if raw is None or bytes(raw)[:1] != b'"':
        return None
    value = canonical.decode_value(bytes(raw))
    return value if isinstance(value, str) else None


def is_true(fields: Mapping[str, Raw], name: str) -> bool:
    """Say whether a member is `true`."""
    return bytes(fields.get(name, NOTHING)) == b"true"
