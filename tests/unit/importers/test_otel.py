import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import canonical
from redrive.importers.draft import Draft, FileTally
from redrive.importers.otel import OPENINFERENCE, OTEL_GENAI, OtelImporter
from redrive.record.event import (
    FLAG_UNREPRESENTABLE,
    Damage,
    Kind,
    ModelRequest,
    ModelResponse,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolResult,
    dump_payload,
    payload_of,
    raw_value,
)
from redrive.record.session import MemoryReader, SessionIndex
from redrive.record.summary import SessionSummary, summarize
from redrive.record.trajectory import Trajectory, build_trajectory
from tests.helpers import drafts_from, events_of, index_of, source_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "otel"
STORIES = ("a.logs", "b", "c", "d", "e", "f", "g", "h")
IMPORTERS = {"otel_genai": OTEL_GENAI, "openinference": OPENINFERENCE}
COLUMNS = ("n_events", "n_model_calls", "n_tool_calls", "n_tool_results", "n_orphans", "n_branches")
JOINED = "gen-otlp-openai_v2-2.1b0-old"


def _golden(name: str) -> Path:
    return GOLDEN / f"{name}.json"


def _importer(name: str) -> OtelImporter:
    return OPENINFERENCE if name == "g" else OTEL_GENAI


def _load(name: str) -> Any:
    return json.loads(_golden(name).read_text())


def _project(document: Any, importer: OtelImporter = OTEL_GENAI) -> tuple[list[Draft], FileTally]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return drafts_from(importer, "made.json", data)


def _counts(tally: FileTally) -> dict[str, str]:
    orphans = tally.orphan_calls + tally.orphan_results
    numbers = (
        tally.records, tally.model_calls, tally.tool_calls, tally.tool_results, orphans,
        tally.branches,
    )  # fmt: skip
    return dict(zip(COLUMNS, map(str, numbers), strict=True))


def _summary(drafts: list[Draft]) -> tuple[SessionSummary, SessionIndex]:
    events = events_of(drafts)
    index = index_of(events)
    return summarize(index, MemoryReader(events), None), index


def _path(drafts: list[Draft], actor: str = "main") -> Trajectory:
    return build_trajectory(index_of(events_of(drafts)), actor=actor)


def _of(drafts: list[Draft], kind: Kind) -> list[Any]:
    return [draft.payload for draft in drafts if draft.kind is kind]


