"""What a rerun serves, read from events in the layout of our recorder, and from odd ones."""

from typing import Any

import pytest
from msgspec import UNSET, Raw

from redrive.record.event import (
    FLAG_WITHIN_CALL,
    Custom,
    Derived,
    Event,
    Kind,
    ModelError,
    ModelRequest,
    ModelResponse,
    Payload,
    Read,
    Redaction,
    SessionEnded,
    Source,
    ToolCall,
    ToolResult,
    Wire,
    dump_payload,
    raw_of,
)
from redrive.record.session import MemoryReader, build_index
from redrive.replay.rerun_bytes import path_of, without_added
from redrive.replay.rerun_items import Ending, Lack, RecordedFlow, RerunRecord
from redrive.replay.rerun_record import find_seamless, read_rerun

HERE = Source("", 0, 0)
_KINDS = {
    ModelRequest: Kind.MODEL_REQUEST,
    ModelResponse: Kind.MODEL_RESPONSE,
    ModelError: Kind.MODEL_ERROR,
    ToolCall: Kind.TOOL_CALL,
    ToolResult: Kind.TOOL_RESULT,
    Read: Kind.CLOCK_READ,
    Derived: Kind.VALUE_DERIVED,
    Custom: Kind.CUSTOM,
    SessionEnded: Kind.SESSION_ENDED,
}
MASKED = (Redaction("/", "key"),)


