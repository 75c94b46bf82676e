"""Shadow replays and comparisons of stored sessions: opens what they need, and closes it again.

Decides nothing: the machine, the comparison and the verdict are in the core.
"""

from collections.abc import Callable, Mapping
from contextlib import closing

import msgspec

from redrive import plugins
from redrive.app.asking import Asker, default_overrides
from redrive.app.auditing import audit_session
from redrive.app.opening import OpenedSession, open_session
from redrive.audit.closure import ClosedTrajectory
from redrive.audit.report import AuditReport
from redrive.compare.divergence import MAX_DIFFERENCES, Comparison, compare_run, diff_sessions
from redrive.compare.document import (
    JudgedRun,
    Request,
    ShadowDocument,
    describe_open,
    describe_run,
)
from redrive.compare.verdict import Outcome, find_outcome, judge_open_run, judge_run
from redrive.errors import UsageError
from redrive.models.options import ModelOptions, parse_spec
from redrive.record.decisions import TOOL_CALLS
from redrive.record.trajectory import Trajectory, pair_path
from redrive.replay.ports import Model, ModelReply
from redrive.replay.recorded import RecordedRun, read_run
from redrive.replay.run import drive, reply_from
from redrive.replay.shadow import AskModel, ShadowOptions
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


class ShadowResult(msgspec.Struct, frozen=True):
    """The document, the audit under it, and the exit code it stands for."""

    document: ShadowDocument
    audit: AuditReport
    head: str
    exit_code: int


class DiffResult(msgspec.Struct, frozen=True):
    """Two recorded paths compared; the first is the expected one."""

    left: str
    right: str
    comparison: Comparison


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
    session = open_session(store, request.session)
    whole = session.trajectory(request.actor, request.path)
    trajectory = whole if request.until is None else whole.prefix(request.until)
    is_cut = len(trajectory.steps) < len(whole.steps)
    report, closed = audit_session(session, trajectory)
    stated = None if is_cut else request.outcome
    outcome = find_outcome(session.index, trajectory, session.reader, stated)
    described = Request(
        model=request.model,
        path=request.path,
        actor=trajectory.actor,
        mode="replay" if closed is not None else "reconstruction",
    )
    overrides = default_overrides(is_recorded=request.is_sampling_recorded, seed=request.seed)
    if closed is None and not request.is_reconstruction:
        document = describe_open(msgspec.structs.replace(described, mode="replay"), report, outcome)
        return ShadowResult(document, report, session.row.head, 3)
    recorded = read_run(
        session.index,
        trajectory,
        session.reader,
        mode=request.decisions or _mode(session),
        is_cut=is_cut,
    )
    options = ModelOptions(seed=request.seed, decisions=recorded.mode, environment=environment)
    with closing(open_model(request.model, options)) as model:
        asker = Asker(
            session=session,
            trajectory=trajectory,
            pairing=pair_path(session.index, trajectory, session.reader),
            model=model,
            wanted=overrides if model.reads_context else (),
            mode=recorded.mode,
        )
        judged = _run(asker, recorded, request, closed, outcome, progress)
    described = msgspec.structs.replace(described, overrides=tuple(asker.overrides))
    document = describe_run(described, report, outcome, recorded, judged)
    return ShadowResult(document, report, session.row.head, judged.verdict.exit_code)


def _run(
    asker: Asker,
    recorded: RecordedRun,
    request: ShadowRequest,
    closed: ClosedTrajectory | None,
    outcome: Outcome,
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
        judge_open_run(recorded, run, comparison, outcome, overrides)
        if closed is None
        else judge_run(closed, recorded, run, comparison, outcome, overrides)
    )
    return JudgedRun(run, comparison, verdict)


def _mode(session: OpenedSession) -> str:
    return TOOL_CALLS if session.started is None else session.started.decisions


def diff_paths(
    store: Store,
    names: tuple[str, str],
    paths: tuple[str | None, str | None] = (None, None),
    *,
    actor: str | None = None,
    max_differences: int = MAX_DIFFERENCES,
) -> DiffResult:
    """Compare two recorded sessions, or two paths of one, results included.

    Raises:
        UsageError: a session, path or actor does not exist, or both sides are the same path.
    """
    if names[0] == names[1] and paths[0] == paths[1]:
        raise UsageError("both sides are the same path", hint="--path-a NODE --path-b NODE")
    sides: list[tuple[RecordedRun, Trajectory, OpenedSession]] = []
    for name, path in zip(names, paths, strict=True):
        session = open_session(store, name)
        trajectory = session.trajectory(actor, path)
        recorded = read_run(session.index, trajectory, session.reader, mode=_mode(session))
        sides.append((recorded, trajectory, session))
    (left, left_path, one), (right, right_path, two) = sides
    comparison = diff_sessions(
        (left, left_path, one.reader), (right, right_path, two.reader), max_differences
    )
    return DiffResult(one.row.session_id, two.row.session_id, comparison)