def _rows(samples: Path) -> Iterator[dict[str, str]]:
    with (samples / "EXPECTED.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["format"] in IMPORTERS:
                yield row


# --- third-party recordings


def test_every_sample_has_the_counts_of_its_oracle(samples: Path) -> None:
    rows = list(_rows(samples))
    assert len(rows) == 15
    for row in rows:
        path = samples / row["format"] / row["file"]
        _, tally = drafts_from(IMPORTERS[row["format"]], path)
        assert _counts(tally) == {name: row[name] for name in COLUMNS}, row["file"]
        pairs = (part.split("=") for part in row["extra"].split("; ") if part)
        assert {k: str(v) for k, v in tally.extra.items()} == dict(pairs), row["file"]
        assert not tally.damage
        assert not tally.lost


def test_every_sample_is_claimed_by_its_own_importer_and_no_other_file_by_any(
    samples: Path,
) -> None:
    own = {(row["format"], row["file"]) for row in _rows(samples)}
    for path in samples.rglob("*"):
        if not path.is_file():
            continue
        folder, *rest = path.relative_to(samples).parts
        claims = {name for name, importer in IMPORTERS.items() if importer.sniff(source_of(path))}
        expected = {folder} if (folder, "/".join(rest)) in own else set()
        assert claims == expected, path


def test_a_sessions_counts_are_those_of_its_file_in_every_sample(samples: Path) -> None:
    for row in _rows(samples):
        drafts, tally = drafts_from(IMPORTERS[row["format"]], samples / row["format"] / row["file"])
        sessions: dict[str, list[Draft]] = {}
        for draft in drafts:
            sessions.setdefault(draft.session, []).append(draft)
        found = [_summary(own)[0] for own in sessions.values()]
        assert sum(s.model_calls for s in found) == tally.model_calls, row["file"]
        assert sum(s.tool_calls for s in found) == tally.tool_calls, row["file"]
        assert sum(s.tool_results for s in found) == tally.tool_results, row["file"]
        assert not any(s.conflicting_call_ids for s in found), row["file"]


@pytest.mark.parametrize("order", [("logs", "traces"), ("traces", "logs")])
def test_logs_and_traces_of_a_real_run_are_one_session_in_either_order(
    samples: Path, order: tuple[str, str]
) -> None:
    files = [samples / "otel_genai" / f"{JOINED}.{part}.json" for part in order]
    drafts = [draft for path in files for draft in drafts_from(OTEL_GENAI, path)[0]]
    assert [OTEL_GENAI.role(source_of(path)) for path in files] == list(order)
    assert len({draft.session for draft in drafts}) == 1
    summary, _ = _summary(drafts)
    assert (summary.model_calls, summary.tool_calls, summary.tool_results) == (3, 3, 3)
    assert (summary.orphan_calls, summary.orphan_results) == (0, 0)
    steps = _path(drafts).steps
    assert [(len(s.responses), len(s.calls), len(s.results)) for s in steps] == [
        (2, 2, 2), (2, 1, 1), (2, 0, 0),
    ]  # fmt: skip
    events = events_of(drafts)
    for step in steps:
        assert step.request is not None
        assert payload_of(events[step.request]).sampling.seed == 42


def test_a_sub_agent_below_a_tool_is_a_flow_of_its_own(samples: Path) -> None:
    path = samples / "openinference" / "phoenix-pxi_turn_subagent_trace.json"
    drafts, _ = drafts_from(OPENINFERENCE, path)
    assert len(_path(drafts).steps) == 2
    assert len(_path(drafts, "ServerAgent.iter").steps) == 16


# --- public-bug cases


def test_a_cut_prompt_opens_its_own_decision_and_no_other(cases: Path) -> None:
    folder = cases / "17-otlp-truncated-messages"
    expected = json.loads((folder / "expected.json").read_text())["expect"]["trace.json"]
    drafts, tally = drafts_from(OTEL_GENAI, folder / "trace.json")
    assert tally.model_calls == expected["model_decisions"] == len(_path(drafts).steps)
    requests = {d.node_id: d.payload for d in drafts if d.kind is Kind.MODEL_REQUEST}
    (cut,) = expected["input_closure"]
    assert requests[cut].truncated
    assert requests[cut].parts is msgspec.UNSET
    for whole in expected["not_reported_as_truncated"]:
        assert not requests[whole].truncated
        assert raw_value(requests[whole].parts) == [{"role": "user", "content": "Thanks"}]


def test_without_content_every_decision_and_call_is_there_and_nothing_is_invented(
    cases: Path,
) -> None:
    folder = cases / "19-otlp-content-capture-off"
    expected = json.loads((folder / "expected.json").read_text())["expect"]["trace.json"]
    drafts, _ = drafts_from(OTEL_GENAI, folder / "trace.json")
    summary, _ = _summary(drafts)
    assert summary.model_calls == expected["model_decisions"] == len(_path(drafts).steps)
    assert summary.tool_calls == expected["tool_calls"]
    assert list(summary.orphan_call_ids) == expected["tool_calls_without_result"]
    assert all(call.is_not_recorded for call in _of(drafts, Kind.TOOL_CALL))
    for request in _of(drafts, Kind.MODEL_REQUEST):
        assert request.parts is msgspec.UNSET
        assert (request.body, request.context, request.sampling) == (None, None, None)
        assert not request.truncated


# --- the eight conventions tell one story


@pytest.mark.parametrize("name", STORIES)
def test_each_convention_gives_the_same_two_decisions(name: str) -> None:
    drafts, tally = drafts_from(_importer(name), _golden(name))
    assert (tally.model_calls, tally.tool_calls, tally.tool_results) == (2, 1, 1)
    assert (tally.orphan_calls, tally.orphan_results, tally.damage) == (0, 0, [])
    events = events_of(drafts)
    first, second = _path(drafts).steps
    assert [events[seq].call_id for seq in first.calls + first.results] == ["call_1"] * 2
    assert (second.calls, second.results) == ((), ())
    (call,) = _of(drafts, Kind.TOOL_CALL)
    assert call.tool == "get_weather"
    recorded = call.arguments_text or bytes(call.arguments)
    assert canonical.decode_value(recorded) == {"city": "Paris"}
    (result,) = _of(drafts, Kind.TOOL_RESULT)
    assert (raw_value(result.result), result.status, result.is_external) == ("21C", "ok", False)
    assert [r.text for r in _of(drafts, Kind.MODEL_RESPONSE)] == ["", "Yes, 21C."]
    said = [(m.role, m.text) for m in _of(drafts, Kind.USER_MESSAGE)]
    assert said == [("system", "be brief"), ("user", "Is Paris warm?")]
    assert _of(drafts, Kind.SESSION_STARTED)[0].task == "Is Paris warm?"


@pytest.mark.parametrize("name", STORIES)
def test_each_convention_shows_the_whole_prompt_of_the_second_decision(name: str) -> None:
    drafts, _ = drafts_from(_importer(name), _golden(name))
    request: ModelRequest = _of(drafts, Kind.MODEL_REQUEST)[1]
    parts = raw_value(request.parts)
    assert [message["role"] for message in parts[:3]] == ["system", "user", "assistant"]
    assert parts[2]["tool_calls"][0]["name"] == "get_weather"
    assert (parts[3]["call_id"], parts[3]["content"]) == ("call_1", "21C")


@pytest.mark.parametrize("name", ["a.traces", *STORIES[1:]])
def test_each_span_convention_gives_model_sampling_and_usage(name: str) -> None:
    drafts, _ = drafts_from(_importer(name), _golden(name))
    for request in _of(drafts, Kind.MODEL_REQUEST):
        assert request.model == "m-1"
        assert (request.sampling.temperature, request.sampling.seed) == (0.0, 7)
    for response in _of(drafts, Kind.MODEL_RESPONSE):
        assert response.model == "m-1-2026-01-10"
        assert (response.usage.input_tokens, response.usage.output_tokens) == (50, 9)


@pytest.mark.parametrize("name", ["a.traces", *STORIES])
def test_nothing_links_nodes_and_clock_and_prng_stay_unknown(name: str) -> None:
    drafts, _ = drafts_from(_importer(name), _golden(name))
    assert all(draft.parent_id is None for draft in drafts)
    started: SessionStarted = _of(drafts, Kind.SESSION_STARTED)[0]
    assert (started.captures, started.basis) == ({}, "unknown")


@pytest.mark.parametrize("name", ["a.traces", *STORIES])
def test_each_golden_file_is_claimed_by_one_importer(name: str) -> None:
    source = source_of(_golden(name))
    assert OTEL_GENAI.sniff(source) == (0 if name == "g" else 90)
    assert OPENINFERENCE.sniff(source) == (90 if name == "g" else 0)


def test_a_request_in_the_apis_own_form_is_kept_as_the_body() -> None:
    drafts, _ = drafts_from(OPENINFERENCE, _golden("g"))
    bodies = [(r.api, r.body) for r in _of(drafts, Kind.MODEL_REQUEST)]
    spans = [item["attributes"] for item in _load("g") if item["span_kind"] == "LLM"]
    assert bodies == [("openai.chat", attributes["input.value"]) for attributes in spans]


@pytest.mark.parametrize(
    "changed",
    [
        {"input.value": '{"messages": "[sanitized history]", "model": "m-1"}'},
        {"input.value": '{"model": "m-1", "messages": [{"role": "user", "parts": []}]}'},
        {"llm.invocation_parameters": '{"temperature": 0.5}'},
        {"llm.system": "synthetic"},
        {"input.mime_type": "text/plain"},
        {"input.value": "{"},
    ],
)
def test_what_is_not_surely_the_request_stays_normalised_parts(changed: dict[str, str]) -> None:
    document = _load("g")
    document[1]["attributes"] |= changed
    request = _of(_project(document, OPENINFERENCE)[0], Kind.MODEL_REQUEST)[0]
    assert (request.api, request.body) == (None, None)
    assert request.parts is not msgspec.UNSET


# --- logs and traces joined, where both know the tools


@pytest.mark.parametrize("is_logs_first", [True, False])
def test_a_call_known_to_logs_and_to_a_tool_span_is_one_call(is_logs_first: bool) -> None:
    traces = _load("a.traces")
    spans = traces["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append(_span("a3", _tool("call_1", result='"21 C"'), 3, 4, status={"code": 2}))
    parts = [drafts_from(OTEL_GENAI, _golden("a.logs"))[0], _project(traces)[0]]
    drafts = parts[0] + parts[1] if is_logs_first else parts[1] + parts[0]
    assert len({draft.id for draft in drafts}) == len(drafts)
    events = events_of(drafts)
    index = index_of(events)
    (call,) = index.seqs_of(Kind.TOOL_CALL)
    (result,) = index.seqs_of(Kind.TOOL_RESULT)
    assert not payload_of(events[call]).is_not_recorded
    assert payload_of(events[result]).status == "error"
    first, _ = _path(drafts).steps
    assert (first.calls, first.results) == ((call,), (result,))


# --- small things


TRACE = "0000000000000000000000000000000a"
START = 1_772_442_000_000_000_000


def _span(number: str, attributes: dict[str, Any], start: int, end: int, **more: Any) -> Any:
    return {
        "traceId": TRACE,
        "spanId": f"00000000000000{number}",
        "name": "span",
        "startTimeUnixNano": str(START + start * 10**9),
        "endTimeUnixNano": str(START + end * 10**9),
        "attributes": attributes,
        **more,
    }


def _tool(call_id: str | None, **more: Any) -> dict[str, Any]:
    named = {f"gen_ai.tool.call.{key}": value for key, value in more.items()}
    ids = {} if call_id is None else {"gen_ai.tool.call.id": call_id}
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t", **ids, **named}


def _chat(asked: Any = None, answered: Any = None, **more: Any) -> dict[str, Any]:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **more}
    if asked is not None:
        attributes["gen_ai.input.messages"] = json.dumps(asked)
    if answered is not None:
        attributes["gen_ai.output.messages"] = json.dumps(answered)
    return attributes


def _message(role: str, *parts: Any) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "content": text}


