from msgspec import UNSET

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
