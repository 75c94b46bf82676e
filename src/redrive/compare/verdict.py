"""What one replay means: the verdict table, in the order in which it is read.

Knows what was compared, whether the record is closed, and who answered. Must not know how a path
was compared, nor how a report is shown. `judge_run`, which attributes, accepts a `ClosedTrajectory`
and nothing else.

Source: DESIGN.md §5 "One run", §8 exit table, §10 "Shadow document".
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import msgspec

from redrive.audit.closure import ClosedTrajectory
from redrive.compare.divergence import Comparison
from redrive.record.event import MAIN_ACTOR, Kind, SessionEnded, payload_of
from redrive.record.session import NO_NODE, EventReader, SessionIndex
from redrive.record.trajectory import Trajectory
from redrive.replay.exchange import ShadowRun, Stop
from redrive.replay.ports import Override
from redrive.replay.recorded import RecordedRun


class Verdict(StrEnum):
    """The word for one run."""

    IDENTICAL_REPLAY = "IDENTICAL_REPLAY"
    DETERMINISTIC_CORROBORATION = "DETERMINISTIC_CORROBORATION"
    STOCHASTIC_MODEL_DIVERGENCE = "STOCHASTIC_MODEL_DIVERGENCE"
    INSUFFICIENT_EVIDENCE = "INSUFFICIENT_EVIDENCE"


class Attribution(StrEnum):
    """What a verdict is put down to, as far as it is."""

    ONE_RUN = "one_run"
    PROVENANCE_GAP = "provenance_gap"
    MODEL_CHANGED = "model_changed"
    SAMPLING_OVERRIDDEN = "sampling_overridden"


class Basis(StrEnum):
    """On whose word an outcome rests."""

    SOURCE = "source"
    USER = "user"
    UNKNOWN = "unknown"


class Outcome(msgspec.Struct, frozen=True):
    """How the recorded run ended: the word, on whose word, and another word that was not taken."""

    status: str | None = None
    basis: Basis = Basis.UNKNOWN
    not_taken: str | None = None

    @property
    def has_failed(self) -> bool:
        """Whether it failed; an unknown outcome reads as not failed."""
        return self.status in FAILURES


FAILURES = frozenset({"failure", "failed", "error"})
SUCCESSES = frozenset({"success", "succeeded", "ok", "completed"})


def find_outcome(
    index: SessionIndex, trajectory: Trajectory, reader: EventReader, stated: str | None = None
) -> Outcome:
    """Find how the recorded run ended.

    Args:
        index: the session's index.
        trajectory: the whole path that is replayed; a prefix of it has no outcome of its own.
        reader: gives payloads.
        stated: the user's word, taken where the source has none.

    Returns:
        The last `session.ended` of the path, or of the session where it lies outside the DAG.
    """
    ends = [seq for seq in index.seqs_of(Kind.SESSION_ENDED) if _is_on(index, trajectory, seq)]
    for event in reader.read_events(ends[-1:]):
        ended: SessionEnded = payload_of(event)
        if ended.status is not None:
            not_taken = stated if stated != ended.status else None
            return Outcome(ended.status, Basis.SOURCE, not_taken)
    return Outcome() if stated is None else Outcome(stated, Basis.USER)


def _is_on(index: SessionIndex, trajectory: Trajectory, seq: int) -> bool:
    is_of_session = index.event_node[seq] == NO_NODE and trajectory.actor == MAIN_ACTOR
    return is_of_session or seq in trajectory.after


class ModelChange(msgspec.Struct, frozen=True):
    """A decision that another model answered than recorded: which field, and both values."""

    decision: int
    field: str
    recorded: str
    replayed: str


_IDENTITY = ("served", "fingerprint")


def find_model_change(recorded: RecordedRun, run: ShadowRun, until: int) -> ModelChange | None:
    """Find the first decision, up to ordinal `until`, that another model answered.

    A field is compared only where both sides state it.
    """
    for replayed in run.decisions:
        kept = recorded.get(replayed.decision)
        if kept is None or replayed.decision > until or replayed.model is None:
            continue
        for field in _IDENTITY:
            ours, theirs = getattr(kept.model, field), getattr(replayed.model, field)
            if ours is not None and theirs is not None and ours != theirs:
                return ModelChange(replayed.decision, field, ours, theirs)
    return None


def model_notes(recorded: RecordedRun, run: ShadowRun) -> tuple[str, ...]:
    """Say which parts of the model's identity one side alone states."""
    notes: dict[str, None] = {}
    for replayed in run.decisions:
        kept = recorded.get(replayed.decision)
        if kept is None or replayed.model is None:
            continue
        for field in _IDENTITY:
            ours, theirs = getattr(kept.model, field), getattr(replayed.model, field)
            if (ours is None) != (theirs is None):
                side = "replay" if ours is None else "record"
                notes[f"model: {field} is stated by the {side} alone, so it is not compared"] = None
    return tuple(notes)


class Findings(msgspec.Struct, frozen=True):
    """What the table reads.

    Attributes:
        is_closed: whether the trajectory was found closed.
        stop: why the run ended.
        is_equal: whether every signature equals the record.
        has_failed: whether the recorded run failed.
        is_model_changed: whether another model answered, up to the first divergence.
    """

    is_closed: bool
    stop: Stop
    is_equal: bool
    has_failed: bool
    is_model_changed: bool


class Row(msgspec.Struct, frozen=True):
    """One row of the verdict table: the first whose condition holds is the verdict."""

    reason: str
    condition: str
    holds: Callable[[Findings], bool]
    verdict: Verdict
    attribution: Attribution | None


