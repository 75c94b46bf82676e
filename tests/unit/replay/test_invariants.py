"""The four promises: who breaks one is named with the place, who keeps it passes."""

from typing import ClassVar

import pytest

from redrive.policy import Allow, Deny, Inject, Notify, Policy, Prepare
from redrive.record.event import Kind, PolicyAction, UserMessage, payload_of
from redrive.replay.invariants import INVARIANTS, Tested, merge_tested, status_of
from tests.policy_sessions import (
    answer,
    calls,
    line_of,
    make_event,
    replay,
    replay_one,
    user,
    written,
)

USER = (Kind.USER_MESSAGE, UserMessage("u"))


def action(word="Notify"):
    return (Kind.POLICY_ACTION, PolicyAction("p", word))


def policy(give, *, on=("policy.action",), **fields):
    return type("Odd", (Policy,), {"on": on, "evaluate": lambda s, e, st: give(e, st)} | fields)


def status(outcome, name):
    return status_of(outcome.invariants[name])


# --- loop_free


def loops(*parts, give=lambda event, state: Notify("again"), **fields):
    outcome = replay_one(line_of(parts), policy(give, **fields))
    tested = outcome.invariants["loop_free"]
    return status_of(tested), tested.count, tested.violations


def test_a_second_notify_about_what_the_framework_started_breaks_loop_free():
    word, count, violations = loops(USER, action("mute"), action("mute"))
    assert (word, count) == ("fail", 2)
    assert violations == ("test:s#e2: Notify 2 about what the framework itself started; at most 1",)


def test_a_third_action_of_a_chain_breaks_loop_free():
    give = lambda event, state: Inject("more") if event.id == "e2" else None  # noqa: E731
    word, _, violations = loops(USER, action(), action(), give=give)
    assert word == "fail"
    assert violations == ("test:s#e2: Inject would be action 3 of a chain; at most 2",)


def test_one_notify_keeps_loop_free_and_a_user_message_begins_anew():
    assert loops(USER, action(), USER, action())[:2] == ("pass", 2)
    assert loops(USER, action(), action(), cooldown_s=60)[:2] == ("pass", 1)
    assert loops(USER, USER, on=("user.message",))[:2] == ("not_exercised", 0)


# --- breaker exempt: a gate does not mind being muted


def muted(give, *words):
    gate = policy(give, on=("tool.call",), lane="gate")
    lines = written(user(), calls(("c1", "Bash", {"command": "rm"})))
    events = [lines[0], *(make_event(n, *action(w)) for n, w in enumerate(words, 1))]
    last = f"n{len(words)}" if words else None
    for event in lines[1:]:
        fields = {"id": event.id, "node_id": event.node_id, "call_id": event.call_id}
        parent = event.parent_id or last
        made = make_event(len(events), event.kind, payload_of(event), parent_id=parent, **fields)
        events.append(made)
    return replay_one(events, gate)


def test_a_gate_that_minds_being_muted_breaks_breaker_exempt():
    outcome = muted(lambda e, state: None if state.is_muted else Deny("no"), "mute")
    tested = outcome.invariants["breaker_exempt"]
    assert (status(outcome, "breaker_exempt"), tested.count) == ("fail", 1)
    assert tested.violations[0].endswith("none while muted, deny otherwise")


def test_a_gate_that_decides_the_same_keeps_breaker_exempt():
    deny = lambda event, state: Deny("no")  # noqa: E731
    assert status(muted(deny, "mute"), "breaker_exempt") == "pass"
    assert status(muted(deny), "breaker_exempt") == "not_exercised"


# --- critical_always_runs


class Broken(Policy):
    on: ClassVar = ("tool.call",)

    def evaluate(self, event, state):
        raise ValueError("no")


def critical(give, *others):
    lines = written(user(), calls(("c1", "Bash", {}), id="d1"), calls(("c2", "Bash", {}), id="d2"))
    gate = policy(give, on=("tool.call",), lane="gate", critical=True)
    return replay(lines, gate, *others)[0]


def test_a_critical_gate_that_fails_itself_breaks_critical_always_runs():
    def give(event, state):
        if event.call_id == "c2":
            raise ValueError("no")
        return Deny("no")

    outcome = critical(give)
    assert status(outcome, "critical_always_runs") == "fail"
    assert outcome.invariants["critical_always_runs"] == Tested(
        2, ("s#d2/3: the critical gate gave no decision",)
    )


def test_a_critical_gate_that_decides_after_anothers_fault_keeps_the_promise():
    deny = lambda event, state: Deny("no")  # noqa: E731
    assert status(critical(deny, Broken), "critical_always_runs") == "pass"
    assert status(critical(deny), "critical_always_runs") == "not_exercised"


# --- permission_monotone


def rights(give, *decisions, on=("tool.call",), lane="gate", call="c1"):
    asked = [{"type": "permission", "call_id": "c1", "decision": word} for word in decisions]
    lines = (calls(("c1", "Bash", {}), id="d1"), *asked, answer("c1"), calls((call, "Read", {})))
    return replay_one(written(user(), *lines), policy(give, on=on, lane=lane))


def first(action):
    return lambda event, state: action if event.tool in (None, "Bash") else None


@pytest.mark.parametrize(
    ("decisions", "word"),
    [
        (("denied",), "fail"),
        (("asked",), "fail"),
        (("asked", "denied"), "fail"),
        (("asked", "allowed"), "pass"),
        ((), "not_exercised"),
    ],
)
def test_allow_must_not_raise_the_rights_of_a_call(decisions, word):
    outcome = rights(first(Allow("fine")), *decisions)
    assert status(outcome, "permission_monotone") == word
    if word == "fail":
        (violation,) = outcome.invariants["permission_monotone"].violations
        assert violation == f"s#d1/3: allow, where the context had {decisions[-1]} it"


def test_a_permission_counts_for_the_call_of_its_own_decision():
    give = lambda event, state: Allow("fine") if event.tool == "Read" else None  # noqa: E731
    assert status(rights(give, "denied", call="c1"), "permission_monotone") == "not_exercised"


@pytest.mark.parametrize("kind", [Inject, Prepare])
def test_what_an_observer_unlocks_must_not_have_been_denied(kind):
    on, give = ("tool.result",), first(kind("go on", rights=("Bash", "Read")))
    denied = rights(give, "denied", on=on, lane="observer")
    (violation,) = denied.invariants["permission_monotone"].violations
    assert violation.endswith(f": {kind.word} gives Bash, which the context had denied")
    assert status(rights(give, "allowed", on=on, lane="observer"), "permission_monotone") == "pass"
    plain = rights(first(kind("go on")), "denied", on=on, lane="observer")
    assert status(plain, "permission_monotone") == "not_exercised"


def test_what_sessions_showed_is_added_up():
    parts = [{"loop_free": Tested(1, ("a",))}, {"loop_free": Tested(2, ("b",))}, {}]
    merged = merge_tested(parts)
    assert tuple(merged) == INVARIANTS
    assert merged["loop_free"] == Tested(3, ("a", "b"))
    assert [status_of(merged[name]) for name in INVARIANTS] == ["fail", *["not_exercised"] * 3]
