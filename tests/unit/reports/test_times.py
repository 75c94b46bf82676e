import pytest

from redrive.reports.times import format_time, shorten_time, time_or_none


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


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("2026-11-30T17:00:00.123456789Z", "2026-11-30 17:00:00 UTC"),
        ("2026-11-30T17:00:00Z", "2026-11-30 17:00:00 UTC"),
        ("2026-11-30T17:00:00+02:00", "2026-11-30T17:00:00+02:00"),
        ("2026-11-30T17:00:00Z\n", "2026-11-30T17:00:00Z\n"),
        ("", ""),
    ],
)
def test_a_time_for_a_reader_has_whole_seconds(text, short):
    assert shorten_time(text) == short


def test_an_absent_time_stays_absent():
    assert time_or_none(None) is None
    assert time_or_none(0) == "1970-01-01T00:00:00.000000000Z"
