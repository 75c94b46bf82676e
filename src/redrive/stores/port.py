"""What a store promises; `redrive.stores.sqlite` keeps it in one SQLite file.

Knows events, sessions and artefacts as values. Must not know formats, verbs or closure.

Source: DESIGN.md §3 "Store" and "Names".
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import msgspec

from redrive.record.event import Event
from redrive.record.session import EventReader, SessionIndex
from redrive.replay.ledger import Entry


class Block(NamedTuple):
    """The lines of one segment; `is_plain` says that every payload stands in its line as it is."""

    first_seq: int
    n_events: int
    lines: bytes
    is_plain: bool


class Whole(NamedTuple):
    """A session's head, and all its lines in order; `None` where they are too many."""

    head: str
    blocks: tuple[Block, ...] | None


class SessionRow(msgspec.Struct, frozen=True):
    """One stored session revision, as the catalogue knows it.

    Attributes:
        session_id: FORMAT:ID, with `@N` where it is revision N > 1. Also the key for every read.
        base_id: without `@N`.
        revision: from 1.
        format: importer name.
        importer_version: of the current projection.
        n_events: events of the current projection.
        head: digest of the last segment, which covers every event before it.
        first_ts_ns, last_ts_ns: oldest and newest event time, where recorded.
        summary: what the import pipeline counted (JSON; see `redrive.record.summary`).
        sources: (role, sha256, size in bytes) of each source.
    """

    session_id: str
    base_id: str
    revision: int
    format: str
    importer_version: int
    n_events: int
    head: str
    first_ts_ns: int | None = None
    last_ts_ns: int | None = None
    summary: dict[str, Any] = {}
    sources: tuple[tuple[str, str, int], ...] = ()


class Recorder(msgspec.Struct, frozen=True):
    """The process that records a session.

    Attributes:
        pid: its process id; 0 where it does not tell.
        program: its name, without arguments.
        since: when it began, RFC 3339.
    """

    pid: int = 0
    program: str = ""
    since: str = ""


class SourceRow(msgspec.Struct, frozen=True):
    """One stored source of one session: artefact, its role, how it was read, and its counts."""

    session_id: str
    role: str
    sha256: str
    size: int
    importer: str
    importer_version: int
    report: dict[str, Any] = {}


class Fault(msgspec.Struct, frozen=True):
    """What `verify` found: the session (empty: the store itself), first seq it covers, and what."""

    session_id: str
    seq: int | None
    fault: str


class Verification(msgspec.Struct, frozen=True):
    """The result of a check of digests and chains; `heads` maps session → head digest."""

    is_ok: bool
    checked: int
    heads: dict[str, str]
    faults: tuple[Fault, ...]


class SessionWriter(Protocol):
    """Appends events to one session inside a transaction."""

    @property
    def session_id(self) -> str:
        """The id that the session has in the store."""
        ...

    @property
    def next_seq(self) -> int:
        """The seq that the next event must have."""
        ...

    def append(self, event: Event) -> None:
        """Take the next event; it is stored when its segment is full or the writer closes."""
        ...

    def close(self) -> SessionRow:
        """Write what is left and the catalogue row, whose summary `set_summary` fills."""
        ...


class ReportRow(msgspec.Struct, frozen=True):
    """One stored policy report, without its document.

    Attributes:
        id: from 1, in the order stored.
        digest: sha256 (hex) of the policy's code.
        created_ns: when it was stored.
        size: of the document, in bytes.
    """

    id: int
    policy: str
    version: str
    digest: str
    created_ns: int
    size: int


class InferenceRow(msgspec.Struct, frozen=True):
    """One answer of a model to a policy's question.

    Attributes:
        key: sha256 (hex) of everything that can change the answer.
        name: of the inference, as policies need it.
        spec: of the model that was asked.
        request: canonical JSON.
        value: JSON; `null` is a value, a missing row is none.
        fingerprint: of the model that answered, JSON.
    """

    key: str
    name: str
    spec: str
    request: str
    value: str
    fingerprint: str


