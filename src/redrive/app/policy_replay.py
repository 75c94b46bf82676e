"""Replays policies over stored sessions and adds the results up to the report.

Knows policies' code, the pool, and the report's shape. Must not know a terminal. The report depends
on the sessions and the policies alone: sessions are added up in the order of their ids, whichever
worker was done first.

Source: DESIGN.md §7.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from redrive import canonical, plugins
from redrive.app.hook_policy import HOOK
from redrive.app.hook_running import answer_hook
from redrive.app.policy_asking import Asking
from redrive.app.policy_messages import (
    Answer,
    Finished,
    Load,
    Loaded,
    Outside,
    PolicyCode,
    PolicyOutcome,
    Run,
)
from redrive.app.policy_pool import MEMORY_BYTES, TIMEOUT_S, PolicyPool
from redrive.compare.policy_report import (
    CannotEvaluate,
    FireView,
    InvariantCheck,
    PolicyDocument,
    PolicyFault,
    PolicyReport,
    SessionFires,
    Unreplayable,
)
from redrive.errors import PluginError, UsageError
from redrive.models.options import ModelOptions, parse_spec
from redrive.replay.invariants import (
    CRITICAL_ALWAYS_RUNS,
    INVARIANTS,
    MAX_VIOLATIONS,
    check_critical,
    merge_tested,
    status_of,
)
from redrive.replay.policy import PREPARE_NOTE, PolicySpec, no_spec
from redrive.sandbox.refused import LET_THROUGH
from redrive.stores.port import SessionRow, Store

STRICT, AUGMENTED = "strict", "augmented"
CONTEXT_CHARS, BEFORE_CHARS, REASON_CHARS = 2000, 400, 1000
NETS = ("scan", "stand-in", "recheck", "limits", "watchdog")
Progress = Callable[[int, int, str], None]


class Redacting(Protocol):
    """Takes secrets out of what is shown."""

    def redact_excerpt(self, text: str, limit: int) -> str:
        """Redact a text, then cut it."""
        ...

    def value(self, value: Any) -> Any:
        """Redact the texts of a JSON value."""
        ...


class ReplayRequest(msgspec.Struct, frozen=True):
    """What a user asks of a replay.

    Attributes:
        store_path: the store, for the workers.
        model: spec that computes inferences; absent: none.
        is_strict: no inference is computed, for any policy.
        is_offline: inferences come from the cache alone.
        branches: `head` or `all`.
        n_workers, timeout_s, memory_bytes: how policies are run.
    """

    store_path: Path
    model: str | None = None
    is_strict: bool = False
    is_offline: bool = False
    recheck_all: bool = False
    branches: str = "head"
    n_workers: int = 1
    timeout_s: float = TIMEOUT_S
    memory_bytes: int = MEMORY_BYTES
    redaction: str = ""


def replay_policies(
    store: Store,
    codes: Sequence[PolicyCode],
    rows: Sequence[SessionRow],
    request: ReplayRequest,
    redact: Redacting,
    progress: Progress,
) -> PolicyDocument:
    """Replay policies over sessions.

    Args:
        store: where inferences are kept.
        codes: the policies, each once.
        rows: the sessions, in any order.
        request: how.
        redact: takes secrets out of the report.
        progress: (done, total, name).

    Returns:
        The report; where it was interrupted, that of what was done, and it says so.

    Raises:
        PluginError: a policy declares what cannot be; names it. Nothing was run.
        UsageError: an inference is missing and nothing may compute it; names the event.
        ModelError: the model failed.
    """
    if not codes:
        raise UsageError("no policy is named", hint="--policy NAME, or --policy PATH.py:NAME")
    heads = {row.session_id: row.head for row in rows}
    names = sorted(heads)
    with ExitStack() as held:
        asking = _open_asking(store, request, held)
        replayed = [_start(code, request, asking, held) for code in codes]
        _collect(replayed, names, request.n_workers, progress)
    running = [one.results for one in replayed if one.spec is not None]
    done = [name for name in names if all(name in results for results in running)]
    builder = _Builder(request, redact, asking, done, replayed)
    return PolicyDocument(
        reports=tuple(builder.report(one) for one in replayed),
        sessions=tuple(done),
        branches=request.branches,
        is_partial=len(done) < len(names),
        sessions_left=tuple(sorted({*names} - {*done})),
        heads={name: heads[name] for name in done},
        nets=NETS,
        lets_through=LET_THROUGH,
        redaction=request.redaction,
    )


@dataclass(slots=True)
class _Replayed:
    """One policy's replay, in processes of its own: what it changes there reaches no other policy.

    `pool` and `spec` are absent for a policy that is not loaded, `faults` then says why.
    """

    code: PolicyCode
    pool: PolicyPool | None = None
    spec: PolicySpec | None = None
    faults: tuple[PolicyFault, ...] = ()
    results: dict[str, Finished] = field(default_factory=dict)


def _start(code: PolicyCode, request: ReplayRequest, asking: Asking, held: ExitStack) -> _Replayed:
    """Load a policy in a first worker of its own."""
    if code.findings:
        return _Replayed(code, faults=tuple(map(_as_fault, code.findings)))
    load = Load(
        policies=(code,),
        store=str(request.store_path),
        recheck_all=request.recheck_all,
        is_strict=request.is_strict,
        memory_bytes=request.memory_bytes,
    )
    pool = PolicyPool(
        load,
        n_workers=request.n_workers,
        timeout_s=request.timeout_s,
        answer=_answering(load, asking),
    )
    held.callback(pool.close)
    loaded = pool.start()
    _check_declarations(loaded)
    fault = loaded.faults[0]
    return _Replayed(code, pool, loaded.specs[0], () if fault is None else (fault,))


def _collect(
    replayed: Sequence[_Replayed], names: Sequence[str], n_workers: int, progress: Progress
) -> None:
    """Replay the sessions; an interruption ends it with what is done.

    Several policies take turns after a session a worker, so that what is done is done for all.
    """
    running = [one for one in replayed if one.pool is not None and one.spec is not None]
    total, n_done = len(names) * len(running), 0
    size = n_workers if len(running) > 1 else max(1, len(names))
    try:
        for start, one in product(range(0, len(names), size), running):
            assert one.pool is not None  # noqa: S101 - chosen so above
            for finished in one.pool.replay(names[start : start + size]):
                one.results[finished.session_id] = finished
                n_done += 1
                progress(n_done, total, f"{one.code.attribute} {finished.session_id}")
    except KeyboardInterrupt:
        pass
    progress(n_done, total, "")


def _answering(load: Load, asking: Asking) -> Callable[[Outside], Answer]:
    """Answer what workers ask: hooks by running them, inferences from cache or model."""

    def answer(outside: Outside) -> Answer:
        if outside.kind == HOOK:
            return answer_hook(load.policies[outside.policy], outside)
        return asking.answer(outside)

    return answer


class LivePool:
    """One policy in one worker, for sessions that lie in no store; see `policy_live`.

    Raises:
        PluginError: the policy does not load.
    """

    def __init__(
        self,
        code: PolicyCode,
        answer: Callable[[Outside], Answer] | None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        load = Load(
            policies=(code,), store=None, is_strict=answer is None, memory_bytes=MEMORY_BYTES
        )
        self._pool = PolicyPool(
            load, n_workers=1, timeout_s=timeout_s, answer=answer or _refuse_to_answer
        )
        loaded = self._pool.start()
        _check_declarations(loaded)
        fault, spec = loaded.faults[0], loaded.specs[0]
        if spec is None:
            self._pool.close()
            what = "does not load" if fault is None else fault.what
            raise PluginError(
                f"policy {code.attribute}: {what}", where=fault.where if fault else ""
            )
        self.spec: PolicySpec = spec

    def judge(self, session_id: str, lines: Sequence[str], only: str | None) -> PolicyOutcome:
        """Replay a session given as event lines; with `only`, judge that event alone.

        Raises:
            PluginError: the session cannot be replayed.
        """
        run = Run(session_id, 0, lines=tuple(lines), only=only)
        finished = next(iter(self._pool.replay([session_id], inline={session_id: run})))
        if finished.error is not None:
            raise PluginError(f"{session_id} cannot be replayed: {finished.error}")
        return finished.outcomes[0]

    def close(self) -> None:
        """End the worker."""
        self._pool.close()


def _refuse_to_answer(outside: Outside) -> Answer:
    return Answer(missing=f"nothing computes {outside.name}")


def _open_asking(store: Store, request: ReplayRequest, held: ExitStack) -> Asking:
    model = None
    if request.model is not None and not request.is_offline and not request.is_strict:
        spec = parse_spec(request.model)
        opened = plugins.load(plugins.MODELS, spec.kind)
        model = held.enter_context(closing(opened(spec.argument, ModelOptions())))
    return Asking(store.policies, request.model, model, is_offline=request.is_offline)


def _check_declarations(loaded: Loaded) -> None:
    for problem in loaded.wrong:
        if problem is not None:
            raise PluginError(problem[0], hint=problem[1])


class _Builder:
    """Adds sessions' results up, policy by policy."""

    def __init__(
        self,
        request: ReplayRequest,
        redact: Redacting,
        asking: Asking,
        done: Sequence[str],
        replayed: Sequence[_Replayed],
    ) -> None:
        self._request = request
        self._redact = redact
        self._asking = asking
        self._done = done
        self._n_faults = {name: sum(_n_faults(one, name) for one in replayed) for name in done}

    def report(self, one: _Replayed) -> PolicyReport:
        """Give the report of one policy."""
        if one.spec is None:
            spec = no_spec(one.code.attribute, one.code.lane)
            unrun = [Unreplayable(name, "the policy was not loaded") for name in self._done]
            return self._add_up(one.code, spec, [], one.faults, unrun)
        pairs, unreplayable = [], []
        for name in self._done:
            finished = one.results[name]
            if finished.error is not None:
                reason = self._redact.redact_excerpt(finished.error, REASON_CHARS)
                unreplayable.append(Unreplayable(name, reason, finished.is_tampered))
                continue
            outcome = self._with_critical(one.spec, finished.outcomes[0], name)
            pairs.append((finished, outcome))
            if outcome.stopped is not None:
                unreplayable.append(Unreplayable(name, outcome.stopped))
        return self._add_up(one.code, one.spec, pairs, [], unreplayable)

    def _with_critical(self, spec: PolicySpec, outcome: PolicyOutcome, name: str) -> PolicyOutcome:
        """Put a critical gate to the test of the faults of every policy in the session."""
        tested = check_critical(
            spec,
            n_faults=self._n_faults[name],
            offered=outcome.offered,
            undecided=outcome.undecided,
        )
        return replace(outcome, invariants={**outcome.invariants, CRITICAL_ALWAYS_RUNS: tested})

    def _add_up(
        self,
        code: PolicyCode,
        spec: PolicySpec,
        pairs: Sequence[tuple[Finished, PolicyOutcome]],
        faults: Sequence[PolicyFault],
        unreplayable: Sequence[Unreplayable],
    ) -> PolicyReport:
        outcomes = [outcome for _, outcome in pairs]
        found_faults = [*faults, *(fault for outcome in outcomes for fault in outcome.faults)]
        snapshots: dict[str, dict[str, Any]] = {}
        per_session = []
        for finished, outcome in pairs:
            matches = self._fires(outcome, snapshots)
            if matches:
                per_session.append(_session(finished, outcome, matches))
        fires = [fire for session in per_session for fire in session.fires]
        is_augmented = bool(spec.needs) and not self._request.is_strict
        return PolicyReport(
            policy=spec.name,
            version=spec.version,
            digest=code.digest,
            source=code.source,
            lane=spec.lane.value,
            on=spec.on,
            cooldown_s=None if spec.cooldown_ns is None else spec.cooldown_ns / 10**9,
            per_segment=spec.per_segment,
            critical=spec.critical,
            needs=spec.needs,
            mode=AUGMENTED if is_augmented else STRICT,
            model_fingerprint=self._asking.fingerprint if is_augmented else None,
            sessions_scanned=len(pairs),
            events_scanned=sum(finished.events for finished, _ in pairs),
            events_offered=sum(outcome.offered for outcome in outcomes),
            fired=_count(fires, is_held=False),
            suppressed=_count(fires, is_held=True),
            fired_on_head_path=_count(fires, is_held=False, on_head=True),
            suppressed_on_head_path=_count(fires, is_held=True, on_head=True),
            decisions=_sum(outcome.decisions for outcome in outcomes),
            cannot_evaluate=tuple(self._cannot(c) for o in outcomes for c in o.cannot),
            per_session=tuple(per_session),
            invariant_checks=_invariants(outcomes),
            faults=tuple(self._fault(fault) for fault in found_faults),
            unreplayable=tuple(unreplayable),
            snapshots=snapshots,
            unenforced=spec.unenforced,
            notes=_notes(spec, fires),
        )

    def _fires(
        self, outcome: PolicyOutcome, snapshots: dict[str, dict[str, Any]]
    ) -> tuple[FireView, ...]:
        shown = []
        for fire, raw in zip(outcome.fires, outcome.snapshots, strict=True):
            snapshot = self._redact.value(raw)
            ref = f"sha256:{canonical.value_digest(snapshot)[:16]}"
            snapshots.setdefault(ref, snapshot)
            shown.append(self._shown(fire, ref))
        return tuple(shown)

    def _shown(self, fire: FireView, snapshot_ref: str) -> FireView:
        excerpt = self._redact.redact_excerpt
        return replace(
            fire,
            state_snapshot_ref=snapshot_ref,
            reason=excerpt(fire.reason, REASON_CHARS),
            context=excerpt(fire.context, CONTEXT_CHARS),
            before=tuple(excerpt(line, BEFORE_CHARS) for line in fire.before),
            asked=excerpt(fire.asked, BEFORE_CHARS),
            dedup_key=None if fire.dedup_key is None else excerpt(fire.dedup_key, BEFORE_CHARS),
            inferences=self._redact.value(fire.inferences),
        )

    def _fault(self, fault: PolicyFault) -> PolicyFault:
        return replace(fault, what=self._redact.redact_excerpt(fault.what, REASON_CHARS))

    def _cannot(self, cannot: CannotEvaluate) -> CannotEvaluate:
        return replace(cannot, reason=self._redact.redact_excerpt(cannot.reason, REASON_CHARS))


