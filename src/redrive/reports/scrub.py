"""Redacts one event, before or after it is stored, and names its bytes anew where they changed.

Knows payloads, as JSON, and what of them tells of a secret that was masked elsewhere: digests of
the bytes, token ids. Must not know stores or recorders.

What holds no secret comes out as the same object. What does gets marks, and a `redactions` entry
per place, so that the audit names the step open.

Source: DESIGN.md §10 "Redaction marks"; docs/redaction.md.
"""

import re
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.record.event import Event, Kind, Redaction, Source, payload_type
from redrive.reports.redact import Redactor
from redrive.reports.scrub_paths import find_redactions

__all__ = ["Moved", "redact_event", "settle"]

SOURCE_PATH = "source"
_ANSWERS = frozenset({Kind.MODEL_RESPONSE, Kind.MODEL_ERROR, Kind.CUSTOM})
_TOKENS = ("chosen_tokens", "has_logits")
_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_decode_redactions = msgspec.json.Decoder(tuple[Redaction, ...]).decode


class Moved(NamedTuple):
    """What stands in place of an artefact that held a secret: its sha256, size, and a rule."""

    digest: str
    size: int
    rule: str


def redact_event(event: Event, redactor: Redactor) -> tuple[Event, tuple[Redaction, ...]]:
    """Redact one event: its payload, and the ids that it is known by.

    Returns:
        The event itself and nothing, where it holds no secret. Else one whose payload is JSON of
        the same shape, with what was masked listed in it (at most `MAX_LISTED`), where its kind has
        such a list; the digest of a masked request is that of the masked one.
    """
    is_text, data = _unwrap(event.payload)
    redacted = redactor.json(data)
    event = _redact_ids(event, redactor)
    if redacted is data:
        return event, ()
    found = find_redactions(data, redacted)
    if event.kind is Kind.MODEL_REQUEST:
        redacted = _rename_body(data, redacted)
    changed = _list(event.kind, redacted, found)
    return msgspec.structs.replace(event, payload=_wrap(changed, is_text=is_text)), found


def _unwrap(payload: Raw) -> tuple[bool, bytes]:
    """Give a payload's JSON; one with a lone surrogate is stored as the text of its JSON."""
    raw = bytes(payload)
    is_text = raw[:1] == b'"'
    return is_text, msgspec.json.decode(raw, type=str).encode() if is_text else raw


def _wrap(data: bytes, *, is_text: bool) -> Raw:
    return Raw(msgspec.json.encode(data.decode()) if is_text else data)


def _redact_ids(event: Event, redactor: Redactor) -> Event:
    """Redact the ids of an event; equal ids stay equal, since equal secrets have equal marks."""
    fields = ("id", "node_id", "parent_id", "actor", "call_id", "group", "supersedes")
    values = [getattr(event, name) for name in fields]
    data = canonical.encode([values])
    redacted = redactor.json(data)
    if redacted is data:
        return event
    (changed,) = canonical.decode_value(redacted)
    return msgspec.structs.replace(event, **dict(zip(fields, changed, strict=True)))


def _rename_body(old: bytes, new: bytes) -> bytes:
    """Write the digest of a masked request's body where that of the body as it was sent stands."""
    before, after = (canonical.digest(_body_of(data)) for data in (old, new))
    return new.replace(before.encode(), after.encode())


def _body_of(data: bytes) -> bytes:
    members = _members(data)
    body = members.get("body", b'""')
    value = canonical.decode_value(body)
    return canonical.text_bytes(value) if isinstance(value, str) else b""


def _members(data: bytes) -> dict[str, bytes]:
    """Split a payload; one that is nested too deeply has no members here."""
    try:
        return dict(canonical.split_object(data))
    except ValueError:
        return {}


def _list(kind: Kind, data: bytes, found: Sequence[Redaction]) -> bytes:
    """List redactions in a payload, where its kind has such a list, and drop what spells them."""
    members = _members(data)
    if kind is Kind.MODEL_RESPONSE:
        for name in _TOKENS:
            members.pop(name, None)
    if members and "redactions" in payload_type(kind).__struct_fields__:
        listed = _decode_redactions(members.get("redactions", b"[]"))
        members["redactions"] = canonical.encode(tuple(dict.fromkeys((*listed, *found))))
    if not members:
        return data
    pairs = (canonical.encode(name) + b":" + value for name, value in members.items())
    return b"{" + b",".join(pairs) + b"}"


def settle(event: Event, moved: Mapping[str, Moved], masked_nodes: Container[str]) -> Event:
    """Let a redacted event name the bytes that are stored now, and drop what spells its secrets.

    Args:
        event: as `redact_event` gave it.
        moved: sha256 of an artefact → what stands in its place.
        masked_nodes: ids of nodes in which something was masked: the token ids of a response spell
            its calls as well.

    Returns:
        The event itself, where nothing of this concerns it.
    """
    is_text, data = _unwrap(event.payload)
    renamed, rules = data, list[str]()
    if event.source.artefact or event.kind is Kind.CUSTOM:
        renamed, rules = _rename(data, moved)
    at = moved.get(event.source.artefact)
    if at is not None:
        rules.append(at.rule)
        event = msgspec.structs.replace(event, source=Source(at.digest, 0, at.size))
    is_answer = event.kind in _ANSWERS and bool(rules)
    is_spelled = event.kind is Kind.MODEL_RESPONSE and event.node_id in masked_nodes
    if is_answer or (is_spelled and _spells(renamed)):
        found = [Redaction(SOURCE_PATH, rule) for rule in dict.fromkeys(rules)]
        renamed = _list(event.kind, renamed, found)
    if renamed is data:
        return event
    return msgspec.structs.replace(event, payload=_wrap(renamed, is_text=is_text))


def _rename(data: bytes, moved: Mapping[str, Moved]) -> tuple[bytes, list[str]]:
    """Name the artefacts of a payload that moved; give the rules that they moved by."""
    found = [moved[name] for m in _DIGEST.finditer(data) if (name := m[0].decode()) in moved]
    if not found:
        return data, []
    renamed = _DIGEST.sub(
        lambda m: moved[name].digest.encode() if (name := m[0].decode()) in moved else m[0], data
    )
    return renamed, [place.rule for place in found]


def _spells(data: bytes) -> bool:
    return any(name in _members(data) for name in _TOKENS)
