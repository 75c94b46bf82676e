"""What is there and cannot be taken is told, and opens the record; it never passes for absent."""

import json

import pytest
from msgspec import UNSET

from redrive.importers.interchange import IMPORTER
from redrive.record.event import Kind, Redaction, payload_of, raw_value
from tests.helpers import drafts_from, events_of

MALFORMED = "malformed field"
NO_ANSWER = "no answer recorded"
ROOT = {"type": "session", "id": "s", "task": "t"}
CALL = {"call_id": "c", "name": "t", "args_json": "{}"}
DECISION = {"type": "decision", "id": "d", "output": {"text": "x", "tool_calls": [CALL]}}
RESULT = {"type": "tool_result", "id": "r", "call_id": "c", "result": 1}


def read(*lines):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    data = "".join(text + "\n" for text in texts).encode()
    drafts, tally = drafts_from(IMPORTER, "session.jsonl", data)
    return events_of(drafts), tally


def reasons(tally):
    return [damage.reason for damage in tally.damage]


def flags_of(events, kind):
    return [event.flags for event in events if event.kind is kind]


def payload(events, kind):
    return next(payload_of(event) for event in events if event.kind is kind)


# --- what places a line
@pytest.mark.parametrize("value", [1.5, True, {}, [], {"a": 1}])
@pytest.mark.parametrize("field", ["id", "parent", "actor", "call_id"])
def test_a_line_whose_place_is_no_text_is_damage(field, value):
    events, tally = read(ROOT, RESULT | {field: value})
    assert reasons(tally) == [f"{field} is no text"]
    assert [event.kind for event in events[1:]] == [Kind.DAMAGE]
    assert tally.records == 2


def test_integers_are_ids_by_their_decimal_text():
    line = RESULT | {"id": 18446744073709551616, "parent": 0, "actor": 3, "call_id": -4}
    decision = {"type": "decision", "id": 7, "output": {"tool_calls": [CALL | {"call_id": 12}]}}
    events, tally = read(ROOT | {"id": 5}, line, decision)
    assert not tally.damage
    assert not tally.lost
    result = events[1]
    assert (result.node_id, result.parent_id) == ("18446744073709551616", "0")
    assert (result.actor, result.call_id) == ("3", "-4")
    assert [event.call_id for event in events if event.kind is Kind.TOOL_CALL] == ["12"]
    assert events[0].session_id.endswith("5")


def test_a_null_place_is_an_absent_one():
    _, tally = read(ROOT, RESULT | {"parent": None, "actor": None, "id": None})
    assert not tally.damage


@pytest.mark.parametrize("ts", [17, "yesterday", "2026-13-01T00:00:00Z", "", [], False])
def test_a_time_that_is_none_is_damage_and_the_line_is_kept(ts):
    events, tally = read(ROOT, RESULT | {"ts": ts})
    assert reasons(tally) == [f"ts is no {'time' if isinstance(ts, str) else 'text'}"]
    assert not tally.lost
    assert not any(event.flags for event in events)
    assert Kind.TOOL_RESULT in [event.kind for event in events]


@pytest.mark.parametrize("name", ["later", 5, ["decision"], None])
def test_a_line_of_an_unknown_type_is_damage(name):
    events, tally = read(ROOT, {"type": name, "id": "q"})
    assert [event.kind for event in events[1:]] == [Kind.DAMAGE]
    assert reasons(tally)[0] in (f"unknown line type {str(name)!r}", "no line type")


# --- copies
def test_two_lines_of_one_id_that_differ_are_damage_and_the_first_stays():
    events, tally = read(ROOT, RESULT, RESULT | {"result": 2})
    assert reasons(tally) == ["another line with id 'r'"]
    assert raw_value(payload(events, Kind.TOOL_RESULT).result) == 1
    assert flags_of(events, Kind.TOOL_RESULT) == [()]


def test_a_line_recovered_from_damage_has_no_copy():
    """A NUL byte in a text: what was recovered is not what lies in the file."""
    odd = b'{"type":"event","id":"u","kind":"user\x00","text":"hi"}\n'
    start = b'{"type":"session","id":"s","task":"t"}\n'
    drafts, tally = drafts_from(IMPORTER, "s.jsonl", start + odd + odd.replace(b"\x00", b""))
    assert "another line with id 'u'" in reasons(tally)
    assert [draft.kind for draft in drafts].count(Kind.DAMAGE) == 2


