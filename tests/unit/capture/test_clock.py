import asyncio
import time
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from io import BytesIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from redrive.capture.clock import TIME_READS, Clock, read_time, zone_name
from redrive.record.event import Kind
from tests.reading_backend import ReadingBackend

BERLIN = ZoneInfo("Europe/Berlin")
READS = [
    ("time", (), "time.time", float),
    ("time_ns", (), "time.time_ns", int),
    ("monotonic", (), "time.monotonic", float),
    ("monotonic_ns", (), "time.monotonic_ns", int),
    ("perf_counter", (), "time.perf_counter", float),
    ("perf_counter_ns", (), "time.perf_counter_ns", int),
    ("process_time", (), "time.process_time", float),
    ("process_time_ns", (), "time.process_time_ns", int),
    ("now", (), "datetime.now", datetime),
    ("now", (UTC,), "datetime.now(UTC)", datetime),
    ("now", (BERLIN,), "datetime.now(Europe/Berlin)", datetime),
    ("utcnow", (), "datetime.utcnow", datetime),
    ("today", (), "date.today", date),
]


@pytest.mark.parametrize(("method", "args", "name", "kind"), READS)
def test_a_read_is_recorded_by_name_and_served_again_exactly(
    method: str, args: tuple[Any, ...], name: str, kind: type
) -> None:
    recording = ReadingBackend()
    value = getattr(Clock(recording), method)(*args)
    assert type(value) is kind
    assert [(kind, name) for kind, name, _ in recording.reads] == [(Kind.CLOCK_READ, name)]
    served = getattr(Clock(recording.rerun()), method)(*args)
    assert (served, type(served)) == (value, kind)


def test_a_recorded_value_is_the_real_one() -> None:
    backend = ReadingBackend()
    before = time.time()
    value = Clock(backend).time()
    assert before <= value <= time.time()
    assert backend.values == [value]


def test_utcnow_is_naive_and_in_utc() -> None:
    value = Clock(ReadingBackend()).utcnow()
    assert value.tzinfo is None
    assert abs(datetime.now(UTC).replace(tzinfo=None) - value) < timedelta(minutes=1)


def test_a_served_moment_has_the_zone_that_is_asked_for() -> None:
    backend = ReadingBackend([("datetime.now(Europe/Berlin)", "2026-10-25T02:30:00+01:00")])
    value = Clock(backend).now(BERLIN)
    assert (value.tzinfo, value.fold) == (BERLIN, 1)


def test_a_sleep_lasts_in_a_recording_and_is_no_read() -> None:
    backend = ReadingBackend()
    before = time.monotonic()
    Clock(backend).sleep(0.02)
    asyncio.run(Clock(backend).sleep_async(0.02))
    assert time.monotonic() - before >= 0.04
    assert backend.reads == []


def test_a_sleep_does_not_last_in_a_rerun() -> None:
    clock = Clock(ReadingBackend([]))
    before = time.monotonic()
    clock.sleep(3600)
    asyncio.run(clock.sleep_async(3600))
    assert time.monotonic() - before < 60


@pytest.mark.parametrize("backend", [ReadingBackend(), ReadingBackend([])])
def test_a_sleep_refuses_what_pythons_refuses(backend: ReadingBackend) -> None:
    with pytest.raises(ValueError, match="non-negative"):
        Clock(backend).sleep(-1)
    with pytest.raises(TypeError):
        Clock(backend).sleep("1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "args"),
    [("localtime", (0,)), ("gmtime", (0,)), ("ctime", (0,)), ("strftime", ("%Y", time.gmtime(0)))],
)
def test_a_function_that_is_given_the_time_reads_none(name: str, args: tuple[Any, ...]) -> None:
    backend = ReadingBackend()
    assert read_time(backend, name, getattr(time, name), args) == getattr(time, name)(*args)
    assert backend.reads == []


@pytest.mark.parametrize(
    ("name", "args", "shown"),
    [
        ("localtime", (None,), "time.localtime"),
        ("strftime", ("%Y",), "time.strftime('%Y')"),
        ("clock_gettime", (time.CLOCK_MONOTONIC,), "time.clock_gettime(CLOCK_MONOTONIC)"),
    ],
)
def test_a_function_without_a_time_is_a_read(name: str, args: tuple[Any, ...], shown: str) -> None:
    recording = ReadingBackend()
    value = read_time(recording, name, getattr(time, name), args)
    assert recording.names == [shown]
    assert read_time(recording.rerun(), name, getattr(time, name), args) == value


@pytest.mark.parametrize("backend", [ReadingBackend(), ReadingBackend([])])
@pytest.mark.parametrize(
    ("args", "error"), [((-99,), OSError), ((), TypeError), (("x",), TypeError)]
)
def test_a_clock_that_is_none_is_refused_and_not_read(
    backend: ReadingBackend, args: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read_time(backend, "clock_gettime", time.clock_gettime, args)
    assert backend.reads == []


def test_every_read_of_the_table_is_a_function_of_python() -> None:
    assert [name for name in TIME_READS if not callable(getattr(time, name))] == []


class Zone(tzinfo):
    pass


def test_a_zone_is_named_without_its_address() -> None:
    nameless = ZoneInfo.from_file(BytesIO(_NAMELESS))
    assert [zone_name(tz) for tz in (timezone(timedelta(hours=2)), Zone(), nameless)] == [
        "UTC+02:00",
        "Zone",
        "ZoneInfo",
    ]


# A time zone file of version 1 with one zone, UTC.
_NAMELESS = (
    b"TZif"
    + bytes(16)
    + b"".join(n.to_bytes(4, "big") for n in (0, 0, 0, 0, 1, 4))
    + bytes(6)
    + b"UTC\x00"
)