def _call(call_id: str, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "t", "arguments": arguments}


def _answer(call_id: str, value: Any) -> dict[str, Any]:
    return {"type": "tool_call_response", "id": call_id, "response": value}


def _spans(*spans: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}


def test_a_file_with_several_traces_gives_several_sessions() -> None:
    other = {**_span("02", _chat(), 1, 2), "traceId": "0" * 31 + "b"}
    drafts, tally = _project(_spans(_span("01", _chat(), 1, 2), other))
    assert [d.session for d in drafts if d.kind is Kind.SESSION_STARTED] == [TRACE, "0" * 31 + "b"]
    assert tally.model_calls == 2


def test_the_conversation_of_a_trace_is_its_thread() -> None:
    drafts, _ = _project(_spans(_span("01", _chat(**{"gen_ai.conversation.id": "talk-1"}), 1, 2)))
    assert _of(drafts, Kind.SESSION_STARTED)[0].thread == "talk-1"


def test_a_failed_tool_without_a_result_answers_with_its_exception() -> None:
    event = {"name": "exception", "attributes": {"exception.message": "disk full"}}
    asked = _span("01", _chat([], [_message("assistant", _call("c1", {}))]), 1, 2)
    tool = _span("02", _tool("c1"), 3, 4, status={"code": 2, "message": "x"}, events=[event])
    drafts, tally = _project(_spans(asked, tool))
    (result,) = _of(drafts, Kind.TOOL_RESULT)
    assert (result.status, raw_value(result.result)) == ("error", "disk full")
    assert tally.tool_results == 0


