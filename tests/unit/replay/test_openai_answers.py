import json

import pytest

from redrive.replay.openai_answers import parse_chat, parse_responses


def sse(*events: object) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)


def delta(function: object, **choice: object) -> dict[str, object]:
    call = {"index": 0, "id": "c1", "function": function}
    return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}} | choice]}


def test_a_piece_of_a_call_that_is_no_text_adds_nothing_to_it() -> None:
    stream = sse(
        delta({"name": "look", "arguments": None}),
        delta({"arguments": '{"a": 1}'}, finish_reason="tool_calls"),
    )
    (call,) = parse_chat(stream).calls
    assert (call.tool, call.arguments_text) == ("look", '{"a": 1}')


def test_an_item_of_a_kind_that_is_not_known_is_passed_over() -> None:
    message = {"type": "message", "content": [{"type": "output_text", "text": "7"}]}
    answer = {"output": [{"type": "hologram"}, message], "status": "completed"}
    parsed = parse_responses(json.dumps(answer).encode())
    assert (parsed.text, parsed.stop_reason, parsed.calls) == ("7", "completed", ())


def test_a_summary_of_what_was_thought_is_kept() -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert parse_responses(json.dumps({"output": [thought]}).encode()).reasoning == "hm"


@pytest.mark.parametrize("events", [[], [{"type": "response.created"}]])
def test_a_stream_of_events_that_stops_before_its_last_is_half_an_answer(events: object) -> None:
    assert isinstance(events, list)
    with pytest.raises(ValueError, match="ended before its end"):
        parse_responses(sse(*events) or b"\n")