def test_a_copy_with_a_parent_replaces_one_without_only_where_nothing_else_differs():
    events, tally = read(ROOT, RESULT, RESULT | {"parent": "d"})
    assert [event.supersedes for event in events] == [None, None, "r"]
    assert not tally.damage
    _, tally = read(ROOT, RESULT, RESULT | {"parent": "d", "result": 2})
    assert reasons(tally) == ["another line with id 'r'"]


def test_copies_with_two_parents_are_damage():
    _, tally = read(ROOT, RESULT | {"parent": "a"}, RESULT | {"parent": "b"})
    assert reasons(tally) == ["another line with id 'r'"]


def test_a_spare_copy_is_told_and_no_damage():
    line = RESULT | {"parent": "d"}
    for copy in (line, RESULT):
        events, tally = read(ROOT, line, copy)
        assert tally.lost == ["line 3: a further copy of id 'r'"]
        assert not tally.damage
        assert len(events) == 2


def test_a_second_session_line_is_damage_unless_it_is_the_first_again():
    events, tally = read(ROOT, ROOT | {"captures": {"clock": "unknown"}})
    assert reasons(tally) == ["a second session line"]
    assert [event.kind for event in events] == [Kind.SESSION_STARTED, Kind.DAMAGE]
    _, tally = read(ROOT, ROOT)
    assert not tally.damage
    assert tally.lost == ["line 2: a further copy of the session line"]


def test_a_second_session_line_does_not_change_how_decisions_are_read():
    text = {"type": "decision", "id": "d", "output": {"text": '{"tool":"t","arguments":{}}'}}
    events, _ = read(ROOT, ROOT | {"decisions": "json_content"}, text)
    assert Kind.TOOL_CALL not in [event.kind for event in events]


# --- the session line
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"tools": []}, "field tools is no object"),
        ({"captures": "all"}, "field captures is no object"),
        ({"captures": []}, "field captures is no object"),
        ({"captures": {"clok": "unknown"}}, "field captures.clok is none of"),
        ({"decisions": "json"}, "field decisions is neither"),
        ({"decisions": 5}, "field decisions is no text"),
        ({"renderer": 5}, "field renderer is no text"),
        ({"environment": [1]}, "field environment is no object"),
        ({"parent_session": {}}, "field parent_session is no text"),
        ({"id": 1.5}, "field id is no text"),
    ],
)
def test_an_odd_field_of_the_session_line_is_damage_and_the_line_is_kept(fields, told):
    events, tally = read(ROOT | fields)
    assert [event.kind for event in events] == [Kind.SESSION_STARTED, Kind.DAMAGE]
    assert told in reasons(tally)[0]


@pytest.mark.parametrize("captures", ["all", [], 0, False, True])
def test_captures_of_another_type_leave_every_class_unknown(captures):
    events, _ = read(ROOT | {"captures": captures})
    states = payload(events, Kind.SESSION_STARTED).captures
    classes = {"context", "tool_results", "sampling", "clock", "prng", "environment"}
    assert states == dict.fromkeys(classes, "unknown")


def test_a_word_that_captures_does_not_know_is_unknown():
    said = {"clock": "yes", "prng": None, "context": ["captured"], "tool_results": "captured"}
    events, tally = read(ROOT | {"captures": said | {"later": "captured"}})
    states = payload(events, Kind.SESSION_STARTED).captures
    assert [states[name] for name in ("clock", "prng", "context")] == ["unknown"] * 3
    assert states["tool_results"] == "captured"
    assert not tally.damage


