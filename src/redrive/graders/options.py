"""Reads the options of a grader, and says at load what is wrong with them.

Knows the TOML values of a plan. Nothing is run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from redrive.errors import UsageError, quote
from redrive.grading import GraderSetup, GraderSpec

_T = TypeVar("_T")
MAX_TIMEOUT_S = 3600.0


def read_options(spec: GraderSpec, kind: type[_T]) -> _T:
    """Read the options as a struct that forbids unknown fields.

    Raises:
        UsageError: an unknown option, one of another type, or one that is missing.
    """
    try:
        return msgspec.convert(dict(spec.options), kind)
    except msgspec.ValidationError as error:
        fields = ", ".join(_names(kind))
        raise wrong(spec, str(error), hint=f"{spec.kind} takes {fields}") from error


def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def wrong(spec: GraderSpec, what: str, hint: str = "") -> UsageError:
    """Make the error of an option."""
    return UsageError(f"grader {quote(spec.name)}: {what}", hint=hint)


def find_file(setup: GraderSetup, name: str) -> Path:
    """Give the path of a file that an option names.

    Raises:
        UsageError: there is no such file.
    """
    path = setup.base / name
    if not path.is_file():
        raise wrong(setup.spec, f"no such file: {quote(name)}", "paths start at the plan's folder")
    return path


def check_pointer(spec: GraderSpec, pointer: str) -> None:
    """Hold that a text is a JSON pointer (RFC 6901).

    Raises:
        UsageError: it neither is empty nor begins with `/`, or it has a `~` that is no escape.
    """
    plain = pointer.replace("~0", "").replace("~1", "")
    if (pointer and not pointer.startswith("/")) or "~" in plain:
        raise wrong(spec, f"at = {quote(pointer)} is no JSON pointer", 'such as at = "/label"')


def follow(value: Any, pointer: str) -> Any:
    """Give what lies at a JSON pointer.

    Raises:
        LookupError: nothing lies there; the message names the first part that is missing.
    """
    walked = ""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        walked += f"/{part}"
        if isinstance(value, Mapping) and name in value:
            value = value[name]
        elif isinstance(value, list) and _is_index(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            raise LookupError(f"the output has no {quote(walked)}")
    return value


def _is_index(name: str) -> bool:
    is_number = name.isascii() and name.isdigit()
    return is_number and len(name) < 10 and (name == "0" or not name.startswith("0"))


def check_timeout(spec: GraderSpec, timeout_s: float) -> None:
    """Hold that a time limit is one.

    Raises:
        UsageError: it is not above 0, or beyond what is sensible.
    """
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise wrong(spec, f"timeout_s = {timeout_s:g}, expected up to {MAX_TIMEOUT_S:g}")
