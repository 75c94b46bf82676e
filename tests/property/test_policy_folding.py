"""What a policy sees agrees with a naive walk from the root to each event, for any session.

The oracle (`tests/fold_oracle.py`) knows no index and no plan. Each test says which sessions it is
about: rings and lost parents are among them all. Each is replayed both in one pass, where its shape
allows that, and planned in full.
"""

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from redrive.policy import Notify, Policy, Reducer
from redrive.record.event import (
    FLAG_INHERITED,
    ContextReplaced,
    Custom,
    Damage,
    Event,
    Kind,
    ModelRequest,
    ModelResponse,
    Note,
    PolicyAction,
    Read,
    SessionStarted,
    StateInferred,
    ToolCall,
    ToolPermission,
    ToolResult,
    UserMessage,
)
from redrive.record.session import FLAG_META
from redrive.replay.policy import NEVER_OFFERED
from tests.fold_oracle import MOMENTS, Oracle, is_user
from tests.policy_sessions import fired, held, make_event, replay_one

EVERY_KIND = (
    *(kind.value for kind in Kind if kind not in NEVER_OFFERED and kind is not Kind.CUSTOM),
    "custom:beat",
)
ACTORS = ("main", "main", "main", "ag1", "ag2")
SHAPES = (
    *("user", "decision", "decision", "piece", "piece beside", "result", "result", "read"),
    *("meta", "note", "noted result", "mixed", "custom", "action", "inferred", "outside"),
)


class Ids(Reducer):
    on = EVERY_KIND
    initial = ()

    def fold(self, value, event):
        return (*value, event.id)


class Recorder(Policy):
    """Says of each event what was folded before it, and whether it ends a turn."""

    on = EVERY_KIND
    reducers = {"ids": Ids()}  # noqa: RUF012 - as a user would write it

    def evaluate(self, event, state):
        standard = state.standard
        facts = (standard.moment, state.segment, standard.actor, state.permissions.denied)
        return Notify(f"{' '.join(state['ids'])}|{event.ends_turn}|{facts}")


@st.composite
def sessions(draw, *, is_odd: bool, has_pieces: bool, n_nodes: int = 14):
    """Grow a session node by node.

    `is_odd` adds lost parents, rings and further roots; `has_pieces` stores decisions in pieces,
    each below an earlier piece or beside the first one.
    """
    drawn: list[tuple[str, str | None, str, list[tuple[Kind, Any, dict[str, Any]]]]] = []
    firsts: dict[str, tuple[str, str | None]] = {}
    n_calls = 0
    has_links = draw(st.booleans()) or draw(st.booleans())
    for number in range(draw(st.integers(1, n_nodes))):
        actor = draw(st.sampled_from(ACTORS)) if number else "main"
        mine = [entry for entry in drawn if entry[2] == actor and entry[0]]
        shape = draw(st.sampled_from(SHAPES))
        parent = _parent(draw, drawn, mine, is_odd=is_odd, actor=actor)
        group = f"g{number}" if has_pieces and draw(st.booleans()) else None
        older = [e for e in mine if e[3][-1][2].get("group")]
        if shape.startswith("piece") and older and has_pieces:
            whole = draw(st.sampled_from(older))
            group = whole[3][-1][2]["group"]
            first, above = firsts[group]
            parent = above if shape == "piece beside" else _below(draw, mine, first, whole[0])
        call_ids = [f"c{n}" for n in range(n_calls)] or ["c0"]
        parts = _parts(draw, shape, group, call_ids, n_calls)
        n_calls += sum(kind is Kind.TOOL_CALL for kind, *_ in parts)
        name = "" if shape == "outside" else f"n{number}"
        drawn.append((name, parent if has_links and name else None, actor, parts))
        firsts.setdefault(group or "", (name, parent))
    order = draw(st.permutations(drawn)) if draw(st.integers(0, 2)) == 0 else drawn
    return _events(draw, order, is_odd=is_odd)


def _below(draw, mine, first, piece):
    """Choose a node at or below a piece of the decision that began at `first`."""
    below = {first, piece}
    for name, parent, *_ in mine:
        if parent in below:
            below.add(name)
    return draw(st.sampled_from(sorted(below)))


WILD = sessions(is_odd=True, has_pieces=True)
SOUND = sessions(is_odd=False, has_pieces=True) | sessions(is_odd=True, has_pieces=False)


