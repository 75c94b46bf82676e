"""Shadow replays of stored sessions: opens what one needs, and closes it again.

Decides nothing: the machine, the comparison and the verdict are in the core.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec

from redrive import plugins
from redrive.app.asking import Asker, default_overrides
from redrive.app.auditing import audit_session
from redrive.app.opening import OpenedSession, mode_of, open_session
from redrive.audit.closure import ClosedTrajectory
from redrive.audit.report import AuditReport
from redrive.compare.divergence import MAX_DIFFERENCES, compare_run
from redrive.compare.document import (
    JudgedRun,
    Request,
    ShadowDocument,
    describe_open,
    describe_run,
)
from redrive.compare.verdict import Outcome, find_outcome, judge_open_run, judge_run
from redrive.models.options import ModelOptions, parse_spec
from redrive.record.pairing import pair_path
from redrive.record.trajectory import Trajectory
from redrive.replay.exchange import AskModel, ShadowOptions
from redrive.replay.ports import Model, ModelReply, Override
from redrive.replay.reconstruct import Frame
from redrive.replay.recorded import RecordedRun, read_run
from redrive.replay.run import drive, reply_from
from redrive.stores.port import Store

Progress = Callable[[int, int, str], None]


class ShadowRequest(msgspec.Struct, frozen=True):
    """What a user asks of one shadow run.

    Attributes:
        session: id or unique prefix.
        model: the spec.
        path: node to end at; the head if absent.
        actor: whose path; `main`, or the only flow there is.
        until: only the first N decisions.
        start: the first decision that is asked.
        outcome: `success` or `failure`, on the user's word.
        extra: decisions beyond the record.
        max_differences: how many differences are listed.
        is_sampling_recorded: keep the recorded sampling; else temperature 0, and `seed` if given.
        seed: seed to set.
        decisions: `tool_calls` or `json_content`; what the session declares if absent.
        is_reconstruction: replay an open trajectory too, labelled as what it is.
        frame: of a reconstruction: system prompt and tools around what is built.
    """

    session: str
    model: str
    path: str | None = None
    actor: str | None = None
    until: int | None = None
    start: int = 1
    outcome: str | None = None
    extra: int = 3
    max_differences: int = MAX_DIFFERENCES
    is_sampling_recorded: bool = False
    seed: int | None = None
    decisions: str | None = None
    is_reconstruction: bool = False
    frame: Frame = Frame()


class ShadowResult(msgspec.Struct, frozen=True):
    """The document, the audit under it, and the store's head of the session."""

    document: ShadowDocument
    audit: AuditReport
    head: str


def open_model(spec: str, options: ModelOptions) -> Model:
    """Open a model by its spec; raises as `plugins.load` and the model's own `open_model` do."""
    parsed = parse_spec(spec)
    model: Model = plugins.load(plugins.MODELS, parsed.kind)(parsed.argument, options)
    return model


def run_shadow(
    store: Store,
    request: ShadowRequest,
    *,
    environment: Mapping[str, str],
    progress: Progress,
) -> ShadowResult:
    """Audit one path, and let a model decide again on its recorded evidence.

    Args:
        store: where the session lies.
        request: what is asked.
        environment: where API keys are looked up.
        progress: told (decision, decisions in all, what) before each question.

    Returns:
        The document; of an open trajectory without reconstruction one without any run, for which
        no model was opened.

    Raises:
        UsageError: no such session, path, actor or model, or the model needs what is not recorded.
        ModelError: the model refused, failed, or gave half an answer.
    """
    plugins.require(plugins.MODELS, parse_spec(request.model).kind)
    case = _open_case(store, request)
    overrides = default_overrides(is_recorded=request.is_sampling_recorded, seed=request.seed)
    described = Request(
        model=request.model,
        path=request.path,
        actor=case.trajectory.actor,
        mode="reconstruction" if case.closed is None and request.is_reconstruction else "replay",
        head=case.session.row.head,
    )
    if case.closed is None and not request.is_reconstruction:
        document = describe_open(described, case.report, case.outcome)
        return ShadowResult(document, case.report, case.session.row.head)
    recorded = read_run(
        case.session.index,
        case.trajectory,
        case.session.reader,
        mode=request.decisions or mode_of(case.session),
    )
    options = ModelOptions(seed=request.seed, decisions=recorded.mode, environment=environment)
    with closing(open_model(request.model, options)) as model:
        asker = _make_asker(case, request, model, overrides, recorded.mode)
        judged = _run(asker, recorded, request, case, progress)
    described = msgspec.structs.replace(described, overrides=tuple(asker.overrides))
    document = describe_run(described, case.report, case.outcome, recorded, judged)
    return ShadowResult(document, case.report, case.session.row.head)


@dataclass(frozen=True, slots=True)
class _Case:
    """One audited path."""

    session: OpenedSession
    trajectory: Trajectory
    report: AuditReport
    closed: ClosedTrajectory | None
    outcome: Outcome


def _open_case(store: Store, request: ShadowRequest) -> _Case:
    session = open_session(store, request.session)
    whole = session.trajectory(request.actor, request.path)
    trajectory = whole if request.until is None else whole.prefix(request.until)
    report, closed = audit_session(session, trajectory)
    outcome = Outcome()  # what a prefix came to is not the outcome of the whole
    if not trajectory.is_cut:
        outcome = find_outcome(session.index, trajectory, session.reader, request.outcome)
    return _Case(session, trajectory, report, closed, outcome)


def _make_asker(
    case: _Case, request: ShadowRequest, model: Model, overrides: Sequence[Override], mode: str
) -> Asker:
    is_built = case.closed is None and request.is_reconstruction
    return Asker(
        session=case.session,
        trajectory=case.trajectory,
        pairing=pair_path(case.session.index, case.trajectory, case.session.reader),
        model=model,
        wanted=overrides if model.reads_context else (),
        mode=mode,
        frame=request.frame if is_built else None,
    )


def _run(
    asker: Asker,
    recorded: RecordedRun,
    request: ShadowRequest,
    case: _Case,
    progress: Progress,
) -> JudgedRun:
    total = len(recorded.decisions)

    def decide(command: AskModel) -> ModelReply:
        progress(command.decision, max(total, command.decision), asker.model.spec)
        return asker.decide(command)

    options = ShadowOptions(
        extra=request.extra,
        from_decision=request.start,
        is_end_stated=not asker.model.apis,
    )
    run = drive(recorded, reply_from(asker.session.reader, decide), options)
    progress(total, total, "")
    comparison = compare_run(
        recorded, run, asker.trajectory, asker.session.reader, request.max_differences
    )
    overrides = asker.overrides
    verdict = (
        judge_open_run(recorded, run, comparison, case.outcome, overrides)
        if case.closed is None
        else judge_run(case.closed, recorded, run, comparison, case.outcome, overrides)
    )
    return JudgedRun(run, comparison, verdict)
