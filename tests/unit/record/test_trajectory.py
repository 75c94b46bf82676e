import pytest

from redrive.errors import UsageError
from redrive.record.branches import count_branches
from redrive.record.event import (
    Event,
    Kind,
    ModelRequest,
    ModelResponse,
    Note,
    Read,
    SessionEnded,
    Source,
    ToolCall,
    ToolPermission,
    ToolResult,
    UserMessage,
    dump_payload,
    raw_of,
)
from redrive.record.pairing import pair_path
from redrive.record.places import build_places
from redrive.record.session import MemoryReader, build_index
from redrive.record.trajectory import PathBreak, build_trajectory, find_head

PAYLOADS = {
    Kind.USER_MESSAGE: UserMessage("hi"),
    Kind.MODEL_REQUEST: ModelRequest(),
    Kind.MODEL_RESPONSE: ModelResponse("ok"),
    Kind.TOOL_CALL: ToolCall("t"),
    Kind.TOOL_RESULT: ToolResult(),
    Kind.TOOL_PERMISSION: ToolPermission("denied"),
    Kind.PRNG_READ: Read("jitter"),
    Kind.NOTE: Note("n"),
    Kind.SESSION_ENDED: SessionEnded("success"),
}


class Builder:
    """Writes events down in the order they are added."""

    def __init__(self):
        self.events = []

    def add(self, node, kind, parent=None, payload=None, **fields):
        number = sum(event.node_id == node for event in self.events)
        self.events.append(
            Event(
                id=f"{node}/{number}",
                session_id="s",
                seq=len(self.events),
                kind=kind,
                node_id=node,
                source=Source("", 0, 0),
                payload=dump_payload(payload or PAYLOADS[kind]),
                parent_id=parent,
                **fields,
            )
        )
        return self

    def user(self, node, parent=None, **fields):
        return self.add(node, Kind.USER_MESSAGE, parent, **fields)

    def decide(self, node, parent=None, *calls, **fields):
        self.add(node, Kind.MODEL_RESPONSE, parent, **fields)
        for call in calls:
            self.add(node, Kind.TOOL_CALL, parent, call_id=call, **fields)
        return self

    def result(self, node, parent, call, value="ok", **fields):
        payload = ToolResult(result=raw_of(value))
        return self.add(node, Kind.TOOL_RESULT, parent, payload, call_id=call, **fields)

    @property
    def index(self):
        return build_index("s", lambda: self.events)

    @property
    def reader(self):
        return MemoryReader(self.events)

    def path(self, **fields):
        return build_trajectory(self.index, **fields)

    def pairing(self, **fields):
        return pair_path(self.index, self.path(**fields), self.reader)


def test_parallel_results_off_the_spine_belong_to_their_decision():
    session = (
        Builder()
        .user("u", ts_ns=1)
        .decide("a1", "u", group="m1", ts_ns=2)
        .decide("a2", "a1", "A", group="m1", ts_ns=3)
        .result("r1", "a2", "A", ts_ns=4)
        .decide("a3", "a2", "B", group="m1", ts_ns=5)
        .result("r2", "a3", "B", ts_ns=6)
        .decide("b", "r2", group="m2", ts_ns=7)
    )
    path = session.path()
    assert path.node_path == ("u", "a1", "a2", "r1", "a3", "r2", "b")
    assert [step.node_ids for step in path.steps] == [("a1", "a2", "a3"), ("b",)]
    assert len(session.pairing().answers) == 2
    assert count_branches(build_places(session.index)) == 1


