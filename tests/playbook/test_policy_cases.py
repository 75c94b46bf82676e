"""The public-bug cases that concern policies; every value is read from `expected.json`."""

import json
import sqlite3
from typing import Any, ClassVar

import pytest

from redrive.policies.completion import UnvalidatedCompletionNudge
from redrive.policies.test_gap import TestGapWatcher
from redrive.policy import Deny, Notify, Policy, Reducer, inference_key
from redrive.record.event import Kind
from tests.policy_sessions import claude, fired, held, interchange, replay, replay_one


def folder(cases, number):
    return next(cases.glob(f"{number}-*"))


def expected(cases, number):
    values: dict[str, Any] = json.loads((folder(cases, number) / "expected.json").read_text())
    return values["expect"]


def nodes(outcome, **options):
    return [name.partition("/")[0] for name in fired(outcome, **options)]


# --- 42: a nudge has a memory of its own fires


class UnvalidatedStop(Policy):
    on = ("custom:stop",)
    cooldown_s = 900

    def evaluate(self, event, state):
        return Notify("not validated") if event.data.get("unvalidated") else None


def test_42_a_nudge_does_not_nag(cases):
    wanted = expected(cases, 42)["session.jsonl"]
    outcome = replay_one(interchange(folder(cases, 42) / "session.jsonl"), UnvalidatedStop)
    assert len(outcome.fires) == wanted["matches"]
    assert fired(outcome) == wanted["fires"]
    assert held(outcome) == wanted["cooldown_suppressed"]


def test_42_the_cooldown_holds_across_a_rewind(cases):
    wanted = expected(cases, 42)["session_rewound.jsonl"]
    outcome = replay_one(interchange(folder(cases, 42) / "session_rewound.jsonl"), UnvalidatedStop)
    assert fired(outcome, on_head=True) == wanted["fires_on_active_path"]
    assert held(outcome, on_head=True) == wanted["suppressed_on_active_path"]
    assert fired(outcome, on_head=False) == wanted["fires_on_discarded_branch"]


# --- 09, 13, 08: what counts is what lies on the path


class Edits(Reducer):
    """Counts edits since the last test run that came to an end."""

    on = ("tool.call", "tool.result")
    initial = (frozenset(), 0)

    def fold(self, value, event):
        waiting, count = value
        if event.kind is Kind.TOOL_CALL:
            is_test = "pytest" in (event.command or "")
            if event.tool == "Edit" or is_test:
                return waiting | {(event.call_id, event.tool)}, count
            return value
        if (event.call_id, "Edit") in waiting:
            return waiting, count + 1
        return (waiting, 0) if (event.call_id, "Bash") in waiting else value


class ManyEditsNoTest(Policy):
    on = ("model.response",)
    reducers: ClassVar = {"edits": Edits()}

    def evaluate(self, event, state):
        count = state["edits"][1]
        return Notify(f"{count} edits") if event.ends_turn and count >= 3 else None


class CompletionWithoutTest(Policy):
    on = ("model.response",)

    def evaluate(self, event, state):
        is_gap = state.changes.n_edits and state.verification.test_ran_at < state.changes.source_at
        is_main = event.actor == "main"
        return Notify("no test") if event.ends_turn and is_main and is_gap else None


class EveryCall(Policy):
    on = ("tool.call",)

    def evaluate(self, event, state):
        return Notify(f"{state.changes.n_edits}")


def test_09_edits_on_a_discarded_branch_are_not_counted_on_the_live_path(cases):
    wanted = expected(cases, "09")["session.jsonl"]
    events = claude(folder(cases, "09") / "session.jsonl")
    outcome, calls = replay(events, ManyEditsNoTest, EveryCall)
    assert len(fired(outcome, on_head=True)) == wanted["ManyEditsNoTest_fires"]
    assert len(nodes(calls, on_head=True)) == wanted["edits_on_active_path"]
    assert set(nodes(calls, on_head=False)) <= set(wanted["discarded"])
    assert len(nodes(calls)) == 4
    assert [fire.reason for fire in calls.fires if fire.on_head_path] == ["0"]


def test_13_a_sub_agents_test_is_not_credited_to_the_main_agent(cases):
    wanted = expected(cases, 13)["session.jsonl"]
    events = claude(folder(cases, 13) / "session.jsonl")
    outcome, calls = replay(events, CompletionWithoutTest, EveryCall)
    assert len(fired(outcome)) == wanted["CompletionWithoutTest_fires"]
    tools = {actor: [f.tool for f in calls.fires if f.actor == actor] for actor in wanted["agents"]}
    assert tools == wanted["agents"]
    assert [f.tool for f in calls.fires if f.actor == "main"] == wanted["main_tool_calls"]


