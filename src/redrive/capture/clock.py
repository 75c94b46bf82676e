"""The clock of a session: each read is recorded, or served from the record.

Knows the functions of `time` and `datetime` and the name that each read has in the record. Must
not know who asks: `interception` uses the same functions for reads of code that knows no session.

Source: DESIGN.md §4 "clock and PRNG".
"""

import asyncio
import time
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime, timezone, tzinfo
from typing import Any, Final

from redrive.capture.ports import Backend
from redrive.capture.values import (
    FLOAT,
    INTEGER,
    STRUCT_TIME,
    TEXT,
    Form,
    day_of,
    moment_of,
    show_call,
    take_draw,
    take_read,
)
from redrive.record.event import Kind

TIME_READS: Final[dict[str, Form]] = {
    "time": FLOAT,
    "time_ns": INTEGER,
    "monotonic": FLOAT,
    "monotonic_ns": INTEGER,
    "perf_counter": FLOAT,
    "perf_counter_ns": INTEGER,
    "process_time": FLOAT,
    "process_time_ns": INTEGER,
    "thread_time": FLOAT,
    "thread_time_ns": INTEGER,
    "clock_gettime": FLOAT,
    "clock_gettime_ns": INTEGER,
    "localtime": STRUCT_TIME,
    "gmtime": STRUCT_TIME,
    "ctime": TEXT,
    "asctime": TEXT,
    "strftime": TEXT,
}
"""Functions of `time` that read a clock, and what they give."""

_GIVEN_AT: Final = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
"""Where a function takes the time that it is asked about; with it, no clock is read."""


def read_time(backend: Backend, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Call a function of `time` whose name is in `TIME_READS`.

    Args:
        backend: who records or serves.
        name: the function's name, without its module.
        real: the function itself.
        args: its arguments; with a time among them, it is called and nothing is read.
    """
    place = _GIVEN_AT.get(name)
    if place is not None and len(args) > place and args[place] is not None:
        return real(*args)
    shown = show_call(f"time.{name}", args if name == "strftime" else (), {})
    if name.startswith("clock_gettime"):
        shown = f"time.{name}({_clock_name(*args)})"
    return take_draw(backend, shown, lambda: real(*args), TIME_READS[name], Kind.CLOCK_READ)


def sleep(backend: Backend, real: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Sleep for `args[0]` seconds; in a rerun not at all. What `sleep` refuses is refused."""
    is_skipped = backend.is_serving and len(args) == 1 and args[0] >= 0
    real(*(0,) if is_skipped else args)


def read_now(
    backend: Backend, cls: type[datetime], real: Callable[..., Any], tz: tzinfo | None = None
) -> Any:
    """Call `datetime.now` of a class, `real`; named `datetime.now` or `datetime.now(ZONE)`."""
    name = "datetime.now" if tz is None else f"datetime.now({zone_name(tz)})"

    def take() -> Any:
        return real(tz)

    return take_draw(backend, name, take, moment_of(cls, tz), Kind.CLOCK_READ)


def read_today(backend: Backend, cls: type[date], name: str, real: Callable[[], Any]) -> Any:
    """Call `today` or `utcnow` of a class; the value is a `datetime` if the class is one."""
    if issubclass(cls, datetime):
        shown, form = f"datetime.{name}", moment_of(cls, None)
    else:
        shown, form = f"date.{name}", day_of(cls)
    return take_read(backend, Kind.CLOCK_READ, shown, real, form)


def zone_name(tz: tzinfo) -> str:
    """Name a time zone: `UTC`, `UTC+02:00`, `Europe/Berlin`, else the class of the object."""
    if type(tz) is timezone:
        return str(tz)
    if isinstance(tz, zoneinfo.ZoneInfo) and tz.key is not None:
        return tz.key
    return type(tz).__name__


def _clock_name(clock: object = None, *_: object) -> str:
    names = (n for n, v in vars(time).items() if n.startswith("CLOCK_") and v == clock)
    return min(names, default=str(clock) if isinstance(clock, int) else type(clock).__name__)


class Clock:
    """A clock whose every read is in the record; in a rerun it gives what was recorded.

    Args:
        backend: who records or serves.

    Names of reads are those of Python's functions: `time.time`, `datetime.now(UTC)`.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def time(self) -> float:
        """Give seconds since 1970, UTC."""
        return self._seconds("time", time.time)

    def time_ns(self) -> int:
        """Give nanoseconds since 1970, UTC."""
        return self._nanoseconds("time_ns", time.time_ns)

    def monotonic(self) -> float:
        """Give seconds of a clock that never goes back."""
        return self._seconds("monotonic", time.monotonic)

    def monotonic_ns(self) -> int:
        """Give nanoseconds of a clock that never goes back."""
        return self._nanoseconds("monotonic_ns", time.monotonic_ns)

    def perf_counter(self) -> float:
        """Give seconds of the finest clock there is."""
        return self._seconds("perf_counter", time.perf_counter)

    def perf_counter_ns(self) -> int:
        """Give nanoseconds of the finest clock there is."""
        return self._nanoseconds("perf_counter_ns", time.perf_counter_ns)

    def process_time(self) -> float:
        """Give the seconds of CPU that this process has used."""
        return self._seconds("process_time", time.process_time)

    def process_time_ns(self) -> int:
        """Give the nanoseconds of CPU that this process has used."""
        return self._nanoseconds("process_time_ns", time.process_time_ns)

    def now(self, tz: tzinfo | None = None) -> datetime:
        """Give date and time in a time zone; without one, local and naive as Python's."""
        found: datetime = read_now(self._backend, datetime, datetime.now, tz)
        return found

    def utcnow(self) -> datetime:
        """Give date and time in UTC, naive as Python's `datetime.utcnow`."""
        found: datetime = read_today(self._backend, datetime, "utcnow", _utcnow)
        return found

    def today(self) -> date:
        """Give the local date, as `date.today`."""
        found: date = read_today(self._backend, date, "today", date.today)
        return found

    def sleep(self, seconds: float) -> None:
        """Sleep; in a rerun not at all. It is no read."""
        sleep(self._backend, time.sleep, (seconds,))

    async def sleep_async(self, seconds: float) -> None:
        """Let other tasks run for some seconds; in a rerun, for one turn of the loop."""
        await asyncio.sleep(0 if self._backend.is_serving else seconds)

    def _seconds(self, name: str, real: Callable[[], float]) -> float:
        return take_read(self._backend, Kind.CLOCK_READ, f"time.{name}", real, FLOAT)

    def _nanoseconds(self, name: str, real: Callable[[], int]) -> int:
        return take_read(self._backend, Kind.CLOCK_READ, f"time.{name}", real, INTEGER)


def _utcnow() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None)
