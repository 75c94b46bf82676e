"""A session of a common shape is judged in one pass, exactly as it is when planned in full."""

import random
from collections.abc import Sequence
from contextlib import closing
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from redrive.app.importing import import_paths
from redrive.app.policy_messages import PolicyOutcome
from redrive.app.policy_recording import Recording, lined_recording
from redrive.app.policy_session import SessionReplay
from redrive.policy import Action, Allow, Ask, Deny, Notify, Policy, PolicyEvent, Reducer, State
from redrive.record.event import (
    FLAG_INHERITED,
    Custom,
    Event,
    Kind,
    ModelRequest,
    ModelResponse,
    Note,
    PolicyAction,
    SessionEnded,
    SessionStarted,
    Source,
    StateInferred,
    ToolCall,
    ToolPermission,
    ToolResult,
    UserMessage,
    dump_payload,
    raw_of,
)
from redrive.record.places import build_places
from redrive.record.session import FLAG_META, MemoryReader, build_index
from redrive.replay.columns import columns_of
from redrive.replay.folding import build_plan
from redrive.replay.quick_walk import find_walk
from redrive.stores.port import Block
from redrive.stores.sqlite import open_store
from tests.policy_sessions import held_session, live, planned

NS = 10**9
PAYLOADS = {
    Kind.SESSION_STARTED: SessionStarted(cwd="/repo"),
    Kind.SESSION_ENDED: SessionEnded("success"),
    Kind.USER_MESSAGE: UserMessage("go on"),
    Kind.MODEL_REQUEST: ModelRequest("m"),
    Kind.MODEL_RESPONSE: ModelResponse("done"),
    Kind.TOOL_CALL: ToolCall("Bash", raw_of({"command": "pytest -q"})),
    Kind.TOOL_PERMISSION: ToolPermission("denied", tool="Bash"),
    Kind.TOOL_RESULT: ToolResult(result=raw_of("2 passed")),
    Kind.STATE_INFERRED: StateInferred("claim", raw_of(True)),
    Kind.POLICY_ACTION: PolicyAction("p", "mute"),
    Kind.CUSTOM: Custom("x.y"),
    Kind.NOTE: Note("n"),
}


def replay(
    policies: Sequence[type[Policy]], recording: Recording, **options: Any
) -> tuple[PolicyOutcome, ...]:
    """Replay a session without nets: what is compared here is order and state."""
    loaded = [live(policy) for policy in policies]

    def ask(_: int, __: str, name: str, event: PolicyEvent, ___: State) -> Raw | str:
        return Raw(b"true") if event.seq % 2 else f"no {name}"

    session = SessionReplay(recording, loaded, ask=ask, status=[0], dropped={}, **options)
    return session.run()


