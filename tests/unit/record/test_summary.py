import pytest

from redrive.record.event import (
    Damage,
    Event,
    Kind,
    ModelResponse,
    Note,
    SessionEnded,
    SessionStarted,
    Source,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
    dump_payload,
    raw_of,
)
from redrive.record.opening import Opening
from redrive.record.session import MemoryReader, build_index
from redrive.record.summary import (
    UsageFold,
    count_session,
    larger_usage,
    main_actor,
    pair_session,
    parse_cost,
    summarize,
)


def session_of(*rows):
    """Events from (node, parent, kind, payload, fields) rows."""
    events = []
    for node, parent, kind, payload, fields in rows:
        events.append(
            Event(
                id=f"{node}/{len(events)}",
                session_id="s",
                seq=len(events),
                kind=kind,
                node_id=node,
                source=Source("", 0, 0),
                payload=dump_payload(payload),
                parent_id=parent,
                **fields,
            )
        )
    return events


def decision(node, parent, *calls, usage=None, **fields):
    yield node, parent, Kind.MODEL_RESPONSE, ModelResponse(usage=usage), fields
    for call in calls:
        yield node, parent, Kind.TOOL_CALL, ToolCall("t"), fields | {"call_id": call}


def result(node, parent, call, value="ok", **fields):
    payload = ToolResult(result=raw_of(value))
    return node, parent, Kind.TOOL_RESULT, payload, fields | {"call_id": call}


def summary_of(events):
    usage = UsageFold()
    for event in events:
        usage.add(event)
    return summarize(build_index("s", lambda: events), MemoryReader(events), usage.total())


def test_own_events_are_counted_and_inherited_ones_beside_them():
    events = session_of(
        ("", None, Kind.SESSION_STARTED, SessionStarted(), {}),
        ("u", None, Kind.USER_MESSAGE, UserMessage("hi"), {"flags": ("inherited",)}),
        *decision("a", "u", "A", flags=("inherited",)),
        result("r", "a", "A", flags=("inherited",)),
        *decision("b", "r", "B"),
        result("rb", "b", "B"),
        ("e", "rb", Kind.SESSION_ENDED, SessionEnded("success"), {}),
    )
    counted = summary_of(events)
    assert (counted.events, counted.inherited) == (5, 4)
    assert (counted.model_calls, counted.tool_calls, counted.tool_results) == (1, 1, 1)
    assert counted.complete
    assert (counted.head_node, counted.roots, counted.leaves) == ("e", 1, 1)
    assert counted.usage is None


def test_orphans_conflicts_and_duplicates_are_named_once():
    events = session_of(
        *decision("a", None, "A", "B", "C"),
        result("r1", "a", "A", 1),
        result("r2", "r1", "A", 1),
        result("r3", "r2", "B", 1),
        result("r4", "r3", "B", 2),
        result("r5", "r4", "GONE"),
        result("r6", "r5", None),
    )
    counted = summary_of(events)
    assert counted.orphan_call_ids == ("B", "C")
    assert counted.orphan_result_ids == ("GONE", "")
    assert counted.conflicting_call_ids == ("B",)
    assert counted.duplicate_result_ids == ("A",)
    assert (counted.tool_calls, counted.tool_results) == (3, 5)
    assert not counted.complete


def test_a_result_of_an_earlier_conversation_is_external_and_no_orphan():
    payload = ToolResult(result=raw_of(1), is_external=True)
    events = session_of(
        ("r", None, Kind.TOOL_RESULT, payload, {"call_id": "EARLIER"}), *decision("a", "r")
    )
    counted = summary_of(events)
    assert (counted.external_result_ids, counted.orphan_result_ids) == (("EARLIER",), ())
    assert counted.complete


def test_a_result_finds_its_call_on_any_branch_and_past_later_decisions():
    events = session_of(
        ("u", None, Kind.USER_MESSAGE, UserMessage("go"), {}),
        *decision("a", "u", "A"),
        *decision("b", "a", "B"),
        result("rb", "b", "B"),
        result("ra", "rb", "A"),
        *decision("c", "u", "A"),
        ("n", "c", Kind.NOTE, Note("n"), {}),
        result("rc", "n", "A"),
    )
    index = build_index("s", lambda: events)
    assert pair_session(index, MemoryReader(events)).answers == {2: 6, 4: 5, 8: 10}
    counted = summary_of(events)
    assert counted.branches == 2
    assert counted.discarded == ("a", "b", "rb", "ra")
    assert counted.active_path == ("u", "c", "n", "rc")


def test_a_session_without_links_pairs_in_time_order():
    events = session_of(
        *decision("b", None, "X", ts_ns=3),
        result("rb", None, "X", 2, ts_ns=4),
        *decision("a", None, "X", ts_ns=1),
        result("ra", None, "X", 1, ts_ns=2),
        result("r0", None, "X", 0, ts_ns=0),
    )
    index = build_index("s", lambda: events)
    pairing = pair_session(index, MemoryReader(events))
    assert (pairing.answers, pairing.orphans) == ({1: 2, 4: 5}, (6,))
    assert summary_of(events).leaves == 1


