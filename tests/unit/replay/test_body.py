import json

import pytest

from redrive.replay.body import has_member, remove_values, replace_value


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ('{"seed":7}', '{"seed":0}'),
        (
            '{ "a":[1, {"seed":1}] ,\n"seed" : 7 , "z":1e2}',
            '{ "a":[1, {"seed":1}] ,\n"seed" : 0 , "z":1e2}',
        ),
        ('{"seed":1,"seed":2}', '{"seed":1,"seed":0}'),
        ('{"seed":{"deep":[1]}}', '{"seed":0}'),
        ('{"a":1}', '{"a":1,"seed":0}'),
        ('{"a":"}" }\n', '{"a":"}" ,"seed":0}\n'),
        ("{}", '{"seed":0}'),
        (" { } ", ' { "seed":0} '),
        ('{"n":1' + "0" * 5000 + "}", '{"n":1' + "0" * 5000 + ',"seed":0}'),
    ],
)
def test_one_value_changes_and_every_other_byte_stays(body: str, changed: str) -> None:
    assert replace_value(body, "seed", 0) == changed


def test_a_text_value_is_written_as_json() -> None:
    assert json.loads(replace_value('{"model":"a"}', "model", 'b"é')) == {"model": 'b"é'}


@pytest.mark.parametrize(
    "body",
    [
        *("", "[]", '"x"', "{", '{"a"}', '{"a":}', '{"a":1', '{"a":1,}', "{1:2}", "{}{}"),
        *('{"a":1} x', '{"a":' + "[" * 100_000),
    ],
)
def test_what_is_no_single_json_object_is_refused(body: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        replace_value(body, "a", 0)


@pytest.mark.parametrize(("key", "is_there"), [("a", True), ("b", False), ("c", False)])
def test_a_member_is_there_at_the_top_level_alone(key: str, is_there: bool) -> None:
    assert has_member('{"a": {"b": 1}}', key) is is_there


def test_a_member_is_looked_for_in_a_whole_object_alone() -> None:
    with pytest.raises(ValueError, match="more than one JSON value"):
        has_member('{"a": 1} x', "a")


@pytest.mark.parametrize(
    ("body", "keys", "left"),
    [
        ('{"a": 1, "b": 2}', ["b"], '{"a": 1}'),
        ('{"a": 1, "b": 2}', ["a"], '{ "b": 2}'),
        ('{"a": 1}', ["a"], "{}"),
        ('{"a": 1, "b": 2, "c": 3}', ["b", "x"], '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2, "a": 3}', ["a"], '{"a": 1, "b": 2}'),
        ("{}", ["a"], "{}"),
    ],
)
def test_members_are_taken_out_and_every_other_byte_stays(body, keys, left):
    assert remove_values(body, keys) == left


def test_taking_out_undoes_what_was_appended():
    body = '{"model": "m", "messages": [{"a": ","}] }'
    assert remove_values(replace_value(body, "logprobs", 1), ["logprobs"]) == body


def test_nothing_is_taken_out_of_what_is_no_object():
    with pytest.raises(ValueError, match="no JSON object"):
        remove_values("[1]", ["a"])
