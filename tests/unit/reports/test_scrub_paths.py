import json

import pytest

from redrive.record.event import Redaction
from redrive.reports.redact import Redactor
from redrive.reports.scrub_paths import MAX_LISTED, find_redactions, marks_in, rule_of

SECRET = "sk-" + "proj-fakefakefakefakefake01"
MARK = "[redacted:openai:0123abcd]"


def listed(value):
    data = json.dumps(value).encode()
    return find_redactions(data, Redactor(b"k" * 32).json(data))


def test_a_mark_names_its_rule():
    assert rule_of(MARK) == "openai"
    assert marks_in(f"a{MARK}b{MARK}") == (MARK,)


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ({"a": [1, {"b": f"x {SECRET}"}]}, ["a[1].b"]),
        ({"body": json.dumps({"messages": [{"content": SECRET}]})}, ["body.messages[0].content"]),
        ({"body": json.dumps({"a": json.dumps([SECRET])})}, ["body.a[0]"]),
        ({"password": 12345678}, ["password"]),
        ({"a": f"{{no json {SECRET}"}, ["a"]),
        ([SECRET, "x", SECRET], ["[0]", "[2]"]),
    ],
)
def test_a_redaction_is_named_by_its_place(value, paths):
    assert [found.path for found in listed(value)] == paths
    assert all(found.rule for found in listed(value))


def test_a_key_is_a_place_too():
    (found,) = listed({"used": {SECRET: 3}})
    assert found.path.startswith("used.[redacted:openai:")
    (found,) = listed({"body": json.dumps({SECRET: 3})})
    assert found.path.startswith("body.[redacted:openai:")


def test_only_new_marks_are_listed_and_not_all_of_many():
    old = json.dumps({"a": MARK, "b": "x"}).encode()
    new = json.dumps({"a": MARK, "b": "[redacted:aws:0123abcd]"}).encode()
    assert find_redactions(old, new) == (Redaction("b", "aws"),)
    assert len(listed([SECRET] * 40)) == MAX_LISTED


def test_texts_that_cannot_be_compared_list_rules_alone():
    deep = b"[" * 5000 + b'"%s"' + b"]" * 5000
    found = find_redactions(deep % b"x", deep % MARK.encode())
    assert found == (Redaction("", "openai"),)
    assert find_redactions(b'{"a":1}', b'{"a":1,"b":"%s"}' % MARK.encode()) == (
        Redaction("", "openai"),
    )
