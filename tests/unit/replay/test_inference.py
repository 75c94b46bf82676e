import pytest

from redrive.policy import inference_key

BASE = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": '{"b":1,"a":2}'}]}


def test_the_order_of_keys_does_not_count():
    assert inference_key(BASE) == inference_key(dict(reversed(BASE.items())))
    assert len(inference_key(BASE)) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.2},
        {"temperature": None},
        {"model": "m2"},
        {"seed": 0},
        {"messages": [{"role": "user", "content": '{"a":2,"b":1}'}]},
    ],
)
def test_whatever_can_change_the_answer_changes_the_key(change):
    assert inference_key(BASE | change) != inference_key(BASE)


def test_a_missing_parameter_is_not_zero():
    missing = {name: value for name, value in BASE.items() if name != "temperature"}
    assert inference_key(missing) != inference_key(BASE)
