import pytest
from msgspec import UNSET, Raw

from redrive.record.decisions import JsonDecision, parse_json_decision
from redrive.record.event import raw_value


def test_a_tool_and_its_arguments_are_read():
    decided = parse_json_decision('{"tool": "read_log", "arguments": {"name": "api"}}')
    assert decided is not None
    assert decided.tool == "read_log"
    assert raw_value(decided.arguments) == {"name": "api"}


def test_absent_arguments_are_not_null():
    assert parse_json_decision('{"tool": "t"}') == JsonDecision("t", UNSET)
    decided = parse_json_decision('{"tool": "t", "arguments": null}')
    assert decided is not None
    assert raw_value(decided.arguments) is None


def test_other_texts_are_no_decision():
    for text in ("", "done", "[1]", '{"tool": 3}', '{"arguments": {}}', '{"tool": "t"'):
        assert parse_json_decision(text) is None


def test_arguments_stay_as_they_were_written():
    decided = parse_json_decision('{"arguments": {"a": 1.0, "a": "\\ud800"} , "tool": "t"}')
    assert decided is not None
    assert bytes(decided.arguments) == b'{"a": 1.0, "a": "\\ud800"}'
    assert parse_json_decision('{"tool":"\\ud800","arguments":1e999}') == JsonDecision(
        "\ud800", Raw(b"1e999")
    )

    half = parse_json_decision('{"tool":"t","arguments":{"a":"\ud800"}}')
    assert half is not None
    assert bytes(half.arguments) == b'{"a":"\\ud800"}'


def test_further_fields_are_kept_in_order():
    decided = parse_json_decision('{"z":1.0,"tool":"t","a":[ ],"a":2}')
    assert decided == JsonDecision("t", UNSET, (("z", "1.0"), ("a", "[ ]"), ("a", "2")))


@pytest.mark.parametrize(
    "text",
    [
        '{"tool":"a","tool":"b"}',
        '{"tool":"a","tool":"a"}',
        '{"tool":"a","arguments":{},"arguments":{"x":1}}',
        '{"tool":"a","arguments":NaN}',
        '{"tool":"a"} {"tool":"b"}',
    ],
)
def test_a_text_that_does_not_say_which_call_it_means_is_no_decision(text):
    assert parse_json_decision(text) is None