class SampleRow(msgspec.Struct, frozen=True):
    """Fires of one report that were drawn for labelling.

    Attributes:
        id: a digest of what it was drawn from and how.
        seed: what it was drawn with.
        branches: `head` or `all`: which fires it was drawn from.
        population: how many fires it was drawn from.
        report: id of the report.
        event_refs: in the order drawn, unique.
        created_ns: when it was stored.
    """

    id: str
    policy: str
    version: str
    seed: str
    branches: str
    population: int
    report: int
    event_refs: tuple[str, ...]
    created_ns: int


class LabelRow(msgspec.Struct, frozen=True):
    """What one rater said of one fire: `true`, `false` or `unsure`."""

    sample: str
    event_ref: str
    rater: str
    label: str
    note: str
    created_ns: int


class HookRow(msgspec.Struct, frozen=True):
    """One decision of a policy on a live agent.

    Attributes:
        created_ns: when it was made.
        digest: sha256 (hex) of the policy's code.
        session_id, tool_use_id: as the agent named them; a call without an id has none.
        event: name of the hook's event.
        action: what was answered.
        input_sha256: of the bytes that the hook was given.
        is_unreplayed: whether this version ran although it has no stored report.
    """

    created_ns: int
    policy: str
    version: str
    digest: str
    session_id: str
    tool_use_id: str | None
    event: str
    action: str
    reason: str
    input_sha256: str
    is_unreplayed: bool


class PolicyTables(Protocol):
    """What a store keeps of policies; every list is in the order stored, newest last.

    A put is whole at once, in the transaction that is open or in one of its own. Errors are those
    of `Store`.
    """

    def put_report(
        self, policy: str, version: str, digest: str, document: bytes, created_ns: int
    ) -> ReportRow:
        """Store the JSON of a `PolicyDocument` whose reports hold this policy's.

        Where the policy's newest report is equal in all but its time, that one is given instead.
        """
        ...

    def reports(self, policy: str | None = None) -> list[ReportRow]:
        """List the reports of one policy or all, without their documents."""
        ...

    def get_report(self, report: int) -> bytes:
        """Give a report's document; `UsageError` where there is none of this id."""
        ...

    def find_report(self, policy: str, version: str, digest: str) -> ReportRow | None:
        """Find the newest report of exactly this version with exactly this code."""
        ...

    def put_inferences(self, rows: Iterable[InferenceRow]) -> int:
        """Store answers, all or none, and say how many were new.

        `StoreError` where a known key comes with another question or value; an equal row again is
        fine, and the fingerprint stored first stays.
        """
        ...

    def find_inference(self, key: str) -> InferenceRow | None:
        """Find an answer by its key."""
        ...

    def inferences(self, name: str | None = None) -> Iterator[InferenceRow]:
        """Stream the answers of one name or all."""
        ...

    def put_sample(self, row: SampleRow) -> SampleRow:
        """Store a sample; where one of this id is stored, that one is given and stays."""
        ...

    def samples(self, policy: str | None = None) -> list[SampleRow]:
        """List the samples of one policy or all."""
        ...

    def put_label(self, row: LabelRow) -> None:
        """Store a label beside all earlier ones; `UsageError` where it fits no sample."""
        ...

    def labels(self, sample: str, rater: str | None = None) -> list[LabelRow]:
        """List the labels of a sample, of one rater or of all; of each the last one counts."""
        ...

    def add_hook_decision(self, row: HookRow) -> None:
        """Append a decision of the live hook."""
        ...

    def hook_decisions(self, policy: str | None = None) -> Iterator[HookRow]:
        """Stream the decisions of one policy or all."""
        ...


