"""The comparable form of what happened: digests of texts, arguments and results.

Knows which differences can change a decision, and which are ignored and counted. Must not know
where two paths part (compare) nor who is asked again (replay).

A signature leaves out ids, timestamps and durations. Arguments are compared as JSON values: absent,
empty and `{}` are one value, and argument text that is no strict JSON, or that names a key twice,
is its own verbatim value.

Source: DESIGN.md §3 "Evidence is bytes", §5 "Two comparisons".
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import msgspec
from msgspec import Raw, UnsetType

from redrive import canonical
from redrive.record.decisions import JSON_CONTENT, JsonDecision, parse_json_decision
from redrive.record.event import Kind, ToolResult

NOT_RECORDED = b""


_hash = hashlib.sha256


def sha256(data: bytes) -> bytes:
    """Hash raw bytes: 32 bytes."""
    return _hash(data).digest()


EMPTY_TEXT = sha256(b"")
EMPTY_ARGUMENTS = sha256(b"{}")

RULES_VERSION = 1
ARGUMENT_BYTES = "argument_bytes"
CALL_ID = "call_id"
DECISION_TEXT_BYTES = "decision_text_bytes"
RULES: Mapping[str, str] = {
    ARGUMENT_BYTES: "arguments that are one JSON value, written in other bytes",
    CALL_ID: "ids of calls that are otherwise equal, where both sides state one",
    DECISION_TEXT_BYTES: "under json_content, the bytes of an answer text that is a decision",
}
"""Normalisation rules, version `RULES_VERSION`: name → the difference it ignores and counts."""


class CallSignature(msgspec.Struct, frozen=True, gc=False):
    """A tool and the digest of its canonical arguments; `NOT_RECORDED` equals no evidence."""

    tool: str
    arguments: bytes


class ResultSignature(msgspec.Struct, frozen=True, gc=False):
    """Status and digest of the canonical result; `NOT_RECORDED` where there is none."""

    status: str
    result: bytes


class DecisionSignature(msgspec.Struct, frozen=True, gc=False):
    """One decision, comparable.

    Attributes:
        text: digest of the answer text.
        calls: in call order, which is part of the decision.
        is_final: whether the run ends with it.
        results: per call, where two records are compared; a replay serves the recorded results,
            digest-checked, so its signatures hold none.
    """

    text: bytes
    calls: tuple[CallSignature, ...]
    is_final: bool
    results: tuple[ResultSignature, ...] = ()

    def decides_as(self, other: "DecisionSignature") -> bool:
        """Compare the decision alone: tools, canonical arguments, termination."""
        return self.calls == other.calls and self.is_final == other.is_final


class Signature(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event, comparable, as a report shows it: hex digests, absent where the kind has none."""

    kind: Kind
    tool: str | None = None
    argument_hash: str | None = None
    result_hash: str | None = None
    status: str | None = None
    text_hash: str | None = None


def event_signatures(decision: DecisionSignature) -> tuple[Signature, ...]:
    """Write a decision as the signatures of its events: the answer, its calls, their results."""
    answer = Signature(Kind.MODEL_RESPONSE, text_hash=decision.text.hex())
    calls = tuple(
        Signature(Kind.TOOL_CALL, tool=call.tool, argument_hash=call.arguments.hex() or None)
        for call in decision.calls
    )
    results = tuple(
        Signature(
            Kind.TOOL_RESULT,
            tool=call.tool,
            result_hash=result.result.hex() or None,
            status=result.status,
        )
        for call, result in zip(decision.calls, decision.results, strict=False)
    )
    return (answer, *calls, *results)


class Digests(msgspec.Struct, frozen=True, gc=False):
    """Of one value: its digest, which is compared, and a checksum of the bytes it was written in.

    The checksum only counts ignored differences between values that are equal by digest.
    """

    value: bytes
    source: int


def text_digest(text: str) -> bytes:
    """Hash a text; a lone surrogate is hashed as `surrogatepass` encodes it."""
    return sha256(canonical.text_bytes(text)) if text else EMPTY_TEXT


def argument_digests(arguments: Raw | UnsetType, text: str | None) -> Digests:
    """Hash a call's arguments.

    Args:
        arguments: the JSON value, where one was recorded.
        text: the argument text, where that was recorded instead.

    Returns:
        Equal `value`s for equal JSON values. Text that is no strict JSON, holds a number that has
        no exact form, or names a key twice, equals only the same text.
    """
    data = _bytes_of(text) if isinstance(arguments, UnsetType) else bytes(arguments)
    if not data:
        return Digests(EMPTY_ARGUMENTS, 0)
    written = canonical_bytes(data)
    return Digests(_hash(data if written is None else written).digest(), crc32(data))


def _bytes_of(text: str | None) -> bytes:
    return canonical.text_bytes(text) if text else b""


def canonical_bytes(data: bytes) -> bytes | None:
    """Write a JSON text canonically; `None` where it must be taken verbatim.

    Cost: one decode and one encode for plain ASCII objects and lists without fractions, for which
    sorting the keys is the whole canonical form.
    """
    if data[:1] in _CONTAINERS and data.isascii() and (b"\\" not in data or b"\\u" not in data):
        try:
            written = _encode_sorted(_decode_whole(data))
        except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
            pass
        else:
            if len(written) == len(data):  # shorter at least by a member that was dropped
                return written
            # Each member has a colon: one that a duplicate key dropped shows in their number.
            return written if data.count(b":") == written.count(b":") else None
    try:
        decoded = canonical.decode(data)
        if not decoded.is_exact or _has_duplicate_keys(data):
            return None
        return canonical.canonical(decoded.value)
    except (ValueError, TypeError, RecursionError):
        return None


def _refuse_fraction(source: str) -> float:
    raise ValueError(source)


_CONTAINERS = (b"{", b"[")
_decode_whole = msgspec.json.Decoder(float_hook=_refuse_fraction).decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def _has_duplicate_keys(data: bytes) -> bool:
    """Look for a key that stands twice in one object."""
    found = False

    def collect(pairs: list[tuple[str, Any]]) -> None:
        nonlocal found
        found = found or len({key for key, _ in pairs}) < len(pairs)

    json.loads(data, object_pairs_hook=collect, parse_int=str)
    return found


def result_signature(result: ToolResult | None) -> ResultSignature:
    """Sign a recorded result by value; `null` is a value, an absent result is none."""
    if result is None or isinstance(result.result, UnsetType):
        return ResultSignature("", NOT_RECORDED)
    data = bytes(result.result)
    written = canonical_bytes(data)
    return ResultSignature(result.status, sha256(data if written is None else written))


class DecisionText(msgspec.Struct, frozen=True):
    """An answer text, taken apart: the call that it holds, if any, and what is left as text."""

    rest: str
    call: JsonDecision | None = None


def split_text(text: str, decisions: str) -> DecisionText:
    """Take an answer text apart.

    Args:
        text: the answer.
        decisions: `tool_calls` or `json_content`; under the latter a text that parses to
            {tool, arguments} is a call, and only its further fields are left as text, canonically
            where they have such a form, else as they were written.
    """
    if decisions != JSON_CONTENT or "{" not in text:
        return DecisionText(text)
    call = parse_json_decision(text)
    if call is None:
        return DecisionText(text)
    if not call.further:
        return DecisionText("", call)
    data = "{" + ",".join([f"{_key(name)}:{value}" for name, value in call.further]) + "}"
    written = canonical_bytes(data.encode())
    return DecisionText(data if written is None else written.decode(), call)


def _key(name: str) -> str:
    return canonical.encode(name).decode()
