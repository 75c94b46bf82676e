from msgspec import UNSET

from redrive import canonical
from redrive.app.excerpts import excerpt, texts_in, texts_of_arguments, texts_of_raw
from redrive.record.event import ToolCall, raw_of


def test_a_short_text_is_whole_and_a_long_one_tells_of_the_rest():
    assert excerpt("abc", 3).chars is None
    cut = excerpt("abcd\ud800", 3)
    assert (cut.text, cut.chars, cut.sha256) == ("abc", 5, canonical.text_digest("abcd\ud800"))


def test_texts_are_given_with_their_place_in_order():
    value = {"a": ["x", {"b": 1}], "c": None, "d": 2**70}
    assert list(texts_in(value, "r")) == [
        ("r.a[0]", "x"),
        ("r.a[1].b", "1"),
        ("r.c", "null"),
        ("r.d", str(2**70)),
    ]
    assert list(texts_of_raw(UNSET, "r")) == []
    assert list(texts_of_raw(raw_of(""), "r")) == [("r", "")]


def test_a_very_deep_value_is_searched_without_recursion():
    value = "x"
    for _ in range(100_000):
        value = [value]
    ((_, text),) = texts_in(value, "")
    assert text == "x"


def test_argument_text_is_searched_as_the_json_that_it_is():
    assert list(texts_of_arguments(ToolCall("t", arguments_text='{"c":"a\\nb"}'))) == [
        ("arguments.c", "a\nb")
    ]
    assert list(texts_of_arguments(ToolCall("t", arguments_text="{c"))) == [("arguments", "{c")]
    assert list(texts_of_arguments(ToolCall("t", arguments=raw_of({"c": 1})))) == [
        ("arguments.c", "1")
    ]