TABLE: Sequence[Row] = (
    Row(
        "provenance_gap",
        "the trajectory is open",
        lambda found: not found.is_closed,
        Verdict.INSUFFICIENT_EVIDENCE,
        Attribution.PROVENANCE_GAP,
    ),
    Row(
        "no_recorded_answer",
        "a call had no recorded answer",
        lambda found: found.stop is Stop.NO_ANSWER,
        Verdict.INSUFFICIENT_EVIDENCE,
        None,
    ),
    Row(
        "evidence_not_faithful",
        "evidence could not be served faithfully",
        lambda found: found.stop is Stop.UNFAITHFUL,
        Verdict.INSUFFICIENT_EVIDENCE,
        None,
    ),
    Row(
        "equal_and_failed",
        "every signature equals the record, and the recorded run failed",
        lambda found: found.is_equal and found.has_failed,
        Verdict.DETERMINISTIC_CORROBORATION,
        Attribution.ONE_RUN,
    ),
    Row(
        "equal",
        "every signature equals the record",
        lambda found: found.is_equal,
        Verdict.IDENTICAL_REPLAY,
        Attribution.ONE_RUN,
    ),
    Row(
        "model_changed",
        "they differ, and another model or fingerprint answered than recorded",
        lambda found: found.is_model_changed,
        Verdict.INSUFFICIENT_EVIDENCE,
        Attribution.MODEL_CHANGED,
    ),
    Row(
        "different",
        "they differ",
        lambda _: True,
        Verdict.STOCHASTIC_MODEL_DIVERGENCE,
        Attribution.ONE_RUN,
    ),
)

NOTES: Mapping[str, str] = {
    "one_run": "one run: not attributed",
    "sampling_overridden": "sampling overridden: not attributable",
    "outcome_unknown": "the outcome of the recorded run is unknown: it reads as not failed",
    "outcome_user": "the outcome of the recorded run is the user's word",
    "outcome_not_taken": "the record states the outcome itself: the user's word is not taken",
    "outcome_word": "the recorded outcome is neither success nor failure: it reads as not failed",
}


class RunVerdict(msgspec.Struct, frozen=True):
    """The verdict of one run.

    Attributes:
        verdict: the word, by signature.
        attribution: what it is put down to; absent where nothing is.
        reason: the row of the table.
        model_change: the two models, where another one answered.
        notes: what a reader must know beside the word.
    """

    verdict: Verdict
    attribution: Attribution | None
    reason: str
    model_change: ModelChange | None = None
    notes: tuple[str, ...] = ()


def judge_run(
    closed: ClosedTrajectory,  # noqa: ARG001 - holding one is the proof that the record is closed
    recorded: RecordedRun,
    run: ShadowRun,
    comparison: Comparison,
    outcome: Outcome,
    overrides: Sequence[Override] = (),
) -> RunVerdict:
    """Judge a replay of a closed trajectory.

    Args:
        closed: the audited trajectory; there is no verdict but insufficiency without one.
        recorded: the same path, as it was replayed against.
        run: the replay.
        comparison: the two compared.
        outcome: how the recorded run ended.
        overrides: what was changed in the requests.
    """
    return _judge(recorded, run, comparison, outcome, overrides, is_closed=True)


def judge_open_run(
    recorded: RecordedRun,
    run: ShadowRun,
    comparison: Comparison,
    outcome: Outcome,
    overrides: Sequence[Override] = (),
) -> RunVerdict:
    """Judge a reconstruction: a replay of an open trajectory, which attributes nothing."""
    return _judge(recorded, run, comparison, outcome, overrides, is_closed=False)


def _judge(
    recorded: RecordedRun,
    run: ShadowRun,
    comparison: Comparison,
    outcome: Outcome,
    overrides: Sequence[Override],
    *,
    is_closed: bool,
) -> RunVerdict:
    first = comparison.first_divergence
    change = None if first is None else find_model_change(recorded, run, first.decision)
    findings = Findings(
        is_closed=is_closed,
        stop=run.stop,
        is_equal=first is None,
        has_failed=outcome.has_failed,
        is_model_changed=change is not None,
    )
    row = next(row for row in TABLE if row.holds(findings))
    attribution = row.attribution
    if attribution is Attribution.ONE_RUN and overrides:
        attribution = Attribution.SAMPLING_OVERRIDDEN
    return RunVerdict(
        verdict=row.verdict,
        attribution=attribution,
        reason=row.reason,
        model_change=change,
        notes=(*_outcome_notes(outcome), *_label(attribution), *model_notes(recorded, run)),
    )


def exit_code_of(verdict: Verdict, *, is_different: bool) -> int:
    """Give the exit code: 3 for insufficient evidence, else 1 where a *decision* differs, else 0.

    A difference in text alone is no difference in a decision.
    """
    if verdict is Verdict.INSUFFICIENT_EVIDENCE:
        return 3
    return int(is_different)


def _outcome_notes(outcome: Outcome) -> tuple[str, ...]:
    if outcome.basis is Basis.UNKNOWN:
        return (NOTES["outcome_unknown"],)
    is_known = outcome.has_failed or outcome.status in SUCCESSES
    word = () if is_known else (NOTES["outcome_word"],)
    if outcome.basis is Basis.USER:
        return (NOTES["outcome_user"], *word)
    return word if outcome.not_taken is None else (NOTES["outcome_not_taken"], *word)


def _label(attribution: Attribution | None) -> tuple[str, ...]:
    return (NOTES[attribution],) if attribution is not None and attribution in NOTES else ()
