"""One policy through one session: folds its own values, judges events, notes what comes of it.

Knows a live policy, states and its tally. Must not know in which order a session is walked, nor
what the other policies say. Most events are judged with nothing to say, so that way is kept short:
a state is made anew only where something was folded, and nothing is written down.

Source: DESIGN.md §7.
"""

from collections.abc import Callable, Container, Iterable, Mapping, MutableSequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from redrive.app.hook_policy import HOOK
from redrive.app.policy_judging import LivePolicy
from redrive.app.policy_messages import NOBODY, SEQ_SHIFT, Step, policy_word
from redrive.app.policy_recording import Recording
from redrive.app.policy_soundness import Print, find_change, print_of
from redrive.app.policy_tally import MAX_FAULTS, Found, Tally
from redrive.compare.policy_report import CannotEvaluate, PolicyFault
from redrive.record.event import FLAG_INHERITED, Event, Kind, raw_value
from redrive.replay.inference import BUDGET_FACT, MAX_PER_TURN
from redrive.replay.persistent import Table
from redrive.replay.policy import Action
from redrive.replay.policy_event import PolicyEvent, freeze, thaw
from redrive.replay.policy_state import StandardState, State

_CUSTOM = Kind.CUSTOM  # a member's look-up costs as much as a call
_FOLDS = int(Step.FOLDS)
_NOTHING: Mapping[str, Any] = MappingProxyType({})

Ask = Callable[[int, str, str, PolicyEvent, State], Raw | str]
"""(policy number, kind, name, event, state) → a value, or why there is none."""


@dataclass(slots=True)
class Sitting:
    """What all policies share in one session.

    Attributes:
        recording: the session.
        ask: answers what only the outside can.
        status: its first word is set before each judgement, so that a watchdog knows whom to blame.
        drawn: seqs of the events that are judged twice whatever is said.
        about: per node what the record infers about it.
        only: the one event to judge; absent: all.
    """

    recording: Recording
    ask: Ask
    status: MutableSequence[int]
    drawn: Container[int]
    about: Mapping[int, Mapping[str, Any]]
    only: str | None = None


