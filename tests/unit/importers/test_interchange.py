import json

import pytest
from msgspec import UNSET

from redrive.importers.interchange import IMPORTER
from redrive.record.event import Kind, Redaction, payload_of, raw_value
from redrive.record.session import MemoryReader
from redrive.record.summary import UsageFold, summarize
from redrive.record.trajectory import build_trajectory
from tests.helpers import drafts_from, events_from, events_of, index_of, source_of

CASES_IN_THIS_FORMAT = {
    "21-empty-arguments": (5, 4, 4),
    "23-context-bytes-vs-json-equality": (2, 1, 1),
    "25-polled-identical-calls": (4, 3, 3),
    "26-changed-arguments-no-fallback": (3, 2, 2),
    "30-truncated-tool-result": (3, 2, 2),
    "31-zero-is-a-recorded-value": (6, 0, 0),
    "35-extra-random-read": (2, 0, 0),
    "54-replay-has-no-side-effects": (3, 3, 3),
    "56-lone-surrogate": (2, 1, 1),
    "69-empty-result-is-evidence": (7, 6, 5),
}


def lines(*objects):
    return "".join(json.dumps(value) + "\n" for value in objects).encode()


def project(*objects):
    return events_from(IMPORTER, "session.jsonl", lines(*objects))


def only(events, kind):
    return [payload_of(event) for event in events if event.kind is kind]


@pytest.mark.parametrize(("case", "counts"), CASES_IN_THIS_FORMAT.items())
def test_cases_in_this_format_are_claimed_and_counted(cases, case, counts):
    path = cases / case / "session.jsonl"
    assert IMPORTER.sniff(source_of(path)) > 50
    drafts, tally = drafts_from(IMPORTER, path)
    assert (tally.model_calls, tally.tool_calls, tally.tool_results) == counts
    assert tally.records == len(path.read_bytes().splitlines())
    index = index_of(events_of(drafts))
    counted = summarize(index, MemoryReader(events_of(drafts)), UsageFold().total())
    assert (counted.model_calls, counted.tool_calls, counted.tool_results) == counts
    assert len(build_trajectory(index).steps) == counts[0]


def test_a_result_that_was_never_written_leaves_its_call_unanswered(cases):
    _, tally = drafts_from(IMPORTER, cases / "69-empty-result-is-evidence/session.jsonl")
    assert (tally.orphan_calls, tally.orphan_results) == (1, 0)


def test_a_vendor_transcript_is_not_claimed(cases):
    for case in ("09-rewind-dead-branch", "13-sidechain-interleaved", "04-torn-tail"):
        assert IMPORTER.sniff(source_of(cases / case / "session.jsonl")) == 0
    assert IMPORTER.sniff(source_of("x", b"no json\n")) == 0
    assert IMPORTER.sniff(source_of("x", b'{"type":"session_meta","payload":{}}\n')) == 0
    assert IMPORTER.sniff(source_of("x", b'orn":1}\n' + lines({"type": "end", "id": "e"}))) == 60
    assert IMPORTER.sniff(source_of("x", lines({"type": "session"}))) == 40


def test_what_the_writer_does_not_mention_is_captured_on_his_word():
    (started,) = only(
        project(
            {
                "type": "session",
                "id": "s",
                "task": {"n": 1},
                "captures": {"prng": "unknown"},
                "tools": {"rm": "unsafe"},
                "environment": {"py": "3.11"},
            }
        ),
        Kind.SESSION_STARTED,
    )
    assert started.basis == "vouched"
    assert started.captures == {"tool_results": "captured", "clock": "captured", "prng": "unknown"}
    assert (started.task, started.tools) == ('{"n":1}', {"rm": "unsafe"})
    assert raw_value(started.environment) == {"py": "3.11"}


def test_a_decision_gives_request_response_and_calls_on_one_node():
    events = project(
        {"type": "session", "id": "s", "task": "t"},
        {
            "type": "decision",
            "id": "d1",
            "ts": "2026-03-02T09:00:02Z",
            "step": 1,
            "actor": "ag",
            "model": {"requested": "m", "served": "m-1", "fingerprint": "fp"},
            "sampling": {
                "temperature": 0,
                "seed": None,
                "top_k": 2.5,
                "chosen_tokens": [1, 2],
                "logits": True,
                "min_p": 0.1,
            },
            "context": "hello",
            "request": {"api": "openai.chat", "body": "{}"},
            "usage": {"prompt_tokens": 3, "completion_tokens": 4, "cost_usd": 0.25},
            "redactions": [{"path": "output.text", "rule": "key"}, {"path": "context"}, "odd"],
            "output": {
                "text": "x",
                "tool_calls": [
                    {"call_id": "c1", "name": "t", "args": {"a": 1}},
                    {"call_id": "c2", "name": "t", "args_json": ""},
                    "odd",
                ],
            },
        },
    )
    assert {event.node_id for event in events[1:]} == {"d1"}
    assert {event.actor for event in events[1:]} == {"ag"}
    (request,) = only(events, Kind.MODEL_REQUEST)
    assert (request.model, request.api, request.body, request.context) == (
        "m",
        "openai.chat",
        "{}",
        "hello",
    )
    assert (request.sampling.temperature, request.sampling.seed, request.sampling.top_k) == (
        0,
        None,
        None,
    )
    assert request.sampling.extra == {"min_p": 0.1}
    assert request.redactions == (Redaction("context"), Redaction(""))
    (response,) = only(events, Kind.MODEL_RESPONSE)
    assert (response.model, response.fingerprint, response.chosen_tokens) == ("m-1", "fp", (1, 2))
    assert response.has_logits
    assert (response.usage.input_tokens, response.usage.cost_usd) == (3, "0.25")
    assert response.redactions == (Redaction("output.text", "key"),)
    one, two = only(events, Kind.TOOL_CALL)
    assert raw_value(one.arguments) == {"a": 1}
    assert two.arguments_text == ""
    assert [event.call_id for event in events if event.kind is Kind.TOOL_CALL] == ["c1", "c2"]


