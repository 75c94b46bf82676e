import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.audit import duplicates
from redrive.audit.duplicates import has_duplicate_keys


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '  [{"a" : 1, "b": {"c": 1, "c": 1}}]',
        '{"a": "\\u0022", "\\u0061": "x", "a": "\\u0022"}',
        '{"a\\ud800": 1, "a\\ud800": 2}',
        '{"a": 1' + "0" * 5000 + ', "a": 2}',
        '{"a": 1, "a": NaN}',
    ],
)
def test_a_key_named_twice_in_one_object_is_found(text: str) -> None:
    assert has_duplicate_keys(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain: text: with: colons",
        "[user] go",
        '[{"a": 1}, {"a": 2}]',
        '{"a": {"a": 1}}',
        '{"a": "\\"a\\": 1, \\"a\\": 2"}',
        '{"a": "\\u0022a\\u0022"}',
        '{"a": "\\ud800"}',
        '{"a": 1, "a"',
        '"{}"',
        "[" * 100_000,
    ],
)
def test_a_text_without_one_is_clean(text: str) -> None:
    assert not has_duplicate_keys(text)


PAIRS = st.recursive(
    st.sampled_from(["1", '"a"', '"\\\\"', '":{"', '"a\\":"', "null", "{}", "[]"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(
            st.tuples(st.sampled_from(["a", "b", "c", "\\u0061", "é", "}", "\\\\"]), inner),
            max_size=4,
        ).map(lambda pairs: "{" + ",".join(f'"{key}" : {value}' for key, value in pairs) + "}")
    ),
    max_leaves=10,
)


@given(PAIRS, st.sampled_from([1, 2, 3]))
def test_long_texts_are_judged_as_short_ones_are(text: str, share: int) -> None:
    json.loads(text)
    expected = has_duplicate_keys(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "_LONG_CHARS", 0)
        patch.setattr(duplicates, "_SHARE", share)
        assert has_duplicate_keys(text) == expected


def test_a_long_text_that_is_no_json_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "_LONG_CHARS", 0)
    for text in ('{"a":1}}', '["a":1', "[}", '{"a":1,"a":2'):
        assert not has_duplicate_keys(text)