def test_a_null_environment_is_not_recorded():
    events, tally = read(ROOT | {"environment": None, "captures": None, "decisions": None})
    started = payload(events, Kind.SESSION_STARTED)
    assert started.environment is UNSET
    assert started.captures == dict.fromkeys(("tool_results", "clock", "prng"), "captured")
    assert not tally.damage


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({"type": "end", "id": "e", "status": True}, "status is no text"),
        ({"type": "event", "id": "e", "kind": 5}, "kind is no text"),
        ({"type": "event", "id": "e"}, "kind is no text"),
        ({"type": "event", "id": "e", "kind": "tool_call"}, "tool is no text"),
        ({"type": "event", "id": "e", "kind": "user", "text": ["x"]}, "text is no text"),
        (
            {"type": "event", "id": "e", "kind": "tool_call", "tool": "t", "redactions": 1},
            "redactions is no list",
        ),
        ({"type": "model_error", "id": "e", "status": "529"}, "status is no integer"),
        ({"type": "permission", "id": "e", "decision": 1}, "decision is no text"),
    ],
)
def test_an_odd_field_of_a_line_of_no_step_is_damage_and_the_line_is_kept(line, told):
    events, tally = read(ROOT, line)
    assert len(events) == 3
    assert events[-1].kind is Kind.DAMAGE
    assert reasons(tally) == [f"field {told}"]


def test_a_read_below_a_line_that_never_came_is_damage():
    read_line = {"type": "read", "id": "k", "kind": "clock", "name": "n", "value": 1}
    late = {"type": "derived", "id": "v", "parent": "e", "name": "n", "inputs": []}
    end = {"type": "end", "id": "e"}
    events, tally = read(ROOT, read_line | {"parent": "gone"}, late, end)
    assert reasons(tally) == ["no line has the parent's id 'gone'"]
    assert [event.kind for event in events][-1] is Kind.DAMAGE
    events, tally = read(ROOT, read_line | {"parent": "gone", "ts": "soon"})
    assert len(tally.damage) == len({event.id for event in events if event.kind is Kind.DAMAGE})


# --- decisions
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"output": []}, "output is no object"),
        ({"output": "x"}, "output is no object"),
        ({"output": {"text": ["x"]}}, "output.text is no text"),
        ({"output": {"text": "x", "tool_calls": {}}}, "output.tool_calls is no list"),
        ({"output": {"tool_calls": ["x"]}}, "output.tool_calls[0] is no object"),
        ({"output": {"tool_calls": [CALL, None]}}, "output.tool_calls[1] is no object"),
        ({"output": {"tool_calls": [{}]}}, "output.tool_calls[0].name is not there"),
        ({"output": {"tool_calls": [{"name": ""}]}}, "output.tool_calls[0].name is not there"),
        ({"output": {"tool_calls": [{"name": 5}]}}, "output.tool_calls[0].name is no text"),
        (
            {"output": {"tool_calls": [CALL | {"args_json": {"a": 1}}]}},
            "output.tool_calls[0].args_json is no text",
        ),
        (
            {"output": {"tool_calls": [CALL | {"args": {"a": 1}, "args_json": '{"a":2}'}]}},
            "output.tool_calls[0].args is not what args_json says",
        ),
        (
            {"output": {"tool_calls": [CALL | {"args": {"a": 1}, "args_json": "{torn"}]}},
            "output.tool_calls[0].args is not what args_json says",
        ),
        (
            {"output": {"tool_calls": [CALL | {"call_id": [1]}]}},
            "output.tool_calls[0].call_id is no text",
        ),
        ({"step": "one"}, "step is no integer"),
        ({"model": "m"}, "model is no object"),
        ({"model": {"served": 5}}, "model.served is no text"),
        ({"context": 5}, "context is no text"),
        ({"context": ["x"]}, "context is no text"),
        ({"context_truncated": 1}, "context_truncated is no boolean"),
        ({"request": "{}"}, "request is no object"),
        ({"request": {"body": {"a": 1}}}, "request.body is no text"),
        ({"usage": []}, "usage is no object"),
        ({"usage": {"cost_usd": True}}, "usage.cost_usd is no text or integer or number"),
        ({"sampling": [1]}, "sampling is no object"),
        ({"sampling": {"temperature": True}}, "sampling.temperature is no number"),
        ({"sampling": {"top_p": "1"}}, "sampling.top_p is no number"),
        ({"sampling": {"seed": "7"}}, "sampling.seed is no integer"),
        ({"sampling": {"top_k": 2.5}}, "sampling.top_k is no integer"),
        ({"sampling": {"logits": "none"}}, "sampling.logits is no boolean, list or object"),
        ({"sampling": {"chosen_tokens": "1"}}, "sampling.chosen_tokens is no list"),
        ({"sampling": {"chosen_tokens": [1, True]}}, "sampling.chosen_tokens is no list of"),
        ({"redactions": True}, "redactions is no list"),
        ({"redactions": ["context"]}, "redactions[0] is no object with a path"),
    ],
)
def test_an_odd_field_of_a_decision_flags_its_events(fields, told):
    events, tally = read(ROOT, DECISION | fields)
    assert len(events) > 2
    assert all(MALFORMED in event.flags for event in events[1:])
    assert len(tally.lost) == 1
    assert tally.lost[0].startswith(f"line 2: field {told}")
    assert not tally.damage


