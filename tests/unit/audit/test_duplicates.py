import pytest

from redrive.audit.duplicates import has_duplicate_keys, may_lose_keys


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


def test_a_value_that_is_written_again_to_the_same_bytes_lost_no_key() -> None:
    assert not may_lose_keys(b'{"a":1,"b":{"a":[{}]}}')
    assert may_lose_keys(b'{"a":1,"a":1}')


@pytest.mark.parametrize("data", [b'{"a": 1}', b'{"a":"\\ud800"}', b"[" * 100_000])
def test_what_cannot_be_compared_is_left_to_the_scan(data: bytes) -> None:
    assert may_lose_keys(data)