class Calls(Reducer):
    on = ("tool.call",)
    initial = 0

    def fold(self, value, event):
        return value + 1


class EveryMessage(Policy):
    on = ("user.message", "model.response", "tool.call")
    reducers: ClassVar = {"calls": Calls()}

    def evaluate(self, event, state):
        return Notify(f"{state['calls']} calls")


def test_08_an_event_that_stands_twice_is_folded_and_fires_once(cases):
    """What the fork copied belongs to the session it was forked from, and is judged there."""
    wanted = expected(cases, "08")["session.jsonl"]
    events = claude(folder(cases, "08") / "session.jsonl")
    outcome = replay_one(events, EveryMessage)
    assert len(fired(outcome)) == len(set(fired(outcome)))
    assert fired(outcome) == fired(outcome, on_head=True)
    judged = set(nodes(outcome))
    inherited = {event.node_id for event in events if "inherited" in event.flags}
    assert not judged & inherited
    assert len(judged | inherited) == wanted["active_path_length"]
    assert outcome.fires[-1].reason == f"{wanted['tool_calls_on_path']} calls"


# --- 04, 06, 56: damaged files are replayed as far as they go


class Everything(Policy):
    on: ClassVar = tuple(
        kind.value for kind in Kind if kind not in (Kind.NOTE, Kind.DAMAGE)
    )  # what is read is every word of an event

    def evaluate(self, event, state):
        facts = (event.name, event.tool, event.command, event.text, event.status, event.result)
        return Notify(repr((facts, event.exit_code, event.data, event.arguments, event.now_s)))


@pytest.mark.parametrize("number", ["04", "06"])
def test_a_damaged_file_is_replayed_and_its_damage_never_offered(cases, number):
    events = claude(folder(cases, number) / "session.jsonl")
    assert any(event.kind is Kind.DAMAGE for event in events)
    outcomes = replay(
        events, Everything, TestGapWatcher, UnvalidatedCompletionNudge, recheck_all=True
    )
    assert not any(outcome.faults for outcome in outcomes)
    kinds = {fire.kind for fire in outcomes[0].fires}
    assert "tool.call" in kinds
    assert not kinds & {"note", "damage"}


def test_every_case_session_replays_without_a_fault(cases):
    replayed = 0
    for path in sorted(cases.glob("*/session*.jsonl")):
        read = interchange if b'"type":"session"' in path.read_bytes()[:200] else claude
        events = read(path)
        if events:
            outcome = replay_one(events, Everything, recheck_all=True)
            assert not outcome.faults, path
            replayed += 1
    assert replayed > 15


# --- 55: the key of an inference


def test_55_an_answer_is_served_for_its_own_question_alone(cases):
    case, wanted = folder(cases, 55), expected(cases, 55)
    cache = {
        inference_key(json.loads(line)["request"])
        for line in (case / "cache.jsonl").read_text().splitlines()
    }
    asked = map(json.loads, (case / "requests.jsonl").read_text().splitlines())
    found = {q["id"]: "hit" if inference_key(q["request"]) in cache else "miss" for q in asked}
    assert found == wanted["requests.jsonl"]
    assert list(found.values()).count("hit") == wanted["hits"]


# --- 66: a freeze is state


class Frozen(Reducer):
    on = ("custom:freeze",)
    initial = False

    def fold(self, value, event):
        return event.data["on"] is True


def empties_table(statement):
    """Run the statement, as the case did."""
    with sqlite3.connect(":memory:") as database:
        database.executescript("CREATE TABLE users(id); INSERT INTO users VALUES (1), (2), (3);")
        database.executescript(statement)
        try:
            return not database.execute("SELECT count(*) FROM users").fetchone()[0]
        except sqlite3.OperationalError:
            return True


class EmptiesTable(Policy):
    on = ("custom:sql",)
    lane = "gate"
    reducers: ClassVar = {"frozen": Frozen()}

    def evaluate(self, event, state):
        return Deny("empties users") if empties_table(event.data["sql"]) else None


class FreezeGuard(EmptiesTable):
    critical = True

    def evaluate(self, event, state):
        return super().evaluate(event, state) if state["frozen"] else None


def test_66_a_freeze_is_on_where_it_was_declared_and_not_lifted(cases):
    wanted = expected(cases, 66)["freeze.jsonl"]
    events = interchange(folder(cases, 66) / "freeze.jsonl")
    empties, freeze = replay(events, EmptiesTable, FreezeGuard)
    assert fired(empties) == wanted["EmptiesTable_fires"]
    assert fired(freeze) == wanted["FreezeGuard_fires"]
