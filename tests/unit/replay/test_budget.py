"""Virtual cooldowns and segment budgets; a property against a naive walk is in tests/property."""

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import PluginError
from redrive.policy import Notify, Policy
from redrive.record.event import Custom, Kind, UserMessage
from redrive.replay.budget import Match, apply_budgets
from redrive.replay.policy import read_spec
from tests.policy_sessions import NS, fired, held, line_of, make_event, replay_one


class Watching(Policy):
    on = ("custom:stop",)

    def evaluate(self, event, state):
        return Notify("stop")


class Cooling(Watching):
    cooldown_s = 900


class Sparing(Watching):
    per_segment = 2


COOLING, SPARING = read_spec(Cooling()), read_spec(Sparing())


def judge(spec, *matches):
    """Give seq → the fire that holds it back, and the seqs without a time."""
    result = apply_budgets(spec, matches)
    return {found.seq: found.suppressed_by for found in result.matches}, result.without_ts


def at(seconds, seq, *, segment=-1, key=None):
    return Match(seq, None if seconds is None else round(seconds * NS), segment, key)


def test_at_the_exact_edge_a_match_fires():
    assert judge(COOLING, at(0, 0), at(900, 1))[0] == {0: None, 1: None}
    assert judge(COOLING, at(0, 0), Match(1, 900 * NS - 1, -1))[0] == {0: None, 1: 0}


def test_a_suppressed_match_does_not_restart_the_cooldown():
    matches = [at(60 * minute, minute) for minute in range(10)] + [at(960, 10)]
    assert judge(COOLING, *matches)[0] == {0: None} | dict.fromkeys(range(1, 10), 0) | {10: None}


def test_an_event_older_than_the_fire_is_not_suppressed_by_it():
    """A clock was set back: what is older comes first, and starts the cooldown itself."""
    assert judge(COOLING, at(1000, 0), at(50, 1))[0] == {0: None, 1: None}
    assert judge(COOLING, at(1000, 0), at(950, 1))[0] == {0: 1, 1: None}


def test_of_equal_times_the_earlier_in_the_source_fires():
    assert judge(COOLING, at(5, 7), at(5, 3))[0] == {3: None, 7: 3}


def test_each_key_has_its_own_cooldown():
    matches = at(0, 0, key="a"), at(1, 1, key="b"), at(2, 2), at(3, 3, key="a")
    assert judge(COOLING, *matches)[0] == {0: None, 1: None, 2: None, 3: 0}


def test_without_any_time_a_cooldown_cannot_be_judged_and_a_budget_can():
    assert judge(COOLING, at(None, 4), at(0, 1), at(None, 2)) == ({1: None}, (2, 4))
    assert judge(SPARING, at(None, 4), at(None, 1), at(None, 2)) == ({1: None, 2: None, 4: 2}, ())


def test_a_segment_has_its_fires_whichever_branch_they_are_on():
    matches = [at(n, n, segment=n // 4) for n in range(6)]
    assert judge(SPARING, *matches)[0] == {0: None, 1: None, 2: 1, 3: 1, 4: None, 5: None}


def test_a_match_that_its_segment_suppresses_starts_no_cooldown():
    spec = read_spec(type("Both", (Sparing,), {"cooldown_s": 10, "per_segment": 1})())
    matches = at(0, 0, segment=0), at(20, 1, segment=0), at(25, 2, segment=1)
    assert judge(spec, *matches)[0] == {0: None, 1: 0, 2: None}


def test_without_budgets_every_match_fires():
    assert judge(read_spec(Watching()), at(0, 0), at(0, 1), at(None, 2))[0] == dict.fromkeys(
        range(3)
    )


def naive(matches, cooldown):
    """Go through all matches in order of time; look back at every fire each time."""
    fires: list[Match] = []
    suppressed = set()
    for match in sorted(matches, key=lambda m: (m.ts_ns, m.seq)):
        back = [f for f in fires if f.dedup_key == match.dedup_key]
        if any(0 <= match.ts_ns - f.ts_ns < cooldown for f in back):
            suppressed.add(match.seq)
        else:
            fires.append(match)
    return suppressed


@given(
    st.lists(st.tuples(st.integers(-3000, 3000), st.sampled_from([None, "a", "b"])), max_size=30),
    st.integers(1, 2000),
)
def test_cooldowns_are_those_of_a_naive_walk(drawn, cooldown_s):
    matches = [at(seconds, seq, key=key) for seq, (seconds, key) in enumerate(drawn)]
    spec = read_spec(type("Drawn", (Watching,), {"cooldown_s": cooldown_s})())
    found, without = judge(spec, *matches)
    assert {seq for seq, by in found.items() if by is not None} == naive(matches, cooldown_s * NS)
    assert not without


# --- the same in whole sessions

STOP = (Kind.CUSTOM, Custom("stop"))
USER = (Kind.USER_MESSAGE, UserMessage("u"))


def session(*parts):
    return line_of([(*part, {"ts_ns": None if ts is None else ts * NS}) for part, ts in parts])


def test_a_match_without_time_takes_the_greatest_on_its_path():
    events = session((STOP, 5000), (USER, 100), (STOP, None), (STOP, None), (STOP, 5901))
    outcome = replay_one(events, Cooling)
    assert (fired(outcome), held(outcome)) == (["e0", "e4"], ["e2", "e3"])
    assert not outcome.cannot


def test_a_path_without_any_time_is_named():
    outcome = replay_one(session((USER, None), (STOP, None), (STOP, 7)), Cooling)
    assert [(c.event_ref, c.fact) for c in outcome.cannot] == [("test:s#e1", "no ts")]
    assert fired(outcome) == ["e2"]


def branches(policy):
    """Two branches below one user message, then a branch with a message of its own."""
    events = [
        make_event(0, *USER, ts_ns=0),
        make_event(1, *STOP, parent_id="n0", ts_ns=1 * NS),
        make_event(2, *STOP, parent_id="n1", ts_ns=2 * NS),
        make_event(3, *STOP, parent_id="n0", ts_ns=3 * NS),
        make_event(4, *USER, parent_id="n0", ts_ns=4 * NS),
        make_event(5, *STOP, parent_id="n4", ts_ns=2000 * NS),
    ]
    outcome = replay_one(events, policy)
    return fired(outcome), held(outcome), {f.suppressed_by for f in outcome.fires}


def test_budgets_are_shared_by_the_branches_of_a_session():
    assert branches(Cooling) == (["e1", "e5"], ["e2", "e3"], {None, "test:s#e1"})
    assert branches(Sparing) == (["e1", "e2", "e5"], ["e3"], {None, "test:s#e2"})


def test_a_key_comes_from_the_action_before_the_policy():
    class Keyed(Cooling):
        on: ClassVar = ("user.message",)

        def evaluate(self, event, state):
            return Notify("x", dedup_key="own" if event.text == "own" else None)

        def dedup_key(self, event, state):
            return event.text

    texts = ["a", "b", "a", "own", "own"]
    outcome = replay_one(line_of([(Kind.USER_MESSAGE, UserMessage(t)) for t in texts]), Keyed)
    assert [fire.dedup_key for fire in outcome.fires] == ["a", "b", "a", "own", "own"]
    assert (fired(outcome), held(outcome)) == (["e0", "e1", "e3"], ["e2", "e4"])


@pytest.mark.parametrize("budget", [{"cooldown_s": 5}, {"per_segment": 1}])
def test_a_gate_with_a_budget_is_not_loaded(budget):
    with pytest.raises(PluginError, match=f"is a gate with {next(iter(budget))}"):
        read_spec(type("Gate", (Watching,), {"lane": "gate"} | budget)())