class PolicyRun:
    """One policy in one session.

    Args:
        number: its place among the policies.
        policy: it.
        sitting: what it shares with the others.
        dropped: why it is left out, if it is.
    """

    def __init__(
        self, number: int, policy: LivePolicy, sitting: Sitting, dropped: str | None
    ) -> None:
        self.policy = policy
        self.tally = Tally()
        self.tally.stopped = dropped
        self._number = number
        self._sitting = sitting
        self._session_id = sitting.recording.session_id
        customs = {_CUSTOM} if policy.spec.customs else set[Kind]()
        self._kinds = policy.spec.kinds | customs
        self._word = policy_word(number, 0)
        self._asked: dict[tuple[str, str], dict[int, Any]] = {}  # (turn, name) → seq → value

    def renew(self) -> None:
        """Make the policy anew; one that cannot be made again is not run."""
        tally, status = self.tally, self._sitting.status
        if tally.stopped is not None:
            return
        status[0] = policy_word(self._number)
        fault = self.policy.renew()
        status[0] = policy_word(NOBODY)
        if fault is not None:
            tally.n_faults += 1
            tally.faults.append(replace(fault, session_id=self._session_id))
            tally.stopped = "the policy could not be made again"

    def follow(
        self,
        events: Iterable[tuple[PolicyEvent, StandardState]],
        own: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Judge events that follow each other, each on the state before it.

        Args:
            events: each with the standard state before it; at hand, so that the time which it
                takes to get them is not the policy's.
            own: the values of its reducers before the first.

        Returns:
            These values after the last.
        """
        kinds, folded, tally, word = self._kinds, self.policy.folded, self.tally, self._word
        status, drawn, is_gate = self._sitting.status, self._sitting.drawn, self.policy.is_gate
        is_choosy, evaluate = self._sitting.only is not None, self.policy.evaluate
        has_about = bool(self._sitting.about and self.policy.spec.needs)
        state: State | None = None
        before: StandardState | None = None
        event: PolicyEvent | None = None
        for event, standard in events:
            kind = event.kind
            if kind in kinds and (
                not (event.flags or is_choosy or kind is _CUSTOM) or self._is_offered(event)
            ):
                tally.offered += 1
                if state is None or standard is not before or has_about:
                    before, state = standard, self._state(event, standard, own)
                seq = event.seq
                status[0] = word + (seq << SEQ_SHIFT)
                if seq in drawn or tally.stopped is not None:
                    self._judge_twice(event, state)
                else:
                    found = evaluate(event, state)
                    if found is not None or (is_gate and standard.framework.is_muted):
                        self._settle(event, state, found, None)
            if kind in folded:
                new = self._fold(event, own)
                if new is not own:
                    own, state = new, None
        if event is not None:
            status[0] = policy_word(NOBODY, event.seq)
        return own

    def _is_offered(self, event: PolicyEvent) -> bool:
        """Say whether it is to judge an event that is custom or flagged, or one of many."""
        sitting = self._sitting
        if sitting.only is not None and event.id != sitting.only:
            return False
        if not self.policy.spec.wants(event):
            return False
        if FLAG_INHERITED in event.flags:
            self.tally.inherited += 1
            return False
        return True

    def _fold(self, event: PolicyEvent, own: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.tally.stopped is not None:
            return own
        self._sitting.status[0] = self._word + (event.seq << SEQ_SHIFT) + _FOLDS
        new = self.policy.fold(own, event)
        if isinstance(new, PolicyFault):
            self._fault(new, event)
            return own
        return new

    def _state(self, event: PolicyEvent, standard: StandardState, own: Mapping[str, Any]) -> State:
        """Give what it knows before an event: of inferences, those that it needs.

        A gate is shown none, since it never rests on them.
        """
        if self.policy.is_gate and standard.inferred.layers:
            standard = replace(standard, inferred=Table())
        needs = self.policy.spec.needs
        return State(standard, own, self._known(event, standard) if needs else _NOTHING, needs)

    def _known(self, event: PolicyEvent, standard: StandardState) -> Mapping[str, Any]:
        """Give the recorded inferences that it needs: of this turn, and about the event."""
        known = standard.inferred.merged() if standard.inferred.layers else {}
        if about := self._sitting.about:
            node = self._sitting.recording.index.event_node[event.seq]
            known = {**known, **about.get(node, _NOTHING)}
        needs = self.policy.spec.needs
        return MappingProxyType({name: known[name] for name in needs if name in known})

    def _judge_twice(self, event: PolicyEvent, state: State) -> None:
        if self.tally.stopped is not None:
            self.tally.undecided.append(self._ref(event))
            return
        before = self._print(event, state)
        if isinstance(before, PolicyFault):
            self._settle(event, state, before, None)
        else:
            self._settle(event, state, self.policy.evaluate(event, state), before)

    def _print(self, event: PolicyEvent, state: State) -> Print | PolicyFault:
        written = self.policy.write(state.own, repr) if state.own else []
        if isinstance(written, PolicyFault):
            return written
        return print_of(state.standard, repr(written), event)

    def _settle(
        self,
        event: PolicyEvent,
        state: State,
        found: Action | PolicyFault | str | None,
        before: Print | None,
    ) -> None:
        """Note what it said: ask for what it misses, and judge again what must be sound."""
        tally, policy = self.tally, self.policy
        while isinstance(found, str):
            value = self._infer(found, event, state)
            if isinstance(value, CannotEvaluate):
                tally.cannot.append(value)
                tally.undecided.append(self._ref(event))
                return
            known = {**state.inferences, found: freeze(value)}
            state = replace(state, inferences=MappingProxyType(known))
            found = policy.evaluate(event, state)
        if isinstance(found, PolicyFault):
            self._fault(found, event)
            tally.undecided.append(self._ref(event))
            return
        if self._sitting.only is not None:
            tally.last = found
        if policy.is_gate and state.standard.framework.is_muted:
            self._check_muted(event, state, found)
        if found is None and before is None:
            return
        if self._is_sound(event, state, found, before) and found is not None:
            self._match(found, event, state)

    def _infer(self, name: str, event: PolicyEvent, state: State) -> Any:
        """Ask for an inference: each is made once per event, and two at most per turn."""
        if name == HOOK:
            answer = self._sitting.ask(self._number, HOOK, name, event, state)
            missing = CannotEvaluate(self._ref(event), str(answer), HOOK)
            return missing if isinstance(answer, str) else raw_value(answer)
        turn, asked = state.standard.turn.event_id, self._asked
        known = asked.setdefault((turn, name), {})
        if event.seq in known:
            return known[event.seq]
        if sum(len(v) for (other, _), v in asked.items() if other == turn) >= MAX_PER_TURN:
            return CannotEvaluate(self._ref(event), f"{name} would be one too many", BUDGET_FACT)
        value = self._sitting.ask(self._number, "inference", name, event, state)
        if isinstance(value, str):
            return CannotEvaluate(self._ref(event), value, name)
        known[event.seq] = raw_value(value)
        return known[event.seq]

    def _is_sound(
        self, event: PolicyEvent, state: State, answer: Action | None, before: Print | None
    ) -> bool:
        """Check an answer a second time, and that nothing was changed; note a fault if not."""
        after = self._print(event, state)
        fault = self.policy.recheck(event, state, answer)
        if fault is None:
            fault = self._find_change(before, after, self._print(event, state))
        if fault is not None:
            self._fault(fault, event)
            self.tally.undecided.append(self._ref(event))
        return fault is None

    def _find_change(self, *prints: Print | PolicyFault | None) -> PolicyFault | None:
        fault = next((seen for seen in prints if isinstance(seen, PolicyFault)), None)
        if fault is not None:
            return fault
        changed = find_change([seen for seen in prints if isinstance(seen, Print)])
        return None if changed is None else self.policy.mutation(changed)

    def _check_muted(self, event: PolicyEvent, state: State, answer: Action | None) -> None:
        framework = replace(state.standard.framework, is_muted=False)
        free = replace(state, standard=replace(state.standard, framework=framework))
        other = self.policy.evaluate(event, free)
        if not isinstance(other, PolicyFault | str):
            self.tally.muted.append((self._ref(event), _word(answer), _word(other)))

    def _match(self, action: Action, event: PolicyEvent, state: State) -> None:
        tally, policy = self.tally, self.policy
        key = policy.dedup_key(action, event, state)
        if isinstance(key, PolicyFault):
            self._fault(key, event)
            return
        used = {n: thaw(v) for n, v in state.inferences.items() if n in policy.spec.needs}
        tally.decisions[action.word] = tally.decisions.get(action.word, 0) + 1
        tally.found.append(Found(action, event, state, key, used))

    def _fault(self, fault: PolicyFault, event: PolicyEvent) -> None:
        tally = self.tally
        tally.n_faults += 1
        fault = replace(fault, session_id=self._session_id, event_ref=self._ref(event))
        if len(tally.faults) < MAX_FAULTS:
            tally.faults.append(fault)
        if tally.n_faults >= MAX_FAULTS and not self.policy.is_gate:
            tally.stopped = f"stopped after {MAX_FAULTS} faults in this session"

    def _ref(self, event: Event) -> str:
        return f"{self._session_id}#{event.id}"


def _word(action: Action | None) -> str:
    return "none" if action is None else action.word
