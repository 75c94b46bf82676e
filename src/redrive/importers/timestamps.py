"""Turns the recorded spellings of a time into UTC nanoseconds, without going through a float.

Source: RFC 3339; epoch seconds, milliseconds and nanoseconds as recorded formats write them.
"""

import re
from datetime import UTC, datetime, timedelta, timezone

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?\s*(Z|z|[+-]\d\d:?\d\d)?$"
)
_SIGNS = {20: "--T::Z", 24: "--T::."}  # by length: every third character from the fifth on
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_rfc3339(text: object) -> int | None:
    """Parse an RFC 3339 time to UTC nanoseconds; a time without zone is read as UTC.

    Returns:
        Nanoseconds since 1970, digits beyond the ninth cut; `None` for anything else.
    """
    if not isinstance(text, str):
        return None
    # Laid out as `2026-03-02T09:00:03.000Z`, or without the fraction: by far the most common.
    if text[4:20:3] == _SIGNS.get(len(text)) and text[-1] == "Z":
        try:
            since = datetime.fromisoformat(text) - _EPOCH
        except ValueError:
            return None
        seconds = since.days * 86_400 + since.seconds
        return _in_range(seconds * 1_000_000_000 + since.microseconds * 1000)
    match = _RFC3339.match(text)
    if match is None:
        return None
    *date, fraction, zone = match.groups()
    try:
        moment = datetime(*map(int, date), tzinfo=_zone(zone))  # type: ignore[arg-type, misc]
        seconds = (moment - _EPOCH) // timedelta(seconds=1)
    except (ValueError, OverflowError):
        return None
    return _in_range(seconds * 1_000_000_000 + int((fraction or "0")[:9].ljust(9, "0")))


def _zone(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def parse_epoch(value: object, per_second: int) -> int | None:
    """Convert an epoch count (int, or its decimal string) to nanoseconds.

    Args:
        value: the recorded count.
        per_second: how many of its units make a second, such as 1, 1_000 or 1_000_000_000.
    """
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 25:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return _in_range(value * (1_000_000_000 // per_second))


def _in_range(ts_ns: int) -> int | None:
    """Give a time that 64 bits hold (until April 2262); one beyond counts as not recorded."""
    return ts_ns if -(2**63) < ts_ns < 2**63 else None
