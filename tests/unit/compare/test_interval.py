"""The exact interval at known points, and what is refused; scipy is asked in tests/property."""

import pytest

from redrive.compare.interval import clopper_pearson


@pytest.mark.parametrize(
    ("k", "n", "expected"),
    [
        (0, 0, (0.0, 1.0)),
        (0, 10, (0.0, 0.308497)),
        (10, 10, (0.691503, 1.0)),
        (8, 10, (0.443905, 0.974789)),
        (1, 1, (0.025, 1.0)),
    ],
)
def test_known_intervals(k, n, expected):
    assert clopper_pearson(k, n) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("k", "n", "confidence"), [(-1, 2, 0.9), (3, 2, 0.9), (1, 2, 0.0), (1, 2, 1.0)]
)
def test_what_is_no_proportion_is_refused(k, n, confidence):
    with pytest.raises(ValueError, match=r"is no proportion|a confidence of"):
        clopper_pearson(k, n, confidence)
