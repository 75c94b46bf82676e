import pytest

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
