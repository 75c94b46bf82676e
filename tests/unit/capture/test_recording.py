import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec import UNSET, Raw

from redrive.audit.closure import NO_END
from redrive.capture.ports import Outcome, SentRequest
from redrive.errors import StoreError
from redrive.record.event import FLAG_MALFORMED, Event, Kind, payload_of
from tests.recorded import CHAT_URL, Recorded, asks, chat_answer, chat_body, said

USER = said("user", "how many?")
ASK = asks("c1", "look", '{"a": 1}')
ASKED = said("assistant", "", tool_calls=[ASK])
TOLD = said("tool", "7", tool_call_id="c1")


def run_tool(recorded: Recorded, arguments: bytes = b'{"a":1}', tool: str = "look") -> None:
    call = recorded.backend.begin_call(tool, "read_only", Raw(arguments), is_unsafe=False)
    call.returned(Raw(b"7"))


def names(events: list[Event]) -> list[tuple[str, str | None]]:
    return [(event.node_id, event.parent_id) for event in events if event.node_id]


def data_of(event: Event) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.json.decode(payload_of(event).data)
    return found


def test_a_session_whose_every_input_passed_a_seam_is_closed() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("", ASK))
    run_tool(recorded)
    recorded.backend.read(Kind.CLOCK_READ, "time.time", lambda: 1.5)
    recorded.exchange(chat_body(USER, ASKED, TOLD), chat_answer("7"))
    recorded.backend.end("success")
    report = recorded.sink.audit(recorded.started)
    assert report.is_closed
    assert len(report.steps) == 2
    assert not recorded.faults


def test_events_are_dense_and_each_node_hangs_off_the_one_before() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("", ASK))
    run_tool(recorded)
    recorded.backend.end("success")
    events = recorded.sink.events
    assert [event.seq for event in events] == list(range(len(events)))
    assert dict(names(events)[::-1]) == {"u1": None, "x1": "u1", "r1": "x1", "end": "r1"}


def test_a_request_is_handed_over_before_its_answer_has_come() -> None:
    recorded = Recorded()
    recorded.send(chat_body(USER))
    assert [e.kind for e in recorded.sink.events][-1] == Kind.MODEL_REQUEST


def test_the_bytes_of_an_answer_are_an_artefact_that_its_events_point_at() -> None:
    recorded = Recorded()
    answer = chat_answer("7")
    recorded.exchange(chat_body(USER), answer)
    assert recorded.sink.artefacts == [answer]
    (event,) = recorded.sink.of_kind(Kind.MODEL_RESPONSE)
    import hashlib

    assert event.source.artefact == hashlib.sha256(answer).hexdigest()
    assert event.source.length == len(answer)


def test_attempts_of_one_request_are_counted_over_errors() -> None:
    recorded = Recorded()
    for status in (500, 429, 200, 200):
        recorded.exchange(chat_body(USER), chat_answer("7"), status)
    requests = [payload_of(e).wire.attempt for e in recorded.sink.of_kind(Kind.MODEL_REQUEST)]
    assert requests == [1, 2, 3, 1]
    errors = [payload_of(e).status for e in recorded.sink.of_kind(Kind.MODEL_ERROR)]
    assert errors == [500, 429]
    assert len(recorded.sink.audit(recorded.started).steps) == 2


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.CUT])
def test_half_an_answer_keeps_its_bytes_and_says_how_it_ended(outcome: Outcome) -> None:
    recorded = Recorded()
    observer = recorded.send(chat_body(USER))
    observer.responded(200, (), 2)
    observer.received(b"data: {")
    observer.finished(outcome, 3)
    observer.finished(Outcome.COMPLETE, 4)
    (event,) = recorded.sink.of_kind(Kind.MODEL_ERROR)
    assert payload_of(event).wire.outcome == outcome
    assert recorded.sink.artefacts == [b"data: {"]


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.COMPLETE])
def test_an_answer_without_bytes_points_at_no_artefact(outcome: Outcome) -> None:
    recorded = Recorded()
    recorded.send(chat_body(USER)).finished(outcome, 3)
    recorded.send(b"", url="https://api.example/v1/models").finished(outcome, 3)
    assert recorded.sink.artefacts == []
    assert {event.source.artefact for event in recorded.sink.events} == {""}


