"""Replays one session through live policies: folds its paths, judges its events, spends budgets.

Knows plan, states and budgets. Must not know processes, files or a terminal. Every event is judged
on the state of its own path; each policy's matches are then put through its budgets, which are
global in the session.

Source: DESIGN.md §7.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from redrive import canonical
from redrive.app.hook_policy import HOOK
from redrive.app.policy_context import asked_before, lines_before, text_of
from redrive.app.policy_judging import LivePolicy
from redrive.app.policy_messages import PolicyOutcome
from redrive.compare.policy_report import CannotEvaluate, FireView, PolicyFault
from redrive.record.event import Event, Kind, payload_of, raw_value
from redrive.record.session import KIND_CODE, NO_NODE, EventReader
from redrive.replay import invariants
from redrive.replay.budget import NO_TS, Match, apply_budgets
from redrive.replay.folding import FoldPlan
from redrive.replay.inference import BUDGET_FACT, MAX_PER_TURN
from redrive.replay.invariants import Sighting
from redrive.replay.persistent import Table
from redrive.replay.policy import PREPARE_NOTE, Action, Lane, Prepare
from redrive.replay.policy_event import PolicyEvent, freeze, thaw, view
from redrive.replay.policy_state import StandardState, State
from redrive.replay.standard_fold import fold_standard, snapshot
from redrive.reports.times import time_or_none

MAX_FAULTS = 3
_NO_SEGMENT = -1
_NOTHING: Mapping[str, Any] = MappingProxyType({})
RECHECK_SHARE = 100

Ask = Callable[[int, str, str, PolicyEvent, State], Raw | str]
"""(policy number, kind, name, event, state) → a value, or why there is none."""
Beat = Callable[[int, int], None]
"""(policy number, seq): said before each judgement, so that a watchdog knows whom to blame, and
with `NOBODY` after it."""
NOBODY = -1


class Frame(msgspec.Struct, frozen=True, gc=False):
    """What is carried along a path: state, greatest time, and the segment's first event."""

    standard: StandardState = StandardState()
    own: tuple[Mapping[str, Any], ...] = ()
    newest_ts: int | None = None
    segment: int = _NO_SEGMENT


class Found(msgspec.Struct, frozen=True):
    """A match with all that a report says of it."""

    match: Match
    action: Action
    event: PolicyEvent
    state: State
    stage: int
    inferences: dict[str, Any]


class Tally:
    """What one policy has done so far in this session."""

    def __init__(self) -> None:
        self.offered = self.inherited = self.n_faults = 0
        self.found: list[Found] = []
        self.cannot: list[CannotEvaluate] = []
        self.faults: list[PolicyFault] = []
        self.undecided: list[str] = []
        self.muted: list[tuple[str, str, str]] = []
        self.decisions: dict[str, int] = {}
        self.stopped: str | None = None
        self.last: Action | None = None