def test_a_failed_tools_answer_in_the_prompt_is_an_error_with_that_text() -> None:
    first = _span("01", _chat([], [_message("assistant", _call("c1", {}))]), 1, 2)
    tool = _span("02", _tool("c1"), 3, 4, status={"code": "STATUS_CODE_ERROR"})
    second = _span("03", _chat([_message("tool", _answer("c1", "no such city"))], []), 5, 6)
    (result,) = _of(_project(_spans(first, tool, second))[0], Kind.TOOL_RESULT)
    assert (result.status, raw_value(result.result)) == ("error", "no such city")


def test_a_null_result_is_a_value() -> None:
    first = _span("01", _chat([], [_message("assistant", _call("c1", None))]), 1, 2)
    second = _span("03", _chat([_message("tool", _answer("c1", None))], []), 5, 6)
    drafts, _ = _project(_spans(first, second))
    (result,) = _of(drafts, Kind.TOOL_RESULT)
    assert bytes(result.result) == b"null"
    (call,) = _of(drafts, Kind.TOOL_CALL)
    assert bytes(call.arguments) == b"null"


def test_a_tool_that_ran_while_its_model_streamed_still_answers_that_model() -> None:
    asked = _span("01", _chat([], [_message("assistant", _call("c1", {}))]), 1, 5)
    tool = _span("02", _tool("c1", result="done"), 2, 3)
    (step,) = _path(_project(_spans(tool, asked))[0]).steps
    assert (len(step.calls), len(step.results)) == (1, 1)


