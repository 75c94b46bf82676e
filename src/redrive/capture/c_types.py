"""Replaces a method of a class that is written in C, such as `datetime.datetime`.

A subclass in the place of the class would do for `isinstance`, but libraries compare classes by
identity: with it, a pydantic model or a `msgspec` struct with a `datetime` field cannot be made. So
the class stays what it is and one entry of its dictionary is replaced, as debuggers of the
interpreter do: through the dictionary behind `cls.__dict__`, and with word to the interpreter's
attribute cache.
"""

import ctypes
import gc
from typing import Any


def replace_in_class(cls: type, name: str, value: Any) -> Any:
    """Put a value into a class's own dictionary, also where the class is immutable.

    Args:
        cls: the class.
        name: a name that stands in its own dictionary.
        value: what to put there.

    Returns:
        What stood there.

    Raises:
        TypeError: this interpreter does not let us.
    """
    before = cls.__dict__[name]
    try:
        setattr(cls, name, value)
    except TypeError:
        _replace_in_dictionary(cls, name, value)
    if cls.__dict__[name] is not value:
        raise TypeError(f"{cls.__name__}.{name} cannot be replaced")
    return before


def _replace_in_dictionary(cls: type, name: str, value: Any) -> None:
    behind = gc.get_referents(cls.__dict__)
    if len(behind) != 1 or type(behind[0]) is not dict:
        raise TypeError(f"{cls.__name__} does not show its dictionary")
    behind[0][name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))
