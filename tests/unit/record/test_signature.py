import json

import pytest
from msgspec import UNSET, Raw

from redrive.record.event import Kind, ToolResult
from redrive.record.signature import (
    EMPTY_ARGUMENTS,
    EMPTY_TEXT,
    NOT_RECORDED,
    CallSignature,
    DecisionSignature,
    ResultSignature,
    argument_digests,
    canonical_bytes,
    event_signatures,
    result_signature,
    split_text,
    text_digest,
)


def digest_of(text: str) -> bytes:
    return argument_digests(UNSET, text).value


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(UNSET, None), (UNSET, ""), (UNSET, "{}"), (UNSET, " { } "), (Raw(b"{}"), None)],
)
def test_absent_empty_and_braces_are_one_value(arguments, text):
    assert argument_digests(arguments, text).value == EMPTY_ARGUMENTS


def test_null_arguments_are_a_value_of_their_own():
    assert digest_of("null") != EMPTY_ARGUMENTS


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"a":1,"b":2}', '{ "b" : 2, "a" : 1 }'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":"/"}', '{"a":"\\/"}'),
        ('{"a":"A"}', '{"a":"\\u0041"}'),
        ('{"é":1,"a":2}', '{"a":2,"\\u00e9":1}'),
    ],
)
def test_one_json_value_has_one_digest_however_it_is_written(left, right):
    assert digest_of(left) == digest_of(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"a":1}', '{"a":true}'),
        ('{"a":18446744073709551616}', '{"a":18446744073709551617}'),
        ('{"a":"é"}', '{"a":"e\\u0301"}'),
        ('{"a":[1,2]}', '{"a":[2,1]}'),
        ('{"a":null}', "{}"),
        ('{"a":0}', '{"a":""}'),
    ],
)
def test_different_values_have_different_digests(left, right):
    assert digest_of(left) != digest_of(right)


@pytest.mark.parametrize(
    "text",
    [
        '{"x":1',
        "make test",
        '{"a":1,"a":1}',
        '{"a":1.5,"a":1.5}',
        '{"a":NaN}',
        '{"a":' + "1" * 5000 + "}",
        "[" * 5000 + "]" * 5000,
        " ",
    ],
)
def test_text_that_is_no_strict_json_is_its_own_verbatim_value(text):
    assert canonical_bytes(text.encode()) is None
    assert digest_of(text) == digest_of(text)
    assert digest_of(text) not in {EMPTY_ARGUMENTS, digest_of(text + " "), digest_of('{"a":1}')}


def test_a_duplicate_key_is_not_hidden_by_an_escaped_colon():
    assert canonical_bytes(b'{"a":"\\u003a","b":1,"b":2}') is None


def test_a_duplicate_key_in_a_nested_object_is_found():
    assert canonical_bytes(b'{"a":[{"b":1.5,"b":2}]}') is None


def test_equal_values_written_in_other_bytes_have_other_checksums():
    ours, theirs = argument_digests(UNSET, '{"a":1}'), argument_digests(UNSET, '{"a": 1}')
    assert ours.value == theirs.value
    assert ours.source != theirs.source
    assert argument_digests(Raw(b'{"a":1}'), None) == ours


def test_half_an_emoji_is_not_the_replacement_character():
    assert text_digest("ok \ud83d") != text_digest("ok �")
    assert text_digest("") == EMPTY_TEXT


def test_results_are_signed_by_value_and_status():
    def signed(value, status="ok"):
        return result_signature(ToolResult(status=status, result=Raw(json.dumps(value).encode())))

    assert signed({"a": 1, "b": [2]}) == signed({"b": [2], "a": 1.0})
    assert signed(None) != signed(None, "error")
    assert len({signed(v).result for v in (None, 0, "", [], {}, False)}) == 6
    assert result_signature(None) == ResultSignature("", NOT_RECORDED)
    assert result_signature(ToolResult()).result == NOT_RECORDED
    assert result_signature(ToolResult(result=Raw(b"NaN"))).result != NOT_RECORDED