def test_ids_that_repeat_are_answered_in_order() -> None:
    ask = _message("assistant", _call("call_0", {"n": 1}))
    again = _message("assistant", _call("call_0", {"n": 2}))
    told, told_again = (
        _message("tool", _answer("call_0", 1)),
        _message("tool", _answer("call_0", 2)),
    )
    drafts, _ = _project(
        _spans(
            _span("01", _chat([], [ask]), 1, 2),
            _span("02", _chat([ask, told], [again]), 3, 4),
            _span("03", _chat([ask, told, again, told_again], []), 5, 6),
        )
    )
    summary, _ = _summary(drafts)
    assert (summary.tool_calls, summary.tool_results, summary.orphan_calls) == (2, 2, 0)
    assert summary.conflicting_call_ids == ()


def test_a_repeated_text_of_the_user_is_said_as_often_as_he_said_it() -> None:
    go_on = _message("user", _text("go on"))
    drafts, _ = _project(
        _spans(
            _span("01", _chat([go_on], [_message("assistant", _text("1"))]), 1, 2),
            _span("02", _chat([go_on, _message("assistant", _text("1")), go_on], []), 3, 4),
        )
    )
    assert [m.text for m in _of(drafts, Kind.USER_MESSAGE)] == ["go on", "go on"]


def test_children_before_parents_and_backwards_order_give_the_same_path() -> None:
    document = _load("c")
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    straight = [step.node_ids for step in _path(_project(document)[0]).steps]
    spans.reverse()
    assert [step.node_ids for step in _path(_project(document)[0]).steps] == straight


def test_a_tool_span_that_no_answer_asked_for_is_no_decision_of_the_main_flow() -> None:
    asked = _span("01", _chat([], [_message("assistant", _text("hi"))]), 1, 2)
    stray = _span("02", _tool(None, arguments="{}", result="x"), 3, 4)
    drafts, tally = _project(_spans(asked, stray))
    assert len(_path(drafts).steps) == 1
    assert len(_path(drafts, "t").steps) == 1
    assert (tally.tool_calls, tally.tool_results) == (1, 1)


def test_a_failed_model_call_without_answer_is_an_error_and_no_decision() -> None:
    failed = _span("01", _chat([]), 1, 2, status={"code": 2, "message": "overloaded"})
    drafts, tally = _project(_spans(failed))
    (error,) = _of(drafts, Kind.MODEL_ERROR)
    assert error.message == "overloaded"
    assert not _of(drafts, Kind.MODEL_RESPONSE)
    assert (tally.model_calls, tally.extra["error_spans"]) == (1, 1)


def test_a_failed_root_agent_ends_the_session_in_failure() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent"}
    drafts, _ = _project(_spans(_span("01", agent, 0, 9, status={"code": 2})))
    assert _of(drafts, Kind.SESSION_ENDED) == [SessionEnded(status="failure")]


def test_a_span_with_dropped_attributes_counts_as_cut() -> None:
    prompt = [_message("user", _text("hi"))]
    span = _span("01", _chat(prompt, []), 1, 2, droppedAttributesCount=3)
    drafts, _ = _project(_spans(span))
    assert _of(drafts, Kind.MODEL_REQUEST)[0].truncated
    assert _of(drafts, Kind.MODEL_RESPONSE)[0].truncated


def test_a_cut_answer_is_cut_and_makes_no_call() -> None:
    stump = json.dumps([_message("assistant", _call("c1", {"a": 1}))])[:40]
    span = _span("01", _chat([]) | {"gen_ai.output.messages": stump}, 1, 2)
    drafts, tally = _project(_spans(span))
    response: ModelResponse = _of(drafts, Kind.MODEL_RESPONSE)[0]
    assert (response.truncated, response.text) == (True, "")
    assert tally.tool_calls == 0


def test_an_image_by_url_is_a_reference_and_inline_data_is_none() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "file", "file_id": "file-1"},
    ]
    drafts, _ = _project(_spans(_span("01", _chat([_message("user", *parts)], []), 1, 2)))
    request = _of(drafts, Kind.MODEL_REQUEST)[0]
    assert request.by_reference == ("image_url: https://example.org/a.png", "file: file-1")


def test_a_span_exported_twice_is_stored_once_and_named() -> None:
    span = _span("01", _chat([], [_message("assistant", _call("c1", {}))]), 1, 2)
    drafts, tally = _project(_spans(span, span))
    assert (tally.records, tally.model_calls, tally.tool_calls) == (2, 2, 1)
    assert tally.lost == [f"spans exported again in trace {TRACE}: 1"]
    assert _summary(drafts)[0].model_calls == 1


