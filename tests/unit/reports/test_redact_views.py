import pytest

from redrive.reports.redact_views import views_of


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (r"a\u0062c", ["abc"]),
        (r"a\\u0062c", [r"a\u0062c", "abc"]),
        ("a%62c", ["abc"]),
        ("a%2562c", ["a%62c", "abc"]),
        (r"a\u002562c", ["a%62c", "abc"]),
        (r"https:\/\/h", ["https://h"]),
        (r"a\x62", ["ab"]),
        (r"line\nnext", []),
        ("100%", []),
    ],
)
def test_a_text_is_read_layer_by_layer(text, read):
    assert [view.text for view in views_of(text)] == read


def test_every_place_of_a_view_has_its_place_in_the_text():
    text = r"x\\u0061%62%2563d"
    for view in views_of(text):
        assert [view.place(n) for n in range(len(view.text) + 1)][-1] == len(text)
        assert view.place(0) == 0
        assert text[view.place(view.text.index("d"))] == "d"