def test_an_answer_beyond_the_limit_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.capture.wire_recording.MAX_ANSWER_BYTES", 4)
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("7"))
    (event,) = recorded.sink.of_kind(Kind.MODEL_RESPONSE)
    assert payload_of(event).truncated
    assert event.flags == (FLAG_MALFORMED,)
    assert payload_of(event).wire.size == len(chat_answer("7"))


def test_a_result_that_no_seam_saw_is_taken_from_the_request_that_carries_it() -> None:
    recorded = Recorded(by_context=False)
    recorded.exchange(chat_body(USER), chat_answer("", ASK))
    recorded.exchange(chat_body(USER, ASKED, TOLD), chat_answer("7"))
    (event,) = recorded.sink.of_kind(Kind.TOOL_RESULT)
    result = payload_of(event)
    assert (event.call_id, result.seam, bytes(result.result)) == ("c1", "request", b'"7"')
    assert recorded.sink.audit(recorded.started).is_closed


def test_a_result_that_a_seam_saw_is_recorded_once() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("", ASK))
    run_tool(recorded)
    recorded.exchange(chat_body(USER, ASKED, TOLD), chat_answer("7"))
    assert [payload_of(e).seam for e in recorded.sink.of_kind(Kind.TOOL_RESULT)] == ["tool"]


def test_a_call_that_still_runs_is_not_answered_by_a_request() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("", ASK))
    call = recorded.backend.begin_call("look", "pure", Raw(b'{"a":1}'), is_unsafe=False)
    recorded.exchange(chat_body(USER, ASKED, TOLD), chat_answer("7"))
    call.raised("ValueError", "no")
    (event,) = recorded.sink.of_kind(Kind.TOOL_RESULT)
    assert payload_of(event).status == "error"


def test_arguments_that_the_harness_changed_stand_beside_the_result() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("", ASK))
    run_tool(recorded, b'{"a":2}')
    result = payload_of(recorded.sink.of_kind(Kind.TOOL_RESULT)[0])
    assert bytes(result.executed) == b'{"a":2}'


def test_of_two_waiting_calls_the_one_with_the_same_arguments_is_answered() -> None:
    recorded = Recorded()
    other = asks("c2", "look", '{"a": 2}')
    recorded.exchange(chat_body(USER), chat_answer("", ASK, other))
    run_tool(recorded, b'{"a":2}')
    run_tool(recorded, b'{"a":1}')
    assert [e.call_id for e in recorded.sink.of_kind(Kind.TOOL_RESULT)] == ["c2", "c1"]


def test_a_tool_of_an_mcp_server_answers_the_name_that_the_client_gave_it() -> None:
    recorded = Recorded()
    call = asks("c1", "mcp__files__look", '{"a": 1}')
    recorded.exchange(chat_body(USER), chat_answer("", call))
    run_tool(recorded)
    assert [e.call_id for e in recorded.sink.of_kind(Kind.TOOL_RESULT)] == ["c1"]


def test_a_run_that_no_model_asked_for_is_the_harness_own() -> None:
    recorded = Recorded()
    run_tool(recorded)
    call, result = (data_of(event) for event in recorded.sink.of_kind(Kind.CUSTOM))
    assert (call["tool"], call["arguments"], call["effect"]) == ("look", {"a": 1}, "read_only")
    assert (result["call"], result["status"], result["result"]) == (call["call"], "ok", 7)


def test_an_unsafe_run_is_durable_before_it_begins() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("", ASK))
    recorded.backend.begin_call("look", "unsafe", Raw(b'{"a":1}'), is_unsafe=True)
    assert recorded.sink.n_flushed == len(recorded.sink.events)
    intent = payload_of(recorded.sink.events[-1])
    assert intent.name == "tool.intent"


