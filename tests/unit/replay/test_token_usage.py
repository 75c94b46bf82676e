"""A request's bound and an answer's usage are read as three APIs write them, or not at all."""

import json

import pytest

from redrive.replay.anthropic_answers import MESSAGES
from redrive.replay.openai_answers import CHAT, RESPONSES
from redrive.replay.token_usage import add_bound, find_max_tokens, read_served, read_usage
from redrive.replay.trial_values import Usage


def sse(*events: object) -> bytes:
    written = [e if isinstance(e, str) else json.dumps(e) for e in events]
    return "".join(f"data: {text}\n\n" for text in written).encode()


# --- bounds


@pytest.mark.parametrize(
    ("api", "body", "count"),
    [
        (CHAT, b'{"max_tokens":16}', 16),
        (CHAT, b'{"max_completion_tokens":20}', 20),
        (CHAT, b'{"max_completion_tokens":20,"max_tokens":30}', 30),
        (CHAT, b'{"max_tokens":16,"n":3}', 48),
        (CHAT, b'{"max_tokens":16,"n":null,"max_completion_tokens":null}', 16),
        (RESPONSES, b'{"max_output_tokens":9,"n":3}', 9),
        (MESSAGES, b'{"max_tokens":7}', 7),
    ],
)
def test_the_bound_of_an_answer_is_found(api: str, body: bytes, count: int) -> None:
    assert find_max_tokens(api, body) == count


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (CHAT, b"{}"),
        (CHAT, b"no json"),
        (CHAT, b"[]"),
        (CHAT, b'{"max_tokens":null}'),
        (CHAT, b'{"max_tokens":0}'),
        (CHAT, b'{"max_tokens":-1}'),
        (CHAT, b'{"max_tokens":true}'),
        (CHAT, b'{"max_tokens":"16"}'),
        (CHAT, b'{"max_tokens":16.5}'),
        (CHAT, b'{"max_tokens":1000000001}'),
        (CHAT, b'{"max_tokens":16,"max_tokens":99}'),
        (CHAT, b'{"max_tokens":16,"max_completion_tokens":-1}'),
        (CHAT, b'{"max_tokens":16,"n":0}'),
        (CHAT, b'{"max_tokens":16,"n":"2"}'),
        (CHAT, b'{"max_tokens":16,"n_predict":99}'),
        (CHAT, b'{"max_tokens":16,"best_of":9}'),
        (CHAT, b'{"max_tokens":16,"MAX_TOKENS":99}'),
        (CHAT, '{"max_tokens":16,"max_to\u212aen\u017f":99}'.encode()),
        (CHAT, b'{"max_tokens":16,"N":9}'),
        (CHAT, b'{"max_tokens":16,"max_output_tokens":99}'),
        (RESPONSES, b'{"max_tokens":16}'),
        (MESSAGES, b'{"max_output_tokens":16}'),
        ("", b'{"max_tokens":16}'),
    ],
)
def test_what_does_not_hold_is_no_bound(api: str, body: bytes) -> None:
    assert find_max_tokens(api, body) is None


@pytest.mark.parametrize(
    ("api", "body", "grown", "names"),
    [
        (CHAT, b'{"a": 1 }', b'{"a": 1 ,"max_tokens":5}', ("max_tokens",)),
        (CHAT, b'{"max_tokens": null}', b'{"max_tokens": 5}', ("max_tokens",)),
        (RESPONSES, b"{}", b'{"max_output_tokens":5}', ("max_output_tokens",)),
        (CHAT, b'{"max_completion_tokens":-1}', b'{"max_completion_tokens":-1}', ()),
        (MESSAGES, b'{"max_tokens":9}', b'{"max_tokens":9}', ()),
        (CHAT, b"\xff", b"\xff", ()),
        ("", b"{}", b"{}", ()),
        (CHAT, b"[1]", b"[1]", ()),
    ],
)
def test_a_bound_is_added_where_none_is_stated(
    api: str, body: bytes, grown: bytes, names: tuple[str, ...]
) -> None:
    assert add_bound(api, body, 5) == (grown, names)


# --- usage


CHAT_USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 8},
}
RESPONSE_USAGE = {
    "input_tokens": 12,
    "output_tokens": 3,
    "input_tokens_details": {"cached_tokens": 8},
}


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        ({"usage": CHAT_USAGE}, Usage(12, 3, 8)),
        ({"usage": {"prompt_tokens": 12, "completion_tokens": 0}}, Usage(12, 0)),
        ({"usage": RESPONSE_USAGE}, Usage(12, 3, 8)),
        (
            {
                "usage": {
                    "input_tokens": 12,
                    "output_tokens": 3,
                    "cache_read_input_tokens": 100,
                    "cache_creation_input_tokens": 20,
                }
            },
            Usage(132, 3, 100, 20),
        ),
    ],
)
def test_the_usage_of_a_whole_answer_is_read(answer: object, usage: Usage) -> None:
    assert read_usage(json.dumps(answer).encode()) == usage


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"{}",
        b"[1]",
        b'{"usage":null}',
        b'{"usage":{"prompt_tokens":1}}',
        b'{"usage":{"input_tokens":1}}',
        b'{"usage":{"output_tokens":1}}',
        b'{"usage":{"prompt_tokens":1,"completion_tokens":-2}}',
        b'{"usage":{"prompt_tokens":1,"completion_tokens":1000000001}}',
        b"data: {\n\n",
        b"data: \xff\n\n",
    ],
)
def test_an_answer_that_does_not_tell_has_no_usage(data: bytes) -> None:
    assert read_usage(data) is None


CHUNKS = ({"choices": [{"delta": {"content": "a"}}], "usage": None}, {"choices": []})


def test_the_usage_of_a_chat_stream_stands_in_its_last_chunk() -> None:
    last = {"choices": [], "usage": CHAT_USAGE}
    assert read_usage(sse(*CHUNKS, last, "[DONE]", {"usage": {}})) == Usage(12, 3, 8)
    assert read_usage(sse(*CHUNKS, last)) is None, "a stream that was cut may say a part"
    assert read_usage(sse(*CHUNKS, "[DONE]")) is None


def test_the_usage_of_a_message_stream_is_that_of_its_start_and_its_last_delta() -> None:
    start = {
        "type": "message_start",
        "message": {"model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}},
    }
    delta = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 7}}
    assert read_usage(sse(start, delta, {"type": "message_stop"})) == Usage(9, 7)
    assert read_usage(sse(start, delta)) is None


@pytest.mark.parametrize("word", ["completed", "incomplete", "failed"])
def test_the_usage_of_a_response_stream_stands_in_its_last_event(word: str) -> None:
    begun = {"type": "response.created", "response": {"usage": None}}
    last = {"type": f"response.{word}", "response": {"usage": RESPONSE_USAGE}}
    assert read_usage(sse(begun, last)) == Usage(12, 3, 8)


# --- who answered


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b'{"model":"m","system_fingerprint":"fp"}', "m@fp"),
        (b'{"model":"m","system_fingerprint":null}', "m"),
        (sse({"choices": []}, {"model": "m"}, "[DONE]"), "m"),
        (sse({"type": "message_start", "message": {"model": "claude"}}), "claude"),
        (sse({"type": "response.created", "response": {"model": "o"}}), "o"),
        (sse({"choices": []}, "[DONE]", {"model": "m"}), None),
        (b"{}", None),
        (b"", None),
        (b"{\xff", None),
        (b'{"model":"\\ud800"}', "\ufffd\\ud800"),
    ],
)
def test_an_answer_names_who_gave_it(data: bytes, name: str | None) -> None:
    assert read_served(data) == name