def lined(session_id: str, events: Sequence[Event]) -> Recording:
    """Give a session of which the lines are held; the second of three segments has texts."""
    size = max(1, len(events) // 3)
    blocks = [
        Block(first, len(part), msgspec.json.Encoder().encode_lines(part), first != size)
        for first in range(0, len(events), size)
        if (part := events[first : first + size])
    ]
    return lined_recording(session_id, blocks, lambda: MemoryReader(events))


class Chain(Reducer):
    """Remembers every event on the path, and whether it ends a turn."""

    on = tuple(kind.value for kind in Kind if kind not in (Kind.NOTE, Kind.DAMAGE))
    initial = ()

    def fold(self, value: Any, event: PolicyEvent) -> Any:
        return (*value, (event.id, event.ends_turn))


class Witness(Policy):
    """Fires at everything, and says what it was given."""

    on = Chain.on
    per_segment = 2
    reducers: ClassVar[dict[str, Reducer]] = {"chain": Chain()}

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        return Notify(f"{event.ends_turn} {state['chain']} {state.standard}")


class Cooling(Policy):
    """Fires now and then, with a cooldown for each tool."""

    on = ("model.response", "tool.result", "custom:x.y")
    cooldown_s = 3.0
    needs = ("claim",)

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        if event.ends_turn and state.infer("claim"):
            return Notify(f"{state.inferences}")
        return Notify("odd", dedup_key=event.tool) if state.standard.moment % 2 else None


class Breaking(Policy):
    """Breaks down at some events, until it is stopped."""

    on = ("tool.call", "tool.result", "user.message")
    uses_standard_state = False

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        if event.seq % 3 == 0:
            raise RuntimeError(event.id)
        return Notify("whole") if event.seq % 5 == 0 else None


class Gate(Policy):
    """Decides on calls, by what was denied before."""

    on = ("tool.call",)
    lane = "gate"
    critical = True

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        if event.seq % 7 == 0:
            raise RuntimeError("gate")
        if state.is_muted:
            return Ask("muted")
        return Deny("again") if state.permissions.denied else Allow("fine")


POLICIES = (Witness, Cooling, Breaking, Gate)


def session(shape: Sequence[tuple[Any, ...]]) -> list[Event]:
    """Make events of (kind, node, parent, actor, group, ts, flags, supersedes)."""
    events = []
    for seq, (kind, node, parent, actor, group, ts, flags, superseded) in enumerate(shape):
        payload = dump_payload(PAYLOADS[kind])
        events.append(
            Event(
                id=f"e{seq}",
                session_id="t:s",
                seq=seq,
                kind=kind,
                node_id=node,
                source=Source("0" * 64, seq, 1),
                payload=payload,
                parent_id=parent,
                actor=actor,
                ts_ns=None if ts is None else ts * NS,
                call_id="c" if kind.value.startswith("tool") else None,
                group=group,
                supersedes=None if superseded is None else f"e{superseded}",
                flags=flags,
            )
        )
    return events


class Growth:
    """Grows a session as agents do: turns, parallel calls, sub-agents, rewinds; disturbs it."""

    def __init__(
        self, seed: int, *, n_steps: int, disturbed: float, has_links: bool = True
    ) -> None:
        self.dice = random.Random(seed)
        self.disturbed = disturbed
        self.has_links = has_links
        self.shape: list[list[Any]] = []
        self.tips: dict[str, str | None] = {"main": None}
        self.nodes: list[tuple[str, str]] = []
        self.ts = 0
        self.n_groups = 0
        for _ in range(n_steps):
            self.step()
        self.disturb()

    def add(
        self,
        kind: Kind,
        node: str | None = None,
        *,
        actor: str = "main",
        group: str | None = None,
        parent: str | None = None,
        flags: tuple[str, ...] = (),
    ) -> str:
        """Add an event: to a node that is there, or to a new one below the newest of its flow."""
        self.ts += self.dice.randrange(3)
        if node is None:
            node = f"n{len(self.shape)}"
            self.nodes.append((node, actor))
            parent = parent or self.tips.get(actor)
        else:
            parent = next((p for _, n, p, *_ in self.shape if n == node), None)
        above = parent if self.has_links else None
        self.shape.append([kind, node, above, actor, group, self.ts, flags, None])
        self.tips[actor] = node
        return node

    def step(self) -> None:
        """Take one of the steps that recordings show, the common ones most often."""
        steps = (self.turn, self.decide, self.decide, self.decide, self.pieces, self.rewind)
        self.dice.choice((*steps, self.sub_agent, self.aside))()

    def turn(self) -> None:
        self.add(Kind.USER_MESSAGE, flags=(FLAG_META,) if self.dice.random() < 0.2 else ())

    def decide(self, actor: str = "main") -> None:
        """Answer, with calls in the answer's node, and results in a row or side by side."""
        if self.dice.random() < 0.3:
            self.add(Kind.MODEL_REQUEST, actor=actor)
        node = self.add(Kind.MODEL_RESPONSE, actor=actor)
        n_calls = self.dice.choice((0, 1, 1, 2))
        for _ in range(n_calls):
            self.add(Kind.TOOL_CALL, node, actor=actor)
        is_star = self.dice.random() < 0.3
        for _ in range(n_calls):
            if self.dice.random() < 0.1:
                self.add(Kind.TOOL_PERMISSION, actor=actor)
            self.add(Kind.TOOL_RESULT, actor=actor, parent=node if is_star else None)

    def pieces(self) -> None:
        """Answer in pieces that share a group; results hang off their own call."""
        self.n_groups += 1
        group, last = f"g{self.n_groups}", None
        for number in range(self.dice.choice((2, 3))):
            kind = Kind.TOOL_CALL if number else Kind.MODEL_RESPONSE
            last = self.add(kind, group=group, parent=last)
            if number and self.dice.random() < 0.6:
                self.add(Kind.TOOL_RESULT, parent=last)
        self.add(Kind.TOOL_RESULT, parent=last)

    def rewind(self) -> None:
        own = [node for node, actor in self.nodes if actor == "main"]
        if own:
            self.tips["main"] = self.dice.choice(own[-8:])
        self.turn() if self.dice.random() < 0.5 else self.decide()

    def sub_agent(self) -> None:
        actor = self.dice.choice(("sub", "sub2"))
        self.tips.setdefault(actor, self.tips["main"])
        for _ in range(self.dice.choice((1, 2))):
            self.decide(actor)
            if self.dice.random() < 0.3:
                self.decide()

    def aside(self) -> None:
        kind = self.dice.choice(
            (Kind.NOTE, Kind.CUSTOM, Kind.POLICY_ACTION, Kind.STATE_INFERRED, Kind.SESSION_STARTED)
        )
        if self.dice.random() < 0.3:
            self.shape.append([kind, "", None, "main", None, self.ts, (), None])
        else:
            self.add(kind)

    def disturb(self) -> None:
        """Do to some events what is rare in recordings."""
        for seq, fields in enumerate(self.shape):
            if self.dice.random() >= self.disturbed:
                continue
            match self.dice.randrange(8):
                case 0:
                    fields[2] = "nowhere"
                case 1:
                    fields[2] = self.dice.choice(self.shape)[
                        1
                    ]  # a cycle, or its parent comes later
                case 2:
                    fields[5] = self.dice.choice((None, 0))
                case 3:
                    fields[6] = (FLAG_INHERITED,)
                case 4:
                    fields[7] = self.dice.randrange(len(self.shape))
                case 5:
                    fields[4] = self.dice.choice(("g1", "g2"))
                case 6:
                    fields[1] = self.dice.choice(self.shape)[1]  # a node in two places
                case _:
                    other = self.dice.randrange(len(self.shape))
                    self.shape[seq], self.shape[other] = self.shape[other], self.shape[seq]


def outcomes_of(recording: Recording, **options: Any) -> bytes:
    return msgspec.json.encode(replay(POLICIES, recording, **options))


def check_equal(events: Sequence[Event]) -> bool:
    """Compare both ways on one session; say whether the short one was taken."""
    session_id = events[0].session_id if events else "t:s"
    notes = {event.seq for event in events if event.kind is Kind.NOTE}
    full = outcomes_of(planned(session_id, events))
    assert outcomes_of(held_session(session_id, events)) == full
    assert outcomes_of(lined(session_id, events)) == full
    walk = find_walk(columns_of([events]), needs_ends=True)
    if walk is None:
        return False
    order = [*walk.outside, *(seq for run in walk.runs for seq in run.seqs)]
    plan = build_plan(build_places(build_index(session_id, lambda: events)))
    assert [s for s in order if s not in notes] == [s for s in plan.seqs() if s not in notes]
    return True


seeds = st.integers(0, 2**32)
kinds = st.sampled_from(tuple(PAYLOADS))
names = st.sampled_from(("a", "b", "c", "d", "e"))
free = st.lists(
    st.tuples(
        kinds,
        st.one_of(names, st.just("")),
        st.one_of(st.none(), names),
        st.sampled_from(("main", "main", "sub")),
        st.sampled_from((None, None, "g", "h")),
        st.one_of(st.none(), st.integers(0, 9)),
        st.sampled_from(((), (), (FLAG_INHERITED,), (FLAG_META,))),
        st.one_of(st.none(), st.none(), st.integers(0, 7)),
    ),
    max_size=8,
)


@given(free)
def test_any_events_at_all_are_judged_alike(shape):
    check_equal(session(shape))


@given(seeds, st.booleans())
def test_a_disturbed_session_is_judged_alike(seed, has_links):
    growth = Growth(seed, n_steps=12, disturbed=0.05, has_links=has_links)
    check_equal(session(growth.shape))


@given(seeds, st.booleans())
def test_a_session_of_a_common_shape_is_judged_alike(seed, has_links):
    check_equal(session(Growth(seed, n_steps=25, disturbed=0, has_links=has_links).shape))


def test_sessions_of_common_shapes_take_the_short_way_nine_times_in_ten() -> None:
    grown = [session(Growth(seed, n_steps=25, disturbed=0).shape) for seed in range(200)]
    taken = [find_walk(columns_of([events]), needs_ends=True) is not None for events in grown]
    assert sum(taken) >= 180


@pytest.mark.parametrize("folder", ["claude_code", "codex"])
def test_the_samples_are_judged_alike_and_most_take_the_short_way(samples, tmp_path, folder):
    with closing(open_store(tmp_path / "store.db", create=True)) as store:
        import_paths(store, [str(samples / folder)], progress=lambda *_: None)
        sessions = [list(store.events(row.session_id)) for row in store.sessions()]
    taken = [check_equal(events) for events in sessions]
    assert sum(taken) >= len(taken) * 2 / 3