def test_recorded_nulls_and_usual_values_are_no_fault():
    nulls = dict.fromkeys(
        ("step", "model", "sampling", "context", "context_truncated", "request", "usage", "ts")
    )
    calls = [
        CALL | {"args": None},
        CALL | {"args": {"a": 1.0}, "args_json": '{ "a" : 1 }'},
        CALL | {"args": {}, "args_json": ""},
        CALL | {"args_json": None, "args": {"b": 2}},
    ]
    output = {"text": None, "tool_calls": calls, "redactions": None, "stop_reason": None}
    sampling = {"temperature": 0.0, "top_p": 1, "seed": None, "logits": [], "min_p": "x"}
    events, tally = read(
        ROOT,
        DECISION | nulls | {"redactions": None, "output": output},
        DECISION | {"id": "e", "sampling": sampling | {"chosen_tokens": []}},
    )
    assert not tally.lost
    assert not tally.damage
    assert all(not event.flags for event in events)
    found = [payload_of(event) for event in events if event.kind is Kind.TOOL_CALL]
    assert [call.arguments_text for call in found[:3]] == ["{}", '{ "a" : 1 }', ""]
    assert [call.arguments for call in found[:3]] == [UNSET] * 3
    assert raw_value(found[3].arguments) == {"b": 2}


@pytest.mark.parametrize(
    "output", [None, {}, [], {"text": None}, {"tool_calls": []}, {"text": None, "tool_calls": None}]
)
def test_an_answer_without_text_and_calls_is_not_recorded(output):
    events, _ = read(ROOT, DECISION | {"output": output})
    (flags,) = flags_of(events, Kind.MODEL_RESPONSE)
    assert NO_ANSWER in flags
    (flags,) = flags_of(events, Kind.MODEL_REQUEST)
    assert NO_ANSWER not in flags


@pytest.mark.parametrize("output", [{"text": ""}, {"tool_calls": [CALL]}])
def test_an_empty_text_and_a_call_alone_are_answers(output):
    events, _ = read(ROOT, DECISION | {"output": output})
    assert flags_of(events, Kind.MODEL_RESPONSE) == [()]


def test_what_the_output_says_of_its_own_masks_is_read():
    output = {"text": "x", "redactions": [{"path": "text", "rule": "key"}]}
    events, tally = read(ROOT, DECISION | {"output": output})
    assert payload(events, Kind.MODEL_RESPONSE).redactions == (Redaction("text", "key"),)
    assert not tally.lost


# --- results, reads, derived values and events
@pytest.mark.parametrize("value", ["result", ["result"], {"path": "result"}, True, 1, [{}], ""])
@pytest.mark.parametrize(
    "line",
    [
        RESULT,
        {"type": "read", "id": "k", "kind": "clock", "name": "now", "value": 1},
        {"type": "derived", "id": "v", "name": "n", "inputs": [], "value": 1},
        {"type": "decision", "id": "d", "output": {"tool_calls": [CALL]}},
    ],
)
def test_odd_redactions_say_that_something_was_masked(line, value):
    masked = line | {"redactions": value}
    if line["type"] == "decision":
        masked = line | {"output": {"tool_calls": [CALL | {"redactions": value}]}}
    events, tally = read(ROOT, masked)
    path = value["path"] if isinstance(value, dict) else ""
    assert payload_of(events[-1]).redactions == (Redaction(path),)
    assert MALFORMED in events[-1].flags
    assert "redactions" in tally.lost[0]