def test_a_json_answer_is_a_call_named_by_its_decision():
    events = project(
        {"type": "session", "id": "s", "task": "t", "decisions": "json_content"},
        {
            "type": "decision",
            "id": "d1",
            "output": {"text": '{"tool": "look_up", "arguments": {"code": "E08"}}'},
        },
        {"type": "decision", "id": "d2", "parent": "d1", "output": {"text": "done"}},
    )
    (call,) = [event for event in events if event.kind is Kind.TOOL_CALL]
    assert call.call_id == "d1"
    assert payload_of(call).tool == "look_up"


def test_the_other_line_types_become_their_kinds():
    events = project(
        {"type": "session", "id": "s", "task": "t"},
        {"type": "read", "id": "r1", "kind": "clock", "name": "now", "value": 0.0, "step": 2},
        {"type": "read", "id": "r2", "kind": "prng", "name": "jitter"},
        {"type": "derived", "id": "v", "name": "sum", "function": "f", "inputs": [], "value": 0},
        {"type": "event", "id": "e1", "kind": "user", "text": "hi"},
        {"type": "event", "id": "e2", "kind": "tool_call", "tool": "Bash", "command": "ls"},
        {"type": "event", "id": "e3", "kind": "tool_call", "tool": "Bash", "args": {"x": 1}},
        {"type": "event", "id": "e4", "kind": "stop", "reason": None},
        {"type": "permission", "id": "p", "call_id": "c", "decision": "denied", "by": "user"},
        {"type": "model_error", "id": "m", "status": 529, "attempt": 1, "delay_s": 0.5},
        {"type": "context_replaced", "id": "x", "from": "a", "to": "b"},
        {"type": "end", "id": "z", "status": "failure"},
        {"type": "later", "id": "q"},
        {"no": "type"},
    )
    kinds = [event.kind for event in events[1:]]
    assert kinds == [
        Kind.CLOCK_READ,
        Kind.PRNG_READ,
        Kind.VALUE_DERIVED,
        Kind.USER_MESSAGE,
        Kind.TOOL_CALL,
        Kind.TOOL_CALL,
        Kind.CUSTOM,
        Kind.TOOL_PERMISSION,
        Kind.MODEL_ERROR,
        Kind.CONTEXT_REPLACED,
        Kind.SESSION_ENDED,
        Kind.DAMAGE,
        Kind.DAMAGE,
    ]
    payloads = [payload_of(event) for event in events[1:]]
    assert raw_value(payloads[0].value) == 0.0
    assert raw_value(payloads[4].arguments) == {"command": "ls"}
    assert raw_value(payloads[5].arguments) == {"x": 1}
    assert raw_value(payloads[6].data) == {"reason": None}
    assert (payloads[8].status, payloads[8].delay_s) == (529, 0.5)
    reasons = [payload.reason for payload in payloads[-2:]]
    assert reasons == ["unknown line type 'later'", "no line type"]


def test_of_two_copies_of_one_id_the_one_with_a_parent_wins():
    first = {"type": "decision", "id": "d", "output": {"text": "x"}}
    root = {"type": "session", "id": "s", "task": "t"}
    later = project(
        root, {"type": "event", "id": "u", "kind": "user"}, first, first | {"parent": "u"}
    )
    assert [e.supersedes for e in later if e.supersedes] == ["d", "d/2"]
    index = index_of(later)
    assert len(build_trajectory(index).node_path) == 2
    drafts, tally = drafts_from(IMPORTER, "s", lines(root, first | {"parent": "u"}, first))
    assert len(drafts) == 3
    assert tally.lost == ["line 3: a further copy of id 'd'"]


def test_a_session_without_an_id_is_named_by_its_first_record():
    one = project({"type": "decision", "id": "d"})
    assert len(one[0].session_id) == 16
    two = events_from(IMPORTER, "x", b"torn\n" + lines({"type": "decision", "id": "d"}))
    assert two[0].session_id == one[0].session_id
    (only_damage,) = events_from(IMPORTER, "x", b"torn\n")
    assert only_damage.kind is Kind.DAMAGE