def test_details_logs_give_the_model_call_that_they_describe() -> None:
    record = {
        "timeUnixNano": str(START),
        "eventName": "gen_ai.client.inference.operation.details",
        "traceId": TRACE,
        "spanId": "0000000000000001",
        "attributes": [
            {"key": key, "value": {"stringValue": value}}
            for key, value in _chat(
                [_message("user", _text("hi"))], [_message("assistant", _text("ho"))]
            ).items()
        ],
    }
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record, {"body": 1}]}]}]}
    drafts, tally = _project(document)
    assert (tally.records, tally.model_calls) == (2, 1)
    assert [r.text for r in _of(drafts, Kind.MODEL_RESPONSE)] == ["ho"]


def test_messages_without_a_span_end_with_their_choice() -> None:
    logs = _load("a.logs")
    for record in logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"]:
        del record["spanId"]
    drafts, tally = _project(logs)
    assert (tally.model_calls, tally.tool_calls, tally.tool_results) == (2, 1, 1)
    assert len(_path(drafts).steps) == 2


def test_equal_names_of_agents_are_told_apart_by_span() -> None:
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "boss"}
    at = "00000000000000"
    drafts, _ = _project(
        _spans(
            _span("01", root, 0, 9),
            _span("02", agent, 1, 4, parentSpanId=f"{at}01"),
            _span("03", agent, 5, 8, parentSpanId=f"{at}01"),
            _span("04", _chat([], []), 2, 3, parentSpanId=f"{at}02"),
            _span("05", _chat([], []), 6, 7, parentSpanId=f"{at}03"),
            _span("06", _chat([], []), 8, 9, parentSpanId=f"{at}01"),
        )
    )
    actors = {d.node_id[-2:]: d.actor for d in drafts if d.kind is Kind.MODEL_RESPONSE}
    assert actors == {"04": f"helper#{at}02", "05": f"helper#{at}03", "06": "main"}


def test_parents_in_a_circle_stay_in_the_main_flow() -> None:
    at = "00000000000000"
    drafts, _ = _project(
        _spans(
            _span("01", _chat([], []), 1, 2, parentSpanId=f"{at}02"),
            _span("02", {}, 1, 2, parentSpanId=f"{at}01"),
        )
    )
    assert [d.actor for d in drafts if d.kind is Kind.MODEL_RESPONSE] == ["main"]


def test_integers_stay_exact_and_an_unrepresentable_number_is_named() -> None:
    big = 2**64 + 1
    first = _span("01", _chat([], [_message("assistant", _call("c1", {"n": big}))]), 1, 2)
    (call,) = _of(_project(_spans(first))[0], Kind.TOOL_CALL)
    assert raw_value(call.arguments) == {"n": big}
    data = json.dumps(_spans(_span("01", {"x": 1}, 1, 2))).replace('"x": 1', '"x": 1e999').encode()
    drafts, tally = _project(data)
    assert [item.reason for item in tally.damage] == [FLAG_UNREPRESENTABLE]
    assert all(FLAG_UNREPRESENTABLE in d.flags for d in drafts if d.kind is not Kind.DAMAGE)


def test_result_and_call_payloads_can_be_stored_with_lone_surrogates() -> None:
    odd = json.dumps([_message("assistant", _call("c\ud83d", {"\ud83d": "\udc00"}))])
    span = _span("01", _chat([]) | {"gen_ai.output.messages": odd}, 1, 2)
    drafts, _ = _project(_spans(span))
    (draft,) = [d for d in drafts if d.kind is Kind.TOOL_CALL]
    assert draft.call_id == "\ufffdc\\ud83d"
    (event,) = [e for e in events_of(drafts) if e.kind is Kind.TOOL_CALL]
    restored: ToolCall = payload_of(event)
    assert raw_value(restored.arguments) == {"\ud83d": "\udc00"}


# --- damage


def test_a_damaged_document_is_one_damage_with_its_place_and_no_session() -> None:
    data = _golden("c").read_bytes()[:3000]
    drafts, tally = _project(data)
    assert drafts == []
    (damage,) = tally.damage
    assert damage.offset + damage.bytes == len(data)
    assert damage.reason.startswith("no JSON")
    assert damage.line > 1


