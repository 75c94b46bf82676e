"""The shadow document: what `redrive shadow --json` prints, as one value.

Knows the JSON contract. Must not know how anything in it was found. Equal inputs give equal bytes.

Source: DESIGN.md §8 "JSON contract", §10 "Shadow document".
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from redrive import canonical
from redrive.audit.gaps import ProvenanceGap
from redrive.audit.report import AuditReport
from redrive.compare.divergence import Comparison, Difference, Divergence
from redrive.compare.verdict import (
    Attribution,
    ModelChange,
    Outcome,
    RunVerdict,
    Verdict,
    exit_code_of,
)
from redrive.record.evidence import Cell, ToolEvidenceStore
from redrive.record.signature import RULES_VERSION
from redrive.replay.exchange import MissingCall, ServedCall, ShadowRun
from redrive.replay.ports import ModelFingerprint, Override
from redrive.replay.recorded import RecordedRun

SCHEMA = "redrive.shadow"
SCHEMA_VERSION = 1
_LISTED_STEPS = 100

Mode = Literal["replay", "resampling", "reconstruction"]


class OpenStep(msgspec.Struct, frozen=True):
    """One open step: its ordinal, its node and what is missing."""

    step: int
    node_id: str
    missing: tuple[ProvenanceGap, ...]


class Closure(msgspec.Struct, frozen=True):
    """The audit beside the verdict; the first 100 open steps are listed, `n_open` counts all."""

    status: str
    closed_until: int
    steps: int
    n_open: int
    by_class: dict[str, int]
    open_steps: tuple[OpenStep, ...]
    notes: tuple[str, ...]


class EvidenceCounts(msgspec.Struct, frozen=True):
    """Recorded calls; those without an answer; results that answer none; calls in conflict."""

    calls: int
    calls_without_result: int
    results_without_call: int
    conflicting: int


class NearestDocument(msgspec.Struct, frozen=True):
    """The recorded call nearest to one without an answer; `differs` names tool and paths."""

    decision: int | None
    call_id: str | None
    tool: str
    arguments: Any
    differs: tuple[str, ...]


class UnusedEvidence(msgspec.Struct, frozen=True):
    """A recorded answer that no call asked for."""

    decision: int
    call_id: str | None
    tool: str
    argument_hash: str


class RunDocument(msgspec.Struct, frozen=True):
    """One run; see DESIGN.md §8 for the meaning of each key."""

    verdict: Verdict
    reason: str
    stop: str
    decisions: int
    rebuilt: int
    served: int
    served_calls: tuple[ServedCall, ...]
    live_calls: int
    first_divergence: Divergence | None
    decision_divergence: Divergence | None
    missing_call: MissingCall | None
    nearest_recorded: NearestDocument | None
    model_change: ModelChange | None
    unused_evidence: tuple[UnusedEvidence, ...]
    tool_sequence_edits: int
    tool_sequence_distance: float
    ignored: dict[str, int]
    text_only: int
    differences: tuple[Difference, ...]
    n_differences: int


class MatchRate(msgspec.Struct, frozen=True):
    """How often the recorded decision came, over several runs, with its interval."""

    k: int
    n: int
    n_independent: int
    low: float
    high: float
    method: str


class ShadowDocument(msgspec.Struct, frozen=True):
    """The whole answer of the verb."""

    schema: str
    schema_version: int
    session_id: str
    head: str
    path: str | None
    actor: str
    mode: Mode
    decisions: str
    rules_version: int
    model: str
    model_fingerprint: ModelFingerprint | None
    overrides: tuple[Override, ...]
    outcome: Outcome
    closure: Closure
    evidence: EvidenceCounts | None
    verdict: Verdict
    attribution: Attribution | None
    counts: dict[str, int]
    match_rate: MatchRate | None
    runs: tuple[RunDocument, ...]
    steps: tuple[Any, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """What the verb exits with: 3 for insufficient evidence, 1 where a decision differs."""
        is_different = any(run.decision_divergence is not None for run in self.runs)
        return exit_code_of(self.verdict, is_different=is_different)


class JudgedRun(msgspec.Struct, frozen=True):
    """A run with its comparison and its verdict."""

    run: ShadowRun
    comparison: Comparison
    verdict: RunVerdict


class Request(msgspec.Struct, frozen=True):
    """What was asked for.

    Attributes:
        model: the model's spec.
        path: the node the path ends at, where one was named.
        actor: whose path it is.
        mode: the label on every figure.
        overrides: what was changed in the requests.
        head: the store's digest over the session as it was read.
    """

    model: str
    path: str | None = None
    actor: str = "main"
    mode: Mode = "replay"
    overrides: tuple[Override, ...] = ()
    head: str = ""


def describe_closure(report: AuditReport) -> Closure:
    """Sum up an audit for the shadow document."""
    opened = [step for step in report.steps if step.missing]
    listed = (OpenStep(s.step, s.node_id, s.missing) for s in opened[:_LISTED_STEPS])
    return Closure(
        status=report.status,
        closed_until=report.closed_until,
        steps=len(report.steps),
        n_open=len(opened),
        by_class={name.value: count for name, count in report.by_class.items()},
        open_steps=tuple(listed),
        notes=report.notes,
    )


def describe_open(request: Request, report: AuditReport, outcome: Outcome) -> ShadowDocument:
    """Write the document of an open trajectory: no model was asked, nothing is attributed."""
    return _document(request, report, outcome, (), None, Attribution.PROVENANCE_GAP)


def describe_run(
    request: Request,
    report: AuditReport,
    outcome: Outcome,
    recorded: RecordedRun,
    judged: JudgedRun,
) -> ShadowDocument:
    """Write the document of one run."""
    return _document(request, report, outcome, (judged,), recorded, judged.verdict.attribution)


def _document(
    request: Request,
    report: AuditReport,
    outcome: Outcome,
    runs: Sequence[JudgedRun],
    recorded: RecordedRun | None,
    attribution: Attribution | None,
) -> ShadowDocument:
    verdicts = [judged.verdict.verdict for judged in runs]
    notes = dict.fromkeys(note for judged in runs for note in judged.verdict.notes)
    return ShadowDocument(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        session_id=report.session_id,
        head=request.head,
        path=request.path,
        actor=request.actor,
        mode=request.mode,
        decisions="tool_calls" if recorded is None else recorded.mode,
        rules_version=RULES_VERSION,
        model=request.model,
        model_fingerprint=_fingerprint(runs),
        overrides=request.overrides,
        outcome=outcome,
        closure=describe_closure(report),
        evidence=None if recorded is None else _count_evidence(recorded.evidence),
        verdict=verdicts[0] if verdicts else Verdict.INSUFFICIENT_EVIDENCE,
        attribution=attribution,
        counts={verdict.value: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
        match_rate=None,
        runs=tuple(_describe(judged, recorded) for judged in runs if recorded is not None),
        steps=(),
        notes=tuple(notes),
    )


def _fingerprint(runs: Sequence[JudgedRun]) -> ModelFingerprint | None:
    """Give the first identity that an answer stated."""
    models = (decision.model for judged in runs for decision in judged.run.decisions)
    return next((model for model in models if model is not None), None)


def _count_evidence(store: ToolEvidenceStore) -> EvidenceCounts:
    return EvidenceCounts(
        calls=len(store.cells),
        calls_without_result=len(store.pairing.unanswered),
        results_without_call=len(store.pairing.orphans),
        conflicting=len(store.pairing.conflicts),
    )


def _describe(judged: JudgedRun, recorded: RecordedRun) -> RunDocument:
    run, compared, verdict = judged.run, judged.comparison, judged.verdict
    return RunDocument(
        verdict=verdict.verdict,
        reason=verdict.reason,
        stop=run.stop.value,
        decisions=len(run.decisions),
        rebuilt=sum(decision.is_rebuilt for decision in run.decisions),
        served=len(run.served),
        served_calls=run.served,
        live_calls=0,
        first_divergence=compared.first_divergence,
        decision_divergence=compared.decision_divergence,
        missing_call=run.missing,
        nearest_recorded=_nearest(run, recorded.evidence),
        model_change=verdict.model_change,
        unused_evidence=tuple(_unused(cell) for cell in run.unused),
        tool_sequence_edits=compared.tool_sequence_edits,
        tool_sequence_distance=compared.tool_sequence_distance,
        ignored=compared.ignored,
        text_only=compared.text_only,
        differences=compared.differences,
        n_differences=compared.n_differences,
    )


def _nearest(run: ShadowRun, store: ToolEvidenceStore) -> NearestDocument | None:
    found = run.nearest
    if found is None:
        return None
    step = store.find_step(found.call)
    return NearestDocument(step, found.call_id, found.tool, found.arguments, found.differs)


def _unused(cell: Cell) -> UnusedEvidence:
    return UnusedEvidence(cell.step, cell.call_id, cell.tool, cell.arguments.hex())


def dump_document(document: ShadowDocument) -> bytes:
    """Write the document as JSON; equal documents give equal bytes.

    Served results are copied as they were recorded, without being decoded again.
    """
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return canonical.encode(document)