class SessionReplay:
    """One session's replay.

    Args:
        session_id: whose events these are.
        plan: how to fold it.
        reader: gives its events.
        policies: in the order of the report.
        ask: answers what only the outside can.
        beat: is told before each judgement.
        dropped: numbers of policies left out, with the reason.
        recheck_all: judge every event twice, not only fires and a hundredth.
    """

    def __init__(
        self,
        session_id: str,
        plan: FoldPlan,
        reader: EventReader,
        policies: Sequence[LivePolicy],
        *,
        ask: Ask,
        beat: Beat,
        dropped: Mapping[int, str],
        recheck_all: bool = False,
    ) -> None:
        self.session_id = session_id
        self.plan = plan
        self.reader = reader
        self.policies = policies
        self.tallies = [Tally() for _ in policies]
        self._ask = ask
        self._beat = beat
        self._recheck_all = recheck_all
        self._folds_standard = any(_reads_standard(policy) for policy in policies)
        self._folds_own = any(policy.reducers for policy in policies)
        self._asked: dict[tuple[int, str], dict[int, Any]] = {}
        self._about = _recorded_inferences(plan, reader)
        for number, reason in dropped.items():
            self.tallies[number].stopped = reason

    def run(self, only: str | None = None) -> tuple[PolicyOutcome, ...]:
        """Replay the session; with `only`, judge nothing but that event."""
        self._renew()
        events = self.reader.read_events(self.plan.seqs())
        base = Frame(own=tuple(policy.initial for policy in self.policies))
        for _ in self.plan.outside:
            base = self._take(next(events), base, -1, only)
        frames: list[Frame] = []
        index = self.plan.places.index
        for stage, seqs in enumerate(self.plan.stages):
            parent = self.plan.parents[stage]
            frame = frames[parent] if parent >= 0 else base
            actor = index.actors[self.plan.actors[stage]]
            if parent < 0 and actor != frame.standard.actor:
                frame = replace(frame, standard=replace(frame.standard, actor=actor))
            for _ in seqs:
                frame = self._take(next(events), frame, stage, only)
            frames.append(frame)
        return tuple(self._outcome(number) for number in range(len(self.policies)))

    def _renew(self) -> None:
        """Make each policy anew; one that cannot be made again is not run."""
        for number, policy in enumerate(self.policies):
            tally = self.tallies[number]
            if tally.stopped is not None:
                continue
            self._beat(number, NOBODY)
            fault = policy.renew()
            self._beat(NOBODY, NOBODY)
            if fault is not None:
                tally.n_faults += 1
                tally.faults.append(replace(fault, session_id=self.session_id))
                tally.stopped = "the policy could not be made again"

    def _take(self, raw: Event, frame: Frame, stage: int, only: str | None) -> Frame:
        """Judge an event on the state before it, and give the state after it."""
        event = view(raw, ends_turn=stage >= 0 and self.plan.ends[stage] == raw.seq)
        if only is None or event.id == only:
            for number, policy in enumerate(self.policies):
                if policy.spec.wants(event):
                    self._offer(number, event, frame, stage)
                    self._beat(NOBODY, event.seq)
        ts = event.ts_ns
        newest = frame.newest_ts if ts is None else max(ts, frame.newest_ts or ts)
        segment = event.seq if event.is_from_user else frame.segment
        standard = fold_standard(frame.standard, event) if self._folds_standard else frame.standard
        own = self._fold_own(event, frame.own) if self._folds_own else frame.own
        return Frame(standard, own, newest, segment)

    def _fold_own(
        self, event: PolicyEvent, own: tuple[Mapping[str, Any], ...]
    ) -> tuple[Mapping[str, Any], ...]:
        folded = []
        for number, (policy, values) in enumerate(zip(self.policies, own, strict=True)):
            new: Mapping[str, Any] | PolicyFault = values
            if self.tallies[number].stopped is None and policy.folds(event):
                self._beat(number, event.seq)
                new = policy.fold(values, event)
                self._beat(NOBODY, event.seq)
            if isinstance(new, PolicyFault):
                self._fault(number, new, event)
                new = values
            folded.append(new)
        return tuple(folded)

    # --- judging

    def _offer(self, number: int, event: PolicyEvent, frame: Frame, stage: int) -> None:
        tally, policy = self.tallies[number], self.policies[number]
        if self.plan.places.index.is_inherited[event.seq]:
            tally.inherited += 1
            return
        tally.offered += 1
        if tally.stopped is not None:
            tally.undecided.append(self._ref(event))
            return
        self._beat(number, event.seq)
        state = self._state(policy, event, frame, frame.own[number])
        is_drawn = self._recheck_all or self._is_drawn(event)
        before = self._print(number, state, event) if is_drawn else None
        answer: Action | PolicyFault | CannotEvaluate | None
        if isinstance(before, PolicyFault):
            answer = before
        else:
            answer, state = self._answer(number, event, state, frame)
        if isinstance(answer, PolicyFault):
            self._fault(number, answer, event)
            tally.undecided.append(self._ref(event))
            return
        if isinstance(answer, CannotEvaluate):
            tally.cannot.append(answer)
            tally.undecided.append(self._ref(event))
            return
        tally.last = answer
        if policy.spec.lane is Lane.GATE and state.standard.framework.is_muted:
            self._check_muted(number, event, state, answer)
        if answer is None and not is_drawn:
            return
        if not self._is_sound(number, event, state, answer, before):
            return
        if answer is not None:
            self._match(number, answer, event, state, frame, stage)

    def _state(
        self, policy: LivePolicy, event: PolicyEvent, frame: Frame, own: Mapping[str, Any]
    ) -> State:
        needs = policy.spec.needs
        known = self._known(event, frame, needs)
        return State(self._standard_for(policy, frame), own, known, needs)

    def _answer(
        self, number: int, event: PolicyEvent, state: State, frame: Frame
    ) -> tuple[Action | PolicyFault | CannotEvaluate | None, State]:
        """Judge an event, asking for what is missing as often as the policy gets there."""
        policy = self.policies[number]
        while True:
            found = policy.evaluate(event, state)
            if not isinstance(found, str):
                return found, state
            value = self._infer(number, found, event, state, frame)
            if isinstance(value, CannotEvaluate):
                return value, state
            known = {**state.inferences, found: freeze(value)}
            state = replace(state, inferences=MappingProxyType(known))

    def _infer(self, number: int, name: str, event: PolicyEvent, state: State, frame: Frame) -> Any:
        """Ask for an inference: each is made once per event, and two at most per turn."""
        if name == HOOK:
            answer = self._ask(number, HOOK, name, event, state)
            missing = CannotEvaluate(self._ref(event), str(answer), HOOK)
            return missing if isinstance(answer, str) else raw_value(answer)
        known = self._asked.setdefault((frame.segment, name), {})
        if event.seq in known:
            return known[event.seq]
        n_asked = sum(len(v) for (s, _), v in self._asked.items() if s == frame.segment)
        if n_asked >= MAX_PER_TURN:
            return CannotEvaluate(self._ref(event), f"{name} would be one too many", BUDGET_FACT)
        value = self._ask(number, "inference", name, event, state)
        if isinstance(value, str):
            return CannotEvaluate(self._ref(event), value, name)
        known[event.seq] = raw_value(value)
        return known[event.seq]

    def _known(self, event: PolicyEvent, frame: Frame, needs: Sequence[str]) -> Mapping[str, Any]:
        """Give the recorded inferences that a policy needs: of this turn, and about the event."""
        if not needs:
            return _NOTHING
        about = self._about.get(self.plan.places.index.event_node[event.seq], _NOTHING)
        known = {**frame.standard.inferred.merged(), **about}
        return MappingProxyType({name: known[name] for name in needs if name in known})

    def _standard_for(self, policy: LivePolicy, frame: Frame) -> StandardState:
        """Give the standard state; to a gate without the inferences, on which it never rests.

        Whoever reads none is shown none, also where it is folded for another policy.
        """
        if not _reads_standard(policy):
            return StandardState(actor=frame.standard.actor)
        if policy.spec.lane is Lane.GATE and frame.standard.inferred.layers:
            return replace(frame.standard, inferred=Table())
        return frame.standard

    def _is_sound(
        self,
        number: int,
        event: PolicyEvent,
        state: State,
        answer: Action | None,
        before: tuple[bytes, bytes] | PolicyFault | None,
    ) -> bool:
        """Check an answer a second time, and that nothing was changed; note a fault if not."""
        policy = self.policies[number]
        after = self._print(number, state, event)
        fault = policy.recheck(event, state, answer)
        if fault is None:
            for first, second in ((before, after), (after, self._print(number, state, event))):
                if isinstance(second, PolicyFault):
                    fault = second
                elif isinstance(first, tuple) and first != second:
                    fault = policy.mutation("event" if first[1] != second[1] else "state")
        if fault is not None:
            self._fault(number, fault, event)
            self.tallies[number].undecided.append(self._ref(event))
        return fault is None

    def _print(
        self, number: int, state: State, event: PolicyEvent
    ) -> tuple[bytes, bytes] | PolicyFault:
        """Write state and event as bytes, to see whether a policy changed them."""
        written = self.policies[number].write(state.own, repr) if state.own else []
        if isinstance(written, PolicyFault):
            return written
        own = repr(written).encode("utf-8", "backslashreplace")
        return canonical.encode(snapshot(state.standard)) + own, canonical.encode(event)

    def _is_drawn(self, event: PolicyEvent) -> bool:
        """Draw one event in a hundred, by its names alone."""
        name = f"{self.session_id}#{event.id}".encode("utf-8", "backslashreplace")
        return zlib.crc32(name) % RECHECK_SHARE == 0

    def _check_muted(
        self, number: int, event: PolicyEvent, state: State, answer: Action | None
    ) -> None:
        framework = replace(state.standard.framework, is_muted=False)
        free = replace(state, standard=replace(state.standard, framework=framework))
        other = self.policies[number].evaluate(event, free)
        if not isinstance(other, PolicyFault | str):
            pair = (_word(answer), _word(other))
            self.tallies[number].muted.append((self._ref(event), *pair))

    def _match(
        self,
        number: int,
        action: Action,
        event: PolicyEvent,
        state: State,
        frame: Frame,
        stage: int,
    ) -> None:
        tally, policy = self.tallies[number], self.policies[number]
        key = policy.dedup_key(action, event, state)
        if isinstance(key, PolicyFault):
            self._fault(number, key, event)
            return
        ts = event.ts_ns if event.ts_ns is not None else frame.newest_ts
        match = Match(event.seq, ts, frame.segment, key)
        used = {n: thaw(v) for n, v in state.inferences.items() if n in policy.spec.needs}
        tally.decisions[action.word] = tally.decisions.get(action.word, 0) + 1
        tally.found.append(Found(match, action, event, state, stage, used))

    def _fault(self, number: int, fault: PolicyFault, event: PolicyEvent) -> None:
        tally = self.tallies[number]
        tally.n_faults += 1
        fault = replace(fault, session_id=self.session_id, event_ref=self._ref(event))
        if len(tally.faults) < MAX_FAULTS:
            tally.faults.append(fault)
        is_gate = self.policies[number].spec.lane is Lane.GATE
        if tally.n_faults >= MAX_FAULTS and not is_gate:
            tally.stopped = f"stopped after {MAX_FAULTS} faults in this session"

    def _ref(self, event: Event) -> str:
        return f"{self.session_id}#{event.id}"

    # --- the outcome

    def _outcome(self, number: int) -> PolicyOutcome:
        tally, spec = self.tallies[number], self.policies[number].spec
        result = apply_budgets(spec, [found.match for found in tally.found])
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
            faults=tuple(tally.faults),
            n_faults=tally.n_faults,
            decisions=tally.decisions,
            invariants=self._invariants(number, shown, held),
            stopped=tally.stopped,
            last_action=None if tally.last is None else tally.last.word,
            last_reason="" if tally.last is None else tally.last.reason,
        )

    def _fire(
        self, found: Found, held: Mapping[int, int | None], by_seq: Mapping[int, Found]
    ) -> FireView:
        event, places = found.event, self.plan.places
        node = places.index.event_node[event.seq]
        blocker = held[event.seq]
        return FireView(
            event_ref=self._ref(event),
            state_snapshot_ref="",
            action=found.action.word,
            cooldown_suppressed=blocker is not None,
            leaf=None if node == NO_NODE else places.index.node_ids[self.plan.leaves[node]],
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
            before=lines_before(self.plan, found.stage, event.seq, self.reader),
            asked=asked_before(self.plan, found.stage, event.seq, self.reader),
            dedup_key=found.match.dedup_key,
            suppressed_by=None if blocker is None else self._ref(by_seq[blocker].event),
            inferences=found.inferences,
        )

    def _snapshot(self, number: int, found: Found) -> dict[str, Any]:
        self._beat(number, found.event.seq)  # how a value is written may be code of the policy
        written = self.policies[number].write(found.state.own, _plain)
        self._beat(NOBODY, found.event.seq)
        own = {} if isinstance(written, PolicyFault) else dict(written)
        uses_standard = self.policies[number].spec.uses_standard_state
        return {**(snapshot(found.state.standard) if uses_standard else {}), "own": own}

    def _invariants(
        self, number: int, shown: Sequence[Found], held: Mapping[int, int | None]
    ) -> dict[str, invariants.Tested]:
        tally, spec = self.tallies[number], self.policies[number].spec
        permissions = self._permissions() if shown else {}
        sightings = [self._sighting(found, permissions) for found in shown]
        fires = [
            s for s, found in zip(sightings, shown, strict=True) if held[found.event.seq] is None
        ]
        n_faults = sum(t.n_faults + (t.stopped is not None) for t in self.tallies)
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
            segment=found.match.segment,
            depth=standard.framework.depth + is_action,
            permission=permissions.get((found.stage, call_id or "")),
            denied_tools=frozenset(standard.permissions.denied_tools.merged()),
        )

    def _permissions(self) -> dict[tuple[int, str], str]:
        """Map a decision's stage and a call id to the last recorded decision on that call."""
        kinds, asked = self.plan.places.index.kinds, KIND_CODE[Kind.TOOL_PERMISSION]
        stages = enumerate(self.plan.stages)
        places = [(stage, seq) for stage, seqs in stages for seq in seqs if kinds[seq] == asked]
        events = self.reader.read_events(seq for _, seq in places)
        return {
            (stage, event.call_id or ""): payload_of(event).decision
            for (stage, _), event in zip(places, events, strict=True)
        }


def _recorded_inferences(plan: FoldPlan, reader: EventReader) -> dict[int, dict[str, Any]]:
    """Map a node to the inferences recorded about it: in it, or in a node right below it."""
    index = plan.places.index
    about: dict[int, dict[str, Any]] = {}
    for event in reader.read_events(index.seqs_of(Kind.STATE_INFERRED)):
        inferred, node = payload_of(event), index.event_node[event.seq]
        if isinstance(inferred.value, UnsetType):
            continue
        for place in {node, index.node_parent[node]} - {NO_NODE}:
            about.setdefault(place, {})[inferred.name] = freeze(raw_value(inferred.value))
    return about


def _reads_standard(policy: LivePolicy) -> bool:
    return policy.spec.uses_standard_state or bool(policy.spec.needs)


def _word(action: Action | None) -> str:
    return "none" if action is None else action.word


def _plain(value: Any) -> Any:
    """Write a reducer's value as JSON where it has such a form, else as Python writes it."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return repr(value)[:2000]