class Script:
    """Events in order; each in its own node unless one is named."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def add(self, payload: Payload, node: str | None = None, **fields: Any) -> "Script":
        seq = len(self.events)
        node = node or f"n{seq}"
        event = Event(
            id=f"e{seq}",
            session_id="redrive:s",
            seq=seq,
            kind=fields.pop("kind", _KINDS[type(payload)]),
            node_id=node,
            source=fields.pop("source", HERE),
            payload=dump_payload(payload),
            **fields,
        )
        self.events.append(event)
        return self

    def exchange(self, node: str, answer: Payload | None = None, **request: Any) -> "Script":
        wire = Wire(node, endpoint="POST https://api.example/v1/chat/completions")
        self.add(ModelRequest(body="{}", **{"wire": wire} | request), node)
        return self if answer is None else self.add(answer, node)

    def read(self) -> RerunRecord:
        index = build_index("redrive:s", lambda: iter(self.events))
        return read_rerun(index, MemoryReader(self.events))

    def main(self) -> RecordedFlow:
        return self.read().flows["main"]

    def seamless(self) -> tuple[str, ...]:
        index = build_index("redrive:s", lambda: iter(self.events))
        return find_seamless(index, MemoryReader(self.events))


@pytest.mark.parametrize(
    ("answer", "ending", "status"),
    [
        (ModelResponse(), Ending.COMPLETE, 200),
        (ModelError(status=429), Ending.COMPLETE, 429),
        (ModelError(message="no route"), Ending.FAILED, None),
        (ModelError(wire=Wire("x1", status=200, outcome="cut")), Ending.CUT, 200),
        (ModelError(wire=Wire("x1", outcome="cancelled")), Ending.CANCELLED, None),
        (None, Ending.UNANSWERED, None),
    ],
)
def test_an_exchange_ended_as_its_answer_says(answer, ending, status):
    (exchange,) = Script().exchange("x1", answer).main().exchanges
    assert (exchange.ending, exchange.status) == (ending, status)
    assert exchange.lack == (Lack.NO_ANSWER if answer is None else None)


def test_the_first_answer_of_an_exchange_counts_and_one_without_a_request_is_none():
    script = Script().exchange("x1", ModelError(status=500)).add(ModelResponse(), "x1")
    script.add(ModelResponse(), "stray")
    (exchange,) = script.main().exchanges
    assert exchange.status == 500


def test_a_request_without_wire_or_body_is_a_post_of_nothing():
    (exchange,) = Script().add(ModelRequest(), "x1").main().exchanges
    assert (exchange.method, exchange.path) == ("POST", "/")


def test_masked_and_cut_answers_cannot_be_served():
    masked = ModelResponse(redactions=MASKED)
    cut = ModelResponse(wire=Wire("x2", size=9))
    flow = Script().exchange("x1", masked).exchange("x2", cut, redactions=MASKED).main()
    assert [exchange.lack for exchange in flow.exchanges] == [Lack.MASKED, Lack.TRUNCATED]
    assert [exchange.is_masked for exchange in flow.exchanges] == [False, True]


@pytest.mark.parametrize(
    ("result", "lack"),
    [
        (ToolResult(result=raw_of(1)), None),
        (ToolResult(), Lack.NO_RESULT),
        (ToolResult(result=raw_of(1), truncated=True), Lack.TRUNCATED),
        (ToolResult(result=raw_of(1), redactions=MASKED), Lack.MASKED),
        (ToolResult(result=raw_of("[redacted:key:0011aabb]")), Lack.MASKED),
    ],
)
def test_a_result_that_is_not_what_the_tool_gave_is_lacking(result, lack):
    script = Script().exchange("x1", ModelResponse())
    script.add(ToolCall("t"), "x1", call_id="c1").add(result, call_id="c1")
    (call,) = script.main().calls
    assert call.lack == lack


def test_a_result_answers_the_nearest_decision_with_its_id():
    script = Script()
    for node in ("x1", "x2"):
        script.exchange(node, ModelResponse()).add(ToolCall("t"), node, call_id="c1")
    script.add(ToolResult(result=raw_of(1)), call_id="c1")
    script.add(ToolResult(result=raw_of(2)), call_id="c1")
    (call,) = script.main().calls
    assert (call.node_id, call.opened) == ("x2", 2)


@pytest.mark.parametrize(
    ("read", "lack"),
    [
        (Read("time.time()", raw_of(1.0)), None),
        (Read("time.time()"), Lack.NO_VALUE),
        (Read("time.time()", raw_of(1.0), redactions=MASKED), Lack.MASKED),
    ],
)
def test_a_read_without_its_value_is_lacking(read, lack):
    (found,) = Script().add(read).main().reads
    assert found.lack == lack


@pytest.mark.parametrize(
    ("fields", "lack"),
    [
        ({}, None),
        ({"value": UNSET}, Lack.NO_VALUE),
        ({"inputs": UNSET}, Lack.NO_INPUTS),
        ({"redactions": MASKED}, Lack.MASKED),
    ],
)
def test_a_derived_value_without_its_parts_is_lacking(fields, lack):
    whole = {"inputs": Raw(b"[1]"), "value": Raw(b"1e999")}
    (found,) = Script().add(Derived("d", "f", **whole | fields)).main().values
    assert (found.lack, found.function) == (lack, "f")


def test_what_was_written_late_belongs_where_it_happened():
    script = Script()
    for number in (1, 2):
        wire = Wire(f"x{number}", endpoint="POST https://a/v1/chat/completions")
        request = ModelRequest(body="{}", wire=wire)
        script.add(request, f"x{number}", ts_ns=number * 100)
        script.add(ModelResponse(), f"x{number}", ts_ns=number * 100 + 1)
    for ts_ns in (50, 150, 250, None):
        script.add(Read("time.time()", raw_of(ts_ns)), ts_ns=ts_ns)
    reads = script.main().reads
    assert [(read.segment, read.step) for read in reads] == [(0, 1), (1, 1), (2, 2), (2, 2)]


def test_a_flow_within_a_call_is_told_from_one_beside_it():
    def asking(script: Script, actor: str) -> None:
        wire = Wire(actor, endpoint="POST https://a/v1/chat/completions")
        script.add(ModelRequest(body="{}", wire=wire), f"{actor}-x", actor=actor)

    script = Script().exchange("x1", ModelResponse()).add(ToolCall("t"), "x1", call_id="c1")
    asking(script, "inner")
    script.add(ToolResult(result=raw_of(1)), call_id="c1")
    asking(script, "beside")
    flows = script.read().flows
    assert (flows["inner"].is_within_call, flows["beside"].is_within_call) == (True, False)


def test_custom_facts_of_other_kinds_and_shapes_are_left_out():
    script = Script().add(Custom("note", raw_of({"a": 1}))).add(Custom("harness.call"))
    script.add(Custom("harness.result", raw_of({"call": "c9", "result": 1})))
    assert script.main().calls == ()


def test_other_http_without_a_body_or_an_answer_is_still_found():
    fields = {"method": "GET", "url": "https://a/v1/models?key", "request_size": 0}
    script = Script().add(Custom("http.exchange", raw_of(fields | {"request_sha256": ""})))
    (other,) = script.main().others
    assert (other.key, other.ending, other.request_source) == (
        ("GET", "/v1/models", b""),
        Ending.FAILED,
        "",
    )


def test_what_a_tool_of_a_seam_ran_itself_needs_no_seam():
    script = Script().exchange("x1", ModelResponse())
    script.add(ToolCall("inner"), "x1", call_id="c1")
    result = ToolResult(result=raw_of(1), seam="request")
    script.add(result, call_id="c1", flags=(FLAG_WITHIN_CALL,))
    assert script.seamless() == ()


def test_tools_whose_results_no_seam_saw_are_named_once():
    script = Script().exchange("x1", ModelResponse())
    for number, seam in enumerate(("tool", "request", "mcp", "request", None, "mcp_http", "hook")):
        call_id = f"c{number}"
        script.add(ToolCall(f"t{seam}"), "x1", call_id=call_id)
        script.add(ToolResult(result=raw_of(1), seam=seam), call_id=call_id)
    script.add(ToolResult(result=raw_of(1), tool="own")).add(ToolResult(result=raw_of(1)))
    assert script.seamless() == (
        "trequest",
        "tNone",
        "tmcp_http",
        "thook",
        "own",
        "an unnamed tool",
    )


def test_an_end_is_known_and_its_absence_too():
    assert Script().add(SessionEnded("success")).read().is_ended
    assert not Script().exchange("x1").read().is_ended


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("https://a.example/v1/x?y=1#z", "/v1/x"),
        ("https://a.example", "/"),
        ("/v1/x", "/v1/x"),
        ("", "/"),
    ],
)
def test_the_path_of_a_url_is_what_servers_tell_apart(url, path):
    assert path_of(url) == path


def test_what_a_recorder_added_is_taken_out_and_nothing_else():
    assert without_added(b'{"a": 1, "logprobs":true}', ("logprobs",)) == b'{"a": 1}'
    assert without_added(b"no json", ("logprobs",)) == b"no json"
    assert without_added(b"{}", ()) == b"{}"


def test_a_flow_lists_all_that_it_holds():
    script = Script().exchange("x1", ModelResponse()).add(Read("time.time()", raw_of(1)))
    script.add(Derived("d", "f", inputs=Raw(b"[]"), value=Raw(b"1")))
    assert [item.seq for item in script.main().items()] == [0, 2, 3]
