"""How an event becomes one stored line, and a stored line that event again, byte for byte.

Knows events and large texts. Must not know segments. The large fields of a model request are taken
out of its payload and stored as texts; a payload with a line break inside, or one that is nested
deeply, is stored as a string. Such a payload stands in its line as
`{"$stored": [[field, offset, sha256], …], "rest": …}`: `rest` is the payload with the empty string
at each offset, to be replaced from the last to the first.

Source: DESIGN.md §3 "Evidence is bytes".
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive.errors import RecordError, TamperError
from redrive.record.event import Event, Kind
from redrive.stores.texts import TextStore

MIN_TEXT_BYTES = 2048
MAX_DEPTH = 400  # the decoders follow at most Python's recursion limit, 1,000 by default
_PREFIX = b'{"$stored":'
MARK = b'"payload":' + _PREFIX
_HOLE = b'""'
_LINE_BREAK, _DOLLAR = b"\n"[0], b"$"[0]  # one byte is looked for much faster than two
_SURELY_PLAIN_BYTES = min(MIN_TEXT_BYTES, 2 * MAX_DEPTH)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class _Fields(msgspec.Struct, frozen=True, gc=False):
    """The fields of a model request that grow with a session."""

    body: Raw | UnsetType = UNSET
    context: Raw | UnsetType = UNSET
    parts: Raw | UnsetType = UNSET


class TextRef(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A hole in a payload: its field (empty: all of it), byte offset, and the text's sha256."""

    field: str
    offset: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Stored(msgspec.Struct, frozen=True, gc=False):
    """A payload that is not stored as it is."""

    texts: tuple[TextRef, ...] = msgspec.field(name="$stored")
    rest: Raw


_encode = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_fields = msgspec.json.Decoder(_Fields).decode
_decode_stored = msgspec.json.Decoder(_Stored).decode


class Packer:
    """Turns the events of one session to lines, in order.

    Args:
        texts: where large texts go.
        previous: (actor, field) → digest of the last text stored for it.
    """

    def __init__(self, texts: TextStore, previous: dict[tuple[str, str], bytes]) -> None:
        self._texts = texts
        self._previous = previous

    def pack(self, event: Event) -> bytes:
        """Write an event as a line, without its line break.

        Raises:
            RecordError: an id or a name of the event cannot be written as UTF-8.
        """
        try:
            return _encode(self._stored_form(event))
        except UnicodeEncodeError as error:
            raise RecordError(f"event {event.seq} has an id that is no UTF-8 text") from error

    def pack_all(self, events: Sequence[Event]) -> list[bytes]:
        """Write events as lines, as `pack` does; faster where all of them are small and plain."""
        try:
            lines = list(map(_encode, events))
        except UnicodeEncodeError:
            lines = []  # `pack` says which one
        payloads = b"".join([event.payload for event in events])
        longest = max(map(len, lines), default=_SURELY_PLAIN_BYTES + 1)
        if longest <= _SURELY_PLAIN_BYTES and _is_plain(payloads):
            return lines
        return list(map(self.pack, events))

    def _stored_form(self, event: Event) -> Event:
        """Give the event with the payload as its line holds it."""
        payload = rest = bytes(event.payload)
        if len(payload) <= _SURELY_PLAIN_BYTES and _is_plain(payload):
            return event
        refs: list[TextRef] = []
        is_deep = _is_deep(payload)
        if event.kind is Kind.MODEL_REQUEST and len(payload) > MIN_TEXT_BYTES and not is_deep:
            rest, refs = self._take_texts(event.actor, payload)
        is_string = is_deep or b"\n" in rest
        if refs or is_string or payload.startswith(_PREFIX):
            whole = _encode(rest.decode()) if is_string else rest
            stored = _encode(_Stored(tuple(refs), Raw(whole)))
            return msgspec.structs.replace(event, payload=Raw(stored))
        return event

    def _take_texts(self, actor: str, payload: bytes) -> tuple[bytes, list[TextRef]]:
        """Put a hole in the place of each large field; give what is left, and the holes."""
        if not payload.startswith(b"{"):  # a payload with a lone surrogate, as one string
            return _HOLE, [self._take(actor, "", 0, payload)]
        refs: list[TextRef] = []
        fields = _decode_fields(payload)
        for name in fields.__struct_fields__:
            value = getattr(fields, name)
            if value is UNSET or len(token := bytes(value)) <= MIN_TEXT_BYTES:
                continue
            label = b'"%s":' % name.encode()
            start = payload.find(label + token) + len(label)
            if start >= len(label):
                refs.append(self._take(actor, name, start, token))
                payload = payload[:start] + _HOLE + payload[start + len(token) :]
        return payload, refs

    def _take(self, actor: str, name: str, start: int, token: bytes) -> TextRef:
        digest = self._texts.put(token, self._previous.get((actor, name)))
        self._previous[actor, name] = digest
        return TextRef(name, start, digest.hex())


