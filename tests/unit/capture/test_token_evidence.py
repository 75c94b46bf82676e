"""What asks for token evidence changes no other byte, and says what it added."""

import pytest

from redrive.capture.token_evidence import ask_for_tokens

BODY = b'{ "model":"m", "temperature": 1.0e0,\n "messages":[{"content":"\\u00e9\xc3\xa9"}] }\n'


def test_the_member_is_appended_and_every_other_byte_stays() -> None:
    body, added = ask_for_tokens(BODY, "openai.chat", ())
    assert body == BODY.replace(b"] }", b'] ,"logprobs":true}')
    assert added == ("logprobs",)


def test_further_members_of_an_engine_are_added_in_order() -> None:
    body, added = ask_for_tokens(b"{}", "openai.chat", (), ("logprobs", "return_token_ids"))
    assert body == b'{"logprobs":true,"return_token_ids":true}'
    assert added == ("logprobs", "return_token_ids")


@pytest.mark.parametrize("value", [b"true", b"false", b"null", b"3"])
def test_the_agents_own_choice_stays(value: bytes) -> None:
    body = b'{"logprobs": ' + value + b"}"
    assert ask_for_tokens(body, "openai.chat", ()) == (body, ())


@pytest.mark.parametrize("api", [None, "openai.responses", "anthropic.messages"])
def test_another_api_is_left_alone(api: str | None) -> None:
    assert ask_for_tokens(BODY, api, ()) == (BODY, ())


@pytest.mark.parametrize("name", ["content-encoding", "content-digest", "x-amz-date", "signature"])
def test_a_body_that_is_compressed_or_signed_is_left_alone(name: str) -> None:
    assert ask_for_tokens(BODY, "openai.chat", ("accept", name)) == (BODY, ())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"a":1} x', b"\xff"])
def test_what_is_no_json_object_is_left_alone(body: bytes) -> None:
    assert ask_for_tokens(body, "openai.chat", ()) == (body, ())