class TrialRow(msgspec.Struct, frozen=True):
    """One stored trial, without its plan.

    Attributes:
        trial_id: NAME-DIGITS, with `@N` where it is the N-th of the same plan, N > 1.
        plan_digest: sha256 (hex) of the plan.
        created_ns: when it was begun.
        size: of the plan's document, in bytes.
        n_entries: of its ledger.
    """

    trial_id: str
    plan_digest: str
    created_ns: int
    size: int
    n_entries: int


class TrialTables(Protocol):
    """What a store keeps of trials: plans, ledgers that only grow, and answers that were paid for.

    A write is whole at once and durable on return, in the transaction that is open or in one of its
    own. Errors are those of `Store`.
    """

    def create(self, base_id: str, plan_digest: str, document: bytes, created_ns: int) -> TrialRow:
        """Begin a trial: `base_id`, or `base_id@N` where trials of that id are stored."""
        ...

    def append(
        self, trial_id: str, entries: Sequence[Entry], answers: Sequence[bytes] = ()
    ) -> None:
        """Append entries, dense in number from the stored ones, and the answers that they name.

        `StoreError` where they do not follow; `UsageError` where there is no such trial.
        """
        ...

    def entries(self, trial_id: str) -> Iterator[Entry]:
        """Stream the entries of a trial, oldest first, each checked."""
        ...

    def list_trials(self) -> list[TrialRow]:
        """List the trials, newest last."""
        ...

    def get_trial(self, name: str) -> TrialRow:
        """Find one trial by its id or a unique prefix of it."""
        ...

    def get_plan(self, trial_id: str) -> bytes:
        """Give the document that the trial was created with."""
        ...

    def get_answer(self, sha256: str) -> bytes:
        """Give an answer that an entry names."""
        ...


class PolicyChanges(msgspec.Struct, frozen=True):
    """How many rows about policies a redaction changed; inferences were dropped."""

    reports: int = 0
    inferences: int = 0
    labels: int = 0
    hook_decisions: int = 0


class TrialChanges(msgspec.Struct, frozen=True):
    """How many rows about trials a redaction changed, and how many kept files it dropped."""

    plans: int = 0
    entries: int = 0
    artefacts: int = 0


class Rewriting(Protocol):
    """Removes what a session held before it was rewritten; see `redrive.stores.rewriting`."""

    def list_sources(self, session_id: str) -> list[SourceRow]:
        """List what a session was read from, by role."""
        ...

    def find_size(self, sha256: str) -> int | None:
        """Give the size of a stored artefact; `None` where it is not stored."""
        ...

    def digests_of(self, session_id: str) -> set[str]:
        """List the digests of all that a session rests on."""
        ...

    def users_of(self, digests: Collection[str], besides: Collection[str]) -> dict[str, set[str]]:
        """Map each digest that other sessions rest on to those sessions."""
        ...

    def begin(self) -> None:
        """Let what is removed be overwritten; inside a transaction, as what follows."""
        ...

    def drop_superseded(self, session_id: str) -> None:
        """Remove the projections of a session that are not its current one."""
        ...

    def drop(self, digests: Collection[str]) -> None:
        """Remove texts and artefacts that nothing rests on any more."""
        ...

    def rewrite_policies(self, redact: Callable[[bytes], bytes]) -> PolicyChanges:
        """Redact what is stored of policies; `redact` takes and gives JSON."""
        ...

    def rewrite_trials(
        self, redact: Callable[[bytes], bytes], holds: Callable[[bytes], bool]
    ) -> TrialChanges:
        """Redact what is stored of trials; see `trials.rewrite_trial_tables`."""
        ...

    @property
    def needs_cleaning(self) -> bool:
        """Whether bytes of what was removed may still lie in the file."""
        ...

    def clean(self) -> str:
        """Let nothing be left of what was removed; give why not, where it cannot be done now."""
        ...