def test_branches_are_further_decisions_below_one_parent():
    _, tally = drafts_from(
        IMPORTER,
        "s",
        lines(
            {"type": "session", "id": "s", "task": "t"},
            {"type": "decision", "id": "a"},
            {"type": "decision", "id": "b", "parent": "a"},
            {"type": "event", "kind": "user", "id": "c", "parent": "a"},
        ),
    )
    assert tally.branches == 2


ROOT = b'{"type":"session","id":"s","task":"t"}\n'


def raw_lines(*texts):
    return events_from(
        IMPORTER, "session.jsonl", ROOT + b"".join(t.encode() + b"\n" for t in texts)
    )


def test_evidence_keeps_its_bytes():
    value = '{"a": 1.0, "a": 1e5, "n": 18446744073709551616, "t": "\\u00e9"}'
    events = raw_lines(
        '{"type":"decision","id":"d","output":{"tool_calls":[{"name":"t","args":' + value + "}]}}",
        '{"type":"tool_result","id":"r","result":' + value + "}",
        '{"type":"read","id":"k","kind":"clock","value":' + value + "}",
        '{"type":"derived","id":"v","inputs":[' + value + '],"value":' + value + "}",
        '{"type":"context_replaced","id":"x","from":' + value + ',"to":' + value + "}",
        '{"type":"event","id":"c","kind":"tool_call","args":' + value + "}",
        '{"type":"event","id":"e","kind":"odd","data":' + value + "}",
    )
    payloads = {event.id: payload_of(event) for event in events}
    for kept in (
        payloads["d/3"].arguments,
        payloads["r"].result,
        payloads["k"].value,
        payloads["v"].value,
        payloads["x"].before,
        payloads["x"].after,
        payloads["c"].arguments,
    ):
        assert bytes(kept) == value.encode()
    assert bytes(payloads["v"].inputs) == f"[{value}]".encode()
    opening = '{"type":"session","id":"s","environment":' + value + "}\n"
    (started,) = events_from(IMPORTER, "session.jsonl", opening.encode())
    assert bytes(payload_of(started).environment) == value.encode()
    assert bytes(payloads["e"].data) == b'{"data":' + value.encode() + b"}"


def test_evidence_keeps_its_bytes_on_a_line_with_a_field_of_another_type():
    (result,) = only(
        raw_lines('{"type":"tool_result","id":5,"result":[1.0, 1e5]}'), Kind.TOOL_RESULT
    )
    assert bytes(result.result) == b"[1.0, 1e5]"


def test_null_is_a_result_and_an_absent_one_is_not_recorded():
    null, absent = only(
        raw_lines(
            '{"type":"tool_result","id":"a","result":null}', '{"type":"tool_result","id":"b"}'
        ),
        Kind.TOOL_RESULT,
    )
    assert raw_value(null.result) is None
    assert absent.result is UNSET


@pytest.mark.parametrize("text", ["\\ud83d", "\\uD83D", "half \\uDC00 way"])
def test_half_a_character_in_evidence_is_kept(text):
    expected = text.encode().decode("unicode_escape")
    events = raw_lines(
        '{"type":"decision","id":"d","context":"' + text + '","output":{"text":"' + text + '",'
        '"tool_calls":[{"name":"t","args":{"k":"' + text + '"}}]}}',
        '{"type":"tool_result","id":"r","result":"' + text + '"}',
    )
    assert only(events, Kind.MODEL_REQUEST)[0].context == expected
    assert only(events, Kind.MODEL_RESPONSE)[0].text == expected
    assert raw_value(only(events, Kind.TOOL_CALL)[0].arguments) == {"k": expected}
    assert raw_value(only(events, Kind.TOOL_RESULT)[0].result) == expected


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity", "7" * 4301])
def test_a_number_without_a_form_is_flagged_and_told(number):
    lines_of = (
        '{"type":"decision","id":"d","output":{"tool_calls":[{"name":"t","args":{"n":%s}}]}}',
        '{"type":"tool_result","id":"r","result":{"n":%s}}',
        '{"type":"event","id":"e","kind":"odd","n":%s}',
        '{"type":"derived","id":"v","inputs":[%s],"value":null}',
    )
    for line in lines_of:
        data = ROOT + (line % number).encode() + b"\n"
        drafts, tally = drafts_from(IMPORTER, "session.jsonl", data)
        assert [damage.reason for damage in tally.damage] == ["unrepresentable number"]
        assert tally.records == 2
        assert {d.flags for d in drafts[2:]} == {("unrepresentable number",)}
        assert events_of(drafts)


def test_half_a_character_in_a_key_of_a_framework_s_own_event_is_kept():
    (custom,) = only(raw_lines('{"type":"event","id":"e","kind":"k","\\ud83d":1}'), Kind.CUSTOM)
    assert raw_value(custom.data) == {"\ud83d": 1}
