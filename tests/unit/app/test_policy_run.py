"""What a policy may not do is found on the short way too, and the watchdog is told beforehand."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import Raw

from redrive.app.policy_judging import LivePolicy, NoNets
from redrive.app.policy_messages import PolicyOutcome, split_policy_word
from redrive.app.policy_recording import held_recording
from redrive.app.policy_session import SessionReplay
from redrive.app.policy_soundness import drawn_seqs
from redrive.policy import Action, Notify, Policy, PolicyEvent, Reducer, State
from redrive.record.event import Kind, UserMessage, dump_payload
from redrive.replay.policy import read_spec
from redrive.replay.policy_event import view
from redrive.sandbox.sealed import Violation
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
    live = [LivePolicy(p, read_spec(p()), lambda _: "here", nets or NoNets()) for p in policies]
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


def test_one_event_of_each_hundred_is_judged_twice() -> None:
    Quiet.judged.clear()
    assert replay(Quiet)[0].offered == N_EVENTS
    assert len(DRAWN) == 3
    assert {seq // 100 for seq in DRAWN} == {0, 1, 2}
    assert sorted(Quiet.judged) == sorted([*range(N_EVENTS), *DRAWN])


def test_every_event_is_judged_twice_where_that_is_asked() -> None:
    Quiet.judged.clear()
    replay(Quiet, recheck_all=True)
    assert sorted(Quiet.judged) == sorted([*range(N_EVENTS)] * 2)


def test_the_watchdog_is_told_before_each_fold_and_each_judgement() -> None:
    class Counting(Quiet):
        reducers: ClassVar[dict[str, Reducer]] = {"n": Counts()}

    status = Status()
    replay(Quiet, Counting, status=status)
    assert status.seen.count((0, 7)) == 1
    assert status.seen.count((1, 7)) == 2
    assert len(status.seen) == 3 * N_EVENTS


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
