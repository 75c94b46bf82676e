"""Replies written as answers are read back alike, by our parsers and by the vendors' own SDKs."""

import anthropic
import httpx2
import openai
import pytest

from redrive.errors import UsageError
from redrive.record.event import raw_of
from redrive.replay.answer_writing import WrittenAnswer, write_answer
from redrive.replay.anthropic_answers import MESSAGES, parse_message
from redrive.replay.openai_answers import CHAT, RESPONSES, parse_chat, parse_responses
from redrive.replay.ports import CallAsked, ModelFingerprint, ModelReply

PARSERS = {CHAT: parse_chat, RESPONSES: parse_responses, MESSAGES: parse_message}
CALLS = (
    CallAsked("lookup", arguments_text='{"id": 7}', call_id="own"),
    CallAsked("mail", arguments=raw_of({"to": ["a"]})),
    CallAsked("stop"),
)
REPLY = ModelReply(
    "Let me see.",
    CALLS,
    model=ModelFingerprint(served="m-live"),
    usage={"input_tokens": 5, "completion_tokens": 3},
)


def written(api: str, reply: ModelReply, *, is_streamed: bool) -> WrittenAnswer:
    return write_answer(api, reply, number=2, requested="m-asked", is_streamed=is_streamed)


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PARSERS)
def test_an_answer_is_read_back_as_what_was_replied(api, is_streamed):
    answer = PARSERS[api](written(api, REPLY, is_streamed=is_streamed).body)
    assert answer.text == "Let me see."
    assert [(c.tool, c.call_id) for c in answer.calls] == [
        ("lookup", "own"),
        ("mail", "call_2_2"),
        ("stop", "call_2_3"),
    ]
    assert answer.served == "m-live"
    assert {5, 3} <= set(answer.usage.values())


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PARSERS)
def test_an_empty_reply_is_an_answer_that_ends_the_turn(api, is_streamed):
    answer = PARSERS[api](written(api, ModelReply(), is_streamed=is_streamed).body)
    assert (answer.text, answer.calls, answer.served) == ("", (), "m-asked")
    assert answer.stop_reason in ("stop", "completed", "end_turn")


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PARSERS)
def test_a_reply_of_calls_alone_has_no_text(api, is_streamed):
    answer = PARSERS[api](written(api, ModelReply(calls=CALLS), is_streamed=is_streamed).body)
    assert (answer.text, len(answer.calls)) == ("", 3)


def test_an_unknown_api_is_refused():
    with pytest.raises(UsageError, match=r"'other.api'"):
        written("other.api", REPLY, is_streamed=False)


def client_of(answer: WrittenAnswer) -> httpx2.Client:
    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(
            200, content=answer.body, headers={"content-type": answer.content_type}
        )

    return httpx2.Client(transport=httpx2.MockTransport(respond))


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_the_openai_sdk_reads_a_chat_answer(is_streamed):
    answer = written(CHAT, REPLY, is_streamed=is_streamed)
    client = openai.OpenAI(api_key="x", base_url="http://t/v1", http_client=client_of(answer))
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    if is_streamed:
        chunks = list(client.chat.completions.create(**asked, stream=True))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        names = [
            call.function.name
            for c in chunks
            if c.choices
            for call in c.choices[0].delta.tool_calls or ()
        ]
    else:
        message = client.chat.completions.create(**asked).choices[0].message
        text, names = message.content, [call.function.name for call in message.tool_calls]
    assert (text, names) == ("Let me see.", ["lookup", "mail", "stop"])


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_the_openai_sdk_reads_a_response(is_streamed):
    answer = written(RESPONSES, REPLY, is_streamed=is_streamed)
    client = openai.OpenAI(api_key="x", base_url="http://t/v1", http_client=client_of(answer))
    if is_streamed:
        with client.responses.stream(model="m", input="x") as stream:
            response = stream.get_final_response()
    else:
        response = client.responses.create(model="m", input="x")
    assert response.output_text == "Let me see."
    assert [item.name for item in response.output if item.type == "function_call"] == [
        "lookup",
        "mail",
        "stop",
    ]


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_the_anthropic_sdk_reads_a_message(is_streamed):
    answer = written(MESSAGES, REPLY, is_streamed=is_streamed)
    client = anthropic.Anthropic(api_key="x", base_url="http://t", http_client=client_of(answer))
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
    if is_streamed:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked)
    assert message.content[0].text == "Let me see."
    assert [(b.name, b.input) for b in message.content[1:]] == [
        ("lookup", {"id": 7}),
        ("mail", {"to": ["a"]}),
        ("stop", {}),
    ]
    assert message.stop_reason == "tool_use"
