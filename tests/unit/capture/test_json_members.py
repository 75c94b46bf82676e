import pytest

from redrive.capture.json_members import find_members, is_true, list_items, members, text_in


def test_members_are_the_bytes_that_came_and_of_a_repeated_key_the_last():
    fields = members(b'{"a": [1, 2.50], "b":1, "b": {"c" : null}}')
    assert {key: bytes(raw) for key, raw in fields.items()} == {
        "a": b"[1, 2.50]",
        "b": b'{"c" : null}',
    }


def test_lone_surrogates_do_not_keep_an_object_from_being_split():
    assert bytes(members(b'{"a": "\\ud800", "b": 2}')["a"]) == b'"\\ud800"'


@pytest.mark.parametrize("data", [b"5", b"", b'{"a"', b'{"a":' + b"[" * 100_000, b"{}{}"])
def test_what_is_no_object_is_refused(data: bytes):
    with pytest.raises(ValueError):  # noqa: PT011 - by whichever decoder found it
        members(data)


def test_what_is_no_array_is_refused():
    with pytest.raises(ValueError, match="no JSON array"):
        list_items(b"{}")


def test_what_may_be_an_object_and_is_none_has_no_members():
    assert find_members(None) == {}
    assert find_members(list_items(b"[5]")[0]) == {}


def test_a_member_that_is_no_text_holds_none():
    fields = find_members(list_items(b'[{"a": 5, "b": "\\u00e4"}]')[0])
    assert (text_in(fields, "a"), text_in(fields, "b"), text_in(fields, "c")) == (None, "ä", None)


def test_only_true_is_true():
    fields = members(b'{"a": true, "b": 1}')
    assert (is_true(fields, "a"), is_true(fields, "b"), is_true(fields, "c")) == (
        True,
        False,
        False,
    )
