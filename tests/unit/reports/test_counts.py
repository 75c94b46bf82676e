import pytest

from redrive.reports.counts import counted


@pytest.mark.parametrize(
    ("count", "nouns", "text"),
    [
        (1, ("step",), "1 step"),
        (0, ("step",), "0 steps"),
        (1, ("branch", "branches"), "1 branch"),
        (2, ("branch", "branches"), "2 branches"),
    ],
)
def test_the_noun_agrees_with_the_count(count, nouns, text):
    assert counted(count, *nouns) == text
