"""The closure audit: whether the record suffices to attribute a divergence, step by step.

Knows the order of steps and what one step means for later ones. Must not know files, formats or
how a report is shown. Audit first, then diff: attribution accepts only a `ClosedTrajectory`, and
only `close` makes one.

One step's payloads are held at a time. Cost: O(n) in events and bytes.

Source: DESIGN.md §4, §10.
"""

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from typing import Any, Never, final

from redrive.audit import conditions
from redrive.audit.assembly import Assembly, assistant_message, tool_message, user_message
from redrive.audit.conditions import Findings
from redrive.audit.environment import compare_environment
from redrive.audit.facts import Item, StepFacts, read_facts
from redrive.audit.gaps import InputClass, ProvenanceGap, make_gap
from redrive.audit.manifest import Manifest, fill_manifest
from redrive.audit.reads import READ_CLASSES, find_read_gap
from redrive.audit.renderers import Renderer
from redrive.audit.report import (
    API_BOUNDARY,
    AuditReport,
    ClosureReport,
    sort_gaps,
    status_of,
    sum_up,
    with_gaps,
)
from redrive.audit.sent import SentScanner
from redrive.errors import ReplayClosureError
from redrive.record.event import (
    FLAG_UNREPRESENTABLE,
    MAIN_ACTOR,
    Damage,
    Kind,
    SessionStarted,
    payload_of,
    raw_value,
)
from redrive.record.pairing import pair_path
from redrive.record.session import IS_DECISION, EventReader, SessionIndex
from redrive.record.trajectory import Step, Trajectory

NO_END = "the recording has no end: it goes on, or ended early, and what followed is not known"
# Damage that lost nothing, or whose event says itself what it could not hold.
HARMLESS_DAMAGE = frozenset({"byte order mark", FLAG_UNREPRESENTABLE})
MAX_NAMED = 10


@final
class ClosedTrajectory:
    """A trajectory that was audited and found closed; only `close` makes one.

    Attributes:
        trajectory: the path.
        report: its audit.
    """

    __slots__ = ("report", "trajectory")
    trajectory: Trajectory
    report: AuditReport

    def __init__(self, _: Never) -> None:
        raise TypeError("a ClosedTrajectory is made by redrive.audit.closure.close alone")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} of a ClosedTrajectory cannot be set")


def audit(
    index: SessionIndex,
    trajectory: Trajectory,
    reader: EventReader,
    *,
    session_started: SessionStarted | None,
    renderers: Mapping[str, Renderer],
    environment: Mapping[str, Any] | None = None,
) -> AuditReport:
    """Audit one trajectory.

    Args:
        index: the session's index.
        trajectory: n steps, root first.
        reader: gives the session's events; asked for one step at a time.
        session_started: what the session line says; absent, nothing is vouched for.
        renderers: `NAME@VERSION` → renderer; the session names one of them.
        environment: offered for a re-execution, to be compared with the recorded one.

    Returns:
        n step reports; an open step names every gap.

    Source: DESIGN.md §4. Cost: O(n) in events and bytes.
    """
    auditor = _Auditor(index, trajectory, reader, session_started, renderers)
    return auditor.run(environment)


def try_close(
    index: SessionIndex,
    trajectory: Trajectory,
    reader: EventReader,
    *,
    session_started: SessionStarted | None,
    renderers: Mapping[str, Renderer],
    environment: Mapping[str, Any] | None = None,
) -> tuple[AuditReport, ClosedTrajectory | None]:
    """Audit one trajectory and close it if nothing is missing; see `audit` for the arguments."""
    report = audit(
        index,
        trajectory,
        reader,
        session_started=session_started,
        renderers=renderers,
        environment=environment,
    )
    return report, _seal(trajectory, report) if report.is_closed else None