def test_blocks_of_one_answer_that_hang_beside_the_path_are_part_of_it():
    session = (
        Builder()
        .decide("a1", None, "A", group="m1", ts_ns=1)
        .decide("a2", "a1", "B", group="m1", ts_ns=2)
        .result("r2", "a2", "B", ts_ns=3)
        .add("p", Kind.NOTE, "r2", ts_ns=3)
        .add("x", Kind.TOOL_PERMISSION, "p", ts_ns=3, call_id="B")
        .result("r1", "a1", "A", ts_ns=4)
        .decide("b", "r1", group="m2", ts_ns=9)
    )
    path = session.path()
    assert path.steps[0].node_ids == ("a1", "a2")
    assert path.node_path == ("a1", "a2", "r2", "x", "r1", "b")
    pairing = session.pairing()
    assert (len(pairing.answers), pairing.unanswered, pairing.orphans) == (2, (), ())
    assert len(path.steps[0].attached) == 1


def test_a_rewind_leaves_the_other_branch_off_the_path():
    session = (
        Builder()
        .user("u", ts_ns=1)
        .decide("a", "u", "A", ts_ns=2)
        .result("ra", "a", "A", ts_ns=3)
        .user("v", "u", ts_ns=4)
        .user("w", "u", ts_ns=5, flags=("meta",))
        .decide("b", "v", "B", ts_ns=6)
        .result("rb", "b", "B", ts_ns=7)
    )
    assert session.path().node_path == ("u", "v", "b", "rb")
    assert session.path(path="ra").node_path == ("u", "a", "ra")
    assert count_branches(build_places(session.index)) == 2


def test_repeated_ids_are_answered_by_the_nearest_decision_in_call_order():
    session = (
        Builder()
        .decide("a", None, "X", "X")
        .result("r1", "a", "X", 1)
        .result("r2", "r1", "X", 2)
        .decide("b", "r2", "X")
        .result("r3", "b", "X", 3)
    )
    assert session.pairing().answers == {1: 3, 2: 4, 6: 7}


def test_equal_results_are_one_and_different_ones_conflict():
    same = Builder().decide("a", None, "X").result("r1", "a", "X", 1).result("r2", "r1", "X", 1)
    assert (same.pairing().answers, same.pairing().duplicates) == ({1: 2}, (3,))
    differ = Builder().decide("a", None, "X").result("r1", "a", "X", 1).result("r2", "r1", "X", 2)
    pairing = differ.pairing()
    assert (pairing.answers, pairing.conflicts, pairing.unanswered) == ({}, {1: (2, 3)}, (1,))


def test_results_without_a_call_are_orphans_and_calls_without_an_id_are_not_paired():
    session = (
        Builder()
        .result("r0", None, "GONE")
        .decide("a", "r0", None)
        .result("r1", "a", None)
        .result("r2", "r1", "OTHER")
    )
    pairing = session.pairing()
    assert (pairing.answers, pairing.unanswered, pairing.orphans) == ({}, (2,), (0, 3, 4))


def test_a_session_without_links_is_one_path_in_time_order():
    session = (
        Builder()
        .decide("b", None, "B", ts_ns=5)
        .result("rb", None, "B")
        .decide("a", None, "A", ts_ns=1)
        .result("ra", None, "A", ts_ns=2)
        .user("z", None, actor="sub", ts_ns=3)
    )
    path = session.path()
    assert path.node_path == ("a", "ra", "b", "rb")
    assert session.path(path="ra").node_path == ("a", "ra")
    assert [len(step.results) for step in path.steps] == [1, 1]
    assert session.path(actor="sub").steps == ()


def test_a_broken_chain_and_a_cycle_are_named():
    broken = Builder().decide("b", "gone").decide("c", "b")
    assert broken.path().breaks == PathBreak("broken_chain", "b", "gone")
    cycle = Builder().decide("a", "b").decide("b", "a")
    assert cycle.path(path="a").breaks == PathBreak("cycle", "b", "a")
    own = Builder().decide("a", "a").decide("b", "a")
    assert own.path().breaks == PathBreak("cycle", "a", "a")
    assert find_head(cycle.index) is not None


def test_a_child_may_come_before_its_parent():
    session = Builder().decide("b", "a", ts_ns=2).decide("a", None, ts_ns=1)
    assert session.path().node_path == ("a", "b")
    assert session.path().breaks is None


