from redrive.app.opening import OpenedSession
from redrive.app.survey import Survey, survey_session
from redrive.record.event import (
    FLAG_INHERITED,
    Event,
    Kind,
    ModelResponse,
    Source,
    ToolCall,
    ToolResult,
    dump_payload,
    raw_of,
)
from redrive.record.places import build_places
from redrive.record.session import NO_TS, MemoryReader, build_index
from redrive.stores.port import SessionRow


def test_an_older_revision_is_surveyed_as_itself(recorded, decision):
    store, first = recorded(decision("d1", text="old"), name="a")
    again = {"type": "session", "id": "a"}
    path = [again, decision("d1", text="new"), decision("d2", text="more")]
    _, second = recorded(*path, name="b")
    assert (first.session_id, second.session_id) == ("interchange:a", "interchange:a@2")
    assert len(survey_session(store, first).opened.trajectory().steps) == 1
    assert len(survey_session(store, second).opened.trajectory().steps) == 2


def test_an_event_without_time_goes_with_the_one_before_it(surveyed, decision):
    survey = surveyed(
        decision("d1"),
        decision("d2", ts="1970-01-01T00:00:02Z"),
        decision("d3"),
        decision("d4", ts="1970-01-01T00:00:01Z"),
    )
    index = survey.index
    by_node = {index.node_ids[n]: survey.times[s] for s, n in enumerate(index.event_node) if n >= 0}
    assert by_node == {"d1": NO_TS, "d2": 2 * 10**9, "d3": 2 * 10**9, "d4": 10**9}
    order = [
        index.node_ids[index.event_node[s]]
        for s in survey.chronological(index.seqs_of(Kind.MODEL_RESPONSE))
    ]
    assert order == ["d1", "d4", "d2", "d3"]


def test_calls_of_a_copied_history_have_their_results():
    payloads = [
        ("a", None, ModelResponse("x"), Kind.MODEL_RESPONSE, None, (FLAG_INHERITED,)),
        ("a", None, ToolCall("t"), Kind.TOOL_CALL, "c1", (FLAG_INHERITED,)),
        ("b", "a", ToolResult(result=raw_of(1)), Kind.TOOL_RESULT, "c1", (FLAG_INHERITED,)),
        ("c", "b", ToolCall("t"), Kind.TOOL_CALL, "c2", ()),
        ("d", "c", ToolResult(result=raw_of(2)), Kind.TOOL_RESULT, "c2", ()),
    ]
    events = [
        Event(
            id=f"e{n}",
            session_id="s",
            seq=n,
            kind=kind,
            node_id=node,
            source=Source("", 0, 0),
            payload=dump_payload(payload),
            parent_id=parent,
            call_id=call_id,
            flags=flags,
        )
        for n, (node, parent, payload, kind, call_id, flags) in enumerate(payloads)
    ]
    index = build_index("s", lambda: events)
    row = SessionRow("s", "s", 1, "f", 1, len(events), "")
    opened = OpenedSession(row, index, MemoryReader(events), None, None)
    survey = Survey(opened, build_places(index), [0] * len(events))
    assert survey.pair().answers == {1: 2, 3: 4}
    assert survey.started.tools == {}
    assert survey.payload(3).tool == "t"
