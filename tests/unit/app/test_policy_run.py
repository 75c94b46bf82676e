"""What a policy may not do is found on the short way too, and the watchdog is told beforehand."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import Raw

from redrive.app.policy_judging import LivePolicy, NoNets
from redrive.app.policy_messages import (
    NOBODY,
    PolicyOutcome,
    Step,
    policy_word,
    split_policy_word,
)
from redrive.app.policy_recording import held_recording
from redrive.app.policy_session import SessionReplay
from redrive.app.policy_soundness import drawn_seqs
from redrive.policy import Action, Notify, Policy, PolicyEvent, Reducer, State
from redrive.record.event import Kind, ModelResponse, UserMessage, dump_payload
from redrive.replay.policy import read_spec
from redrive.replay.policy_event import view
from redrive.sandbox.sealed import Violation
from tests.policy_sessions import line_of
from tests.policy_sessions import replay as replay_here
from tests.stored import event_at

N_EVENTS = 300
EVENTS = [
    view(event_at("test:a", seq, Kind.USER_MESSAGE, dump_payload(UserMessage(f"{seq}"))))
    for seq in range(N_EVENTS)
]
DRAWN = drawn_seqs("test:a", N_EVENTS)


class Status(list[int]):
    """Remembers every word that is written, as the watchdog would read it."""

    def __init__(self) -> None:
        super().__init__([0])
        self.seen: list[tuple[int, int]] = []

    def __setitem__(self, place: Any, word: Any) -> None:
        self.seen.append(split_policy_word(word))


def refuse(*_: object) -> Raw | str:
    return "nothing is asked here"


def replay(
    *policies: type[Policy], nets: Any = None, status: Any = None, **options: Any
) -> tuple[PolicyOutcome, ...]:
    live = [
        LivePolicy(lambda p=p: p, read_spec(p()), lambda _: "here", nets or NoNets())
        for p in policies
    ]
    chosen = {"dropped": {}} | options
    recording = held_recording("test:a", EVENTS)
    return SessionReplay(recording, live, ask=refuse, status=status or [0], **chosen).run()


class Quiet(Policy):
    on = ("user.message",)
    uses_standard_state = False
    judged: ClassVar[list[int]] = []

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        self.judged.append(event.seq)
        return None


class Counts(Reducer):
    on = ("user.message",)
    initial = 0

    def fold(self, value: Any, event: PolicyEvent) -> Any:
        return value + 1


def test_one_event_of_each_hundred_is_judged_again_by_another_instance_and_a_twin() -> None:
    Quiet.judged.clear()
    assert replay(Quiet)[0].offered == N_EVENTS
    assert len(DRAWN) == 3
    assert {seq // 100 for seq in DRAWN} == {0, 1, 2}
    assert sorted(Quiet.judged) == sorted([*range(N_EVENTS), *DRAWN, *DRAWN])


def test_every_event_is_judged_again_where_that_is_asked() -> None:
    Quiet.judged.clear()
    replay(Quiet, recheck_all=True)
    assert sorted(Quiet.judged) == sorted([*range(N_EVENTS)] * 3)


def test_the_watchdog_is_told_before_each_fold_and_each_judgement() -> None:
    class Counting(Quiet):
        reducers: ClassVar[dict[str, Reducer]] = {"n": Counts()}

    status = Status()
    replay(Quiet, Counting, status=status)
    assert status.seen.count((0, 7)) == 1
    assert status.seen.count((1, 7)) == 2
    judging = [seen for seen in status.seen if seen[0] != NOBODY]
    begun = [(0, -1), (1, -1)]
    assert judging[:2] == begun
    assert len(judging) == 3 * N_EVENTS + len(begun)


def test_what_redrive_does_between_is_no_policy_s_time() -> None:
    status = Status()
    replay(Quiet, Quiet, status=status)
    after = [seen for before, seen in pairwise(status.seen) if before == (0, N_EVENTS - 1)]
    assert after == [(NOBODY, N_EVENTS - 1)]
    assert status.seen[-1] == (NOBODY, N_EVENTS - 1)


def test_writing_a_state_s_own_values_is_the_policy_s_time() -> None:
    class Firing(Quiet):
        reducers: ClassVar[dict[str, Reducer]] = {"n": Counts()}

        def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
            return Notify("here") if event.seq == 7 else None

    status = Status()
    replay(Firing, status=status)
    assert status.seen[-2:] == [(0, 7), (NOBODY, 7)]


@pytest.mark.parametrize("policy", [NOBODY, 0, 5])
@pytest.mark.parametrize("seq", [-1, 0, 2**39])
@pytest.mark.parametrize("step", Step)
def test_a_status_word_holds_policy_and_seq(policy: int, seq: int, step: Step) -> None:
    word = policy_word(policy, seq, step)
    assert split_policy_word(word) == (policy, seq)
    assert 0 <= word < 2**63


def test_an_answer_that_changes_when_asked_again_is_a_fault() -> None:
    class Fickle(Quiet):
        def __init__(self) -> None:
            self.n = 0

        def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
            self.n += 1
            return Notify("third") if self.n % 3 == 0 else None

    outcome = replay(Fickle)[0]
    assert not outcome.fires
    assert [fault.net for fault in outcome.faults] == ["recheck"] * 3
    assert outcome.stopped is not None


@pytest.mark.parametrize("what", ["state", "event"])
def test_a_policy_that_changes_what_it_was_given_is_a_fault(what: str) -> None:
    class Changing(Quiet):
        def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
            if what == "state":
                msgspec.structs.force_setattr(state.standard, "moment", state.standard.moment + 1)
            else:
                msgspec.structs.force_setattr(event, "flags", (*event.flags, "x"))
            return None

    faults = replay(Changing)[0].faults
    assert {fault.what for fault in faults} == {f"changes the {what}"}
    assert {fault.event_ref for fault in faults} <= {f"test:a#e{seq}" for seq in DRAWN}


def test_an_attempt_that_was_swallowed_is_a_fault() -> None:
    class Caught(NoNets):
        def __init__(self) -> None:
            self.violations: list[Violation] = []

        def take_violations(self) -> Sequence[Violation]:
            taken, self.violations = self.violations, []
            return taken

    nets = Caught()

    class Swallowing(Quiet):
        def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
            if event.seq == 5:
                nets.violations.append(Violation("clock: time.time", "p.py", 3))
            return None

    [fault] = replay(Swallowing, nets=nets)[0].faults
    assert (fault.net, fault.where, fault.event_ref) == ("stand-in", "p.py:3", "test:a#e5")


def test_a_fault_in_a_reducer_leaves_its_value_and_the_others_go_on() -> None:
    class Breaking(Reducer):
        on = ("user.message",)
        initial = 0

        def fold(self, value: Any, event: PolicyEvent) -> Any:
            return [] if event.seq == 1 else value

    class Broken(Quiet):
        reducers: ClassVar[dict[str, Reducer]] = {"n": Breaking()}

    class Counting(Quiet):
        reducers: ClassVar[dict[str, Reducer]] = {"n": Counts()}

        def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
            return Notify("all") if state["n"] == N_EVENTS - 1 else None

    broken, counting = replay(Broken, Counting)
    assert [fault.what for fault in broken.faults] == [
        "reducer 'n' gave a list: values of a state must be immutable"
    ]
    assert [fire.seq for fire in counting.fires] == [N_EVENTS - 1]


def test_a_policy_that_was_dropped_is_not_run() -> None:
    Quiet.judged.clear()
    outcome = replay(Quiet, dropped={0: "hung"})[0]
    assert not Quiet.judged
    assert (outcome.offered, outcome.stopped) == (N_EVENTS, "hung")


class Asking(Policy):
    on = ("user.message", "model.response")
    needs = ("claim",)

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        return Notify("claimed") if state.infer("claim") else None


def test_what_a_policy_may_ask_in_a_turn_does_not_depend_on_the_others() -> None:
    turn = [
        (Kind.USER_MESSAGE, UserMessage("go on")),
        *[(Kind.MODEL_RESPONSE, ModelResponse(f"{n}")) for n in range(3)],
    ]
    asked: list[tuple[int, str]] = []

    def ask(policy: int, _: str, __: str, event: PolicyEvent, ___: State) -> Raw | str:
        asked.append((policy, event.id))
        return Raw(b"true")

    events = line_of([*turn, *turn])
    (alone,) = replay_here(events, Asking, ask=ask)
    assert [fire.seq for fire in alone.fires] == [
        0,
        1,
        2,
        5,
        6,
    ]  # a message ends the turn before it
    assert [cannot.event_ref for cannot in alone.cannot] == [
        "test:s#e3",
        "test:s#e4",
        "test:s#e7",
    ]
    asked.clear()
    assert replay_here(events, Asking, Asking, ask=ask) == (alone, alone)
    assert [event for policy, event in asked if policy == 1] == ["e0", "e1", "e2", "e5", "e6"]
