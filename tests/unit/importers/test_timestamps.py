import pytest

from redrive.importers.timestamps import parse_epoch, parse_rfc3339


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-03-02T09:00:02Z", 1772442002 * 10**9),
        ("2026-03-02T09:00:02.123Z", 1772442002 * 10**9 + 123 * 10**6),
        ("1969-12-31T23:59:59.250Z", -750_000_000),
        ("2026-02-30T00:00:00.000Z", None),
        ("2026-03-02T09:00:02.123456789123Z", 1772442002 * 10**9 + 123456789),
        ("2026-03-02 10:30:02.5+01:30", 1772442002 * 10**9 + 5 * 10**8),
        ("2026-03-02T08:00:02-0100", 1772442002 * 10**9),
        ("2026-03-02T09:00:02", 1772442002 * 10**9),
        ("1969-12-31T23:59:59.25Z", -750_000_000),
        ("2026-02-30T00:00:00Z", None),
        ("2262-04-11T23:47:16.854Z", 9223372036854 * 10**6),
        ("2262-04-11T23:47:16.855Z", None),
        ("9026-03-02T09:00:02+01:00", None),
        ("yesterday", None),
        ("", None),
        (17, None),
        (None, None),
    ],
)
def test_rfc3339_is_read_to_the_nanosecond(text, expected):
    assert parse_rfc3339(text) == expected


@pytest.mark.parametrize(
    ("value", "per_second", "expected"),
    [
        (3, 1, 3 * 10**9),
        ("1772442002123", 1000, 1772442002123 * 10**6),
        (1772442002123456789, 10**9, 1772442002123456789),
        ("1" * 30, 1, None),
        (2**63, 10**9, None),
        (-(2**63), 10**9, None),
        ("-5", 1, None),
        (True, 1, None),
        (1.5, 1, None),
        (None, 1, None),
    ],
)
def test_epoch_counts_stay_exact(value, per_second, expected):
    assert parse_epoch(value, per_second) == expected
