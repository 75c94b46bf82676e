"""What an agent's own code asks for in a rerun, and what it is told: values alone.

Knows what a rerun is made of. Must not know what comes after what (`rerun`), nor what a difference
means (`redrive.compare.rerun_verdict`).

Source: DESIGN.md §2 "Replays are stepped values"; issue "The recorder" §5.
"""

from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec import Raw

from redrive.record.event import Kind
from redrive.replay.rerun_items import Item, Lack, RecordedExchange, RecordedValue


class AskExchange(msgspec.Struct, frozen=True, gc=False):
    """The agent sends a request.

    Attributes:
        flow: which flow of execution.
        method: such as `POST`.
        path: of the URL, without query.
        body: the exact bytes.
        is_model: whether it goes to an API of models.
        added: members that a seam put into the body.
    """

    flow: str
    method: str
    path: str
    body: bytes
    is_model: bool = True
    added: tuple[str, ...] = ()


class AskRead(msgspec.Struct, frozen=True, gc=False):
    """The agent reads a clock, or draws."""

    flow: str
    kind: Kind
    name: str


class AskCall(msgspec.Struct, frozen=True, gc=False):
    """The agent runs a tool; `arguments` is JSON."""

    flow: str
    tool: str
    arguments: Raw


class AskValue(msgspec.Struct, frozen=True, gc=False):
    """The agent derives a value; `inputs` is a JSON list."""

    flow: str
    name: str
    function: str
    version: str | None
    inputs: Raw


class Recomputed(msgspec.Struct, frozen=True, gc=False):
    """The agent's own function gave this for the recorded inputs; `error` where it raised."""

    recorded: RecordedValue
    asked: AskValue
    value: Raw
    error: str | None = None

    @property
    def flow(self) -> str:
        """Which flow of execution."""
        return self.asked.flow


class AskEnd(msgspec.Struct, frozen=True, gc=False):
    """The agent's code is at its end."""


Ask: TypeAlias = AskExchange | AskRead | AskCall | AskValue | Recomputed | AskEnd


class What(StrEnum):
    """What differs first."""

    PROMPT = "prompt differs"
    REQUEST = "request differs"
    ARGUMENT = "tool argument"
    CALL = "tool call"
    CLOCK = "clock read"
    PRNG = "prng read"
    ORDER = "order of reads"
    INPUT = "derived input"
    VALUE = "derived value"
    DERIVATION = "derivation not reproducible"
    EARLY = "ended early"
    BEYOND = "goes on beyond the record"
    UNSERVABLE = "not in the record"


class Miss(msgspec.Struct, frozen=True):
    """The first difference.

    Attributes:
        what: its kind.
        flow: the flow in which it was met.
        step: the step at which it was met.
        expected: what the record holds at this place; absent where nothing.
        found: what was asked; absent where nothing more came.
        lack: why the record cannot answer, where that is so.
        is_unrecorded: whether what was asked is a read or a derivation that the record should hold
            and does not.
    """

    what: What
    flow: str
    step: int
    expected: Item | None
    found: Ask | None
    lack: Lack | None = None
    is_unrecorded: bool = False


class Serve(msgspec.Struct, frozen=True):
    """Serve this, exactly as it lies in the record."""

    item: Item


class Recompute(msgspec.Struct, frozen=True):
    """Let the agent's own function compute the value again, and tell `Recomputed`."""

    value: RecordedValue


class AskLive(msgspec.Struct, frozen=True):
    """Send the request to the live model; `recorded` is the request at this place, if any."""

    flow: str
    step: int
    recorded: RecordedExchange | None


class Differs(msgspec.Struct, frozen=True):
    """Stop: this differs from the record. Every later ask is told the same."""

    miss: Miss


class Finished(msgspec.Struct, frozen=True):
    """The rerun is over, and asked for everything that the record holds."""


Command: TypeAlias = Serve | Recompute | AskLive | Differs | Finished


class RerunOptions(msgspec.Struct, frozen=True):
    """How a rerun is made.

    Attributes:
        recompute: let the agent's functions derive their values again, and compare.
        is_live: a model answers each request; what is not an answer is still served.
        can_read: whether reads are served; a command of another language reads real ones, and the
            recorded ones are left alone.
    """

    recompute: bool = True
    is_live: bool = False
    can_read: bool = True


DEFAULT_RERUN = RerunOptions()