def test_a_result_without_a_json_form_is_missing_by_name() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("", ASK))
    call = recorded.backend.begin_call("look", "pure", Raw(b'{"a":1}'), is_unsafe=False)
    call.returned_unknown("Decimal")
    report = recorded.sink.audit(recorded.started)
    assert [gap.what for gap in report.steps[0].missing] == ["tool_result:c1"]
    assert data_of(recorded.sink.of_kind(Kind.CUSTOM)[0])["unrepresentable"] == "Decimal"
    harness = recorded.backend.begin_call("other", "pure", Raw(b"{}"), is_unsafe=False)
    harness.returned_unknown("Decimal")
    assert "result" not in data_of(recorded.sink.of_kind(Kind.CUSTOM)[-1])


def test_what_the_harness_got_without_a_json_form_opens_the_step_that_it_reaches() -> None:
    recorded = Recorded()
    call = recorded.backend.begin_call("look", "pure", Raw(b"{}"), is_unsafe=False)
    call.returned_unknown("tuple")
    recorded.backend.derive("sum", "f", "1", Raw(b"[]"), lambda: UNSET)
    recorded.exchange(chat_body(USER), chat_answer("7"))
    (step,) = recorded.sink.audit(recorded.started).steps
    assert {(gap.input_class, gap.what) for gap in step.missing} == {
        ("environment", "custom c2"),
        ("environment", "value.derived v1"),
    }


def test_what_a_tool_itself_got_without_a_json_form_opens_nothing() -> None:
    recorded = Recorded()
    outer = recorded.backend.begin_call("outer", "pure", Raw(b"{}"), is_unsafe=False)
    inner = recorded.backend.begin_call("inner", "pure", Raw(b"{}"), is_unsafe=False)
    inner.returned_unknown("tuple")
    outer.returned(Raw(b"7"))
    recorded.exchange(chat_body(USER), chat_answer("7"))
    assert recorded.sink.audit(recorded.started).is_closed


def test_tools_that_run_in_a_pool_of_threads_answer_the_flow_that_asked() -> None:
    recorded = Recorded()
    calls = [asks(f"c{n}", "look", f'{{"a": {n}}}') for n in range(3)]
    recorded.exchange(chat_body(USER), chat_answer("", *calls))

    def work(number: int) -> None:
        call = recorded.backend.begin_call(
            "look", "pure", Raw(b'{"a":%d}' % number), is_unsafe=False
        )
        recorded.backend.read(Kind.CLOCK_READ, "time.time", lambda: number)
        call.returned(Raw(b"0"))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    results = recorded.sink.of_kind(Kind.TOOL_RESULT)
    assert {event.actor for event in results} == {"main"}
    assert {event.actor for event in recorded.sink.of_kind(Kind.CLOCK_READ)} == {"main"}
    assert sorted(event.call_id or "" for event in results) == ["c0", "c1", "c2"]


