"""What a shadow replay asks and is told, and what comes out of it: values alone.

Knows what a run is made of. Must not know in which order things are asked (shadow).

Source: DESIGN.md §2 "Replays are stepped values", §5, §8 "JSON contract".
"""

from enum import StrEnum
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from redrive.record.event import Event
from redrive.record.evidence import Cell, Gap, NearestCall
from redrive.record.signature import DecisionSignature
from redrive.replay.persistent import Log
from redrive.replay.ports import CallAsked, ModelFingerprint, ModelReply
from redrive.replay.recorded import DecisionForm


class ShadowOptions(msgspec.Struct, frozen=True):
    """How one run is made.

    Attributes:
        extra: decisions beyond the record before a run that keeps going is stopped.
        from_decision: the first decision asked; answers consumed before it count as consumed.
        is_end_stated: whether a reply's `is_final` says that the *run* ends, as a script does. An
            API answer without tool calls only ends its turn: where the record goes on after such a
            decision, so does the replay.
    """

    extra: int = 3
    from_decision: int = 1
    is_end_stated: bool = True


DEFAULT_OPTIONS = ShadowOptions()


class Stop(StrEnum):
    """Why a run ended."""

    TERMINAL = "terminal_answer"
    RECORD_END = "end_of_record"
    EXTRA_LIMIT = "extra_limit"
    NO_ANSWER = "no_recorded_answer"
    UNFAITHFUL = "evidence_not_faithful"


UNANSWERED_STOPS = frozenset({Stop.NO_ANSWER, Stop.UNFAITHFUL})
"""The run stopped at a call: what it would have decided next is not known."""


class ServedCall(msgspec.Struct, frozen=True, gc=False):
    """One call and what it was served: exactly what lies in the record.

    Attributes:
        decision: ordinal of the decision that made the call.
        call_id: the recorded call's id, where it has one.
        tool: its tool.
        status: `ok`, `error`, or another word of the source.
        result: the recorded JSON value.
        seq: seq of the recorded result.
    """

    decision: int
    call_id: str | None
    tool: str
    status: str
    result: Raw
    seq: int


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One replayed decision and what followed it, to rebuild a request from.

    Attributes:
        decision: its ordinal.
        text: the answer text.
        calls: its calls, in call order.
        results: what each call was served.
        users: seqs of the user messages that the record holds at this place.
    """

    decision: int
    text: str
    calls: tuple[CallAsked, ...] = ()
    results: tuple[ServedCall, ...] = ()
    users: tuple[int, ...] = ()


class ReplayedDecision(msgspec.Struct, frozen=True, gc=False):
    """One decision of the replay.

    Attributes:
        decision: its ordinal.
        signature: what is compared.
        form: what is ignored and counted.
        is_rebuilt: whether the request was rebuilt, since none is recorded for it.
        model: who answered, as far as it said.
        reply: the answer itself, where it differs from the record.
    """

    decision: int
    signature: DecisionSignature
    form: DecisionForm
    is_rebuilt: bool
    model: ModelFingerprint | None = None
    reply: ModelReply | None = None


class MissingCall(msgspec.Struct, frozen=True, gc=False):
    """The call that stopped a run: where, what was called, and why there is no answer for it.

    `arguments` is the JSON value, or the text where it is no JSON; `recorded` counts the recorded
    calls of this very key.
    """

    decision: int
    tool: str
    arguments: Any
    why: Gap
    recorded: int = 0


class AskModel(msgspec.Struct, frozen=True, gc=False):
    """Ask for one decision.

    Attributes:
        decision: its 1-based ordinal.
        request: seq of the recorded request to send as it is; absent where none is recorded.
        base: seq of the recorded request to rebuild from, the last one before; may be absent.
        turns: what was decided and served since `base`, oldest first.
        is_rebuilt: whether the request has to be rebuilt.
        recorded_model: the model that the record names for this decision.
    """

    decision: int
    request: int | None
    base: int | None
    turns: Log[Turn]
    is_rebuilt: bool
    recorded_model: ModelFingerprint | None = None


class ServeEvidence(msgspec.Struct, frozen=True, gc=False):
    """Read the recorded result `cell.result` for one call of the decision."""

    decision: int
    call: CallAsked
    cell: Cell


class FindNearest(msgspec.Struct, frozen=True, gc=False):
    """Look through recorded calls (seqs) for the one nearest to a call without an answer."""

    missing: MissingCall
    candidates: tuple[int, ...]


class ShadowRun(msgspec.Struct, frozen=True):
    """A finished run.

    Attributes:
        first: ordinal of the first decision asked.
        decisions: what the model decided, in order.
        served: what was served, in order.
        stop: why the run ended.
        missing: the call that stopped it.
        nearest: the recorded call nearest to that one.
        unused: recorded answers that no call asked for, in recorded order.
    """

    first: int
    decisions: tuple[ReplayedDecision, ...]
    served: tuple[ServedCall, ...]
    stop: Stop
    missing: MissingCall | None = None
    nearest: NearestCall | None = None
    unused: tuple[Cell, ...] = ()


class Done(msgspec.Struct, frozen=True):
    """The run is finished."""

    run: ShadowRun


Command: TypeAlias = AskModel | ServeEvidence | FindNearest | Done


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """The stored event that `ServeEvidence` named; absent where it cannot be read."""

    event: Event | None


class Nearest(msgspec.Struct, frozen=True, gc=False):
    """The answer to `FindNearest`, as `record.evidence.find_nearest` gives it."""

    call: NearestCall | None


Reply: TypeAlias = ModelReply | Evidence | Nearest