@pytest.mark.parametrize("value", ["true", 1, [True]])
def test_a_truthy_flag_of_truncation_counts(value):
    events, tally = read(ROOT, RESULT | {"result_truncated": value})
    assert payload(events, Kind.TOOL_RESULT).truncated
    assert tally.lost == ["line 2: field result_truncated is no boolean"]
    assert flags_of(events, Kind.TOOL_RESULT) == [(MALFORMED,)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (RESULT | {"status": 500}, "status is no text"),
        (RESULT | {"name": []}, "name is no text"),
        (RESULT | {"original_chars": "9"}, "original_chars is no integer"),
        ({"type": "read", "id": "k", "kind": "Clock", "name": "n"}, "kind is neither"),
        ({"type": "read", "id": "k", "name": "n"}, "kind is neither"),
        ({"type": "read", "id": "k", "kind": "prng"}, "name is not there"),
        ({"type": "derived", "id": "v", "step": "1"}, "step is no integer"),
    ],
)
def test_an_odd_field_of_another_line_flags_its_event(line, told):
    events, tally = read(ROOT, line)
    assert [event.flags for event in events[1:]] == [(MALFORMED,)]
    assert told in tally.lost[0]


def test_an_empty_status_is_not_ok():
    events, _ = read(ROOT, RESULT | {"status": ""})
    assert payload(events, Kind.TOOL_RESULT).status == ""


# --- keys that stand twice
@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('{"type":"tool_result","id":"r","call_id":"c","result":1,"result":2}', "result"),
        (
            '{"type":"tool_result","id":"r","redactions":[{"path":"result"}],"redactions":[]}',
            "redactions",
        ),
        ('{"type":"decision","id":"d","output":{"text":"a","text":"b"}}', "output.text"),
        (
            '{"type":"decision","id":"d","output":{"tool_calls":[{"name":"a","name":"b"}]}}',
            "output.tool_calls[0].name",
        ),
        (
            '{"type":"decision","id":"d","sampling":{"seed":1,"seed":2},"output":{"text":""}}',
            "sampling.seed",
        ),
        ('{"type":"read","id":5,"kind":"prng","name":"n","name":"m"}', "name"),
    ],
)
def test_a_key_that_stands_twice_flags_its_line(line, key):
    events, tally = read(ROOT, line)
    assert all(event.flags == (MALFORMED,) for event in events[1:])
    assert tally.lost == [f"line 2: field {key} stands twice"]


@pytest.mark.parametrize("key", ["type", "id", "parent", "call_id"])
def test_a_line_that_names_its_place_twice_is_damage(key):
    line = '{"type":"tool_result","id":"r","parent":"d","call_id":"c",'
    _, tally = read(ROOT, f'{line}"{key}":"end"}}')
    assert reasons(tally) == [f"{key} stands twice"]


def test_a_key_that_stands_twice_in_a_line_of_no_step_is_damage():
    _, tally = read('{"type":"session","id":"s","task":"t","captures":{},"captures":null}')
    assert reasons(tally) == ["field captures stands twice"]
    _, tally = read(ROOT, '{"type":"event","id":"e","kind":"k","x":1,"x":2}')
    assert reasons(tally) == ["field x stands twice"]


def test_a_copy_that_names_a_key_twice_is_no_copy():
    line = '{"type":"tool_result","id":"r","result":1%s}'
    _, tally = read(ROOT, line % "", line % ',"result":1')
    assert reasons(tally) == ["another line with id 'r'"]


def test_the_faults_of_one_line_are_told_up_to_a_bound():
    _, tally = read(ROOT, DECISION | {"output": {"tool_calls": [5] * 50}})
    assert len(tally.lost) == 20


def test_a_json_decision_keeps_arguments_without_a_form_as_their_text():
    opening = ROOT | {"decisions": "json_content"}
    for arguments, text in (('{"a":1e999}', '{"a":1e999}'), ('{"a":1,"a":2}', None)):
        answer = f'{{"tool":"t","arguments":{arguments}}}'
        events, _ = read(opening, DECISION | {"output": {"text": answer}})
        call = payload(events, Kind.TOOL_CALL)
        assert call.arguments_text == text
        assert (call.arguments is UNSET) is (text is not None)
        if text is None:
            assert bytes(call.arguments).decode() == arguments
