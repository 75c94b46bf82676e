import json

import pytest

from redrive.reports.escape import cut, escape, escape_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x1b]8;;http://x\x07link", "\\x1b]8;;http://x\\x07link"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb\u2066c\u200f", "a\\u202eb\\u2066c\\u200f"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u2028\ud800\x00", "\\u2028\\ud800\\x00"),
        ("ä\u00a0日本", "ä\u00a0日本"),
        ("[bold]x[/bold]", "[bold]x[/bold]"),
    ],
)
def test_nothing_that_a_terminal_obeys_is_left(text, shown):
    assert escape(text) == shown


def test_line_ends_and_tabs_may_stay():
    assert escape("a\nb\tc\r\x1b", keep_lines=True) == "a\nb\tc\\r\\x1b"


def test_escaped_json_is_the_same_value_and_harmless():
    value = {"a\u009b": "\x7f\u202e\u2028ä\u0085", "b": "\x1b"}
    data = json.dumps(value, ensure_ascii=False).encode()
    safe = escape_json(data)
    assert json.loads(safe) == value
    assert escape(safe.decode()) == safe.decode()
    assert escape_json(b'"plain"') == b'"plain"'


def test_a_cut_text_says_how_long_it_was():
    assert cut("abc", 3) == "abc"
    assert cut("ab\ncd", 3) == "ab\\n… (5 characters)"
