"""The four conditions, each on a session that lacks one thing."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from redrive.audit.closure import audit
from redrive.audit.conditions import CAPTURES, SERVING_STATE, judge_captures
from redrive.audit.gaps import InputClass
from redrive.audit.report import AuditReport
from redrive.record.event import (
    FLAG_MALFORMED,
    FLAG_NO_ANSWER,
    FLAG_RECOVERED,
    FLAG_UNREPRESENTABLE,
    Custom,
    Kind,
    ModelError,
    ModelRequest,
    ModelResponse,
    Note,
    Payload,
    Redaction,
    Sampling,
    SessionStarted,
    ToolCall,
    Usage,
    UserMessage,
    dump_payload,
    payload_of,
    raw_of,
)
from tests.helpers_sessions import CLOSED, SEEDED, SessionBuilder, gaps_of

MASK = (Redaction("messages[0]", "key"),)
BODY = '{"model":"m-1","messages":[],"temperature":0,"seed":7}'


def request(**fields: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m-1", "sampling": SEEDED} | fields)


def audit_request(**fields: Any) -> AuditReport:
    return SessionBuilder().decision(request=request(**fields)).audit(renderers={})


def causes(report: AuditReport) -> list[str]:
    return [cause for _, _, cause in gaps_of(report)]


def notes_of(report: AuditReport) -> list[str]:
    return [note for step in report.steps for note in step.notes if "assembly" not in note]


# --- input
@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({}, "nothing_sent"),
        ({"parts": raw_of([{"role": "user"}])}, "normalised_parts"),
        ({"context": "x", "truncated": True}, "truncated_request"),
        ({"context": "x", "redactions": MASK}, "masked_request"),
        ({"context": "x", "redactions": (Redaction("", None),)}, "masked_request"),
        ({"context": "key [REDACTED]"}, "redaction_mark"),
        ({"context": "x", "by_reference": ("file_1",)}, "by_reference"),
        ({"body": '{"previous_response_id":"resp_1"}'}, "by_reference"),
        ({"body": '{"tools":[{"type":"web_search"}]}'}, "provider_side"),
        ({"body": '{"messages":["xxxxxxxxxxxx"]}'}, "redaction_mark"),
    ],
)
def test_an_incomplete_request_opens_input(fields: dict[str, Any], cause: str) -> None:
    report = audit_request(**fields)
    assert gaps_of(report) == [(1, "input", cause)]
    assert not report.steps[0].decision_closed


def test_a_step_without_request_lacks_input_and_sampling() -> None:
    report = SessionBuilder().decision(request=None).audit()
    assert causes(report) == ["nothing_sent", "missing_parameter", "no_seed"]


@pytest.mark.parametrize("fields", [{"context": ""}, {"context": "x"}, {"body": BODY}])
def test_stored_bytes_close_input_and_empty_ones_are_bytes(fields: dict[str, Any]) -> None:
    assert audit_request(**fields).is_closed


def test_the_body_counts_and_a_differing_context_is_noted() -> None:
    report = audit_request(body=BODY, context="[REDACTED]")
    assert report.is_closed
    assert notes_of(report) == ["context differs from request.body; the body counts"]
    assert notes_of(audit_request(body=BODY, context=BODY)) == []


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"truncated": True}, "truncated_answer"),
        ({"redactions": MASK}, "masked_answer"),
        ({"redactions": (Redaction("", None),), "text": "[REDACTED]"}, "masked_answer"),
        ({"text": "the key is ********"}, "redaction_mark"),
    ],
)
def test_an_incomplete_answer_opens_its_step(fields: dict[str, Any], cause: str) -> None:
    response = ModelResponse(**{"fingerprint": "fp", "model": "m"} | fields)
    assert causes(SessionBuilder().decision(response=response).audit()) == [cause]


def test_duplicate_keys_are_notes_and_open_nothing() -> None:
    built = SessionBuilder().decision(("c1", "t", {}), request=request(context='{"a":1,"a":2}'))
    twice = msgspec.Raw(b'{"a":1,"a":2}')
    built.replace(built.seqs(Kind.TOOL_CALL)[0], arguments=twice).result("c1", 0, result=twice)
    built.call(ToolCall("t", arguments_text='{"a":1,"a":2}'), "c2").result("c2", 0)
    report = built.audit(renderers={})
    assert report.is_closed
    assert notes_of(report) == [
        "duplicate keys in context",
        "duplicate keys in the arguments of c1",
        "duplicate keys in the arguments of c2",
        "duplicate keys in the result c1",
    ]


@pytest.mark.parametrize(
    ("kind", "input_class"),
    [
        (Kind.MODEL_REQUEST, "input"),
        (Kind.TOOL_CALL, "input"),
        (Kind.TOOL_RESULT, "environment"),
        (Kind.VALUE_DERIVED, "environment"),
        (Kind.CLOCK_READ, "clock"),
        (Kind.PRNG_READ, "prng"),
        (Kind.CUSTOM, "input"),
    ],
)
@pytest.mark.parametrize(
    ("flag", "word"), [(FLAG_UNREPRESENTABLE, "inexact"), (FLAG_MALFORMED, "malformed")]
)
def test_a_number_or_field_without_meaning_opens_the_class_it_stands_in(
    kind: Kind, input_class: str, flag: str, word: str
) -> None:
    built = SessionBuilder().custom().decision(("c1", "t", {})).result("c1", 1)
    built.read("clock", "now", 1).read("prng", "x", 1).derived("s", [1], function="f")
    seq = built.seqs(kind)[0]
    built.events[seq] = msgspec.structs.replace(built.events[seq], flags=(flag,))
    found = [(gap.input_class, gap.cause) for gap in built.audit().steps[0].missing]
    assert found == [(input_class, f"{word}_{input_class}")]


def test_an_answer_that_is_not_recorded_opens_its_step() -> None:
    built = SessionBuilder().decision(("c1", "t", {})).result("c1", 1)
    seq = built.seqs(Kind.MODEL_RESPONSE)[0]
    flags = (FLAG_NO_ANSWER, FLAG_RECOVERED)
    built.events[seq] = msgspec.structs.replace(built.events[seq], flags=flags)
    found = [(gap.input_class, gap.cause) for gap in built.audit().steps[0].missing]
    assert found == [("input", "answer_not_recorded")]


def test_a_masked_read_or_derived_value_opens_its_class() -> None:
    built = SessionBuilder().decision(("c1", "t", {})).result("c1", 1)
    built.read("clock", "now", 1).read("prng", "x", 1).derived("s", [1], function="f")
    for kind in (Kind.CLOCK_READ, Kind.PRNG_READ, Kind.VALUE_DERIVED):
        seq = built.seqs(kind)[0]
        payload = payload_of(built.events[seq])
        masked = msgspec.structs.replace(payload, redactions=(Redaction("value"),))
        built.events[seq] = msgspec.structs.replace(built.events[seq], payload=dump_payload(masked))
    gaps = built.audit().steps[0].missing
    causes = {"masked_derived", "masked_clock_value", "masked_prng_value"}
    assert {gap.cause for gap in gaps} == causes
    assert all("no rule named" in gap.reason for gap in gaps)


# --- environment
@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"result": UNSET}, "missing_result"),
        ({"truncated": True}, "truncated_result"),
        ({"truncated": True, "original_chars": 11_996}, "truncated_result"),
        ({"redactions": MASK}, "masked_result"),
        ({"redactions": (Redaction("", None),)}, "masked_result"),
        ({"result": raw_of("<redacted>")}, "masked_result"),
    ],
)
def test_an_unusable_result_opens_the_step_that_called(fields: dict[str, Any], cause: str) -> None:
    built = SessionBuilder().decision(("c1", "t", {})).result("c1", "r", **fields).decision()
    report = built.audit()
    assert gaps_of(report) == [(1, "environment", cause)]
    assert report.steps[0].missing[0].what == "tool_result:c1"
    assert report.steps[0].decision_closed


@pytest.mark.parametrize("value", ["", [], 0, False, {}, None, "…truncated by the tool…"])
def test_an_empty_or_null_result_is_evidence(value: object) -> None:
    assert (
        SessionBuilder().decision(("c1", "t", {})).result("c1", value).decision().audit().is_closed
    )


def test_a_missing_result_names_call_and_tool() -> None:
    gap = SessionBuilder().decision(("c1", "touch", {})).audit().steps[0].missing[0]
    assert (gap.what, "touch" in gap.reason) == ("tool_result:c1", True)


def test_a_call_without_id_is_named_by_its_event() -> None:
    built = SessionBuilder().decision().call(ToolCall("t"), None)
    assert built.audit().steps[0].missing[0].what == "tool_result:e3"


def test_equal_results_are_one_and_differing_ones_conflict() -> None:
    built = SessionBuilder().decision(("c1", "t", {})).result("c1", 1).result("c1", 1)
    assert built.audit().is_closed
    gaps = built.result("c1", 2).audit().steps[0].missing
    assert [(gap.cause, gap.what) for gap in gaps] == [("conflicting_results", "tool_result:c1")]
    assert "3 results" in gaps[0].reason


def test_a_result_that_answers_no_call_is_a_note() -> None:
    report = SessionBuilder().result("gone", 1).decision().result("other", 2).audit(renderers={})
    assert report.is_closed
    assert notes_of(report) == [
        "the result gone answers no recorded call",
        "the result other answers no recorded call",
    ]


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({"is_not_recorded": True}, "not recorded"),
        ({"truncated": True}, "cut by the recorder"),
        ({"redactions": MASK}, "masked"),
        ({"arguments": raw_of({"key": "[redacted:k:00000000]"})}, "masked"),
    ],
)
def test_incomplete_arguments_open_the_environment(fields: dict[str, Any], state: str) -> None:
    built = SessionBuilder().decision().call(ToolCall("t", **fields), "c1").result("c1", 1)
    (gap,) = built.audit().steps[0].missing
    assert (gap.cause, gap.what) == ("incomplete_arguments", "arguments:c1")
    assert state in gap.reason


def test_a_call_that_the_provider_ran_opens_input_by_name_and_needs_no_result() -> None:
    built = SessionBuilder().decision().call(ToolCall("web_search", is_provider_side=True), "c1")
    (gap,) = built.audit().steps[0].missing
    assert (gap.input_class, gap.what) == ("input", "web_search")
    assert not built.audit().steps[0].decision_closed


@pytest.mark.parametrize("inputs", [UNSET, None, {"a": 1}, "text"])
def test_a_derived_value_without_ordered_inputs_names_function_and_value(inputs: object) -> None:
    built = SessionBuilder().decision().derived("latency", inputs, function="summariser")
    (gap,) = built.audit().steps[0].missing
    assert (gap.input_class, gap.what) == ("environment", "inputs:latency")
    assert "summariser" in gap.reason


def test_a_derived_value_with_its_inputs_is_closed_unless_they_are_masked() -> None:
    assert SessionBuilder().decision().derived("l", [], function=None).audit().is_closed
    masked = SessionBuilder().decision().derived("l", ["[REDACTED]"], function=None)
    assert causes(masked.audit()) == ["masked_derived"]
    assert "unnamed" in masked.audit().steps[0].missing[0].reason


# --- sampling
@pytest.mark.parametrize(
    ("sampling", "found"),
    [
        (Sampling(temperature=0, top_p=1), ["no_seed"]),
        (Sampling(temperature=0, seed=0), []),
        (Sampling(seed=7), ["missing_parameter"]),
        (None, ["missing_parameter", "no_seed"]),
        (Sampling(temperature=0.0, seed=7), []),
    ],
)
def test_without_a_body_the_lines_must_hold_temperature_and_seed(
    sampling: Sampling | None, found: list[str]
) -> None:
    report = SessionBuilder().decision(sampling=sampling).audit()
    assert causes(report) == found
    assert report.steps[0].decision_closed is ("missing_parameter" not in found)


def test_with_a_body_an_absent_parameter_is_a_known_absence() -> None:
    assert audit_request(body='{"model":"m","seed":7}', sampling=None).is_closed
    report = audit_request(body='{"model":"m"}', sampling=None)
    assert causes(report) == ["no_seed"]
    assert report.steps[0].decision_closed


def test_a_null_or_hostile_seed_in_the_body_is_not_recorded() -> None:
    for seed in ("null", '"7"', "true"):
        assert causes(audit_request(body=f'{{"seed":{seed}}}', sampling=None)) == ["no_seed"]


@pytest.mark.parametrize("api", ["openai.chat", "openai.responses", "anthropic.messages"])
@pytest.mark.parametrize("body", ["", '""', "not json", '{"a":1', '\ufeff{"a":1}', '{"a":1e400}'])
def test_a_body_of_a_known_api_that_is_not_one_json_object_opens_input(api: str, body: str) -> None:
    report = audit_request(api=api, body=body)
    assert causes(report) == ["unreadable_body"]
    gap = report.steps[0].missing[0]
    assert (gap.what, gap.input_class) == ("request.body", InputClass.INPUT)
    assert gap.reason.startswith("the stored request.body is not one JSON object")
    assert not report.steps[0].decision_closed
    assert audit_request(api="other", body=body).is_closed


def test_tools_of_a_known_api_that_are_no_list_open_input() -> None:
    body = '{"tools":{"type":"web_search"}}'
    report = audit_request(api="openai.chat", body=body)
    assert causes(report) == ["unreadable_body"]
    assert report.steps[0].missing[0].what == "request.body.tools"
    assert audit_request(api="other", body=body).is_closed


def test_a_mark_that_an_escape_spells_is_found_in_body_and_arguments() -> None:
    assert causes(audit_request(body='{"input":"\\u0052EDACTED"}')) == ["redaction_mark"]
    call = ToolCall("t", arguments_text='{"key":"\\u0052EDACTED"}')
    built = SessionBuilder().decision().call(call, "c1").result("c1", 1)
    assert causes(built.audit()) == ["incomplete_arguments"]


def test_a_body_that_is_no_json_tells_no_parameters() -> None:
    assert causes(audit_request(body="?", sampling=None)) == ["missing_parameter", "no_seed"]


@pytest.mark.parametrize("fields", [{"chosen_tokens": (15, 2)}, {"has_logits": True}])
def test_chosen_tokens_or_logits_stand_for_a_seed(fields: dict[str, Any]) -> None:
    response = ModelResponse(model="m", **fields)
    built = SessionBuilder().decision(response=response, sampling=Sampling(temperature=0.7))
    assert built.audit().is_closed
    assert SERVING_STATE not in notes_of(built.audit())


def test_a_seed_without_engine_fingerprint_is_closed_with_a_note() -> None:
    report = SessionBuilder().decision(response=ModelResponse(model="m")).audit()
    assert report.is_closed
    assert notes_of(report) == [SERVING_STATE]


@pytest.mark.parametrize(
    ("usage", "notes"),
    [(None, [SERVING_STATE]), (Usage(), [SERVING_STATE]), (Usage(cache_read_tokens=0), [])],
)
@pytest.mark.parametrize(
    "fields",
    [
        {"body": '{"temperature":0,"seed":7,"top_p":1,"cache_prompt":true}'},
        {"context": "x", "sampling": Sampling(temperature=0, seed=7, extra={"cache_prompt": True})},
    ],
)
def test_a_prompt_cache_needs_its_state(
    fields: dict[str, Any], usage: Usage | None, notes: list[str]
) -> None:
    response = ModelResponse(model="m", fingerprint="fp", usage=usage)
    report = SessionBuilder().decision(request=request(**fields), response=response).audit()
    assert report.is_closed
    assert notes_of(report) == notes


def test_a_line_that_differs_from_the_body_is_noted() -> None:
    report = audit_request(body='{"temperature":1,"seed":7}')
    assert notes_of(report) == ["sampling.temperature differs from request.body; the body counts"]


def test_a_model_that_is_named_nowhere_is_noted() -> None:
    response = ModelResponse(fingerprint="fp")
    built = SessionBuilder().decision(
        request=ModelRequest(context="x", sampling=SEEDED), response=response
    )
    assert notes_of(built.audit(renderers={})) == ["the model is not named"]
    nothing = SessionBuilder().decision(request=None, response=response)
    assert "the model is not named" in notes_of(nothing.audit())


# --- clock and PRNG, captures
@pytest.mark.parametrize("kind", ["clock", "prng"])
def test_a_read_needs_its_value_and_zero_is_one(kind: str) -> None:
    assert SessionBuilder().decision().read(kind, "x", 0).audit().is_closed
    for value in (UNSET, None):
        built = SessionBuilder().decision().read(kind, "x", value)
        assert gaps_of(built.audit()) == [(1, kind, f"missing_{kind}_value")]


@pytest.mark.parametrize("state", ["unknown", "not_captured", "a word of a newer writer"])
@pytest.mark.parametrize("key", CAPTURES)
def test_a_class_that_was_not_captured_opens_every_step(key: str, state: str) -> None:
    built = SessionBuilder(captures=CLOSED | {key: state}).decision().decision()
    wanted = CAPTURES[key][0].value
    assert gaps_of(built.audit()) == [(n, wanted, f"{key}_not_captured") for n in (1, 2)]


def test_sampling_that_was_not_captured_is_not_decision_closed() -> None:
    built = SessionBuilder(captures=CLOSED | {"sampling": "unknown"}).decision()
    assert not built.audit().steps[0].decision_closed


def test_an_import_is_unknown_for_clock_and_prng_whatever_it_claims() -> None:
    for started in (None, SessionStarted(captures=CLOSED)):
        assert [gap.what for gap in judge_captures(started)] == ["clock", "prng"]


@pytest.mark.parametrize("basis", ["intercepted", "vouched", "proved_by_rerun"])
def test_a_trusted_basis_speaks_for_absent_reads(basis: str) -> None:
    assert judge_captures(SessionStarted(basis=basis)) == ()


def test_a_session_without_a_session_line_is_audited() -> None:
    built = SessionBuilder().decision()
    report = audit(*built.build(), session_started=None, renderers={})
    assert [gap.what for gap in report.steps[0].missing] == ["clock", "prng"]
    assert report.steps[0].basis == "unknown"
    assert report.steps[0].decision_closed


# --- redactions outside of the model's exchange
@pytest.mark.parametrize(
    ("kind", "payload", "gap"),
    [
        (Kind.USER_MESSAGE, UserMessage("hi", redactions=MASK), "masked_event"),
        (Kind.MODEL_ERROR, ModelError(status=500, redactions=MASK), "masked_event"),
        (Kind.CUSTOM, Custom("harness.result", redactions=MASK), "masked_custom"),
    ],
)
def test_a_masked_event_opens_the_step_that_it_led_to(
    kind: Kind, payload: Payload, gap: str
) -> None:
    report = SessionBuilder().decision().add(kind, payload).decision().audit()
    found = [(step, cause) for step, _, cause in gaps_of(report) if cause.startswith("masked")]
    assert found == [(2, gap)]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (Kind.CUSTOM, Custom("x", raw_of({"redactions": []}))),
        (Kind.NOTE, Note("x", '"redactions"')),
        (Kind.USER_MESSAGE, UserMessage("the word [REDACTED]")),
    ],
)
def test_what_lists_no_redaction_opens_nothing(kind: Kind, payload: Payload) -> None:
    report = SessionBuilder(renderer=None).add(kind, payload).decision().audit()
    assert report.is_closed


def test_a_masked_value_of_the_environment_opens_the_first_step_and_a_masked_task_none() -> None:
    masked = (Redaction("task", "field"), Redaction("environment.git.remote", None))
    report = SessionBuilder(redactions=masked).decision().decision().audit()
    assert gaps_of(report) == [(1, "environment", "masked_environment")]
    assert SessionBuilder(redactions=masked[:1]).decision().audit().is_closed
