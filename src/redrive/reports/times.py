"""Writes times as reports show them.

Source: DESIGN.md §3: RFC 3339 with nine decimals.
"""

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NS_PER_S = 1_000_000_000
_IN_UTC = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z", re.ASCII)


def format_time(ts_ns: int) -> str:
    """Write UTC nanoseconds since 1970 as RFC 3339 with nine decimals.

    Args:
        ts_ns: within the years 1 to 9999, which every 64-bit count is.
    """
    seconds, rest_ns = divmod(ts_ns, _NS_PER_S)
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns:09d}Z"


def shorten_time(text: str) -> str:
    """Write an RFC 3339 time in UTC for a reader: whole seconds; any other text stays as it is."""
    found = _IN_UTC.fullmatch(text)
    return f"{found[1]} {found[2]} UTC" if found else text


def time_or_none(ts_ns: int | None) -> str | None:
    """Write a time, where one was recorded."""
    return None if ts_ns is None else format_time(ts_ns)
