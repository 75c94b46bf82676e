"""What the seams of an agent see, and who they tell: the ports of the recorder.

A seam is a place where something from outside reaches an agent: its HTTP client, the proxy before
the model, a tool's function, a clock, dice. Seams know how to observe and how to serve; a
`Backend` says which of the two happens. `recording` writes down what happened, a rerun serves what
was written down: the agent's code cannot tell them apart.

Nothing here knows stores, formats or verbs.

Source: DESIGN.md §2, §3 "Provenance manifest".
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive.record.event import Event, Kind

Headers = tuple[tuple[str, str], ...]
"""Names in lower case, in the order sent; a name may come twice."""


class Outcome(StrEnum):
    """How an exchange ended."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"  # the agent closed its side before the end
    CUT = "cut"  # the server closed its side before the end
    FAILED = "failed"  # no answer came at all


class SentRequest(msgspec.Struct, frozen=True):
    """A request as the agent sent it.

    Attributes:
        method: such as `POST`.
        url: where it goes, with its query; our own path token is not part of it.
        headers: all of them; whoever records leaves out credentials.
        body: the exact bytes, content encoding included.
        at_ns: UTC nanoseconds when its last byte was there.
        flow: the flow that the agent itself named (a sub-agent), if it did.
        added: fields that the recorder put into the body.
    """

    method: str
    url: str
    headers: Headers
    body: bytes
    at_ns: int
    flow: str | None = None
    added: tuple[str, ...] = ()


class ServedAnswer(msgspec.Struct, frozen=True):
    """A recorded answer, to be served in place of a live one.

    Attributes:
        status: 0 where no answer came.
        headers: those that were recorded; the body's content encodings among them.
        body: as it came over the wire, as far as it came.
        outcome: how the recorded exchange ended; one that failed or was cut does so again.
        message: as the observer was told it: the name of the error's class.
    """

    status: int
    headers: Headers
    body: bytes
    outcome: Outcome = Outcome.COMPLETE
    message: str = ""


class ExchangeObserver(Protocol):
    """Is told what came back for one request; each call returns at once."""

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:
        """Take status and headers of the answer."""
        ...

    def received(self, data: bytes) -> None:
        """Take the next bytes of the answer's body, exactly as they are passed on to the agent."""
        ...

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:
        """Take the end; called once. `message` says what failed, free of credentials."""
        ...


class CallObserver(Protocol):
    """Is told how a tool ended."""

    def returned(self, result: Raw, *, is_error: bool = False) -> None:
        """Take the result as JSON; `is_error` where the tool itself says that it failed."""
        ...

    def returned_unknown(self, type_name: str) -> None:
        """Take that the result has no JSON form; the record will lack it, by name."""
        ...

    def raised(self, type_name: str, message: str) -> None:
        """Take the error that the tool ended with."""
        ...


class ServedResult(msgspec.Struct, frozen=True):
    """A recorded result: JSON, or the error (type name, message) that the tool ended with."""

    result: Raw | UnsetType = UNSET
    error: tuple[str, str] | None = None


class HttpBackend(Protocol):
    """Who is behind a proxy: the part of a `Backend` that exchanges of HTTP need."""

    @property
    def is_serving(self) -> bool:
        """Whether what is recorded is served, and nothing real is asked."""
        ...

    def sent(self, request: SentRequest) -> ExchangeObserver | ServedAnswer:
        """Take a request before it goes out; an answer means that it must not go out."""
        ...


class Passing(msgspec.Struct, frozen=True):
    """A request that may go out.

    Attributes:
        observer: is told what comes back; `None` where nobody is.
        body: is sent in place of the agent's.
        headers: stand in what is sent in place of those of the same name; told to nobody else.
        dropped: names of headers, in lower case, that are not sent.
    """

    observer: ExchangeObserver | None
    body: bytes | None = None
    headers: Headers = ()
    dropped: frozenset[str] = frozenset()


class Gate(Protocol):
    """Decides for each request at a proxy whether it goes out, as long as that may take."""

    async def admit(
        self, name: str, request: SentRequest, fields: Mapping[bytes, bytes]
    ) -> Passing | ServedAnswer:
        """Take a request before it goes out; an answer means that it must not go out.

        Args:
            name: of the upstream that it is for.
            request: as it would be sent.
            fields: its headers as the agent sent them, by name in lower case.
        """
        ...


class Backend(Protocol):
    """Who is behind the seams: a recorder, or a rerun that serves a recorded session.

    Safe to call from any thread and any asyncio task; the flow of execution is told from the
    context that calls. In a rerun each method may raise `RerunStopped`, a `BaseException`: the
    agent asked for something else than the record holds.
    """

    @property
    def is_serving(self) -> bool:
        """Whether what is recorded is served: nothing real is asked, and a sleep takes no time."""
        ...

    def sent(self, request: SentRequest) -> ExchangeObserver | ServedAnswer:
        """Take a request before it goes out; an answer means that it must not go out."""
        ...

    def read(self, kind: Kind, name: str, take: Callable[[], Any]) -> Any:
        """Take or serve a read.

        Args:
            kind: `CLOCK_READ` or `PRNG_READ`.
            name: what was read, with its arguments, such as `random.uniform(0.1, 0.5)`.
            take: reads the real thing and gives a JSON value, `None` if it has no JSON form; not
                called where it is served. What it raises is passed on, and nothing is recorded.

        Returns:
            The JSON value, as read or as recorded.
        """
        ...

    def begin_call(
        self, tool: str, effect: str, arguments: Raw, *, is_unsafe: bool, seam: str = "tool"
    ) -> CallObserver | ServedResult:
        """Take a tool's call before it runs; a result means that it must not run.

        With `is_unsafe` the call is durable before this returns. `seam` is `tool` (the function
        itself), `mcp`, `mcp_http` or `hook`.
        """
        ...

    def derive(
        self, name: str, function: str, version: str | None, inputs: Raw, compute: Callable[[], Any]
    ) -> Any:
        """Take or serve a value that the harness computes from ordered inputs (a JSON list).

        `compute` gives a JSON value, or `UNSET` where the value has no JSON form: the record then
        lacks it. What it gave, or the recorded value, is given back.
        """
        ...

    def declare_tool(self, tool: str, effect: str) -> None:
        """Take the effect class of a tool, as soon as it is declared."""
        ...

    def enter_flow(self, name: str) -> object:
        """Begin a flow of its own (a sub-agent) in this context; give what `leave_flow` takes."""
        ...

    def leave_flow(self, token: object) -> None:
        """Go back to the flow before."""
        ...


class Journal(Protocol):
    """Keeps the events of one session durably, in order; from one thread at a time.

    The store's recording implements it (`redrive.stores`), the recorder uses it.
    """

    @property
    def session_id(self) -> str:
        """The id that the session has in the store."""
        ...

    @property
    def next_seq(self) -> int:
        """The seq that the next event must have."""
        ...

    def commit(self, events: Sequence[Event], artefacts: Sequence[bytes]) -> None:
        """Store events and the bytes that they point at, all or none; durable on return.

        Args:
            events: dense in seq, from `next_seq`.
            artefacts: verbatim bytes; an event's `source.artefact` is the sha256 of one of them.
        """
        ...

    def close(self) -> None:
        """End the recording: write the session's counts, give up its lock. Idempotent."""
        ...

    def abandon(self) -> None:
        """End the recording after a fault: write nothing more, give up the lock. Idempotent."""
        ...


class RecordingFault(msgspec.Struct, frozen=True):
    """Why nothing is recorded any more: the recorder is poisoned."""

    message: str
    at_ns: int
    n_lost: int
