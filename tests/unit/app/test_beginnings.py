import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.app.beginnings import cut_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("", "null"),
        ("12", "null"),
        ('"abc', '"abc"'),
        ('"a\\', '"a"'),
        ('"a\\u00e', '"a"'),
        ('"a\\\\', '"a\\\\"'),
        ('"a\\"', '"a\\""'),
        ("[1, 23", "[1]"),
        ('[{"a":"one"},{"b":[true,fal', '[{"a":"one"},{"b":[true]}]'),
        ('{"a":"one","b":"tw', '{"a":"one","b":"tw"}'),
        ('{"a":"one","b', '{"a":"one"}'),
        ('{"a":"one","b"', '{"a":"one"}'),
        ('{"a":"one","b":', '{"a":"one"}'),
        ('{"a":{"b":', '{"a":{}}'),
        ('{"a":[],"', '{"a":[]}'),
    ],
)
def test_what_was_whole_is_kept_with_the_beginning_of_a_text(text: str, cut: str) -> None:
    assert cut_json(text) == cut


@given(VALUES, st.booleans(), st.data())
def test_a_cut_at_any_place_gives_json(value: object, is_ascii: bool, data: st.DataObject) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    place = data.draw(st.integers(0, len(text)))
    json.loads(cut_json(text[:place]))
    if isinstance(value, (str, list, dict)):
        assert json.loads(cut_json(text)) == value
