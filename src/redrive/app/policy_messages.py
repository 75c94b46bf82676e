"""What the replay and its workers say to each other: one JSON message a frame.

Knows shapes and frames. Must not know who sends what when (`policy_worker`, `policy_pool`).
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.compare.policy_report import CannotEvaluate, FireView, PolicyFault
from redrive.replay.invariants import Tested
from redrive.replay.policy import PolicySpec
from redrive.sandbox.loading import PolicySource
from redrive.sandbox.scan import ScanFinding

LENGTH_BYTES = 4
NOBODY = -1
SEQ_SHIFT = 2
_SEQ_BITS = 42


class Step(IntEnum):
    """What a policy is at, in a status word."""

    JUDGES = 0
    FOLDS = 1
    IS_WRITTEN = 2


class PolicyCode(msgspec.Struct, frozen=True):
    """Where a policy's code comes from.

    Attributes:
        spec: what the user wrote.
        source: entry-point name, or the file's name without its folder, with `@REVISION`.
        attribute: name of the class or instance.
        code: its text, and that of the modules beside it; `None` for a foreign hook.
        libraries: third-party modules to import before the stand-ins.
        digest: sha256 of all of its code, and of the versions of its libraries.
        findings: what the static scan found; such a policy is not loaded.
        hook: a foreign hook, as JSON; absent for Python policies.
        lane: as its text declares it, for a policy that cannot be loaded.
    """

    spec: str
    source: str
    attribute: str
    code: PolicySource | None
    libraries: tuple[str, ...] = ()
    digest: str = ""
    findings: tuple[ScanFinding, ...] = ()
    hook: Raw | UnsetType = UNSET
    lane: str = "observer"


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Begin: the policies, and how to run them.

    `broken` maps the number of a policy that a worker did not survive loading to its fault;
    `lifeline_fd` is a pipe whose other end closes with whoever started the worker.
    """

    policies: tuple[PolicyCode, ...]
    store: str | None
    recheck_all: bool = False
    is_strict: bool = False
    is_sealed: bool = True
    memory_bytes: int = 0
    status_fd: int | None = None
    lifeline_fd: int | None = None
    broken: dict[int, PolicyFault] = {}
    inferences: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True, tag="run"):
    """Replay one session; `dropped` policies, by number, are left out, each for a reason.

    `lines` are its events where it is not in the store; `only` is the last event's id to judge
    alone.
    """

    session_id: str
    number: int
    dropped: dict[int, str] = {}
    lines: tuple[str, ...] | None = None
    only: str | None = None


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """The reply to `Outside`: a value, or why there is none."""

    value: Raw | UnsetType = UNSET
    missing: str | None = None


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """Per policy what it declares, or the fault at load, or why the declaration is wrong."""

    specs: tuple[PolicySpec | None, ...]
    faults: tuple[PolicyFault | None, ...]
    wrong: tuple[tuple[str, str] | None, ...]
    lets_through: tuple[str, ...] = ()


class Outside(msgspec.Struct, frozen=True, tag="outside"):
    """A question that only the replay may answer: an inference, or a foreign hook's decision.

    `policy` is its number in `Load`, `event_ref` the event; `request` is the question as JSON.
    """

    policy: int
    kind: str
    name: str
    event_ref: str
    request: Raw


class PolicyOutcome(msgspec.Struct, frozen=True):
    """What one policy did in one session; texts are not redacted yet, snapshots stand in fires.

    `snapshots` runs beside `fires`. `undecided` names the events on which a critical gate gave no
    decision. `stopped` says why the policy was not run to the end.
    """

    offered: int = 0
    inherited: int = 0
    fires: tuple[FireView, ...] = ()
    snapshots: tuple[dict[str, Any], ...] = ()
    cannot: tuple[CannotEvaluate, ...] = ()
    undecided: tuple[str, ...] = ()
    faults: tuple[PolicyFault, ...] = ()
    n_faults: int = 0
    decisions: dict[str, int] = {}
    invariants: dict[str, Tested] = {}
    stopped: str | None = None
    last_action: str | None = None
    last_reason: str = ""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """One session's result; `error` says why it could not be replayed at all.

    `is_tampered`: since what is stored does not match its seal.
    """

    session_id: str
    number: int
    head: str = ""
    node_path: tuple[str, ...] = ()
    events: int = 0
    outcomes: tuple[PolicyOutcome, ...] = ()
    error: str | None = None
    is_tampered: bool = False


def raw_bytes(value: Raw | UnsetType) -> bytes:
    """Give the bytes of a value; none where it is absent."""
    return b"" if isinstance(value, UnsetType) else bytes(value)


ToWorker = Load | Run | Answer
FromWorker = Loaded | Outside | Finished


def _decoder(messages: Any) -> Callable[[bytes], Any]:
    """Make a decoder; a message with a lone surrogate, which a session may hold, is read too."""
    decode_strict = msgspec.json.Decoder(messages).decode

    def decode(data: bytes) -> Any:
        try:
            return decode_strict(data)
        except msgspec.DecodeError:
            if canonical.is_strict(data):
                raise
            return msgspec.convert(canonical.decode_value(data), messages, str_keys=True)

    return decode


decode_to_worker = _decoder(ToWorker)
decode_from_worker = _decoder(FromWorker)


def frame(message: ToWorker | FromWorker) -> bytes:
    """Write a message with its length before it; lone surrogates stay escapes."""
    data = canonical.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def split_frame(buffer: bytearray) -> bytes | None:
    """Take the first whole message off a buffer; `None` while it is not there yet."""
    if len(buffer) < LENGTH_BYTES:
        return None
    end = LENGTH_BYTES + int.from_bytes(buffer[:LENGTH_BYTES], "big")
    if len(buffer) < end:
        return None
    data = bytes(buffer[LENGTH_BYTES:end])
    del buffer[:end]
    return data


def policy_word(policy: int, seq: int = -1, step: Step = Step.JUDGES) -> int:
    """Write the one 64-bit word that the watchdog reads: who does what at which event.

    Args:
        policy: its number; `NOBODY` for redrive's own work.
        seq: of the event; -1 before the first.
        step: tells apart what a policy does at one event, so that each has its own time.
    """
    return policy + 1 << _SEQ_BITS | seq + 1 << SEQ_SHIFT | step


def split_policy_word(word: int) -> tuple[int, int]:
    """Give policy and seq of a status word."""
    return (word >> _SEQ_BITS) - 1, ((word & (1 << _SEQ_BITS) - 1) >> SEQ_SHIFT) - 1