def _parent(draw, drawn, mine, *, is_odd, actor):
    if is_odd and draw(st.integers(0, 19)) == 0:
        return draw(st.sampled_from(["lost", "n3", "n7", "n11", None]))
    if not mine:
        mains = [entry[0] for entry in drawn if entry[2] == "main" and entry[0]]
        return draw(st.sampled_from([None, *mains])) if actor != "main" else None
    if actor == "main" and draw(st.integers(0, 7)) == 0:  # below a sub-agent's node, it may be
        return draw(st.sampled_from([entry[0] for entry in drawn if entry[0]]))
    return mine[-1][0] if draw(st.integers(0, 3)) else draw(st.sampled_from(mine))[0]


OUTSIDE = (
    (Kind.SESSION_STARTED, SessionStarted(), {}),
    (Kind.DAMAGE, Damage(1, 0, 1, "x"), {}),
    (Kind.CUSTOM, Custom("beat"), {}),
)
SIMPLE: dict[str, list[tuple[Kind, Any, dict[str, Any]]]] = {
    "user": [(Kind.USER_MESSAGE, UserMessage("u"), {})],
    "meta": [(Kind.USER_MESSAGE, UserMessage("m"), {"flags": (FLAG_META,)})],
    "read": [(Kind.CLOCK_READ, Read("now"), {})],
    "note": [(Kind.NOTE, Note("x"), {})],
    "custom": [(Kind.CUSTOM, Custom("beat"), {}), (Kind.CUSTOM, Custom("other"), {})],
    "action": [(Kind.POLICY_ACTION, PolicyAction("p", "Notify"), {})],
    "inferred": [(Kind.STATE_INFERRED, StateInferred("n"), {})],
}


def _parts(draw, shape, group, call_ids, n_calls):
    call_id = draw(st.sampled_from(call_ids))
    if shape in SIMPLE:
        return SIMPLE[shape]
    if shape == "outside":
        return [draw(st.sampled_from(OUTSIDE)), (Kind.CONTEXT_REPLACED, ContextReplaced(), {})]
    if "result" in shape or shape == "mixed":
        return _results(draw, shape, call_id)
    parts = [(Kind.MODEL_RESPONSE, ModelResponse("a"), {"group": group})]
    if draw(st.booleans()):
        parts.insert(0, (Kind.MODEL_REQUEST, ModelRequest(), {"group": group}))
    for number in range(draw(st.integers(0, 2))):
        name = call_id if draw(st.integers(0, 4)) == 0 else f"c{n_calls + number}"
        parts.append((Kind.TOOL_CALL, ToolCall("t"), {"group": group, "call_id": name}))
    return parts


def _results(draw, shape, call_id):
    result = (Kind.TOOL_RESULT, ToolResult(), {"call_id": call_id})
    if shape == "noted result":
        return [result, *SIMPLE["note"]]
    if shape == "mixed":
        return [result, *SIMPLE["user"]]
    word = draw(st.sampled_from(["denied", "allowed", None]))
    asked = (Kind.TOOL_PERMISSION, ToolPermission(word or ""), {"call_id": call_id})
    return [asked, result] if word else [result]


def _events(draw, order, *, is_odd: bool) -> list[Event]:
    events: list[Event] = []
    further: set[str] = set()  # without these, their node is still there
    for name, parent, actor, parts in order:
        ts = draw(st.none() | st.integers(0, 6))
        for number, (kind, payload, fields) in enumerate(parts):
            extra = dict(fields)
            if number:
                further.add(f"e{len(events)}")
            if draw(st.integers(0, 11)) == 0:
                extra["flags"] = (*extra.get("flags", ()), FLAG_INHERITED)
            older = [e for e in events if e.group is None and (is_odd or e.id in further)]
            if older and draw(st.integers(0, 29)) == 0:
                extra["supersedes"] = draw(st.sampled_from(older)).id
            events.append(
                make_event(
                    len(events),
                    kind,
                    payload,
                    **{"node_id": name, "parent_id": parent, "actor": actor, "ts_ns": ts} | extra,
                )
            )
    return events


def replayed(events, policy):
    """Replay in one pass where the shape allows it, and planned in full: both say the same."""
    outcome = replay_one(events, policy)
    assert outcome == replay_one(events, policy, is_planned=True)
    return outcome


def seen(events, policy=Recorder):
    """Map event id → its fire, and hold that none is judged twice."""
    for e in events:
        note(
            f"{e.id} {e.kind} {e.node_id} <- {e.parent_id} {e.actor} {e.ts_ns} {e.group} {e.flags}"
        )
    outcome = replayed(events, policy)
    assert not outcome.faults
    fires = {fire.event_ref.rpartition("#")[2]: fire for fire in outcome.fires}
    assert len(fires) == len(outcome.fires) == outcome.offered
    return fires, outcome


