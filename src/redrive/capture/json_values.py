"""Which Python values have a JSON form that gives them back, and how the others are named.

Knows Python values and JSON. Must not know tools, sessions or backends.

A *result* must come back from the record as it was, so only what round-trips exactly has a JSON
form: `str`, `int`, finite `float`, `bool`, `None`, and `list` and `dict` of these, by exact type.
An *argument* is only compared, so forms that lose a type but no content will do; what has none
stands as a mark with the name of its type. Nothing is ever written by `repr`.

Source: DESIGN.md §3 "Evidence is bytes", §10 "Integers".
"""

import dataclasses
import math
from typing import Any

from msgspec import Raw

from redrive import canonical

UNREPRESENTABLE_KEY = "redrive.unrepresentable"
MAX_DEPTH = 256
# No integer of as many bits has more than `canonical.MAX_INTEGER_DIGITS` digits.
_MAX_INTEGER_BITS = int(canonical.MAX_INTEGER_DIGITS / math.log10(2))
_TOO_DEEP = f"a value nested deeper than {MAX_DEPTH}"


def type_name(kind: type) -> str:
    """Name a type: alone if it is built in, else as `module.qualname`."""
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def exact_json(value: Any) -> Raw | str:
    """Write a value as JSON that gives exactly this value back.

    Returns:
        The JSON; or, where there is none, the name of the type that has none, such as `tuple` or
        `bytes in dict`.

    Cost: two walks over the value.
    """
    alien = _find_alien(value)
    if alien is None:
        return Raw(canonical.encode(value))
    outer = type_name(type(value))
    return alien if alien == outer else f"{alien} in {outer}"


def _find_alien(root: Any) -> str | None:
    """Find what has no exact JSON form; depth first, so that a cycle ends at the depth limit."""
    stack = [(root, 0)]
    while stack:
        value, depth = stack.pop()
        if type(value) is dict:
            if any(type(key) is not str for key in value):
                return "a key that is no str"
            stack.extend((item, depth + 1) for item in value.values())
        elif type(value) is list:
            stack.extend((item, depth + 1) for item in value)
        elif (name := _alien_scalar(value)) is not None:
            return name
        if depth > MAX_DEPTH:
            return _TOO_DEEP
    return None


def _alien_scalar(value: Any) -> str | None:
    if value is None or type(value) in (str, bool):
        return None
    if type(value) is int:
        is_long = value.bit_length() > _MAX_INTEGER_BITS
        return f"int of more than {canonical.MAX_INTEGER_DIGITS} digits" if is_long else None
    if type(value) is float:
        return None if math.isfinite(value) else "float that is not finite"
    return type_name(type(value))


def comparable(value: Any) -> Any:
    """Give the JSON value that stands for an argument in the record.

    A tuple becomes a list, a data class the object of its fields, an instance of a subclass of a
    JSON type that type. Anything else, and a number without a JSON form, becomes
    `{"redrive.unrepresentable": TYPE}`.

    Cost: one walk; a value that is nested too deeply becomes one mark.
    """
    try:
        return _compare(value, 0)
    except RecursionError:
        return {UNREPRESENTABLE_KEY: _TOO_DEEP}
    except Exception:  # noqa: BLE001 - an agent's own class may raise when it is looked at
        return {UNREPRESENTABLE_KEY: type_name(type(value))}


def _compare(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {str.__str__(key): _compare(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_compare(item, depth + 1) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _compare(getattr(value, name, None), depth + 1) for name in names}
    return _compare_scalar(value)


def _compare_scalar(value: Any) -> Any:
    if isinstance(value, str):
        value = str.__str__(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        value = int.__int__(value)
    elif isinstance(value, float):
        value = float.__float__(value)
    name = _alien_scalar(value)
    return value if name is None else {UNREPRESENTABLE_KEY: name}
