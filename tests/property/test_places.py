"""Places agree with a path walk, for any shape of history."""

from hypothesis import given
from hypothesis import strategies as st

from redrive.record.branches import find_branches
from redrive.record.event import (
    Event,
    Kind,
    ModelResponse,
    Source,
    ToolResult,
    UserMessage,
    dump_payload,
)
from redrive.record.places import build_places
from redrive.record.session import build_index
from redrive.record.trajectory import build_trajectory

PAYLOADS = {
    Kind.USER_MESSAGE: UserMessage("u"),
    Kind.MODEL_RESPONSE: ModelResponse("a"),
    Kind.TOOL_RESULT: ToolResult(),
}
nodes = st.lists(
    st.tuples(
        st.integers(-1, 12),
        st.sampled_from(tuple(PAYLOADS)),
        st.sampled_from(("main", "main", "main", "sub")),
        st.sampled_from((None, None, "g")),
        st.integers(0, 5),
    ),
    min_size=1,
    max_size=14,
)


def index_of(shape, *, is_ordered):
    events = []
    for number, (parent, kind, actor, group, ts) in enumerate(shape):
        is_known = parent >= 0 and (parent < number or not is_ordered)
        events.append(
            Event(
                id=f"n{number}",
                session_id="s",
                seq=number,
                kind=kind,
                node_id=f"n{number}",
                source=Source("", 0, 0),
                payload=dump_payload(PAYLOADS[kind]),
                parent_id=f"n{parent}" if is_known else None,
                actor=actor,
                ts_ns=ts,
                group=group if kind is Kind.MODEL_RESPONSE else None,
            )
        )
    return build_index("s", lambda: events)


@given(nodes)
def test_what_lies_on_the_path_to_the_head_is_live(shape):
    index = index_of(shape, is_ordered=True)
    places = build_places(index)
    path = build_trajectory(index)
    assert all(places.live[index.node_ids.index(name)] for name in path.node_path)


@given(nodes)
def test_a_step_is_the_ordinal_on_the_path_to_it(shape):
    alone = [(*fields[:3], None, fields[4]) for fields in shape]
    index = index_of(alone, is_ordered=True)
    places = build_places(index)
    for node, name in enumerate(index.node_ids):
        actor = index.actors[index.node_actor[node]]
        path = build_trajectory(index, actor=actor, path=name)
        assert places.steps[node] == len(path.steps)


@given(nodes)
def test_any_shape_has_places_and_branches(shape):
    index = index_of(shape, is_ordered=False)
    places = build_places(index)
    assert sorted(places.order) == list(range(len(index.node_ids)))
    for branch in find_branches(places):
        assert index.actors[index.node_actor[branch.leaf]] == branch.actor
        assert branch.n_own_steps <= branch.n_steps
