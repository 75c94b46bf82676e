"""The trial ledger: what was reserved, spent, started and finished, as a fold over entries.

Knows money and runs. Must not know where entries are kept, nor who asks for what. Entries only
grow; the state of a trial is what its entries fold to, on resume as while it runs.

Source: DESIGN.md §6 "a ledger with `purpose`".
"""

from collections.abc import Mapping
from decimal import Decimal

import msgspec
from msgspec import Raw

from redrive.replay.trial_values import EpisodeEnd, PlannedRun, Purpose, RunKey, Usage


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """A trial was begun: what is planned, under which ceilings."""

    trial_id: str
    plan_digest: str
    runs: tuple[PlannedRun, ...]
    ceilings: Mapping[Purpose, Decimal]


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A run was started; `execution` counts from 1, and is above 1 after an interruption."""

    key: RunKey
    execution: int


class Reserved(msgspec.Struct, frozen=True, tag="reserved"):
    """Spend was admitted, before the request was sent.

    Attributes:
        charge: unique in the trial; also the request's `Idempotency-Key`.
        purpose: what it is for.
        subject: who asked: `str(RunKey)` of a run, or `grade:TASK_ID:GRADER` of a judgement.
        model: the plan's name of it.
        usd: the bound that is held back.
        request_sha256: of the request's body.
        occurrence: how many equal requests this subject sent before; from 0.
    """

    charge: str
    purpose: Purpose
    subject: str
    model: str
    usd: Decimal
    request_sha256: str
    occurrence: int


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """What a reserved call cost in the end.

    Attributes:
        charge: of the `Reserved` entry.
        usd: what it cost; never above what was reserved unless the endpoint says so.
        basis: `usage` (the answer told its tokens), `error` (refused or failed: nothing), or
            `reservation` (cut, or an answer that tells no usage).
        usage: as the answer told it.
        answer_sha256: artefact of the stored answer (status, headers, body), for a resumed run.
        fingerprint: of the model, as far as it says.
    """

    charge: str
    usd: Decimal
    basis: str
    usage: Usage | None = None
    answer_sha256: str | None = None
    fingerprint: str | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """A run ended, once and for all (or was cancelled, and will be run again)."""

    key: RunKey
    end: EpisodeEnd


class Graded(msgspec.Struct, frozen=True, tag="graded"):
    """One grader judged all episodes of one task; `result` is its JSON."""

    task_id: str
    grader: str
    result: Raw


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """A ceiling was reached (`purpose`), or the trial was interrupted (no purpose)."""

    reason: str
    purpose: Purpose | None = None


Fact = Opened | Started | Reserved | Settled | Finished | Graded | Stopped


class Entry(msgspec.Struct, frozen=True):
    """One line of a ledger: `number` is dense from 0."""

    number: int
    at_ns: int
    fact: Fact