def test_three_agents_in_threads_are_three_closed_flows() -> None:
    recorded = Recorded()
    barrier = threading.Barrier(3)

    def agent(name: str) -> None:
        user = said("user", name)
        recorded.backend.read(Kind.PRNG_READ, "random.random", lambda: 0.5)
        barrier.wait()
        recorded.exchange(chat_body(user), chat_answer("", asks(name, "look", '{"a": 1}')))
        barrier.wait()
        run_tool(recorded)
        told = said("tool", "7", tool_call_id=name)
        recorded.exchange(chat_body(user, ASKED, told), chat_answer(name))

    threads = [threading.Thread(target=agent, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for actor in ("main", "flow-2", "flow-3"):
        report = recorded.sink.audit(recorded.started, actor)
        assert report.is_closed
        assert len(report.steps) == 2
    reads = recorded.sink.of_kind(Kind.PRNG_READ)
    assert sorted(event.actor for event in reads) == ["flow-2", "flow-3", "main"]


@pytest.mark.parametrize(("count", "end"), [(2, "f1, f2"), (11, "f8, f9, f10 and 1 more")])
def test_an_audit_names_the_flows_that_it_says_nothing_of(count: int, end: str) -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("7"))
    for number in range(1, count + 1):
        token = recorded.backend.enter_flow(f"f{number}")
        recorded.exchange(chat_body(said("user", f"sub {number}")), chat_answer("8"))
        recorded.backend.leave_flow(token)
    recorded.backend.end(None)
    note = recorded.sink.audit(recorded.started).notes[-1]
    assert note.startswith("flows audited by themselves, with --actor: f1")
    assert note.endswith(end)
    assert "main" in recorded.sink.audit(recorded.started, actor="f1").notes[-1]


def test_at_a_proxy_a_request_that_repeats_older_words_goes_back_to_them() -> None:
    recorded = Recorded(by_context=False)
    first, second = said("assistant", "one"), said("assistant", "two")
    more, other = said("user", "more"), said("user", "other")
    recorded.exchange(chat_body(USER), chat_answer("one"))
    recorded.exchange(chat_body(USER, first, more), chat_answer("two"))
    recorded.exchange(chat_body(USER, first, more, second, more), chat_answer("three"))
    recorded.exchange(chat_body(USER, first, other), chat_answer("four"))
    recorded.exchange(chat_body(USER, first, other), chat_answer("five"))
    parents = dict(names(recorded.sink.of_kind(Kind.MODEL_REQUEST)))
    assert parents == {"x1": "u1", "x2": "u2", "x3": "u3", "x4": "u4", "x5": "x4"}
    assert dict(names(recorded.sink.events))["u4"] == "x1"


def test_words_that_were_never_said_before_go_on_where_the_flow_is() -> None:
    recorded = Recorded(by_context=False)
    for text in ("a", "b", "c"):
        recorded.exchange(chat_body(said("user", text)), chat_answer(text))
    parents = dict(names(recorded.sink.of_kind(Kind.MODEL_REQUEST)))
    assert parents == {"x1": "u1", "x2": "x1", "x3": "x2"}


def test_another_server_is_kept_with_both_bodies_and_is_no_decision() -> None:
    recorded = Recorded()
    recorded.exchange(b'{"input": "x"}', b'{"data": []}', url="https://u:p@a/v1/embeddings?k=1")
    (event,) = recorded.sink.of_kind(Kind.CUSTOM)
    assert data_of(event)["url"] == "https://a/v1/embeddings?k=…"
    assert recorded.sink.artefacts == [b'{"input": "x"}', b'{"data": []}']
    assert recorded.backend.n_exchanges == 1
    recorded.backend.sent(SentRequest("GET", "https://a/", (), b"", 1)).finished(
        Outcome.FAILED, 2, "ConnectError"
    )
    assert recorded.sink.events[-1].source.artefact == ""


def test_a_model_request_that_is_no_text_is_kept_as_bytes() -> None:
    recorded = Recorded()
    recorded.exchange(b"\xff\xfe", chat_answer("x"))
    assert [payload_of(e).name for e in recorded.sink.of_kind(Kind.CUSTOM)] == ["http.exchange"]


def test_a_named_flow_is_an_actor_of_its_own() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("1"))
    token = recorded.backend.enter_flow("planner")
    recorded.exchange(chat_body(said("user", "plan")), chat_answer("2"))
    recorded.backend.leave_flow(token)
    recorded.exchange(chat_body(USER, said("assistant", "1"), USER), chat_answer("3"))
    actors = [event.actor for event in recorded.sink.of_kind(Kind.MODEL_REQUEST)]
    assert actors == ["main", "planner", "main"]
    assert len(recorded.sink.audit(recorded.started).steps) == 2


def test_ids_and_names_that_utf_8_cannot_carry_are_recorded_in_a_form_that_it_can() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("", asks("c\udfff", "look", '{"a": 1}')))
    run_tool(recorded)
    token = recorded.backend.enter_flow("sub\ud800")
    recorded.exchange(chat_body(said("user", "sub")), chat_answer("8"))
    recorded.backend.leave_flow(token)
    call, result = [event for event in recorded.sink.events if event.call_id is not None]
    assert call.call_id == result.call_id == "\ufffdc\\udfff"
    assert {event.actor for event in recorded.sink.events} == {"main", "\ufffdsub\\ud800"}
    assert not recorded.faults