class Store(Protocol):
    """Where sessions lie.

    Errors: `StoreError` for a store that is newer, locked, damaged or read-only; `TamperError` as
    soon as a read meets a digest that does not match, so that no verb answers from it; `UsageError`
    for an id or prefix that is unknown or ambiguous.
    """

    @property
    def path(self) -> Path:
        """Where the store lies."""
        ...

    @property
    def is_read_only(self) -> bool:
        """Whether writing is refused."""
        ...

    def close(self) -> None:
        """Release the store."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Make everything inside one whole: all of it is stored, or nothing."""
        ...

    # --- policies: reports, inferences, labels, decisions of the live hook
    @property
    def policies(self) -> PolicyTables:
        """What the store keeps of policies."""
        ...

    # --- trials: plans, ledgers, answers that were paid for
    @property
    def trials(self) -> TrialTables:
        """What the store keeps of trials."""
        ...

    # --- redaction of what is stored
    @property
    def rewriting(self) -> Rewriting:
        """What removes content that was replaced."""
        ...

    # --- artefacts: the verbatim sources
    def has_artefact(self, sha256: str) -> bool:
        """Say whether this source is stored."""
        ...

    def put_artefact(self, sha256: str, size: int, data: BinaryIO, extends: str | None) -> None:
        """Store a source verbatim; with `extends`, `data` is only what follows that artefact."""
        ...

    def open_artefact(self, sha256: str) -> BinaryIO:
        """Open a stored source as a stream; its digest is checked when it was read to its end."""
        ...

    def artefact_sizes(self) -> dict[int, list[str]]:
        """Map size in bytes → digests, to find which stored source a grown file begins with."""
        ...

    # --- sessions
    def sessions(self) -> Iterator[SessionRow]:
        """List every revision, oldest first event first."""
        ...

    def list_sound(self) -> tuple[list[SessionRow], list[Fault]]:
        """List every revision whose rows are sound, and what is wrong with the others."""
        ...

    def get_session(self, name: str) -> SessionRow:
        """Find one session by id (the newest revision, or `ID@N`) or unique prefix."""
        ...

    def get_row(self, session_id: str) -> SessionRow:
        """Give one session by the exact key of its row, whatever newer revisions there are."""
        ...

    def sources_of(self, sha256: str) -> list[SourceRow]:
        """List the sessions that were read from this artefact."""
        ...

    def create(
        self, base_id: str, fmt: str, importer_version: int, *, replaces: str | None = None
    ) -> SessionWriter:
        """Begin a session, or its next revision if `base_id` exists.

        With `replaces`, begin a new projection of that session id instead; it becomes current, the
        old projection stays.
        """
        ...

    def revisions(self, base_id: str) -> list[SessionRow]:
        """List every revision of one id, oldest first; empty where the id is unknown."""
        ...

    def set_summary(self, session_id: str, summary: dict[str, Any]) -> SessionRow:
        """Put the counts into a session's catalogue row, digest included."""
        ...

    def extend(self, session_id: str) -> SessionWriter:
        """Append to a stored session's current projection."""
        ...

    def add_source(self, row: SourceRow) -> None:
        """Note that a session was read from an artefact (replaces the same role's earlier one)."""
        ...

    # --- reading
    def events(self, session_id: str, start: int = 0) -> Iterator[Event]:
        """Stream the events of the current projection from seq `start`, each segment checked."""
        ...

    def read_whole(self, session_id: str, max_bytes: int) -> Whole:
        """Read a session's lines at once, each segment checked; none above `max_bytes` in all."""
        ...

    def reader(self, session_id: str) -> EventReader:
        """Give events by seq, with a small cache of segments."""
        ...

    def index(self, session_id: str, n_events: int | None = None) -> SessionIndex:
        """Build the session's index by one pass over its events.

        With `n_events`, of the first ones alone: of a session that is being recorded, those that
        its row told of.
        """
        ...

    def find_recorder(self, session_id: str) -> Recorder | None:
        """Say which process records this session now; `None` where none does."""
        ...

    def verify(self, session_id: str | None = None, head: str | None = None) -> Verification:
        """Check every digest, chain, catalogue row and artefact; with `head`, that it is there."""
        ...