def offered(oracle):
    """List the events that a policy on every kind judges."""
    return [
        e
        for e in oracle.live
        if e.kind not in NEVER_OFFERED
        and FLAG_INHERITED not in e.flags
        and not (e.kind is Kind.CUSTOM and b"other" in bytes(e.payload))
    ]


def folds(event):
    """Say whether the reducer reads an event."""
    is_other = event.kind is Kind.CUSTOM and b"other" in bytes(event.payload)
    return event.kind not in NEVER_OFFERED and not is_other


@given(WILD)
def test_each_event_is_judged_once_and_notes_damage_and_copies_never(events):
    oracle = Oracle(events)
    fires, outcome = seen(events)
    assert sorted(fires) == sorted(event.id for event in offered(oracle))
    copies = [e for e in oracle.live if FLAG_INHERITED in e.flags and folds(e)]
    assert outcome.inherited == len(copies)


@given(SOUND)
def test_the_state_before_an_event_holds_what_a_walk_to_it_meets_in_that_order(events):
    oracle = Oracle(events)
    fires, _ = seen(events)
    for event in offered(oracle):
        history = [e for e in oracle.history(event) if folds(e)]
        assert fires[event.id].reason.split("|")[0].split() == [e.id for e in history]


@given(SOUND)
def test_the_standard_state_is_that_of_the_walk(events):
    oracle = Oracle(events)
    fires, _ = seen(events)
    for event in offered(oracle):
        history = oracle.history(event)
        denied = [e for e in history if b'"denied"' in bytes(e.payload)]
        actor = "main" if event in oracle.outside else event.actor
        wanted = (
            sum(e.kind in MOMENTS for e in history),
            sum(map(is_user, history)),
            actor,
            len(denied),
        )
        assert fires[event.id].reason.split("|")[2] == str(wanted), event.id


@given(SOUND)
def test_an_answer_ends_a_turn_where_no_decision_follows_before_a_user_speaks(events):
    oracle = Oracle(events)
    fires, _ = seen(events)
    for event in offered(oracle):
        assert fires[event.id].reason.split("|")[1] == str(oracle.ends_turn(event)), event.id


@given(WILD)
def test_a_fire_lies_on_the_head_path_where_a_walk_from_the_head_meets_it(events):
    oracle = Oracle(events)
    fires, _ = seen(events)
    for event in offered(oracle):
        assert fires[event.id].on_head_path == oracle.on_head_path(event), event.id


@given(WILD)
def test_a_fire_carries_the_newest_leaf_below_it(events):
    oracle = Oracle(events)
    fires, _ = seen(events)
    for event in offered(oracle):
        assert fires[event.id].leaf == oracle.leaf(event), event.id


class Cooling(Policy):
    """Matches every answer and call; two kinds of matters, one cooldown each."""

    on = ("model.response", "tool.call", "custom:beat")
    cooldown_s = 3e-9  # the sessions' times are nanoseconds from 0 to 6

    def evaluate(self, event, state):
        return Notify("x")

    def dedup_key(self, event, state):
        return event.kind.value


class Sparing(Cooling):
    cooldown_s = None
    per_segment = 2


def naive_budgets(oracle, policy):
    """Tell suppressed from fires, and what cannot be judged, by going through all matches."""
    matches = [e for e in offered(oracle) if e.kind.value in ("model.response", "tool.call")]
    matches += [e for e in offered(oracle) if e.kind is Kind.CUSTOM]
    timeless = [e for e in matches if oracle.time(e) is None] if policy.cooldown_s else []
    fires, suppressed = [], []
    rest = [e for e in matches if e not in timeless]
    for event in sorted(rest, key=lambda e: (oracle.time(e) or 0, e.seq)):
        if policy.cooldown_s:
            same = [f for f in fires if f.kind is event.kind]
            is_held = any(0 <= oracle.time(event) - oracle.time(f) < 3 for f in same)
        else:
            here = [f for f in fires if oracle.segment(f) == oracle.segment(event)]
            is_held = len(here) >= policy.per_segment
        (suppressed if is_held else fires).append(event)
    return [{e.id for e in found} for found in (fires, suppressed, timeless)]


@given(SOUND, st.sampled_from([Cooling, Sparing]))
def test_budgets_are_those_of_a_naive_walk_through_all_matches(events, policy):
    oracle = Oracle(events)
    outcome = replayed(events, policy)
    fires, suppressed, timeless = naive_budgets(oracle, policy)
    assert set(fired(outcome)) == fires
    assert set(held(outcome)) == suppressed
    assert {c.event_ref.rpartition("#")[2] for c in outcome.cannot} == timeless
    assert {c.fact for c in outcome.cannot} <= {"no ts"}
