from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from redrive.app.trial_messages import (
    MAX_TEXT_BYTES,
    CallTold,
    cut_text,
    dump_frame,
    dump_message,
    dump_value,
    parse_message,
)
from redrive.errors import UsageError


@dataclass
class _Point:
    x: int
    y: tuple[int, ...]


class _Word(StrEnum):
    ONE = "one"


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ((1, "a", None), b'[1,"a",null]'),
        (_Point(1, (2,)), b'{"x":1,"y":[2]}'),
        ({"a": _Word.ONE}, b'{"a":"one"}'),
        (2**70, b"1180591620717411303424"),
        ("\ud800", b'"\\ud800"'),
    ],
)
def test_a_value_of_a_users_code_is_written_as_the_json_that_it_means(
    value: Any, data: bytes
) -> None:
    assert dump_value(value) == data


@pytest.mark.parametrize(
    ("value", "name"),
    [({1}, "set"), ([b"x"], "bytes"), ({"a": object()}, "object"), (float("nan"), "not finite")],
)
def test_what_has_no_json_form_is_named_by_its_type(value: Any, name: str) -> None:
    with pytest.raises(TypeError, match=name):
        dump_value(value)


def test_a_message_comes_back_as_it_was_and_anything_else_is_refused() -> None:
    told = CallTold(error=("A", "b"))
    assert parse_message(dump_message(told), CallTold) == told
    for body in (b"", b"[]", b'{"denied":1}', b'"\xff"', b"[" * 100_000):
        with pytest.raises(UsageError, match="no CallTold"):
            parse_message(body, CallTold)


def test_a_frame_says_how_long_it_is() -> None:
    frame = dump_frame(CallTold(denied="x"))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


def test_a_text_is_cut_to_what_a_message_takes() -> None:
    assert cut_text("é" * MAX_TEXT_BYTES).encode()[-3:] == "…".encode()
    assert len(cut_text("é" * MAX_TEXT_BYTES).encode()) <= MAX_TEXT_BYTES
    assert cut_text("a\ud800") == "a\\ud800"