def test_a_bad_line_among_export_requests_is_damage_of_that_line_alone() -> None:
    lines = [json.dumps(_load(name)).encode() for name in ("b", "c", "h")]
    lines[1] = lines[1][:500]
    data = b"\n".join(lines) + b"\n"
    drafts, tally = _project(data)
    assert [d.session[-2:] for d in drafts if d.kind is Kind.SESSION_STARTED] == ["0b", "81"]
    (damage,) = tally.damage
    assert (damage.line, damage.offset, damage.bytes) == (2, len(lines[0]) + 1, 500)
    assert (tally.records, tally.model_calls) == (6, 4)
    (told,) = [d for d in drafts if d.kind is Kind.DAMAGE]
    assert (told.payload, told.session[-2:]) == (damage, "0b")


def test_lines_are_read_after_a_damaged_first_line() -> None:
    whole = json.dumps(_load("b")).encode()
    drafts, tally = _project(b'{"resourceSpans": [\n' + whole + b"\n")
    assert (tally.records, len(tally.damage)) == (3, 1)
    assert drafts[0].kind is Kind.DAMAGE


def test_events_of_lines_lie_where_their_line_lies() -> None:
    lines = [json.dumps(_load(name)).encode() for name in ("b", "h")]
    drafts, _ = _project(b"\n".join(lines))
    second = {(d.offset, d.length) for d in drafts if d.session.endswith("81")}
    assert second == {(len(lines[0]) + 1, len(lines[1]))}


def test_what_a_file_of_one_line_says_stays_the_same_when_a_line_follows() -> None:
    lines = [json.dumps(_load(name)).encode() + b"\n" for name in ("b", "h")]
    first, _ = _project(lines[0])
    both, _ = _project(lines[0] + lines[1])
    assert both[: len(first)] == first


def test_a_span_that_is_no_object_is_damage_and_the_others_are_read() -> None:
    drafts, tally = _project(_spans("span", _span("01", _chat([], []), 1, 2)))
    assert [item.reason for item in tally.damage] == ["a span that is no JSON object"]
    assert tally.model_calls == 1
    assert isinstance(drafts[0].payload, Damage)


# --- mutations move the counts by exactly what was changed


def _mutants() -> Iterator[tuple[str, Any, dict[str, int]]]:
    def spans(document: Any) -> Any:
        return document["resourceSpans"][0]["scopeSpans"][0]["spans"]

    def attribute(span: Any, key: str) -> Any:
        return next(pair for pair in span["attributes"] if pair["key"] == key)["value"]

    document = _load("b")
    del spans(document)[0]
    lost_call = {"records": -1, "model_calls": -1, "tool_calls": -1, "orphan_results": 1}
    yield "first model call removed", document, lost_call

    document = _load("b")
    del spans(document)[1]
    lost_result = {"records": -1, "model_calls": -1, "tool_results": -1, "orphan_calls": 1}
    yield "last model call removed", document, lost_result

    document = _load("c")
    del spans(document)[2]
    yield "tool span removed, prompt still answers", document, {"records": -1}

    document = _load("c")
    spans(document).append(spans(document)[2] | {"spanId": "00000000000000ee"})
    yield "tool span doubled", document, {"records": 1}

    document = _load("c")
    spans(document).append(
        _span("ee", _tool("call_9", result="x"), 7, 8) | {"traceId": TRACE[:-1] + "c"}
    )
    yield "tool span added", document, {"records": 1, "tool_calls": 1, "tool_results": 1}

    document = _load("c")
    spans(document).append(_span("ee", _tool("call_9"), 7, 8) | {"traceId": TRACE[:-1] + "c"})
    yield "silent tool span added", document, {"records": 1, "tool_calls": 1, "orphan_calls": 1}

    document = _load("b")
    attribute(spans(document)[0], "gen_ai.completion.0.tool_calls.0.id")["stringValue"] = "call_2"
    yield "id of the call changed", document, {"orphan_calls": 1, "orphan_results": 1}

    document = _load("b")
    attribute(spans(document)[0], "llm.request.type")["stringValue"] = "embedding"
    embedded = {"model_calls": -1, "tool_calls": -1, "orphan_results": 1}
    yield "model call turned embedding", document, embedded

    document = _load("h")
    stump = attribute(spans(document)[1], "gen_ai.prompt")
    stump["stringValue"] = stump["stringValue"][:60]
    yield "prompt cut", document, {"tool_results": -1, "orphan_calls": 1}

    document = _load("a.logs")
    records = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    del records[6]
    yield "tool message removed", document, {
        "records": -1, "tool_results": -1, "orphan_calls": 1,
    }  # fmt: skip

    document = _load("a.logs")
    records = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    records.append(records[7])
    yield "choice doubled", document, {"records": 1, "model_calls": 1}


