from redrive.audit.arguments import arguments_of, arguments_text
from redrive.record.event import ToolCall, raw_of


def test_arguments_are_read_by_name_whatever_their_form():
    assert arguments_of(ToolCall("t")) == {}
    assert arguments_of(ToolCall("t", arguments=raw_of({"a": 1}))) == {"a": 1}
    assert arguments_of(ToolCall("t", arguments=raw_of([1]))) == {"command": [1]}
    assert arguments_of(ToolCall("t", arguments_text='{"a":1}')) == {"a": 1}
    assert arguments_of(ToolCall("t", arguments_text="{a")) == {"input": "{a"}
    assert arguments_of(ToolCall("t", arguments_text="3")) == {"input": "3"}


def test_arguments_are_given_as_they_were_recorded():
    assert arguments_text(ToolCall("t")) is None
    assert arguments_text(ToolCall("t", arguments_text="{a")) == "{a"
    assert arguments_text(ToolCall("t", arguments=raw_of({"a": 1}))) == '{"a":1}'
