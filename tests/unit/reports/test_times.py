import pytest

from redrive.reports.times import format_time, time_or_none


@pytest.mark.parametrize(
    ("ts_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000000Z"),
        (1_767_225_600_000_000_001, "2026-01-01T00:00:00.000000001Z"),
        (-1, "1969-12-31T23:59:59.999999999Z"),
        (2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
        (-(2**63), "1677-09-21T00:12:43.145224192Z"),
    ],
)
def test_a_time_has_nine_decimals(ts_ns, text):
    assert format_time(ts_ns) == text


def test_an_absent_time_stays_absent():
    assert time_or_none(None) is None
    assert time_or_none(0) == "1970-01-01T00:00:00.000000000Z"
