"""One read of a clock or of dice: from the real value to JSON, and back from what is served.

Knows forms of values. Must not know which functions are read, nor who records or serves.

In a recording the agent gets the very object that the real function gave; the JSON goes to the
record alone. In a rerun the value is made again from the JSON.

Source: DESIGN.md §4 "clock and PRNG".
"""

import time
import uuid
from collections.abc import Callable, Sequence
from datetime import date, datetime, tzinfo
from typing import Any, NamedTuple, TypeVar

from redrive.capture.ports import Backend
from redrive.errors import RecordError
from redrive.record.event import Kind

_T = TypeVar("_T")

# Python reads and writes decimal integers of at most 4,300 digits; hexadecimal has no limit.
_MAX_DECIMAL_BITS = 14_000
_FOLD_MARK = "[fold=1]"


class Form(NamedTuple):
    """How a value is written as JSON and made again; `what` names it in an error.

    `dump` gives `None` for a value that has no JSON form; `load` raises what the conversion raises.
    """

    what: str
    dump: Callable[[Any], Any]
    load: Callable[[Any], Any]


def take_read(backend: Backend, kind: Kind, name: str, real: Callable[[], _T], form: Form) -> _T:
    """Read one value, or have it served.

    Args:
        backend: who records or serves.
        kind: `CLOCK_READ` or `PRNG_READ`.
        name: what is read, with its arguments.
        real: reads the real thing; what it raises reaches the caller.
        form: how the value becomes JSON.

    Raises:
        RecordError: the recorded value is not of the form that this read gives.
    """
    taken: list[_T] = []

    def take() -> Any:
        value = real()
        taken.append(value)
        return form.dump(value)

    served = backend.read(kind, name, take)
    if taken:
        return taken[0]
    try:
        loaded: _T = form.load(served)
    except (TypeError, ValueError, OverflowError, ArithmeticError) as error:
        raise RecordError(f"the recorded value of {name} is no {form.what}") from error
    return loaded


def take_draw(
    backend: Backend, name: str, real: Callable[[], _T], form: Form, kind: Kind = Kind.PRNG_READ
) -> _T:
    """Read as `take_read` does; wrong arguments raise the same error in a recording and a rerun.

    `real` is called in a rerun too, and its value thrown away: what its arguments alone refuse was
    never recorded. It may be called twice.
    """
    if backend.is_serving:
        real()
    return take_read(backend, kind, name, real, form)