def test_a_derived_value_has_its_ordered_inputs_and_reaches_the_agent() -> None:
    recorded = Recorded()
    value = recorded.backend.derive("mean", "m.mean", "1", Raw(b"[0.1,0.2]"), lambda: 0.3)
    assert value == 0.3
    derived = payload_of(recorded.sink.of_kind(Kind.VALUE_DERIVED)[0])
    assert (derived.function, bytes(derived.inputs), bytes(derived.value)) == (
        "m.mean",
        b"[0.1,0.2]",
        b"0.3",
    )


def test_notes_and_events_of_other_seams_are_kept_in_the_flow() -> None:
    recorded = Recorded()
    recorded.backend.note("mcp.listing", {"n": 1})
    from redrive.record.event import ToolPermission

    recorded.backend.add_event(Kind.TOOL_PERMISSION, ToolPermission("allowed"), "c1")
    assert [e.kind for e in recorded.sink.events][1:] == [Kind.CUSTOM, Kind.TOOL_PERMISSION]


def test_a_session_ends_once() -> None:
    recorded = Recorded()
    recorded.backend.end("success")
    recorded.backend.end("failure")
    assert len(recorded.sink.of_kind(Kind.SESSION_ENDED)) == 1


def test_a_fault_of_the_recorder_never_reaches_the_agent_and_is_told_once() -> None:
    recorded = Recorded()
    recorded.sink.error = RuntimeError("broken")
    assert recorded.backend.read(Kind.CLOCK_READ, "time.time", lambda: 1.5) == 1.5
    recorded.exchange(chat_body(USER), chat_answer("7"))
    run_tool(recorded)
    recorded.backend.leave_flow(recorded.backend.enter_flow("x"))
    recorded.backend.leave_flow(None)
    assert recorded.faults == ["not recorded: RuntimeError: broken"]
    assert recorded.backend.fault == recorded.faults[0]


def test_a_sink_that_is_fail_closed_stops_the_agent() -> None:
    recorded = Recorded()
    recorded.sink.error = StoreError("the disk is full")
    with pytest.raises(StoreError, match="the disk is full"):
        recorded.send(chat_body(USER), CHAT_URL)


def test_tools_that_are_declared_before_anything_happens_stand_in_the_first_event() -> None:
    recorded = Recorded()
    recorded.backend.declare_tool("look", "read_only")
    assert recorded.sink.events == []
    recorded.exchange(chat_body(USER), chat_answer("7"))
    recorded.backend.end(None)
    (event,) = recorded.sink.of_kind(Kind.SESSION_STARTED)
    assert (event.seq, payload_of(event).tools) == (0, {"look": "read_only"})


def test_a_recording_without_an_end_is_noted_by_the_audit() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("7"))
    assert NO_END in recorded.sink.audit(recorded.started).notes
    recorded.backend.end(None)
    assert NO_END not in recorded.sink.audit(recorded.started).notes


def test_tools_that_are_declared_later_supersede_it_at_the_end() -> None:
    recorded = Recorded()
    recorded.exchange(chat_body(USER), chat_answer("7"))
    recorded.backend.declare_tool("look", "read_only")
    recorded.backend.end(None)
    first, second = recorded.sink.of_kind(Kind.SESSION_STARTED)
    assert (first.id, second.id, second.supersedes) == ("started", "started~2", "started")
    assert payload_of(second).tools == {"look": "read_only"}
    assert payload_of(second).captures == payload_of(first).captures


def test_bytes_that_are_kept_are_an_artefact_with_a_fact_that_points_at_it() -> None:
    recorded = Recorded()
    digest = recorded.backend.keep("trial.workspace", {"files": 1}, b"tar")
    event = recorded.sink.events[-1]
    assert digest == hashlib.sha256(b"tar").hexdigest()
    assert (event.source.artefact, event.source.length) == (digest, 3)
    assert data_of(event) == {"files": 1}
