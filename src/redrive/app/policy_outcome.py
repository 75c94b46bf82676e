"""What one policy did in one session, as the report shows it: fires, snapshots, invariants.

Knows a tally and where the session's nodes lie. Must not know how events were judged. A session in
which nothing was found is not looked at a second time.

Source: DESIGN.md §7 "Report", "Invariants".
"""

from collections.abc import Iterable, Mapping, MutableSequence, Sequence, Set
from typing import Any, NamedTuple

import msgspec

from redrive.app.policy_context import asked_before, lines_before, text_of
from redrive.app.policy_judging import LivePolicy
from redrive.app.policy_messages import NOBODY, PolicyOutcome, Step, policy_word
from redrive.app.policy_recording import Recording
from redrive.app.policy_tally import Found, Tally
from redrive.compare.policy_report import CannotEvaluate, FireView, PolicyFault
from redrive.record.event import Event, Kind, payload_of
from redrive.record.session import KIND_CODE, NO_NODE
from redrive.replay import invariants
from redrive.replay.budget import NO_TS, BudgetResult, Match, apply_budgets
from redrive.replay.invariants import Sighting
from redrive.replay.policy import PREPARE_NOTE, Prepare
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.standard_fold import snapshot
from redrive.replay.walking import Walk
from redrive.reports.times import time_or_none

_OUTSIDE = -1
_MAX_UNDECIDED = 100
_NO_SEGMENT = -1


class Moment(NamedTuple):
    """What lies before an event on its path: the greatest time, and its segment's first event."""

    newest_ts: int | None = None
    segment: int = _NO_SEGMENT