def close(
    index: SessionIndex,
    trajectory: Trajectory,
    reader: EventReader,
    *,
    session_started: SessionStarted | None,
    renderers: Mapping[str, Renderer],
    environment: Mapping[str, Any] | None = None,
) -> ClosedTrajectory:
    """Audit one trajectory and close it; see `audit` for the arguments.

    Raises:
        ReplayClosureError: a step is open; carries every gap.
    """
    report, closed = try_close(
        index,
        trajectory,
        reader,
        session_started=session_started,
        renderers=renderers,
        environment=environment,
    )
    if closed is None:
        raise closure_error(report)
    return closed


def closure_error(report: AuditReport) -> ReplayClosureError:
    """Make the error that names the first open step, its class, and all gaps."""
    gaps = [
        (step.step, gap.input_class.value, gap.what)
        for step in report.steps
        for gap in step.missing
    ]
    first = report.first_open()
    if first is None:
        return ReplayClosureError(f"{report.session_id} holds no decision of {report.actor!r}")
    gap = first.missing[0]
    return ReplayClosureError(
        f"provenance gap at step {first.step}: {gap.input_class} ({gap.what}: {gap.reason})",
        gaps=gaps,
        hint=gap.hint,
    )


def _seal(trajectory: Trajectory, report: AuditReport) -> ClosedTrajectory:
    closed = object.__new__(ClosedTrajectory)
    object.__setattr__(closed, "trajectory", trajectory)
    object.__setattr__(closed, "report", report)
    return closed


