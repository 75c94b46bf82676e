r"""One byte form per value: canonical JSON, digests, and the seeded stream.

Knows JSON and sha256. Must not know events, sessions or where bytes lie.

Version `jcs+1` is RFC 8785 extended so that evidence stays exact:

* integers of any size are written in full (RFC 8785 would round beyond 2^53);
* a lone surrogate stays the escape `\udXXX` (RFC 8785 refuses it);
* `1` and `1.0` are one number, `1` and `true` are not; no Unicode normalisation;
* NaN and infinities have no canonical form and are refused.

Source: DESIGN.md §3 "Evidence is bytes", §10 "Integers".
"""

import codecs
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import orjson
import rfc8785

CANONICAL_VERSION = "jcs+1"
MAX_INTEGER_DIGITS = 4300
UNREPRESENTABLE = "unrepresentable number"
_SAFE_INTEGER = 2**53 - 1
# How much deeper than itself a text must be readable: by what it stands in, and who reads that.
_AROUND = (b"[" * 200, b"]" * 200)
_T = TypeVar("_T")

_decode_any = msgspec.json.Decoder().decode
_encode_any = msgspec.json.Encoder().encode
_skip_value = msgspec.json.Decoder(msgspec.Raw).decode


class DecodedJson(msgspec.Struct, frozen=True):
    """A decoded JSON text.

    `value` holds plain dicts, lists, strings and numbers. `is_exact` is false where a number could
    not be represented (NaN, an infinity, more than 4,300 digits): it stands as its source text.
    """

    value: Any
    is_exact: bool = True


def decode(data: bytes | str) -> DecodedJson:
    """Decode one JSON text without losing a digit.

    Args:
        data: exactly one JSON value; lone surrogate escapes are allowed.

    Raises:
        ValueError: the text is not one JSON value, is nested too deeply, or is not UTF-8.

    Source: DESIGN.md §3: never a decoder that turns 2^64 into a float.
    """
    try:
        return DecodedJson(_decode_any(data))
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return _decode_tolerant(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode_value(data: bytes | str) -> Any:
    """Decode one JSON text to its value; see `decode` for what is raised."""
    return decode(data).value


def split_members(text: str) -> tuple[tuple[str, str], ...]:
    """Split the text of one JSON object into its members.

    Returns:
        Key and value text of each member, in order; values are verbatim, and a key that stands
        twice is given twice.

    Raises:
        ValueError: the text is not exactly one JSON object, is nested too deeply, or holds NaN or
            an infinity, which are no JSON.
    """
    return tuple((key, value.decode()) for key, value in split_object(text.encode()))


def split_object(data: bytes) -> tuple[tuple[str, bytes], ...]:
    """Split the bytes of one JSON object as `split_members` does; they must be UTF-8.

    Cost: no value is built.
    """
    place = _OPENING.match(data)
    if place is None or not _is_json(data):
        raise ValueError("not one JSON object")
    members, end = [], place.end()
    while key := _KEY.match(data, end):
        end = _end_of_value(data, key.end())
        members.append((decode_value(key[1]), data[key.end() : end]))
    return tuple(members)


def take_json(data: bytes) -> msgspec.Raw:
    """Take bytes from elsewhere as they are, to be stored: one JSON text, which stays readable.

    Raises:
        ValueError: they are none in UTF-8, are nested too deeply to be read within what is stored
            around them, or hold NaN or an infinity, which `decode` lets pass.

    Cost: no value is built.
    """
    within = b"".join((_AROUND[0], data, _AROUND[1]))
    if not (is_utf8(data) and _is_json(data) and _is_json(within)):
        raise ValueError("not one JSON text")
    return msgspec.Raw(data)


def is_plain_object(data: bytes) -> bool:
    """Say whether bytes are one JSON object of exact numbers; it may hold lone surrogates.

    Cost: of bytes of more than 1 MiB, no value is built.
    """
    if _OPENING.match(data) is None or not is_utf8(data):
        return False
    mended = _mend(data)
    try:
        return is_strict(mended) and has_exact_numbers(mended)
    except RecursionError:
        return False


def _is_json(data: bytes) -> bool:
    try:
        return is_strict(_mend(data))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _mend(data: bytes) -> bytes:
    """Put another escape, as long, in the place of each lone surrogate."""
    if b"\\ud" not in data and b"\\uD" not in data:
        return data
    return _ESCAPE.sub(lambda found: found[0] if found[1] is None else b"\\u0000", data)


def _end_of_value(data: bytes, start: int) -> int:
    """Find where a value ends, in a text that is known to be JSON."""
    sign = data[start : start + 1]
    if sign not in (b"{", b"["):
        found = (_TEXT if sign == b'"' else _SCALAR).match(data, start)
        return len(data) if found is None else found.end()
    tokens = _TEXT_OR_BRACKET.finditer(data, start)
    depth, end = 0, start
    while depth or end == start:
        token = next(tokens)
        sign, end = token[0][:1], token.end()
        depth += (sign in b"[{") - (sign in b"]}")
    return end


_OPENING = re.compile(rb"[ \t\r\n]*+\{")
_KEY = re.compile(rb'[ \t\r\n,]*+("(?:[^"\\]|\\.)*+")[ \t\r\n]*+:[ \t\r\n]*+', re.DOTALL)
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^ \t\r\n,\]}]++")
_TEXT_OR_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)
# A surrogate pair, a lone surrogate, or another escape.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def _decode_tolerant(data: bytes | str) -> DecodedJson:
    """Decode what the strict decoder refuses but JSON allows: lone surrogates, long integers."""
    text = data if isinstance(data, str) else bytes(data).decode("utf-8")
    inexact: list[str] = []

    def mark(source: str) -> str:
        inexact.append(source)
        return source

    def parse_int(source: str) -> int | str:
        return int(source) if len(source.lstrip("-")) <= MAX_INTEGER_DIGITS else mark(source)

    def parse_float(source: str) -> float | str:
        number = float(source)
        return number if math.isfinite(number) else mark(source)

    try:
        value = json.loads(text, parse_int=parse_int, parse_float=parse_float, parse_constant=mark)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return DecodedJson(value, not inexact)