def test_damage_breaks_and_cycles_make_a_record_incomplete():
    damaged = session_of(*decision("a", None), ("", None, Kind.DAMAGE, Damage(1, 0, 3, "torn"), {}))
    assert not summary_of(damaged).complete
    broken = summary_of(session_of(*decision("a", "gone")))
    assert (broken.complete, broken.broken) == (False, "broken_chain")
    cycle = session_of(result("r", "q", "A"), ("q", "r", Kind.NOTE, Note("n"), {}))
    assert summary_of(cycle).orphan_result_ids == ("A",)
    loop = session_of(*decision("a", "b", "A"), *decision("b", "a"), result("r", "b", "Z"))
    assert summary_of(loop).orphan_result_ids == ("Z",)


def test_a_session_of_nothing_or_of_one_sub_agent_has_no_main_path():
    empty = summary_of([])
    assert (empty.head_node, empty.active_path, empty.leaves) == (None, (), 0)
    alone = session_of(*decision("a", None, actor="ag"))
    assert summary_of(alone).head_node is None
    assert main_actor(build_index("s", lambda: alone)) == "ag"
    assert main_actor(build_index("s", list)) == "main"


def test_usage_counts_each_decision_once_with_its_final_numbers():
    events = session_of(
        *decision("a1", None, usage=Usage(input_tokens=5, output_tokens=1), group="m"),
        *decision("a2", "a1", usage=Usage(input_tokens=5, output_tokens=9), group="m"),
        *decision("b", "a2", usage=Usage(output_tokens=2, cost_usd="0.10")),
        *decision("c", "b", usage=Usage(cost_usd="0.2")),
        *decision("d", "c", usage=Usage(cost_usd="NaN")),
        *decision("x", "d", usage=Usage(output_tokens=100), flags=("inherited",)),
        *decision("y", "x"),
        *decision("z", "y", usage=Usage(cost_usd="dear")),
    )
    usage = summary_of(events).usage
    assert usage == Usage(input_tokens=5, output_tokens=11, cost_usd="0.30")
    assert larger_usage(Usage(output_tokens=3), Usage()) == Usage(output_tokens=3)
    assert parse_cost("1e2") == 100


def test_usage_needs_memory_for_64_decisions_only():
    fold = UsageFold()
    rows = [r for n in range(200) for r in decision(f"n{n}", None, usage=Usage(output_tokens=1))]
    for event in session_of(*rows):
        fold.add(event)
    assert fold.total() == Usage(output_tokens=200)


@pytest.mark.parametrize("actor", ["main", "sub"])
def test_a_ring_of_parents_on_or_off_the_head_path_is_broken(actor):
    events = session_of(
        *decision("a", None),
        *decision("x", "z", actor=actor),
        *decision("y", "x", actor=actor),
        *decision("z", "y", actor=actor),
    )
    counted = summary_of(events)
    assert (counted.broken, counted.complete) == ("cycle", False)


def test_a_missing_parent_anywhere_is_broken():
    counted = summary_of(session_of(*decision("x", "gone", actor="sub"), *decision("a", None)))
    assert (counted.broken, counted.complete) == ("broken_chain", False)


def test_a_summary_says_what_a_list_shows():
    started = SessionStarted(agent="a", agent_version="1", cwd="/", git="g", parent_session="p")
    user = UserMessage("first\nsecond")
    events = session_of(
        ("", None, Kind.SESSION_STARTED, SessionStarted(agent="sub"), {"actor": "sub"}),
        ("", None, Kind.SESSION_STARTED, started, {}),
        ("s", None, Kind.USER_MESSAGE, UserMessage("be kind", role="system"), {}),
        ("m", None, Kind.USER_MESSAGE, UserMessage("note"), {"flags": ("meta",)}),
        ("p", None, Kind.USER_MESSAGE, UserMessage("prompt"), {"actor": "sub"}),
        ("e", None, Kind.USER_MESSAGE, UserMessage(" "), {}),
        ("u", None, Kind.USER_MESSAGE, user, {}),
    )
    assert summary_of(events).opening == Opening("first", "a", "1", "/", "g", "p")
    assert summary_of(events[:5]).opening.task == "prompt"
    stated = session_of(("", None, Kind.SESSION_STARTED, SessionStarted(task="x" * 300), {}))
    assert summary_of(stated).opening.task == "x" * 200 + "…"
    assert summary_of(session_of(*decision("a", None))).opening == Opening()


def test_a_session_is_counted_from_its_events_in_as_few_passes_as_can_be():
    usage = {"usage": Usage(input_tokens=2)}
    events = session_of(
        ("a", None, Kind.MODEL_RESPONSE, ModelResponse(**usage), {}),
        ("b", "a", Kind.MODEL_RESPONSE, ModelResponse(**usage), {}),
    )
    passes = []

    def read():
        passes.append(1)
        return iter(events)

    counted = count_session("s", read, MemoryReader(events))
    assert counted == summarize(build_index("s", read), MemoryReader(events), counted.usage)
    assert counted.usage == Usage(input_tokens=4)
    assert len(passes) == 1 + 1

    events += session_of(("b", "a", Kind.NOTE, Note("gone"), {"supersedes": events[1].id}))
    events[2] = Event(
        **{n: getattr(events[2], n) for n in events[2].__struct_fields__} | {"seq": 2}
    )
    passes.clear()
    assert count_session("s", read, MemoryReader(events)).model_calls == 1
    assert len(passes) == 3