def _n_faults(one: _Replayed, name: str) -> int:
    finished = one.results.get(name)
    if finished is None or finished.error is not None:
        return 0
    outcome = finished.outcomes[0]
    return outcome.n_faults + (outcome.stopped is not None)


def _session(
    finished: Finished, outcome: PolicyOutcome, fires: tuple[FireView, ...]
) -> SessionFires:
    return SessionFires(
        session_id=finished.session_id,
        head=finished.head,
        node_path=finished.node_path,
        events_scanned=finished.events,
        events_offered=outcome.offered,
        inherited=outcome.inherited,
        fires=fires,
    )


def _as_fault(finding: Any) -> PolicyFault:
    return PolicyFault("scan", f"{finding.what} ({finding.hint})", f"{finding.file}:{finding.line}")


def _count(fires: Iterable[FireView], *, is_held: bool, on_head: bool = False) -> int:
    return sum(
        fire.cooldown_suppressed == is_held and (fire.on_head_path or not on_head) for fire in fires
    )


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in counts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))


def _invariants(outcomes: Sequence[PolicyOutcome]) -> dict[str, InvariantCheck]:
    merged = merge_tested(outcome.invariants for outcome in outcomes)
    return {
        name: InvariantCheck(
            status_of(merged[name]), merged[name].count, merged[name].violations[:MAX_VIOLATIONS]
        )
        for name in INVARIANTS
    }


def _notes(spec: PolicySpec, fires: Sequence[FireView]) -> tuple[str, ...]:
    prepares = any(PREPARE_NOTE in fire.notes for fire in fires)
    return (*spec.notes, *((PREPARE_NOTE,) if prepares and PREPARE_NOTE not in spec.notes else ()))