def encode(value: Any) -> bytes:
    """Write a value, struct or raw JSON as compact JSON; a lone surrogate stays an escape.

    Raises:
        ValueError: the value holds NaN or an infinity.
        TypeError: the value holds something that is not JSON; nothing is ever written by `repr`.
    """
    try:
        data = _encode_any(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, enc_hook=_raw_to_value)
        return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    if b"null" in data:
        _refuse_nan(value)
    return data


def _refuse_nan(root: Any) -> None:
    """Raise where msgspec silently wrote a NaN or an infinity as `null`; raw JSON holds neither."""
    stack = [msgspec.to_builtins(root, enc_hook=_skip)]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{value} is not JSON")


def _skip(_: object) -> None:
    """Stand for a value that need not be looked into."""


def is_strict(data: bytes) -> bool:
    """Say whether strict decoders take this JSON text: no lone surrogate; numbers are not read.

    Cost: no value is built.
    """
    try:
        _skip_value(data)
    except msgspec.DecodeError:
        return False
    return True


def has_exact_numbers(data: bytes | memoryview) -> bool:
    """Say whether each number of a JSON text that was skipped can be represented.

    Cost: of a text of more than 1 MiB, no value is built.

    Raises:
        RecursionError: it is nested too deeply.
    """
    if len(data) > _LONG_BYTES:
        if bytes(data[:1]) == b'"':
            return True
        return _LARGE_NUMBER.search(data) is None or all(map(_is_exact, _NUMBER.finditer(data)))
    try:
        _decode_any(data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return _decode_tolerant(bytes(data)).is_exact
    return True


def _is_exact(token: "re.Match[bytes]") -> bool:
    """Say whether a number can be represented; texts are passed over."""
    text = bytes(token[0])
    if text.startswith(b'"'):
        return True
    if text.lstrip(b"-").isdigit():
        return len(text.lstrip(b"-")) <= MAX_INTEGER_DIGITS
    return math.isfinite(float(text))


_LONG_BYTES = 1024 * 1024
# What every number that no float can hold, and every integer that is too long, contains.
_LARGE_NUMBER = re.compile(rb"[eE]\+?[0-9]{3}|[0-9]{300}")
_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?[0-9][-+.0-9eE]{3,}', re.DOTALL)


def is_utf8(data: bytes | memoryview) -> bool:
    """Say whether bytes are UTF-8. Cost: no text of more than 1 MiB is built."""
    view = memoryview(data)
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(view), _LONG_BYTES):
            decoder.decode(view[start : start + _LONG_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _raw_to_value(value: object) -> Any:
    if isinstance(value, msgspec.Raw):
        return decode_value(bytes(value))
    raise TypeError(f"{type(value).__name__} is not JSON")


def text_bytes(text: str) -> bytes:
    """Encode text to UTF-8; a lone surrogate is written as `surrogatepass` writes it."""
    return text.encode("utf-8", "surrogatepass")


def digest(data: bytes) -> str:
    """Hash raw bytes: 64 lower-case hex digits of sha256."""
    return hashlib.sha256(data).hexdigest()


def text_digest(text: str) -> str:
    """Hash the UTF-8 bytes of a text."""
    return digest(text_bytes(text))


def canonical(value: Any) -> bytes:
    """Write a JSON value in the canonical form `jcs+1`.

    Raises:
        ValueError: the value holds NaN or an infinity, which have no canonical form, or is nested
            too deeply.
        TypeError: the value is not JSON (a set, bytes, a key that is no string).

    Cost: one walk; then orjson where the value has no float, non-ASCII key or integer beyond 2^53.
    """
    traits = _traits(value)
    try:
        if traits == _PLAIN:
            with suppress(orjson.JSONEncodeError):  # nested more than 254 deep
                return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        if traits == _FLOAT:
            return rfc8785.dumps(value)
        return _write_extended(value).encode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def value_digest(value: Any) -> str:
    """Hash the canonical form of a JSON value; equal for values that differ only in key order."""
    return digest(canonical(value))


_PLAIN, _FLOAT, _EXTENDED = 0, 1, 2


def _traits(root: Any) -> int:
    """Say which writer a value needs; raise for what is no JSON."""
    found = _PLAIN
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            for key in value:
                found |= _key_traits(key)
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
        else:
            found |= _scalar_traits(value)
    return found


def _key_traits(key: object) -> int:
    if not isinstance(key, str):
        raise TypeError(f"a key of type {type(key).__name__} is not JSON")
    return _PLAIN if key.isascii() else _FLOAT | _surrogate_trait(key)


def _scalar_traits(value: object) -> int:
    if value is None or isinstance(value, bool):
        return _PLAIN
    if isinstance(value, str):
        return _PLAIN if value.isascii() else _surrogate_trait(value)
    if isinstance(value, int):
        return _PLAIN if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else _EXTENDED
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no canonical form")
        return _FLOAT
    raise TypeError(f"{type(value).__name__} is not JSON")


def _surrogate_trait(text: str) -> int:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _EXTENDED
    return _PLAIN


def _write_extended(value: Any) -> str:
    """Write the values RFC 8785 refuses, in its own key order (UTF-16 code units)."""
    if isinstance(value, dict):
        ordered = sorted(
            value.items(), key=lambda item: item[0].encode("utf-16-be", "surrogatepass")
        )
        return "{" + ",".join(f"{_write_text(k)}:{_write_extended(v)}" for k, v in ordered) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(_write_extended(item) for item in value) + "]"
    if isinstance(value, str):
        return _write_text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return rfc8785.dumps(value).decode()


def _write_text(text: str) -> str:
    return "".join(
        f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char
        for char in json.dumps(text, ensure_ascii=False)
    )


def stream(seed: str, label: str) -> Iterator[int]:
    """Draw 64-bit integers from sha256 in counter mode; equal arguments give equal draws.

    Yields:
        Integers in [0, 2^64), without end. Source: DESIGN.md §2.
    """
    prefix = f"{seed}\x00{label}\x00".encode("utf-8", "surrogatepass")
    counter = 0
    while True:
        block = hashlib.sha256(prefix + counter.to_bytes(8, "big")).digest()
        for start in range(0, 32, 8):
            yield int.from_bytes(block[start : start + 8], "big")
        counter += 1


def has_lone_surrogate(text: str) -> bool:
    """Say whether UTF-8 cannot carry a text."""
    return not text.isascii() and _surrogate_trait(text) == _EXTENDED


def escape_surrogates(text: str) -> str:
    """Write each lone surrogate as its JSON escape; two texts may come to be one."""
    if not has_lone_surrogate(text):
        return text
    return "".join(f"\\u{ord(c):04x}" if "\ud800" <= c <= "\udfff" else c for c in text)


_ESCAPED = "\ufffd"


def safe_text(text: str) -> str:
    r"""Give an id that UTF-8 can carry; different ids stay different.

    An id with a lone surrogate becomes U+FFFD, then the id with each backslash doubled and each
    lone surrogate as the text of its escape: U+D800 gives `�\ud800`. So does an id that begins with
    U+FFFD, since it could be such a text; every other id stays as it is. What was made safe is not
    to be made safe again.
    """
    if not text.startswith(_ESCAPED) and not has_lone_surrogate(text):
        return text
    return _ESCAPED + escape_surrogates(text.replace("\\", "\\\\"))


def get_field(mapping: Mapping[str, Any], key: str, kind: type[_T]) -> _T | None:
    """Give `mapping[key]` if it has the wanted type, else `None`; `bool` is no `int`.

    Recordings are hostile: a field of another type than documented counts as not recorded.
    """
    value = mapping.get(key)
    if type(value) is kind or (isinstance(value, kind) and not isinstance(value, bool)):
        return value
    return None
