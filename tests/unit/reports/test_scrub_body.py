"""Bodies as they were sent: a secret is found whole or in the pieces of a stream."""

import json

import pytest

from redrive.reports.redact import Redactor
from redrive.reports.scrub_body import find_marks_in_body, is_mark_body, mark_body
from tests.planted_secrets import chat_stream, message_stream, plant

SECRET = "gh" + "p_" + "Fake0" * 8


def marks(data):
    return find_marks_in_body(data, Redactor(b"k" * 32))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 100])
@pytest.mark.parametrize("stream", [chat_stream, message_stream])
def test_a_secret_is_found_in_the_pieces_of_a_stream(stream, size):
    assert marks(stream("all is well", "{}", "c1", size)) == ()
    said = marks(stream(f"it is {SECRET}, yes", "{}", "c1", size))
    asked = marks(stream("hm", json.dumps({"command": f"x {SECRET}"}), "c1", size))
    assert said != ()
    assert set(said) & set(asked)  # a piece may look like a secret that was cut off


def test_a_name_in_one_piece_tells_of_a_value_in_the_next():
    arguments = json.dumps({"password": "h7-unter2fake"})
    assert marks(message_stream("", arguments, "c1", 5))


def test_parallel_texts_are_put_together_each_for_itself():
    def delta(index, piece):
        call = {"index": index, "function": {"arguments": piece}}
        value = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
        return f"data: {json.dumps(value)}\n\n"

    pieces = [SECRET[n : n + 4] for n in range(0, len(SECRET), 4)]
    mixed = "".join(delta(0, piece) + delta(1, "....") for piece in pieces)
    assert marks(mixed.encode())


def test_tokens_listed_beside_the_text_are_pieces_too():
    pieces = [SECRET[n : n + 4] for n in range(0, len(SECRET), 4)]
    lines = [
        f"data: {json.dumps({'logprobs': {'content': [{'token': piece}]}})}\n\n" for piece in pieces
    ]
    assert marks("".join(lines).encode())


@pytest.mark.parametrize(
    "body",
    [
        f'{{"a":"{SECRET}"}}',
        f'{{\n  "a": "{SECRET}"\n}}',
        f'{{"a":1}}\n{{"a":"{SECRET}"}}\n',
        f"data: plain {SECRET}\n\n",
        f"data: {SECRET[:9]}\n\ndata: {SECRET[9:]}\n\n",
        f'data: {{\ndata: "a":"{SECRET}"}}\n\n',
        f": {SECRET}\n\ndata: {{}}\n\n",
        f"event: x\r\nid: {SECRET}\r\ndata: {{}}\r\n\r\n",
        f"<html>{SECRET}</html>",
        f"a=1&token={SECRET}",
    ],
)
def test_whatever_the_form_a_secret_is_found(body):
    assert marks(body.encode())
    assert (
        marks(body.replace(SECRET, "x").replace(SECRET[:9], "x").replace(SECRET[9:], "").encode())
        == ()
    )


def test_bytes_that_are_no_text_are_searched_as_well():
    assert marks(b"\x00\xff\xfe" + SECRET.encode() + b" \x80") != ()
    assert marks(bytes(range(256)) * 50) == ()
    assert marks(b"") == ()


def test_a_mark_that_is_there_already_is_none_of_ours():
    assert marks(b'{"a":"[redacted:openai:0123abcd]"}') == ()


def test_what_takes_a_body_s_place_names_the_marks_and_nothing_else():
    (mark,) = marks(f'{{"a":"{SECRET}"}}'.encode())
    stored = mark_body([mark, mark], 42)
    assert json.loads(stored) == {"redacted": {"bytes": 42, "marks": [mark]}}
    assert is_mark_body(stored)
    assert not is_mark_body(stored.replace(mark.encode(), SECRET.encode()))
    assert not is_mark_body(stored[:-1] + f',"x":"{SECRET}"}}'.encode())
    twice = stored.replace(b'"marks":', f'"marks":["{SECRET}"],"marks":'.encode())
    assert not is_mark_body(twice)
    assert not is_mark_body(b"{}")


def test_every_planted_secret_is_found_in_pieces():
    missed = []
    for number, planted in enumerate(plant(11)):
        arguments = json.dumps({"command": planted.text})
        stream = chat_stream if number % 2 else message_stream
        found = [marks(stream("", arguments, "c", size)) for size in (3, 7)]
        missed += [] if all(found) else [(planted.shape, planted.spelling)]
    assert missed == []