MUTANTS = list(_mutants())
BASES = {
    "tool span": "c",
    "silent": "c",
    "prompt cut": "h",
    "tool message": "a.logs",
    "choice": "a.logs",
}


@pytest.mark.parametrize(("name", "document", "moved"), MUTANTS, ids=[m[0] for m in MUTANTS])
def test_a_mutation_moves_the_counts_by_exactly_itself(
    name: str, document: Any, moved: dict[str, int]
) -> None:
    base = next((b for prefix, b in BASES.items() if name.startswith(prefix)), "b")
    _, before = _project(_load(base))
    _, after = _project(document)
    fields = (
        "records",
        "model_calls",
        "tool_calls",
        "tool_results",
        "orphan_calls",
        "orphan_results",
    )
    found = {f: getattr(after, f) - getattr(before, f) for f in fields}
    assert {f: n for f, n in found.items() if n} == moved


# --- hostile bytes


def _damaged(data: bytes, count: int) -> Iterator[bytes]:
    """Give copies with some bytes replaced, cut or doubled; the same ones each time."""
    dice = canonical.stream(canonical.digest(data), "otel")
    odd = b'\x00\n"{}[]:,\\\xff0919eE-.tfn'
    for number in range(count):
        changed = bytearray(data)
        for _ in range(1 + next(dice) % 4):
            changed[next(dice) % len(changed)] = odd[next(dice) % len(odd)]
        yield bytes(changed[: next(dice) % len(data)] if number % 8 == 0 else changed)


HOSTILE = (None, True, 0, -1, 2**70, 1.5, "", "x", [], [None, 1, "x", [], {}], {}, {"x": {"y": []}})


def _twisted(document: Any, count: int) -> Iterator[Any]:
    """Give copies of a document with one value of another type put anywhere."""
    dice = canonical.stream(canonical.value_digest(document), "twist")
    for _ in range(count):
        copy = json.loads(json.dumps(document))
        places: list[tuple[Any, Any]] = []
        stack = [copy]
        while stack:
            value = stack.pop()
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            places += [(value, key) for key in keys]
            stack += [value[key] for key in keys if isinstance(value[key], (dict, list))]
        holder, key = places[next(dice) % len(places)]
        holder[key] = HOSTILE[next(dice) % len(HOSTILE)]
        yield copy


def _check(drafts: list[Draft]) -> None:
    sessions: dict[str, list[Draft]] = {}
    for draft in drafts:
        sessions.setdefault(draft.session, []).append(draft)
        for text in (draft.session, draft.id, draft.node_id, draft.actor, draft.call_id or ""):
            assert not canonical.has_lone_surrogate(text)
        assert draft.session
        assert draft.ts_ns is None or 0 <= draft.ts_ns < 2**63
    for own in sessions.values():
        assert len({draft.id for draft in own}) == len(own)
        events = events_of(own)
        for event in events:
            assert dump_payload(payload_of(event)) == event.payload
        index = index_of(events)
        for actor in index.actors:
            build_trajectory(index, actor=actor)
        summarize(index, MemoryReader(events), None)


@pytest.mark.parametrize("name", ["a.traces", *STORIES])
def test_no_bytes_make_it_fail_and_no_damage_is_silent(name: str) -> None:
    data = _golden(name).read_bytes()
    for number, changed in enumerate(_damaged(data, 60)):
        drafts, tally = _project(changed, _importer(name))
        again, _ = _project(changed, _importer(name))
        assert drafts == again
        assert tally.records or tally.damage, number
        _check(drafts)


@pytest.mark.parametrize("name", ["a.traces", *STORIES])
def test_no_value_of_another_type_makes_it_fail(name: str) -> None:
    for document in _twisted(_load(name), 120):
        drafts, _ = _project(document, _importer(name))
        _check(drafts)


def test_results_hold_what_was_recorded() -> None:
    tool = _span("02", _tool("c1", arguments={"a": 1}, result={"ok": True}), 3, 4)
    drafts, _ = _project(_spans(tool))
    (call,) = _of(drafts, Kind.TOOL_CALL)
    (result,) = _of(drafts, Kind.TOOL_RESULT)
    assert raw_value(call.arguments) == {"a": 1}
    assert isinstance(result, ToolResult)
    assert raw_value(result.result) == {"ok": True}
