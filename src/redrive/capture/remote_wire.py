"""What an agent's process and the one that records or serves say to each other over HTTP.

Each message is a POST of one JSON object to `URL/ROUTE`, answered with one `Told`. `ROUTES` names
them all. Bytes stand as base64: bodies as they are, JSON values as their text, texts as UTF-8 that
may hold lone surrogates; so nothing is read twice, and no number changes.

**Places.** A backend tells flows by the context that calls, so each message says where it comes
from. A place is a context of one thread or task: `id` is new in each, `parent` is the place that it
was inherited from (a task copies the context of who started it), `thread` and `task` name who acts,
unlike any other's of any process. All are opaque texts. Entering a named flow begins a place.

**Numbers.** `number` counts the messages of one thread; a message that comes again with the same
one, because its connection broke, is answered as before and done once.

Source: issue 4 §5; `redrive.capture.ports`.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer
from redrive.errors import UsageError
from redrive.record.event import Kind

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Of one message, as the proxy takes it; so a body has at most 47 MiB."""

_Id = Annotated[str, Meta(max_length=128)]
_Number = Annotated[int, Meta(ge=0, le=2**53)]
_MAX_NS = 2**63 - 1
_Ns = Annotated[int, Meta(ge=0, le=_MAX_NS)]
_Word = Annotated[str, Meta(max_length=64)]
_Text = Annotated[bytes, Meta(max_length=1024 * 1024)]


class Place(msgspec.Struct, frozen=True):
    """Where in an agent a message comes from; see the module."""

    id: _Id
    thread: _Id
    parent: _Id | None = None
    task: _Id | None = None


class Asked(msgspec.Struct, frozen=True):
    """Base of every message; alone it is `hello`, and `leave` of the place that it comes from."""

    place: Place
    number: _Number


class AskedSent(Asked, frozen=True, kw_only=True):
    """A request that is about to go out."""

    request: SentRequest


class AskedResponse(Asked, frozen=True, kw_only=True):
    """The next part of an answer: its status, its next bytes, its end, as far as they came."""

    handle: _Number
    status: Annotated[int, Meta(ge=0, le=999)] | None = None
    headers: Headers = ()
    at_ns: _Ns = 0
    data: bytes = b""
    outcome: Outcome | None = None
    ended_ns: _Ns = 0
    message: _Text = b""


class AskedRead(Asked, frozen=True, kw_only=True):
    """A read; with its value where it was taken, which it is where the other side records."""

    kind: Kind
    name: _Text
    value: bytes | None = None


class AskedDerive(Asked, frozen=True, kw_only=True):
    """A derived value, as the agent computed it.

    Attributes:
        name, function, version: what was computed.
        inputs: the JSON list of the ordered inputs.
        value: the value; absent where it has no JSON form, or where there is none.
        error: in a rerun, the type and the text of what was raised in place of a value.
    """

    name: _Text
    function: _Text
    version: _Text | None
    inputs: bytes
    value: bytes | None = None
    error: tuple[_Text, _Text] | None = None


class AskedCall(Asked, frozen=True, kw_only=True):
    """A tool's call that is about to run."""

    tool: _Text
    effect: _Word
    arguments: bytes
    is_unsafe: bool
    seam: _Word = "tool"


class AskedReturned(Asked, frozen=True, kw_only=True):
    """How a tool ended: one of a result, the type of one without JSON form, an error.

    `is_error`: the result itself says that the tool failed.
    """

    handle: _Number
    result: bytes | None = None
    is_error: bool = False
    unknown: _Text | None = None
    error: tuple[_Text, _Text] | None = None


class AskedEnter(Asked, frozen=True, kw_only=True):
    """A named flow begins: in the place that the message comes from, which is new."""

    name: _Text


class AskedReport(Asked, frozen=True, kw_only=True):
    """A result that someone saw who did not run the tool; see `tool_recording.ReportedResult`."""

    call_id: _Text | None
    tool: _Text
    arguments: bytes
    result: bytes
    status: _Word
    seam: _Word


class AskedNote(Asked, frozen=True, kw_only=True):
    """A fact of a kind of its own; `fields` is a JSON object."""

    name: _Text
    fields: bytes
    call_id: _Text | None = None
    is_durable: bool = False


class AskedEvent(Asked, frozen=True, kw_only=True):
    """An event that a seam has made; `payload` as `record.event.dump_payload` writes it."""

    kind: Kind
    payload: bytes
    call_id: _Text | None = None


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to every message.

    Attributes:
        is_serving: on `hello`.
        value: a value, as recorded or served; absent for one without JSON form.
        handle: names an exchange or a call that is going on.
        answer: what is served in place of sending.
        result, error: what is served in place of running a tool.
        stopped: the rerun is over: why.
        refused: what was asked could not be stored, and the recorder is fail-closed: why.
    """

    is_serving: bool | None = None
    value: bytes | None = None
    handle: int | None = None
    answer: ServedAnswer | None = None
    result: bytes | None = None
    error: tuple[bytes, bytes] | None = None
    stopped: bytes | None = None
    refused: bytes | None = None


ROUTES: dict[str, type[Asked]] = {
    "hello": Asked,
    "sent": AskedSent,
    "response": AskedResponse,
    "read": AskedRead,
    "derive": AskedDerive,
    "call": AskedCall,
    "returned": AskedReturned,
    "enter": AskedEnter,
    "leave": Asked,
    "report": AskedReport,
    "note": AskedNote,
    "event": AskedEvent,
}
_DECODERS = {route: msgspec.json.Decoder(kind) for route, kind in ROUTES.items()}
_ANSWER = msgspec.json.Decoder(Told)


def dump_message(message: Asked | Told) -> bytes:
    """Write a message or an answer."""
    return msgspec.json.encode(message)


def parse_asked(route: str, body: bytes) -> Any:
    """Read the message of a route.

    Raises:
        UsageError: no such route; the body is too large, no JSON, or not of that message's shape;
            a time that is none.
    """
    if route not in _DECODERS:
        raise UsageError(f"the recorder has no route {route[:64]!r}")
    if len(body) > MAX_MESSAGE_BYTES:
        raise UsageError(f"a message of {len(body)} bytes is larger than {MAX_MESSAGE_BYTES}")
    try:
        asked = _DECODERS[route].decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"no message of {route}: {str(error)[:200]}") from error
    if isinstance(asked, AskedSent) and not 0 <= asked.request.at_ns <= _MAX_NS:
        raise UsageError("a request was sent at no time")
    return asked


def parse_told(body: bytes) -> Told:
    """Read an answer.

    Raises:
        ValueError: it is none.
    """
    return _ANSWER.decode(body)


def dump_text(text: str) -> bytes:
    """Write a text that may hold lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def parse_text(data: bytes) -> str:
    """Read what `dump_text` wrote.

    Raises:
        UsageError: it is not UTF-8.
    """
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise UsageError(f"a text is not UTF-8: {error}") from error
