"""Stand-ins for `datetime` and for functions that are a clock only without an argument.

Knows how to put a class in the place of `datetime.datetime` and `datetime.date` so that values,
`isinstance` and arithmetic stay as they were. Must not know what a policy is.

Source: DESIGN.md §7 "Purity".
"""

import datetime
import sys
from typing import Any

from redrive.sandbox.sealed import Call, Sealed, make_stand_in


def without_argument(original: Call, refusing: Call, place: int) -> Call:
    """Make the function that refuses where its argument at `place` is absent or `None`."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if kwargs or (len(args) > place and args[place] is not None):
            return original(*args, **kwargs)
        return refusing(*args)

    stand_in.__name__ = original.__name__
    return stand_in


def replace_datetime(sealed: Sealed) -> None:
    """Put the stand-ins for `datetime` and `date` into their modules."""
    for real, names in (
        (datetime.datetime, ("now", "utcnow", "today")),
        (datetime.date, ("today",)),
    ):
        stand_in = _make_class(sealed, real, names)
        for module in (datetime, sys.modules.get("_datetime")):
            if module is not None:
                setattr(module, real.__name__, stand_in)


def _make_class(sealed: Sealed, real: type, names: tuple[str, ...]) -> type:
    """Make a class whose instances are real ones, so that no other code can tell them apart."""

    class Meta(type(real)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, real) if cls is stand_in else super().__instancecheck__(value)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, real) if cls is stand_in else super().__subclasscheck__(other)

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        return real(*args, **kwargs) if cls is stand_in else real.__new__(cls, *args, **kwargs)

    methods: dict[str, Any] = {"__new__": new, "__module__": "datetime", "__doc__": real.__doc__}
    for name in names:
        what = f"clock: datetime.{real.__name__}.{name}"
        refusing = make_stand_in(sealed, what, getattr(real, name), name=name)
        methods[name] = staticmethod(refusing)
    stand_in: type = Meta(real.__name__, (real,), methods)
    return stand_in
