import json

import pytest

from redrive.audit.redaction import MARKS, find_mark, may_hold_mark

MARKED = [
    "key=[redacted:aws-key:0a1b2c3d]",
    "[REDACTED]",
    "[REDACTED BY PROXY]",
    "token REDACTED here",
    "<redacted>",
    '"\\u003credacted\\u003e"',
    "xxxxxxxx",
    "************",
    '"\\u0052EDACTED"',
    '"\\u005b\\u0052EDACTED\\u005D"',
    '"\\u002a' + "*" * 7 + '"',
    r'"{\"key\":\"\\u0052\\u0045DACTED\"}"',
    r'"\"{\\\"key\\\":\\\"\\\\u0052EDACTED\\\"}\""',
]
PLAIN = [
    "",
    "a redacted text",
    "[redacted:aws-key:0a1b2c3]",
    "[redacted:aws-key:0a1b2c3g]",
    "UNREDACTED",
    "xxxxxxx",
    "*******",
    "xxxx****",
    '"\\u0041REDACTED"',
    '"\\u00e9 \\u0e01 \\u0052"',
]


@pytest.mark.parametrize("text", MARKED)
def test_every_mark_of_the_table_is_found(text: str) -> None:
    assert find_mark(f"before {text} after") is not None
    assert may_hold_mark(text.encode())


@pytest.mark.parametrize("text", PLAIN)
def test_what_only_resembles_a_mark_is_none(text: str) -> None:
    assert find_mark(text) is None


def test_a_mark_is_shown_cut() -> None:
    assert find_mark("*" * 500) == "*" * 60


def test_escapes_are_followed_four_texts_deep_and_no_further() -> None:
    text = '"\\u0052EDACTED"'
    found = []
    for _ in range(5):
        found.append(find_mark(text))
        text = json.dumps(text)
    assert found == ["REDACTED"] * 4 + [None]


def test_every_pattern_needs_its_needle() -> None:
    found = {mark.name: [text for text in MARKED if mark.needle in text] for mark in MARKS}
    assert all(found.values())
    assert not may_hold_mark(b"Redacted xxxx ****")
