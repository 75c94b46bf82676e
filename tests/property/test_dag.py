"""Paths against a naive walk: sub-agents, rewinds, compaction, resume, split answers."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from redrive.record.event import (
    ContextReplaced,
    Event,
    Kind,
    ModelResponse,
    Note,
    Source,
    ToolCall,
    ToolResult,
    UserMessage,
    dump_payload,
    raw_of,
)
from redrive.record.pairing import pair_path
from redrive.record.session import MemoryReader, build_index
from redrive.record.trajectory import build_trajectory, find_head

ACTORS = ("main", "ag1", "ag2")


@dataclass
class Node:
    """One node of the naive model."""

    name: str
    parent: str | None
    actor: str
    kind: str
    ts: int | None
    group: str = ""
    calls: list[str] = field(default_factory=list)
    answers: str = ""


@st.composite
def sessions(draw):
    """Grow a session: a new node hangs off any earlier one of its actor (a rewind), or its tip."""
    nodes: list[Node] = []
    n_calls = 0
    for number in range(draw(st.integers(1, 25))):
        actor = draw(st.sampled_from(ACTORS)) if number else "main"
        mine = [node for node in nodes if node.actor == actor]
        parent = (
            draw(st.sampled_from(mine)) if mine and draw(st.booleans()) else (mine or [None])[-1]
        )
        kind = draw(st.sampled_from(("user", "decision", "piece", "result", "note", "compaction")))
        node = Node(
            f"n{number}", parent and parent.name, actor, kind, draw(st.none() | st.integers(0, 9))
        )
        open_calls = _calls_above(nodes, parent) if parent else []
        if kind == "result" and not open_calls:
            node.kind = "user"
        if kind == "piece" and (parent is None or parent.kind not in ("decision", "piece")):
            node.kind = "decision"
        if node.kind == "decision":
            node.group = f"g{number}"
        if node.kind == "piece":
            node.group = parent.group
        if node.kind in ("decision", "piece"):
            for _ in range(draw(st.integers(0, 2))):
                node.calls.append(f"c{n_calls}")
                n_calls += 1
        if node.kind == "result":
            node.answers = draw(st.sampled_from(open_calls))
        nodes.append(node)
    order = draw(st.permutations(nodes)) if draw(st.booleans()) else nodes
    return nodes, order


def _calls_above(nodes, node):
    """Name the calls of the decision right above a node, pieces that hang beside it included."""
    by_name = {n.name: n for n in nodes}
    at = node
    while at is not None and at.kind not in ("decision", "piece"):
        at = by_name.get(at.parent)
    if at is None:
        return []
    return [c for n in nodes if n.group == at.group for c in n.calls]


def events_for(order):
    events = []

    def add(node, kind, payload, call_id=None):
        events.append(
            Event(
                id=f"{node.name}/{len(events)}",
                session_id="s",
                seq=len(events),
                kind=kind,
                node_id=node.name,
                source=Source("", 0, 0),
                payload=dump_payload(payload),
                parent_id=node.parent,
                actor=node.actor,
                ts_ns=node.ts,
                call_id=call_id,
                group=node.group or None,
            )
        )

    for node in order:
        match node.kind:
            case "user":
                add(node, Kind.USER_MESSAGE, UserMessage("hello"))
            case "decision" | "piece":
                add(node, Kind.MODEL_RESPONSE, ModelResponse(node.name))
                for call in node.calls:
                    add(node, Kind.TOOL_CALL, ToolCall("t"), call)
            case "result":
                add(node, Kind.TOOL_RESULT, ToolResult(result=raw_of(node.name)), node.answers)
            case "compaction":
                add(node, Kind.CONTEXT_REPLACED, ContextReplaced())
            case _:
                add(node, Kind.NOTE, Note("note"))
    return events


def naive_spine(nodes, leaf):
    """Walk parent by parent, and nothing else."""
    by_name = {node.name: node for node in nodes}
    spine, at = [], leaf
    while at is not None:
        spine.append(at)
        at = by_name[at].parent
    return spine[::-1]


@given(sessions(), st.sampled_from(ACTORS))
def test_steps_are_the_decisions_that_a_naive_walk_meets(drawn, actor):
    nodes, order = drawn
    events = events_for(order)
    index = build_index("s", lambda: events)
    if actor not in index.actors or not any(node.actor == actor for node in nodes):
        return
    if not index.has_links:
        return
    path = build_trajectory(index, actor=actor)
    spine = naive_spine(nodes, path.leaf)
    by_name = {node.name: node for node in nodes}
    met = list(dict.fromkeys(by_name[name].group for name in spine if by_name[name].group))
    assert [by_name[step.node_id].group for step in path.steps] == met
    for step, group in zip(path.steps, met, strict=True):
        wanted = {c for node in nodes if node.group == group for c in node.calls}
        assert {index.call_ids[seq] for seq in step.calls} == wanted
    assert [name for name in path.node_path if name in spine] == spine
    assert path.breaks is None


@given(sessions())
def test_a_result_is_paired_with_the_call_of_its_id_on_every_path_through_it(drawn):
    nodes, order = drawn
    events = events_for(order)
    index = build_index("s", lambda: events)
    if not index.has_links:
        return
    for leaf in (node.name for node in nodes if node.actor == "main"):
        path = build_trajectory(index, path=leaf)
        pairing = pair_path(index, path, MemoryReader(events))
        for call, result in pairing.answers.items():
            assert index.call_ids[call] == index.call_ids[result]
        met = {index.call_ids[seq] for step in path.steps for seq in step.calls}
        side = {
            node.answers
            for node in nodes
            if node.kind == "result"
            and node.answers in met
            and node.actor == "main"
            and _belongs(nodes, node)
        }
        answered = {index.call_ids[seq] for seq in pairing.answers}
        conflicting = {index.call_ids[seq] for seq in pairing.conflicts}
        assert answered | conflicting == side & met | answered


def _belongs(nodes, node):
    """A result belongs to the nearest decision above it."""
    by_name = {n.name: n for n in nodes}
    at = by_name.get(node.parent)
    while at is not None and at.kind not in ("decision", "piece"):
        at = by_name.get(at.parent)
    return at is not None and node.answers in {
        c for n in nodes if n.group == at.group for c in n.calls
    }


@given(sessions())
def test_the_head_is_the_newest_leaf(drawn):
    _, order = drawn
    events = events_for(order)
    index = build_index("s", lambda: events)
    if not index.has_links:
        return
    head = find_head(index)
    mine = [node for node in order if node.actor == "main"]
    parents = {node.parent for node in mine}
    leaves = [node for node in mine if node.name not in parents]
    newest = max(leaves, key=lambda n: (-1 if n.ts is None else n.ts, order.index(n)))
    assert index.node_ids[head] == newest.name


@given(sessions())
def test_file_order_does_not_change_a_path(drawn):
    nodes, order = drawn
    straight, shuffled = events_for(nodes), events_for(order)
    one, two = (build_index("s", lambda e=e: e) for e in (straight, shuffled))
    if not one.has_links:
        return
    for leaf in one.node_ids:
        actor = one.actors[one.node_actor[one.find_node(leaf)]]
        first = build_trajectory(one, actor=actor, path=leaf)
        second = build_trajectory(two, actor=actor, path=leaf)
        assert [set(s.node_ids) for s in first.steps] == [set(s.node_ids) for s in second.steps]