class Telling:
    """Tells what policies did in one session.

    Args:
        recording: the session.
        walk: how it was judged.
        policies, tallies: the policies, and what each has done.
        status: its first word is set before code of a policy is run.
    """

    def __init__(
        self,
        recording: Recording,
        walk: Walk,
        policies: Sequence[LivePolicy],
        tallies: Sequence[Tally],
        status: MutableSequence[int],
    ) -> None:
        self._recording = recording
        self._walk = walk
        self._moments: Mapping[int, Moment] = {}
        self._policies = policies
        self._tallies = tallies
        self._status = status
        self._stages: dict[int, int] = {}

    def outcomes(self) -> tuple[PolicyOutcome, ...]:
        """Give one outcome per policy."""
        wanted = {found.event.seq for tally in self._tallies for found in tally.found}
        if wanted:
            self._moments = _moments(self._recording, self._walk, wanted)
            for stage, seqs in enumerate(self._recording.plan.stages):
                self._stages.update((seq, stage) for seq in seqs if seq in wanted)
        return tuple(self._outcome(number) for number in range(len(self._policies)))

    def _outcome(self, number: int) -> PolicyOutcome:
        tally, spec = self._tallies[number], self._policies[number].spec
        result = BudgetResult(())
        if tally.found:
            result = apply_budgets(spec, [self._match(found) for found in tally.found])
        by_seq = {found.event.seq: found for found in tally.found}
        held = {budgeted.seq: budgeted.suppressed_by for budgeted in result.matches}
        cannot = tally.cannot + [
            CannotEvaluate(self._ref(by_seq[seq].event), "a cooldown needs a time", NO_TS)
            for seq in result.without_ts
        ]
        shown = [by_seq[seq] for seq in held]
        return PolicyOutcome(
            offered=tally.offered,
            inherited=tally.inherited,
            fires=tuple(self._fire(found, held, by_seq) for found in shown),
            snapshots=tuple(self._snapshot(number, found) for found in shown),
            cannot=tuple(cannot),
            undecided=tuple(tally.undecided[:_MAX_UNDECIDED]) if spec.critical else (),
            faults=tuple(tally.faults),
            n_faults=tally.n_faults,
            decisions=dict(sorted(tally.decisions.items())),
            invariants=self._invariants(number, shown, held),
            stopped=tally.stopped,
            last_action=None if tally.last is None else tally.last.word,
            last_reason="" if tally.last is None else tally.last.reason,
        )

    def _match(self, found: Found) -> Match:
        event = found.event
        moment = self._moments[event.seq]
        ts = moment.newest_ts if event.ts_ns is None else event.ts_ns
        return Match(event.seq, ts, moment.segment, found.dedup_key)

    def _fire(
        self, found: Found, held: Mapping[int, int | None], by_seq: Mapping[int, Found]
    ) -> FireView:
        event, plan = found.event, self._recording.plan
        places = plan.places
        node = places.index.event_node[event.seq]
        blocker, reader = held[event.seq], self._recording.reader
        stage = self._stage(found)
        return FireView(
            event_ref=self._ref(event),
            state_snapshot_ref="",
            action=found.action.word,
            cooldown_suppressed=blocker is not None,
            leaf=None if node == NO_NODE else places.index.node_ids[plan.leaves[node]],
            on_head_path=places.is_live(event.seq),
            notes=(PREPARE_NOTE,) if isinstance(found.action, Prepare) else (),
            reason=found.action.reason,
            seq=event.seq,
            step=places.step_of(event.seq),
            actor=event.actor,
            node_id=places.node_id(event.seq),
            kind=event.kind.value if event.kind is not Kind.CUSTOM else f"custom:{event.name}",
            ts=time_or_none(event.ts_ns),
            tool=event.tool,
            call_id=event.call_id,
            context=text_of(event),
            before=lines_before(plan, stage, event.seq, reader),
            asked=asked_before(plan, stage, event.seq, reader),
            dedup_key=found.dedup_key,
            suppressed_by=None if blocker is None else self._ref(by_seq[blocker].event),
            inferences=found.inferences,
        )

    def _stage(self, found: Found) -> int:
        return self._stages.get(found.event.seq, _OUTSIDE)

    def _snapshot(self, number: int, found: Found) -> dict[str, Any]:
        policy, status = self._policies[number], self._status
        # How a value is written may be code of the policy.
        status[0] = policy_word(number, found.event.seq, Step.IS_WRITTEN)
        written = policy.write(found.state.own, _plain)
        status[0] = policy_word(NOBODY, found.event.seq)
        own = {} if isinstance(written, PolicyFault) else dict(written)
        return {
            **(snapshot(found.state.standard) if policy.spec.uses_standard_state else {}),
            "own": own,
        }

    def _invariants(
        self, number: int, shown: Sequence[Found], held: Mapping[int, int | None]
    ) -> dict[str, invariants.Tested]:
        tally, spec = self._tallies[number], self._policies[number].spec
        permissions = self._permissions() if shown else {}
        sightings = [self._sighting(found, permissions) for found in shown]
        fires = [
            s for s, found in zip(sightings, shown, strict=True) if held[found.event.seq] is None
        ]
        n_faults = sum(t.n_faults + (t.stopped is not None) for t in self._tallies)
        critical = invariants.check_critical(
            spec, n_faults=n_faults, offered=tally.offered, undecided=tally.undecided
        )
        return {
            invariants.LOOP_FREE: invariants.check_loops(fires),
            invariants.BREAKER_EXEMPT: invariants.check_muting(tally.muted),
            invariants.CRITICAL_ALWAYS_RUNS: critical,
            invariants.PERMISSION_MONOTONE: invariants.check_rights(sightings),
        }

    def _sighting(self, found: Found, permissions: Mapping[tuple[int, str], str]) -> Sighting:
        event, standard = found.event, found.state.standard
        is_action = event.kind is Kind.POLICY_ACTION
        call_id = event.call_id if event.kind is Kind.TOOL_CALL else None
        return Sighting(
            event_ref=self._ref(event),
            action=found.action,
            segment=self._moments[event.seq].segment,
            depth=standard.framework.depth + is_action,
            permission=permissions.get((self._stage(found), call_id or "")),
            denied_tools=frozenset(standard.permissions.denied_tools.merged()),
        )

    def _permissions(self) -> dict[tuple[int, str], str]:
        """Map a decision's stage and a call id to the last recorded decision on that call."""
        plan = self._recording.plan
        kinds, asked = plan.places.index.kinds, KIND_CODE[Kind.TOOL_PERMISSION]
        stages = enumerate(plan.stages)
        places = [(stage, seq) for stage, seqs in stages for seq in seqs if kinds[seq] == asked]
        events = self._recording.reader.read_events(seq for _, seq in places)
        return {
            (stage, event.call_id or ""): payload_of(event).decision
            for (stage, _), event in zip(places, events, strict=True)
        }

    def _ref(self, event: Event) -> str:
        return f"{self._recording.session_id}#{event.id}"


def _moments(recording: Recording, walk: Walk, wanted: Set[int]) -> Mapping[int, Moment]:
    """Go along the walk once more, and give the moment of each event that is wanted."""
    found: dict[int, Moment] = {}
    base = _go_along(recording.events(walk.outside), Moment(), wanted, found)
    ends: list[Moment] = []
    for run in walk.runs:
        moment = base if run.parent < 0 else ends[run.parent]
        ends.append(_go_along(recording.events(run.seqs), moment, wanted, found))
    return found


def _go_along(
    events: Iterable[PolicyEvent], moment: Moment, wanted: Set[int], found: dict[int, Moment]
) -> Moment:
    newest, segment = moment
    for event in events:
        seq, ts = event.seq, event.ts_ns
        if seq in wanted:
            found[seq] = Moment(newest, segment)
        if ts is not None and (newest is None or ts > newest):
            newest = ts
        if event.is_from_user:
            segment = seq
    return Moment(newest, segment)


def _plain(value: Any) -> Any:
    """Write a reducer's value as JSON where it has such a form, else as Python writes it."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return repr(value)[:2000]
