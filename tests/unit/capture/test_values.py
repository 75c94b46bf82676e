import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.capture.values import (
    FLOAT,
    HEX,
    INTEGER,
    NUMBER,
    STATE,
    STRUCT_TIME,
    TEXT,
    UUID,
    Form,
    day_of,
    index_below,
    indices_below,
    moment_of,
    order_of,
    show_argument,
    show_call,
    take_draw,
    take_read,
)
from redrive.errors import RecordError
from redrive.record.event import Kind, raw_of, raw_value
from tests.reading_backend import ReadingBackend


class Moment(datetime):
    pass


class Day(date):
    pass


class Nowhere(tzinfo):
    """A zone that gives no offset, as the language allows."""

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None

    def fromutc(self, dt: datetime) -> datetime:
        return dt


def through_json(form: Form, value: Any) -> Any:
    return form.load(raw_value(raw_of(form.dump(value))))


@given(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers()))
def test_a_number_comes_back_exact_and_of_its_own_type(value: float) -> None:
    back = through_json(NUMBER, value)
    assert (repr(back), type(back)) == (repr(value), type(value))


def test_an_integer_too_long_for_decimal_digits_comes_back() -> None:
    assert through_json(INTEGER, 1 << 20_000) == 1 << 20_000


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1j, True])
def test_what_json_cannot_hold_has_no_value(value: object) -> None:
    assert NUMBER.dump(value) is None


def test_a_number_of_another_librarys_class_is_recorded_as_the_number_it_is() -> None:
    class Odd(float):
        pass

    assert type(NUMBER.dump(Odd(0.5))) is float


@given(st.datetimes())
def test_a_naive_moment_comes_back_with_its_fold(value: datetime) -> None:
    for fold in (0, 1):
        back = through_json(moment_of(datetime, None), value.replace(fold=fold))
        assert (back, back.fold, back.tzinfo) == (value, fold, None)


ZONES = [UTC, timezone(timedelta(hours=-3, minutes=-30)), ZoneInfo("Europe/Berlin")]


@given(st.integers(-(2**31), 2**32), st.sampled_from(ZONES))
def test_an_aware_moment_comes_back_in_the_zone_that_was_asked_for(
    seconds: int, tz: tzinfo
) -> None:
    aware = datetime.fromtimestamp(seconds + 0.25, tz)
    back = through_json(moment_of(datetime, tz), aware)
    assert (back, back.fold, back.tzinfo) == (aware, aware.fold, tz)


def test_a_moment_in_a_zone_without_offset_keeps_the_zone() -> None:
    tz = Nowhere()
    back = through_json(moment_of(datetime, tz), datetime(2026, 1, 2, tzinfo=tz))
    assert back.tzinfo is tz


def test_a_moment_or_day_of_a_subclass_comes_back_as_one() -> None:
    tz = ZoneInfo("Europe/Berlin")
    second = Moment(2026, 10, 25, 2, 30, 0, 7, tz, fold=1)
    back = through_json(moment_of(Moment, tz), second)
    assert (type(back), back, back.fold) == (Moment, second, 1)
    assert type(through_json(day_of(Day), Day(2026, 1, 2))) is Day
    assert through_json(day_of(date), date(2026, 1, 2)) == date(2026, 1, 2)


def test_a_struct_time_comes_back_with_zone_and_offset() -> None:
    value = time.localtime(0)
    back = through_json(STRUCT_TIME, value)
    assert back == value
    assert (back.tm_zone, back.tm_gmtoff) == (value.tm_zone, value.tm_gmtoff)


def test_bytes_uuids_and_states_come_back() -> None:
    some = uuid.UUID(int=7)
    assert through_json(UUID, some) == some
    assert through_json(HEX, b"\x00\xff") == b"\x00\xff"
    assert through_json(STATE, (3, (1, 2), None)) == (3, (1, 2), None)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (FLOAT, None),
        (FLOAT, True),
        (FLOAT, "x"),
        (INTEGER, 1.5),
        (TEXT, 1),
        (HEX, "zz"),
        (UUID, "no uuid"),
        (STRUCT_TIME, [1, 2]),
        (STRUCT_TIME, ["a"] * 11),
        (STATE, 3),
        (index_below(3), 3),
        (indices_below(3), [-1]),
        (order_of(2), [0, 0]),
        (order_of(2), [0]),
        (moment_of(datetime, None), "yesterday"),
        (day_of(date), 5),
    ],
)
def test_a_recorded_value_of_another_form_is_refused_by_name(form: Form, value: Any) -> None:
    backend = ReadingBackend([("x", value)])
    with pytest.raises(RecordError, match=f"the recorded value of x is no {form.what}"):
        take_read(backend, Kind.CLOCK_READ, "x", lambda: None, form)


def test_a_recording_gives_the_very_object_that_was_read() -> None:
    value = uuid.uuid4()
    assert take_read(ReadingBackend(), Kind.PRNG_READ, "x", lambda: value, UUID) is value


def refuse() -> int:
    raise ValueError("no such bound")


def test_what_wrong_arguments_raise_is_raised_in_a_recording_and_a_rerun_and_nothing_is_read() -> (
    None
):
    for backend in (ReadingBackend(), ReadingBackend([("x", 1)])):
        with pytest.raises(ValueError, match="no such bound"):
            take_draw(backend, "x", refuse, INTEGER)
        assert backend.reads == []


class Shy:
    def __repr__(self) -> str:
        raise AssertionError("never asked")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.1, "0.1"),
        (None, "None"),
        ("a'b", '"a\'b"'),
        ("x" * 99, "'" + "x" * 59 + "…"),
        (1 << 20_000, "0x1" + "0" * 57 + "…"),
        ([1, 0.5], "[1, 0.5]"),
        ((1, 2), "[1, 2]"),
        (list(range(99)), "len=99"),
        (["x" * 99], "len=1"),
        (Shy(), "Shy"),
        ([Shy()], "[Shy]"),
    ],
    ids=range(11),
)
def test_an_argument_is_shown_short_and_without_asking_it(value: object, shown: str) -> None:
    assert show_argument(value) == shown


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda: show_call("f", (), {}), "f"),
        (lambda: show_call("f", (1,), {"b": "x"}), "f(1, b='x')"),
    ],
)
def test_a_call_is_named_with_its_arguments(make: Callable[[], str], shown: str) -> None:
    assert make() == shown
