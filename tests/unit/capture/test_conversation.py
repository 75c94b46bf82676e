import json
from typing import Any

import pytest

from redrive.capture.conversation import (
    Conversation,
    SeenResult,
    find_results,
    find_user_texts,
    read_conversation,
)

SYSTEM = {"role": "system", "content": "be brief"}
USER = {"role": "user", "content": "how many?"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "7"}


def chat(*messages: Any, **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages} | fields).encode()


def test_a_request_that_repeats_all_messages_and_goes_on_continues_the_earlier_one() -> None:
    first = read_conversation(chat(SYSTEM, USER))
    second = read_conversation(chat(SYSTEM, USER, CALL, RESULT))
    assert second.continues(first)
    assert not first.continues(second)
    assert not first.continues(first)


def test_other_words_are_no_continuation() -> None:
    first = read_conversation(chat(USER))
    other = read_conversation(chat({"role": "user", "content": "how many? "}, CALL, RESULT))
    assert not other.continues(first)


def test_instructions_alone_are_no_conversation_that_could_go_on() -> None:
    assert not read_conversation(chat(SYSTEM, USER)).continues(read_conversation(chat(SYSTEM)))


@pytest.mark.parametrize(
    "other",
    [
        chat(SYSTEM, USER, model="n"),
        chat(SYSTEM, USER, tools=[{"name": "a"}]),
        chat({"role": "developer", "content": "be long"}, USER),
    ],
)
def test_model_tools_and_instructions_make_the_opening(other: bytes) -> None:
    assert read_conversation(other).opening != read_conversation(chat(SYSTEM, USER)).opening


def test_the_opening_does_not_depend_on_what_the_user_says() -> None:
    other = chat(SYSTEM, {"role": "user", "content": "else"})
    assert read_conversation(other).opening == read_conversation(chat(SYSTEM, USER)).opening


def test_a_cache_mark_that_moves_on_changes_no_message() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    block = {"type": "text", "text": "hi"}
    marked = chat({"role": "user", "content": [block | mark]})
    moved = chat({"role": "user", "content": [block]}, CALL, {"role": "user", "content": [mark]})
    assert read_conversation(moved).continues(read_conversation(marked))


def test_the_input_of_the_responses_api_is_its_conversation() -> None:
    item = {"role": "user", "content": "hi"}
    first = json.dumps({"model": "m", "instructions": "x", "input": [item]}).encode()
    output = {"type": "function_call_output", "call_id": "c1", "output": "7"}
    body = {"model": "m", "instructions": "x", "input": [item, output]}
    second = json.dumps(body | {"previous_response_id": "r1"}).encode()
    assert read_conversation(second).continues(read_conversation(first))
    assert read_conversation(second).follows == "r1"
    assert list(find_results(second)) == [SeenResult("c1", raw('"7"'))]


def test_an_input_that_is_one_text_is_one_user_message() -> None:
    body = json.dumps({"model": "m", "input": "hi"}).encode()
    assert len(read_conversation(body).messages) == 1
    assert list(find_user_texts(body)) == ["hi"]


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b'{"messages": 1}', b'{"messages": [1]}x'])
def test_a_body_that_is_not_understood_says_nothing(body: bytes) -> None:
    assert read_conversation(body) == Conversation()
    assert not list(find_results(body))
    assert not list(find_user_texts(body))


def test_messages_of_odd_shapes_are_passed_over() -> None:
    odd = (1, None, {"role": "tool", "content": "x"}, {"role": "user", "content": 3})
    assert not list(find_results(chat(*odd)))
    assert not list(find_user_texts(chat(*odd)))


def raw(text: str) -> Any:
    import msgspec

    return msgspec.Raw(text.encode())


def test_results_are_found_as_chat_completions_carry_them() -> None:
    assert list(find_results(chat(SYSTEM, USER, CALL, RESULT))) == [SeenResult("c1", raw('"7"'))]


def test_results_are_found_as_anthropic_messages_carry_them() -> None:
    block = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    body = chat({"role": "user", "content": [block, {"type": "text", "text": "go on"}]})
    assert list(find_results(body)) == [SeenResult("t1", raw('"no"'), is_error=True)]
    assert list(find_user_texts(body)) == ["go on"]


def test_only_messages_from_the_given_place_on_are_looked_at() -> None:
    body = chat(SYSTEM, USER, CALL, RESULT, {"role": "user", "content": "and now?"})
    assert list(find_user_texts(body, 3)) == ["and now?"]
    assert not list(find_results(body, 3))


def test_a_user_message_without_text_is_none() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,"}}
    assert not list(find_user_texts(chat({"role": "user", "content": [image]})))