def _is_plain(payload: bytes) -> bool:
    """Say whether a payload, or several, hold neither a line break nor our own mark.

    If they are short as well, they are stored as they are.
    """
    return _LINE_BREAK not in payload and (_DOLLAR not in payload or _PREFIX not in payload)


def _is_deep(payload: bytes) -> bool:
    """Say whether a payload is nested so deeply that a line around it might not be decoded.

    Brackets in texts are counted too: such a payload is merely stored as a string.
    """
    if len(payload) <= 2 * MAX_DEPTH or payload.count(b"[") + payload.count(b"{") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    for bracket in payload.translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest > MAX_DEPTH


def unpack(line: bytes, texts: TextStore) -> Event:
    """Read a line back to the event that was packed.

    Raises:
        TamperError: the line is no event, or a text that it names is missing or damaged.
    """
    event = unpack_envelope(line)
    stored = _find_stored(event, line)
    if stored is None:
        return event
    rest = bytes(_rest_of(stored))
    for ref in reversed(stored.texts):
        token = texts.get(bytes.fromhex(ref.sha256))
        rest = rest[: ref.offset] + token + rest[ref.offset + len(_HOLE) :]
    return msgspec.structs.replace(event, payload=Raw(rest))


def unpack_without_texts(line: bytes) -> Event:
    """Read a line to its event, whose large texts are left out: each is the empty string.

    Raises:
        TamperError: the line is no event.
    """
    event = unpack_envelope(line)
    stored = _find_stored(event, line)
    return event if stored is None else msgspec.structs.replace(event, payload=_rest_of(stored))


def unpack_envelope(line: bytes) -> Event:
    """Read a line to an event whose payload stays as it is stored.

    Raises:
        TamperError: the line is no event.
    """
    try:
        return _decode_event(line)
    except msgspec.DecodeError as error:
        raise TamperError(f"a stored line is no event: {error}") from error


def _rest_of(stored: _Stored) -> Raw:
    """Give a payload with a hole in the place of each text."""
    rest = bytes(stored.rest)
    if rest.startswith(b'"') and rest != _HOLE:
        return Raw(msgspec.json.decode(rest, type=str).encode())
    return stored.rest


def find_texts(line: bytes) -> tuple[Event, tuple[TextRef, ...]] | None:
    """Give an event and the texts that its line names; `None` where it names none."""
    if MARK not in line:
        return None
    event = unpack_envelope(line)
    stored = _find_stored(event, line)
    return None if stored is None else (event, stored.texts)


def _find_stored(event: Event, line: bytes) -> _Stored | None:
    """Read how a payload is stored; `None` where it stands as it is."""
    if MARK not in line:
        return None
    payload = bytes(event.payload)
    if not payload.startswith(_PREFIX):
        return None
    try:
        return _decode_stored(payload)
    except msgspec.DecodeError as error:
        raise TamperError(f"a stored payload cannot be read: {error}") from error