def test_a_decision_follows_calls_and_termination_and_not_the_text():
    call = CallSignature("t", b"1")
    ours = DecisionSignature(b"x", (call,), is_final=False)
    assert ours.decides_as(DecisionSignature(b"y", (call,), is_final=False))
    assert not ours.decides_as(DecisionSignature(b"x", (call,), is_final=True))
    assert not ours.decides_as(DecisionSignature(b"x", (), is_final=False))


def test_a_decision_is_shown_as_the_signatures_of_its_events():
    decision = DecisionSignature(
        b"\x01",
        (CallSignature("a", b"\x02"), CallSignature("b", NOT_RECORDED)),
        is_final=False,
        results=(ResultSignature("ok", b"\x03"), ResultSignature("", NOT_RECORDED)),
    )
    answer, first, second, given, lost = event_signatures(decision)
    assert (answer.kind, answer.text_hash) == (Kind.MODEL_RESPONSE, "01")
    assert (first.tool, first.argument_hash) == ("a", "02")
    assert second.argument_hash is None
    assert (given.kind, given.result_hash, given.status) == (Kind.TOOL_RESULT, "03", "ok")
    assert lost.result_hash is None


def test_under_tool_calls_a_json_text_stays_text():
    text = '{"tool":"a"}'
    assert split_text(text, "tool_calls").rest == text
    assert split_text(text, "tool_calls").call is None


@pytest.mark.parametrize("text", ["plain", "{torn", "{}", '{"tool":1}'])
def test_under_json_content_other_texts_stay_text(text):
    parts = split_text(text, "json_content")
    assert (parts.rest, parts.call) == (text, None)


def test_under_json_content_a_decision_is_a_call_and_its_white_space_is_no_text():
    parts = split_text('{ "tool" : "a",\t"arguments": {"x": 1} }', "json_content")
    assert parts.rest == ""
    assert parts.call is not None
    assert parts.call.tool == "a"
    assert bytes(parts.call.arguments) == b'{"x": 1}'


def test_under_json_content_what_stands_beside_the_decision_is_text():
    ours = split_text('{"tool":"a","why":"x","n":1}', "json_content")
    theirs = split_text('{"n":1, "why": "x", "tool":"a"}', "json_content")
    assert ours.rest == theirs.rest == '{"n":1,"why":"x"}'


def test_what_stands_beside_a_decision_may_have_no_canonical_form():
    assert split_text('{"tool":"a","why":' + "[" * 300 + "]" * 300 + "}", "json_content").rest


@pytest.mark.parametrize(
    ("written", "other"),
    [
        ('{"a":1e999}', '{"a":"1e999"}'),
        ('{"a":1,"a":2}', '{"a":2}'),
        ('{"a":1,"a":2}', '{"a":2,"a":1}'),
        ('{"n":{"a":1,"a":2}}', '{"n":{"a":2}}'),
    ],
)
def test_under_json_content_arguments_without_a_canonical_form_equal_only_themselves(
    written, other
):
    def signed(arguments):
        call = split_text(f'{{"tool":"t","arguments":{arguments}}}', "json_content").call
        return argument_digests(call.arguments, None).value

    assert signed(written) == signed(written)
    assert signed(written) != signed(other)
    assert signed(written) == argument_digests(UNSET, written).value


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [('"why":1,"why":2', '"why":2'), ('"why":1e999', '"why":"1e999"')],
)
def test_under_json_content_the_rest_of_a_text_is_told_apart_byte_for_byte(ours, theirs):
    one = split_text('{"tool":"t",' + ours + "}", "json_content")
    two = split_text('{"tool":"t",' + theirs + "}", "json_content")
    assert one.rest == "{" + ours + "}" != two.rest
    assert one.call.tool == two.call.tool == "t"
