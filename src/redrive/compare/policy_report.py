"""The policy report as values: what a replay found of each policy, session by session.

Knows the document's shape and how results of single sessions add up to it. Must not know how
events were folded, nor how a report is shown. Everything in it is a pure function of the stored
sessions and the policies, so that the same replay gives the same bytes: it holds no time of day,
duration, path of a machine or worker count.

Source: DESIGN.md §7 "Report".
"""

from typing import Any

import msgspec

SCHEMA, SCHEMA_VERSION = "redrive.policy", 1


class FireView(msgspec.Struct, frozen=True):
    """One match: a fire, or one that a cooldown or a segment's budget suppressed.

    Attributes:
        event_ref: SESSION_ID#EVENT_ID.
        state_snapshot_ref: key into the report's `snapshots`.
        action: `deny`, `ask`, `allow`, `Notify`, `Inject`, `Prepare`.
        cooldown_suppressed: whether it would have been held back.
        leaf: node id of the newest leaf below the event's node; absent outside the DAG.
        on_head_path: whether the event lies on its actor's live path.
        notes: what a reader must know of it.
        reason: what the policy said, redacted.
        seq, step, actor, node_id, kind, ts, tool, call_id: where the event stands.
        context: one redacted excerpt of the event: the command, the arguments, the text.
        before: redacted excerpts of up to five earlier events of its path, oldest first.
        asked: a redacted excerpt of what a person said last before it, on its path.
        dedup_key: the policy's own key of repetition; absent: none.
        suppressed_by: event_ref of the fire that holds it back; absent on a fire.
        inferences: name → value of the L2 inferences that it rests on.
    """

    event_ref: str
    state_snapshot_ref: str
    action: str
    cooldown_suppressed: bool
    leaf: str | None
    on_head_path: bool
    notes: tuple[str, ...]
    reason: str
    seq: int
    step: int | None
    actor: str
    node_id: str | None
    kind: str
    ts: str | None
    tool: str | None
    call_id: str | None
    context: str
    before: tuple[str, ...] = ()
    asked: str = ""
    dedup_key: str | None = None
    suppressed_by: str | None = None
    inferences: dict[str, Any] = {}


class CannotEvaluate(msgspec.Struct, frozen=True):
    """A place that a policy could not judge: which fact is missing (`no ts`, an inference, …)."""

    event_ref: str
    reason: str
    fact: str


class PolicyFault(msgspec.Struct, frozen=True):
    """A policy that broke a rule, or broke down.

    Attributes:
        net: what caught it: `scan`, `stand-in`, `recheck`, `limits`, `watchdog`, `error`.
        what: one line.
        where: file:line in the policy's own code; empty where none is known.
        session_id, event_ref: what it was judging; absent for a fault at load.
    """

    net: str
    what: str
    where: str
    session_id: str | None = None
    event_ref: str | None = None


class InvariantCheck(msgspec.Struct, frozen=True):
    """One invariant: `pass`, `fail` or `not_exercised`, how often it was looked at, and how not."""

    status: str
    count: int
    violations: tuple[str, ...] = ()


class SessionFires(msgspec.Struct, frozen=True):
    """What one policy did in one session; `node_path` is the head path of `main`, root first.

    Attributes:
        head: the store's head digest of the session that was read.
        events_offered: events of the kinds that the policy subscribes to, judged.
        inherited: events of these kinds that are copies from a parent session, not judged here.
    """

    session_id: str
    head: str
    node_path: tuple[str, ...]
    events_scanned: int
    events_offered: int
    inherited: int
    fires: tuple[FireView, ...]


class Unreplayable(msgspec.Struct, frozen=True):
    """A session that could not be replayed, and why; `is_tampered`: it does not match its seal."""

    session_id: str
    reason: str
    is_tampered: bool = False


class PolicyReport(msgspec.Struct, frozen=True):
    """What one policy did over all sessions.

    Attributes:
        digest: sha256 of the policy's code; `policy hook` compares it.
        source: entry-point name, or the file's name without its folder.
        fired: every fire on every branch; `suppressed` matches are not among them.
        fired_on_head_path, suppressed_on_head_path: those on live paths; the headline figures.
        decisions: of a gate, how often each action was returned.
        cannot_evaluate: places without a needed fact, in order.
        per_session: sessions with at least one match, by id.
        snapshots: ref → the redacted state that a match was judged on.
        unenforced: what cannot be enforced for this policy (a foreign hook).
        notes: such as `Notify precision: online-only`.
    """

    policy: str
    version: str
    digest: str
    source: str
    lane: str
    on: tuple[str, ...]
    cooldown_s: float | None
    per_segment: int | None
    critical: bool
    needs: tuple[str, ...]
    mode: str
    model_fingerprint: dict[str, Any] | None
    sessions_scanned: int
    events_scanned: int
    events_offered: int
    fired: int
    suppressed: int
    fired_on_head_path: int
    suppressed_on_head_path: int
    decisions: dict[str, int]
    cannot_evaluate: tuple[CannotEvaluate, ...]
    per_session: tuple[SessionFires, ...]
    invariant_checks: dict[str, InvariantCheck]
    faults: tuple[PolicyFault, ...]
    unreplayable: tuple[Unreplayable, ...]
    snapshots: dict[str, dict[str, Any]] = {}
    unenforced: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class PolicyDocument(msgspec.Struct, frozen=True):
    """The whole report of `policy replay`.

    Attributes:
        is_partial: whether it was interrupted; then `sessions_left` names what was not replayed.
        branches: `head` or `all`: which fires the exit code, `--max-fires` and JUnit look at.
        sessions: ids of the replayed sessions, in order.
        heads: session id → the store's head digest of what was read.
        nets: the purity nets that were on.
        lets_through: what the nets do not catch.
        redaction: version of the rules that texts were redacted by.
        coverage: what a text guard's silence does not prove; one sentence for the reader.
    """

    reports: tuple[PolicyReport, ...]
    sessions: tuple[str, ...]
    branches: str = "head"
    is_partial: bool = False
    sessions_left: tuple[str, ...] = ()
    heads: dict[str, str] = {}
    nets: tuple[str, ...] = ()
    lets_through: tuple[str, ...] = ()
    redaction: str = ""
    coverage: str = (
        "A report lists where a policy would fire. It cannot show where it should have fired and"
        " did not: recall needs a set of such places, named with --should-have-fired."
    )
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION


class DiffEntry(msgspec.Struct, frozen=True):
    """One event on which two versions agree or not.

    Attributes:
        change: `new`, `lost`, `same`, `changed` (another action) or `cannot_evaluate`.
        old, new: the two fires; absent where that version does not fire.
        fact: the first fact in which the two judgements differ, such as `action: deny → ask`,
            `suppressed: by the fire at …`, `state.verification.passed: true → false`.
    """

    event_ref: str
    change: str
    old: FireView | None
    new: FireView | None
    fact: str


class PolicyDiff(msgspec.Struct, frozen=True):
    """Two versions of a policy on the same sessions; a *widening* is a new fire on a live path."""

    policy: str
    old: dict[str, str]
    new: dict[str, str]
    sessions: tuple[str, ...]
    counts: dict[str, int]
    widened: int
    entries: tuple[DiffEntry, ...]
    faults: tuple[PolicyFault, ...] = ()
    schema: str = "redrive.policy_diff"
    schema_version: int = 1