def test_a_sub_agent_ends_at_its_parent_and_the_main_path_passes_over_it():
    session = (
        Builder()
        .decide("a", None, "T", ts_ns=1)
        .user("s1", "a", actor="ag", ts_ns=2)
        .decide("s2", "s1", actor="ag", ts_ns=3)
        .result("r", "s2", "T", ts_ns=4)
        .decide("b", "r", ts_ns=5)
    )
    assert session.path(actor="ag").node_path == ("s1", "s2")
    assert session.path().node_path == ("a", "r", "b")


def test_requests_reads_and_messages_stand_at_their_step():
    session = (
        Builder()
        .user("u")
        .add("q", Kind.MODEL_REQUEST, "u")
        .decide("a", "q", "A")
        .result("r", "a", "A")
        .add("p", Kind.PRNG_READ, "r")
        .add("a2", Kind.MODEL_REQUEST, "p")
        .decide("a2", "p")
        .add("e", Kind.SESSION_ENDED, "a2")
    )
    first, second = session.path().steps
    assert (first.request, first.before, first.attached) == (1, (0,), (5,))
    assert (second.request, second.before) == (6, ())
    assert session.path().after == (8,)
    kinds = [event.kind for event in session.reader.read_events(first.seqs())]
    assert kinds[:2] == [Kind.USER_MESSAGE, Kind.MODEL_REQUEST]


def test_a_prefix_is_a_trajectory():
    session = Builder().decide("a").decide("b", "a").add("e", Kind.SESSION_ENDED, "b")
    assert len(session.path().prefix(1).steps) == 1
    assert session.path().prefix(1).after == ()
    assert session.path().prefix(2) == session.path()


def test_a_later_event_replaces_the_one_it_supersedes():
    session = Builder().decide("a").decide("b", None, "X").decide("b", "a", "X", supersedes="b/0")
    session.events[-1] = session.events[-1].__class__(
        **{
            name: getattr(session.events[-1], name)
            for name in session.events[-1].__struct_fields__
            if name != "supersedes"
        },
        supersedes="b/1",
    )
    path = session.path()
    assert path.node_path == ("a", "b")
    assert len(path.steps[-1].calls) == 1
    assert len(session.index) == 5


def test_what_is_not_there_is_a_usage_error():
    session = Builder().user("u", actor="ag")
    with pytest.raises(UsageError, match="no actor 'nobody'"):
        session.path(actor="nobody")
    with pytest.raises(UsageError, match="no node 'x'"):
        session.path(path="x")
    with pytest.raises(UsageError, match="belongs to actor 'ag'"):
        session.path(path="u")
    assert session.path().steps == ()
    assert session.index.actor_number("nobody") is None


def test_a_piece_of_a_decision_without_a_link_to_the_path_stands_beside_its_decision():
    log = Builder()
    log.add("piece", Kind.MODEL_RESPONSE, group="g")
    log.add("below", Kind.TOOL_RESULT, "piece", call_id="a")
    log.add("first", Kind.MODEL_RESPONSE, group="f")
    log.add("last", Kind.TOOL_CALL, "first", group="g", call_id="a")
    log.add("user", Kind.USER_MESSAGE, "last")
    path = log.path(path="user")
    assert path.node_path == ("first", "last", "piece", "below", "user")


def test_pieces_of_a_decision_that_are_their_own_ancestors_do_not_stop_the_walk():
    log = Builder()
    log.add("one", Kind.MODEL_RESPONSE, "two", group="g")
    log.add("two", Kind.NOTE, "one")
    log.add("last", Kind.TOOL_CALL, group="g")
    log.add("user", Kind.USER_MESSAGE, "last")
    path = log.path(path="user")
    assert path.node_path[0] == "last"
    assert set(path.node_path) >= {"last", "user", "one"}
