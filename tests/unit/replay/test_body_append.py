import pytest

from redrive.replay.body import append_items


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"m":[]}', '{"m":[{"a":1}]}'),
        ('{"m": [ ] , "n":2}', '{"m": [ {"a":1}] , "n":2}'),
        ('{ "n": [9], "m" : [ 1.50, "]" ] }', '{ "n": [9], "m" : [ 1.50, "]" ,{"a":1}] }'),
        ('{"m":1,"m":[0]}', '{"m":1,"m":[0,{"a":1}]}'),
    ],
)
def test_items_are_added_at_the_end_and_every_other_byte_stays(body, expected):
    assert append_items(body, "m", [{"a": 1}]) == expected


def test_no_items_leave_the_body_as_it_is():
    assert append_items('{ "m" : [ ] }', "m", []) == '{ "m" : [ ] }'


@pytest.mark.parametrize("body", ["{}", '{"m":{}}', '{"m":[1],"m":null}', '{"n":{"m":[]}}'])
def test_a_body_without_such_a_list_is_refused(body):
    with pytest.raises(ValueError, match="the body has no list 'm'"):
        append_items(body, "m", [1])