def _dump_number(value: Any) -> Any:
    """Write an int or a float exactly; a subclass of another library as the number that it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        number = float(value)
        # NaN and the infinities have no JSON form.
        return number if number - number == 0 else None
    whole = int(value)
    return whole if whole.bit_length() <= _MAX_DECIMAL_BITS else hex(whole)


def _load_number(value: Any) -> int | float:
    if isinstance(value, str) and value.removeprefix("-").startswith("0x"):
        return int(value, 16)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("no number")
    return value


def _load_integer(value: Any) -> int:
    number = _load_number(value)
    if not isinstance(number, int):
        raise TypeError("no integer")
    return number


def _load_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _same(value: _T) -> _T:
    return value


NUMBER = Form("number", _dump_number, _load_number)
FLOAT = Form("number", _dump_number, lambda value: float(_load_number(value)))
INTEGER = Form("integer", _dump_number, _load_integer)
TEXT = Form("text", _same, _load_text)
HEX = Form("bytes in hexadecimal", bytes.hex, lambda value: bytes.fromhex(_load_text(value)))
UUID = Form("UUID", str, lambda value: uuid.UUID(_load_text(value)))


def indices_below(count: int) -> Form:
    """Give the form of a list of places in a sequence of `count` elements."""

    def load(value: Any) -> list[int]:
        found = [_load_integer(place) for place in value]
        if any(not 0 <= place < count for place in found):
            raise ValueError("no such place")
        return found

    return Form(f"list of places below {count}", list, load)


def index_below(count: int) -> Form:
    """Give the form of one place in a sequence of `count` elements."""
    places = indices_below(count)
    return Form(f"place below {count}", _same, lambda value: places.load([value])[0])


def order_of(count: int) -> Form:
    """Give the form of an order of `count` elements: for each place, where its element was."""
    places = indices_below(count)

    def load(value: Any) -> list[int]:
        found: list[int] = places.load(value)
        if len(found) != count or len(set(found)) != count:
            raise ValueError("no order")
        return found

    return Form(f"order of {count} elements", list, load)


def _dump_state(state: Any) -> Any:
    version, internal, gauss_next = state
    return [version, list(internal), gauss_next]


def _load_state(value: Any) -> tuple[Any, ...]:
    version, internal, gauss_next = value
    return version, tuple(internal), gauss_next


STATE = Form("state of a random.Random", _dump_state, _load_state)

_STRUCT_FIELDS = 11


def _dump_struct(value: time.struct_time) -> list[Any]:
    return [*value, value.tm_zone, value.tm_gmtoff]


def _load_struct(value: Any) -> time.struct_time:
    if not isinstance(value, list) or len(value) != _STRUCT_FIELDS:
        raise TypeError("no struct_time")
    return time.struct_time([_load_integer(field) for field in value[:9]] + value[9:])


STRUCT_TIME = Form("list of the eleven fields of a struct_time", _dump_struct, _load_struct)


def _dump_moment(value: datetime) -> str:
    """Write ISO 8601; the second of two equal local times gets a suffix as RFC 9557 has them."""
    is_second = value.fold and value.utcoffset() is None
    return datetime.isoformat(value) + (_FOLD_MARK if is_second else "")


def moment_of(cls: type[datetime], tz: tzinfo | None) -> Form:
    """Give the form of a `datetime`: ISO 8601 text, its offset kept.

    Args:
        cls: `datetime`, or a subclass that the value is made of.
        tz: the time zone that the caller asked for; the value gets it back.
    """

    def load(value: Any) -> datetime:
        text = _load_text(value)
        found = datetime.fromisoformat(text.removesuffix(_FOLD_MARK))
        found = found.replace(fold=int(text.endswith(_FOLD_MARK)))
        if tz is not None:
            is_naive = found.utcoffset() is None
            found = found.replace(tzinfo=tz) if is_naive else found.astimezone(tz)
        return found if cls is datetime else _remake(cls, found)

    return Form("date and time as ISO 8601", _dump_moment, load)


def _remake(cls: type[datetime], found: datetime) -> datetime:
    return cls(
        found.year,
        found.month,
        found.day,
        found.hour,
        found.minute,
        found.second,
        found.microsecond,
        found.tzinfo,
        fold=found.fold,
    )


def day_of(cls: type[date]) -> Form:
    """Give the form of a `date`: ISO 8601 text. `cls` is `date` or a subclass of it."""

    def load(value: Any) -> date:
        found = date.fromisoformat(_load_text(value))
        return found if cls is date else cls(found.year, found.month, found.day)

    return Form("date as ISO 8601", date.isoformat, load)


_SHOWN_CHARS = 60


def show_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Name a call with its arguments: `random.uniform(0.1, 0.5)`; without any, the name alone."""
    shown = [show_argument(value) for value in args]
    shown += [f"{key}={show_argument(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(shown)})" if shown else name


def show_argument(value: Any) -> str:
    """Show a number, a text or a short list of them; anything else by its type and length.

    A `repr` of the caller's own making, or one with an address in it, never gets into a name.
    """
    if type(value) in (list, tuple):
        return _show_items(value)
    if type(value) not in (int, float, bool, type(None), str):
        return type(value).__name__
    is_long = type(value) is int and value.bit_length() > _MAX_DECIMAL_BITS
    text = hex(value) if is_long else repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _show_items(values: Sequence[Any]) -> str:
    text = f"[{', '.join(show_argument(value) for value in values[:_SHOWN_CHARS])}]"
    if len(text) <= _SHOWN_CHARS and "…" not in text:
        return text
    return f"len={len(values)}"