class _Auditor:
    """Walks one trajectory; holds what earlier steps mean for later ones."""

    def __init__(
        self,
        index: SessionIndex,
        trajectory: Trajectory,
        reader: EventReader,
        started: SessionStarted | None,
        renderers: Mapping[str, Renderer],
    ) -> None:
        self.index = index
        self.trajectory = trajectory
        self.reader = reader
        self.started = started
        self.basis = "unknown" if started is None else started.basis
        self.has_call_messages = started is None or started.decisions != "json_content"
        self.session_gaps = conditions.judge_captures(started)
        self.manifest = Manifest(environment=conditions.environment_state(started))
        self.is_sampling_captured = all(
            gap.input_class is not InputClass.SAMPLING for gap in self.session_gaps
        )
        self.scanner = SentScanner()
        self.pairing = pair_path(index, trajectory, reader)
        self.orphans = frozenset(self.pairing.orphans)
        self.assembly = _begin_assembly(trajectory.actor, started, renderers)
        self.is_assembled = self.assembly.is_checked
        self.answering = frozenset(self.pairing.answers.values()) if self.is_assembled else ()
        self.n_missing = 0
        self.first_missing = ""
        self.extra: dict[int, list[ProvenanceGap]] = {}
        self.stray: list[tuple[int, int, ProvenanceGap]] = []

    def run(self, environment: Mapping[str, Any] | None) -> AuditReport:
        """Audit every step."""
        notes = [API_BOUNDARY]
        steps = self.trajectory.steps
        if steps:
            self._open_first(environment)
            self._place_damage(notes)
        else:
            notes.append("no decision is recorded")
        self._name_others(notes)
        if self.basis == "intercepted" and not self.index.seqs_of(Kind.SESSION_ENDED):
            notes.append(NO_END)
        reports = [self._audit_step(step) for step in steps]
        if self.stray:
            self._place_stray(reports, notes)
        summary = (self.trajectory.session_id, self.trajectory.actor)
        return sum_up(*summary, tuple(reports), tuple(notes))

    def _name_others(self, notes: list[str]) -> None:
        """Name the flows that decide as well: what is found here says nothing of them."""
        index = self.index
        deciding = {
            actor
            for actor, role in zip(index.node_actor, index.node_role, strict=True)
            if role & IS_DECISION
        }
        own = index.actor_number(self.trajectory.actor)
        others = [index.actors[actor] for actor in sorted(deciding - {own})]
        if others:
            shown = ", ".join(others[:MAX_NAMED])
            more = f" and {len(others) - MAX_NAMED} more" if len(others) > MAX_NAMED else ""
            notes.append(f"flows audited by themselves, with --actor: {shown}{more}")

    def _open_first(self, environment: Mapping[str, Any] | None) -> None:
        """Find what opens step 1: a broken path, a masked or another environment."""
        masked = conditions.find_environment_gap(self.started)
        gaps: list[ProvenanceGap] = [] if masked is None else [masked]
        broken = self.trajectory.breaks
        if broken is not None:
            node, missing = broken.node_id, broken.missing
            gaps.append(make_gap(broken.what, broken.what, node=node, missing=missing))
        if environment is not None:
            gaps.extend(self._environment_gaps(environment))
        self.extra[1] = gaps

    def _environment_gaps(self, given: Mapping[str, Any]) -> list[ProvenanceGap]:
        recorded = None if self.started is None else raw_value(self.started.environment)
        if not isinstance(recorded, dict):
            return [make_gap("environment_unknown", "environment")]
        found = compare_environment(recorded, given)
        return [make_gap("environment_differs", f"environment.{one.field}") for one in found]

    def _place_damage(self, notes: list[str]) -> None:
        """Open the step at which unreadable bytes lie: they may have held any input of it."""
        seqs = self.index.seqs_of(Kind.DAMAGE)
        if not seqs:
            return
        stretches = "stretch" if len(seqs) == 1 else "stretches"
        notes.append(f"{len(seqs)} damaged {stretches} in the source")
        firsts = (min((*step.responses, *step.calls)) for step in self.trajectory.steps)
        starts = list(accumulate(firsts, max))
        for event in self.reader.read_events(seqs):
            damage: Damage = payload_of(event)
            if damage.reason in HARMLESS_DAMAGE:
                continue
            step = max(1, bisect_right(starts, event.seq))
            detail = {"bytes": damage.bytes, "detail": damage.reason}
            gap = make_gap("damage", f"damage at line {damage.line}", **detail)
            self.extra.setdefault(step, []).append(gap)

    def _audit_step(self, step: Step) -> ClosureReport:
        opening = self.trajectory.opening if step.step == 1 else ()
        facts = read_facts(step, opening + step.seqs(), self.reader)
        found = Findings()
        if step.step in self.extra:
            found.gaps.extend(self.extra[step.step])
        body = conditions.judge_input(facts, self.scanner, found)
        self._judge_assembly(facts, found)
        self._judge_environment(facts, found)
        is_recorded = conditions.judge_sampling(facts, body, found)
        conditions.judge_model(facts, body, found)
        recorded_step = facts.recorded_step
        if facts.attached:
            self._judge_attached(facts, recorded_step, found)
        missing: tuple[ProvenanceGap, ...] = self.session_gaps
        if found.gaps:
            missing = sort_gaps((*found.gaps, *missing))
        is_input_closed = not missing or missing[0].input_class is not InputClass.INPUT
        return ClosureReport(
            step=step.step,
            recorded_step=recorded_step,
            node_id=step.node_id,
            status=status_of(missing),
            decision_closed=is_input_closed and is_recorded and self.is_sampling_captured,
            basis=self.basis,
            missing=missing,
            notes=tuple(found.notes),
            provenance=fill_manifest(self.manifest, missing),
        )

    def _judge_assembly(self, facts: StepFacts, found: Findings) -> None:
        """Compare the recorded context with the rendered record, where that can be done."""
        assembly = self.assembly
        if not self.is_assembled:
            found.notes.append(assembly.note())
            return
        if assembly.is_checked:
            for event in facts.others:
                if event.kind is Kind.USER_MESSAGE:
                    assembly.add(user_message(payload_of(event)))
                elif event.kind is Kind.CONTEXT_REPLACED:
                    assembly.replace(payload_of(event))
        context = None if facts.request is None else facts.request.context
        if context is None or not assembly.is_checked:
            found.notes.append(assembly.note())
            return
        gap = assembly.compare(context)
        if gap is not None:
            found.gaps.append(gap)

    def _judge_environment(self, facts: StepFacts, found: Findings) -> None:
        """Judge each call's result, and what missing results mean for a context not stored."""
        if self.n_missing and facts.sent is None:
            count, first = self.n_missing, self.first_missing
            gap = make_gap("earlier_result_missing", first, count=count, first=first)
            found.gaps.append(gap)
        own = {item[0].seq: item for item in facts.results}
        for item in facts.calls:
            conditions.judge_call(item, found)
            if not item[1].is_provider_side:
                self._judge_result(item, own, found)
        for event, result, _ in facts.results:
            conditions.note_duplicates(event, result, found)
            if event.seq in self.orphans:
                name = event.call_id or event.id
                found.notes.append(f"the result {name} answers no recorded call")
        if self.is_assembled:
            self._add_messages(facts)

    def _judge_result(self, item: Item, own: Mapping[int, Item], found: Findings) -> None:
        event, call, _ = item
        seq = self.pairing.answers.get(event.seq)
        answer = None if seq is None else self._find_answer(seq, own)
        n_conflicting = len(self.pairing.conflicts.get(event.seq, ()))
        gap = conditions.find_result_gap(event, call, answer, n_conflicting)
        if gap is not None:
            found.gaps.append(gap)
            self.assembly.give_up(f"{gap.what} is not usable")
            self.first_missing = self.first_missing or gap.what
            self.n_missing += 1

    def _find_answer(self, seq: int, own: Mapping[int, Item]) -> Item:
        """Find a result among the step's own, else read it: it came after a later decision."""
        if seq in own:
            return own[seq]
        return read_facts(self.trajectory.steps[0], (seq,), self.reader).results[0]

    def _add_messages(self, facts: StepFacts) -> None:
        """Add what this step gives to the next context."""
        text = "".join(item[1].text for item in facts.responses)
        asked = facts.calls if self.has_call_messages else ()
        calls = [(event.call_id, call) for event, call, _ in asked]
        self.assembly.add(assistant_message(text, calls))
        for event, result, _ in facts.results:
            if event.seq in self.answering:
                self.assembly.add(tool_message(event.call_id, result))

    def _judge_attached(self, facts: StepFacts, recorded_step: int | None, found: Findings) -> None:
        """Judge reads and derived values; one that names another step opens that step."""
        own = facts.step.step if recorded_step is None else recorded_step
        for event, payload, mark in facts.attached:
            if event.kind is Kind.VALUE_DERIVED:
                gap = conditions.find_derived_gap(payload, mark)
            else:
                gap = find_read_gap(READ_CLASSES[event.kind], payload)
            self._place(gap, payload.step, own, facts.step, found)

    def _place(
        self,
        gap: ProvenanceGap | None,
        named: int | None,
        own: int,
        step: Step,
        found: Findings,
    ) -> None:
        if gap is None:
            return
        if named is None or named == own:
            found.gaps.append(gap)
        else:
            self.stray.append((named, step.step, gap))

    def _place_stray(self, reports: list[ClosureReport], notes: list[str]) -> None:
        """Open the steps that reads and derived values name by the record's own numbers.

        Beyond a path that was cut, one that names a later step has reached no decision on it.
        """
        numbers: dict[int, int] = {}
        for report in reports:
            recorded = report.step if report.recorded_step is None else report.recorded_step
            numbers.setdefault(recorded, report.step)
        last = max(numbers)
        for named, nearest, gap in self.stray:
            if self.trajectory.is_cut and named > last:
                notes.append(f"{gap.what} belongs to step {named}, which is not on this path")
                continue
            at = numbers.get(named, nearest) - 1
            reports[at] = with_gaps(reports[at], (gap,))


def _begin_assembly(
    actor: str, started: SessionStarted | None, renderers: Mapping[str, Renderer]
) -> Assembly:
    """Begin the message list with the task, where a registered renderer is declared."""
    name = None if started is None else started.renderer
    if started is None or name is None:
        return Assembly(None, "", None)
    renderer = renderers.get(name)
    if renderer is None:
        return Assembly(None, f"no renderer {name} is registered", None)
    if actor != MAIN_ACTOR:
        return Assembly(renderer, "how a sub-agent's list begins is not recorded", None)
    return Assembly(renderer, "", started.task)
