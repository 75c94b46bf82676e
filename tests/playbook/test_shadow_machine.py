"""Runs of the shadow machine, written as the exchange between it and the world.

`>>` is what the machine asks, the line below it what it is told.
"""

from typing import Any

import pytest

from redrive.record.evidence import Gap, find_nearest
from redrive.replay.exchange import (
    AskModel,
    Command,
    Done,
    Evidence,
    FindNearest,
    Nearest,
    Reply,
    ServeEvidence,
    ShadowOptions,
    Stop,
)
from redrive.replay.ports import CallAsked, ModelReply
from redrive.replay.shadow import ShadowState, start, step
from tests.recordings import Recording, call, decide, end, record, result


class Playbook:
    """Steps a machine and says in one line what it asks."""

    def __init__(self, recording: Recording, **options: Any) -> None:
        self.recording = recording
        self.state: ShadowState
        self.command: Command
        self.state, self.command = start(recording.run(), ShadowOptions(**options))

    def asks(self, line: str) -> "Playbook":
        """Hold that the machine asks this."""
        assert shown(self.command) == line
        return self

    def told(self, reply: Reply) -> "Playbook":
        """Give a reply."""
        self.state, self.command = step(self.state, reply)
        return self

    def answers(self, *calls: str, text: str = "", final: bool = False) -> "Playbook":
        """Give a model's decision; calls are tool names, called with {"x": 1}."""
        made = tuple(CallAsked(name, arguments_text='{"x": 1}') for name in calls)
        return self.told(ModelReply(text, made, final))

    def reads(self) -> "Playbook":
        """Give the stored event that was asked for."""
        assert isinstance(self.command, ServeEvidence)
        assert self.command.cell.result is not None
        return self.told(Evidence(self.recording.events[self.command.cell.result]))

    def looks(self) -> "Playbook":
        """Look for the nearest call."""
        assert isinstance(self.command, FindNearest)
        missing = self.command.missing
        events = self.recording.reader.read_events(self.command.candidates)
        return self.told(Nearest(find_nearest(missing.tool, missing.arguments, events)))


def shown(command: Command) -> str:
    match command:
        case AskModel():
            where = "rebuilt" if command.is_rebuilt else f"request {command.request}"
            return f">> ask {command.decision}: {where}, {len(command.turns)} turns since"
        case ServeEvidence():
            return f">> serve {command.call.tool} from {command.cell.call_id}"
        case FindNearest():
            missing = command.missing
            return f">> nearest to {missing.tool} at {missing.decision}: {missing.why.value}"
        case Done():
            run = command.run
            return (
                f">> done: {run.stop.value}, {len(run.decisions)} decided, {len(run.served)} served"
            )


@pytest.fixture
def recording() -> Recording:
    """Look it up, then refund and mail in parallel, then stop."""
    arguments = {"x": 1}
    return record(
        decide(call("lookup", arguments, "c1")),
        result("c1", {"total": 12}),
        decide(call("refund", arguments, "c2"), call("mail", arguments, "c3")),
        result("c2", {"ok": True}),
        result("c3", {"queued": True}),
        decide(text="Refunded."),
        end(),
    )


def test_the_recorded_path_again(recording):
    (
        Playbook(recording)
        .asks(">> ask 1: request 1, 0 turns since")
        .answers("lookup")
        .asks(">> serve lookup from c1")
        .reads()
        .asks(">> ask 2: request 5, 0 turns since")
        .answers("refund", "mail")
        .asks(">> serve refund from c2")
        .reads()
        .asks(">> serve mail from c3")
        .reads()
        .asks(">> ask 3: request 11, 0 turns since")
        .answers(text="Refunded.", final=True)
        .asks(">> done: terminal_answer, 3 decided, 3 served")
    )


def test_a_word_more_and_every_later_request_is_rebuilt(recording):
    (
        Playbook(recording)
        .asks(">> ask 1: request 1, 0 turns since")
        .answers("lookup", text="Let me see.")
        .asks(">> serve lookup from c1")
        .reads()
        .asks(">> ask 2: rebuilt, 1 turns since")
        .answers("refund", "mail")
        .asks(">> serve refund from c2")
        .reads()
        .asks(">> serve mail from c3")
        .reads()
        .asks(">> ask 3: rebuilt, 2 turns since")
        .answers(text="Refunded.", final=True)
        .asks(">> done: terminal_answer, 3 decided, 3 served")
    )


def test_a_call_that_was_never_recorded_stops_the_run(recording):
    played = (
        Playbook(recording)
        .answers("lookup")
        .reads()
        .answers("refund", "wipe", "mail")
        .asks(">> serve refund from c2")
        .reads()
        .asks(">> nearest to wipe at 2: not_recorded")
        .looks()
        .asks(">> done: no_recorded_answer, 2 decided, 2 served")
    )
    assert isinstance(played.command, Done)
    run = played.command.run
    assert run.nearest is not None
    assert (run.nearest.tool, run.nearest.differs) == ("lookup", ("tool",))
    assert [cell.call_id for cell in run.unused] == ["c3"]


def test_an_answer_is_given_once(recording):
    (
        Playbook(recording)
        .answers("lookup")
        .reads()
        .asks(">> ask 2: request 5, 0 turns since")
        .answers("lookup")
        .asks(">> nearest to lookup at 2: used_up")
        .looks()
        .asks(">> done: no_recorded_answer, 2 decided, 1 served")
    )


def test_bytes_that_changed_are_not_served(recording):
    (
        Playbook(recording)
        .answers("lookup")
        .asks(">> serve lookup from c1")
        .told(Evidence(recording.events[0]))
        .asks(f">> nearest to lookup at 1: {Gap.ALTERED.value}")
        .looks()
        .asks(f">> done: {Stop.UNFAITHFUL.value}, 1 decided, 0 served")
    )


def test_a_model_that_keeps_going_is_asked_a_few_times_more(recording):
    (
        Playbook(recording, extra=2)
        .answers("lookup")
        .reads()
        .answers("refund", "mail")
        .reads()
        .reads()
        .answers(text="Refunded.")
        .asks(">> ask 4: rebuilt, 1 turns since")
        .answers(text="Anything else?")
        .asks(">> ask 5: rebuilt, 2 turns since")
        .answers(text="Anything else?")
        .asks(">> done: extra_limit, 5 decided, 3 served")
    )


def test_from_the_second_decision_on(recording):
    (
        Playbook(recording, from_decision=2)
        .asks(">> ask 2: request 5, 0 turns since")
        .answers("refund", "mail")
        .reads()
        .reads()
        .answers(text="Refunded.", final=True)
        .asks(">> done: terminal_answer, 2 decided, 2 served")
    )
    (
        Playbook(recording, from_decision=2)
        .answers("lookup")
        .asks(">> nearest to lookup at 2: used_up")
    )


def test_a_run_that_was_stopped_goes_on_from_its_state(recording):
    played = Playbook(recording).answers("lookup")
    resumed = Playbook(recording)
    resumed.state, resumed.command = played.state, played.command
    for book in (played, resumed):
        (
            book.asks(">> serve lookup from c1")
            .reads()
            .answers(text="Stop.", final=True)
            .asks(">> done: terminal_answer, 2 decided, 1 served")
        )
    assert played.command == resumed.command
