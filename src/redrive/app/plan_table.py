"""Reads a TOML table strictly: every key is known, of its type and within bounds, or refused.

Knows TOML values and where they stand in their file. Must not know what a key means.

Every error is one line that names file and key, such as `trial.toml: models[0].price`.
"""

import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Never

from redrive import canonical
from redrive.canonical import DecodedJson
from redrive.errors import RecordError, UsageError, quote

MAX_BYTES = 1024 * 1024
MAX_NESTING = 32
_MONEY = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_RULE = "1 to 64 letters, digits, `.`, `_` or `-`, beginning with a letter or digit"
_TYPES: Sequence[tuple[type, str]] = (
    (bool, "a boolean"),
    (int, "an integer"),
    (float, "a float"),
    (str, "a string"),
    (list, "a list"),
    (dict, "a table"),
)


def read_toml(path: Path, *, what: str, hint: str = "") -> dict[str, Any]:
    """Read a TOML file of at most 1 MiB.

    Raises:
        UsageError: there is no such file, or it is not TOML; with the line where that is known.
        RecordError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path}: no such {what}", where=str(path), hint=hint) from error
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}", where=str(path)) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: more than {MAX_BYTES} bytes: no {what}", where=str(path))
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # bad UTF-8 is a ValueError as well
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"{path}: not TOML: {why}", where=str(path), hint=hint) from error


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Name a file before what is found wrong in it later than its keys were read.

    Raises:
        UsageError: as it came, the file's name before its message.
    """
    try:
        yield
    except UsageError as error:
        message = f"{path.name}: {error.message}"
        raise UsageError(message, where=error.where, hint=error.hint) from error


def type_name(value: object) -> str:
    """Say what a TOML value is, for a message."""
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "a date or time")


class Table:
    """One table of a plan; each key that is read is known, and `close` refuses all others.

    Args:
        values: as TOML gave them.
        file: the name of the file, for messages.
        key: dotted key of this table; empty at the top.
    """

    def __init__(self, values: Mapping[str, Any], file: str, key: str = "") -> None:
        self._values = values
        self._known: set[str] = set()
        self.file = file
        self.key = key

    def __contains__(self, name: str) -> bool:
        """Say whether a key is there."""
        return name in self._values

    def place(self, name: str = "") -> str:
        """Give `FILE: KEY` of one of its keys, or its own."""
        dotted = ".".join(part for part in (self.key, name) if part)
        return f"{self.file}: {dotted}" if dotted else self.file

    def refuse(self, name: str, message: str, hint: str = "") -> Never:
        """Refuse one of its keys.

        Raises:
            UsageError: always; file and key stand before the message.
        """
        place = self.place(name)
        raise UsageError(f"{place}: {message}", where=place, hint=hint)

    def take(self, name: str) -> Any:
        """Take a value of any kind; `None` where it is not there."""
        self._known.add(name)
        return self._values.get(name)

    def require(self, name: str, expected: str) -> Any:
        """Take a value that must be there."""
        value = self.take(name)
        if value is None:
            self.refuse(name, f"missing: expected {expected}")
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """Read a string of one line that is not empty."""
        value = self.take(name) if default is not None else self.require(name, "a string")
        if value is None and default is not None:
            return default
        return self.check_text(name, value)

    def check_text(self, name: str, value: object) -> str:
        """Hold a value to be a string of one line that is not empty."""
        if not isinstance(value, str):
            self.refuse(name, f"expected a string, found {type_name(value)}")
        if not value or len(value) > 4096 or not value.isprintable():
            self.refuse(name, f"expected one line of 1 to 4096 characters, found {quote(value)}")
        return value

    def read_json_file(self, name: str, value: object, folder: Path) -> DecodedJson:
        """Read the JSON file that a key's value names, relative to the plan's folder."""
        path = folder / self.check_text(name, value)
        if path.exists() and not path.is_file():
            self.refuse(name, f"{path}: no file")  # a device may have no end
        try:
            return canonical.decode(path.read_bytes())
        except OSError as error:
            self.refuse(name, f"{path}: {error.strerror}")
        except ValueError as error:
            self.refuse(name, f"{path}: not JSON: {error}")

    def name(self, key: str) -> str:
        """Read a name: see `NAME_RULE`."""
        value = self.text(key)
        if _NAME.fullmatch(value) is None:
            self.refuse(key, f"expected {NAME_RULE}, found {quote(value)}")
        return value

    def choice(self, name: str, words: Collection[str], *, default: str) -> str:
        """Read one of a few words."""
        value = self.text(name, default=default)
        if value not in words and value != default:
            self.refuse(name, f"expected {' or '.join(sorted(words))}, found {quote(value)}")
        return value

    def whole(self, name: str, *, default: int, least: int, most: int) -> int:
        """Read an integer within bounds, both included."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(name, f"expected an integer, found {type_name(value)}")
        if not least <= value <= most:
            self.refuse(name, f"expected {least} to {most}, found {_shown(value)}")
        return value

    def seconds(self, name: str, *, default: float, most: float) -> float:
        """Read a duration above 0."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            self.refuse(name, f"expected seconds, found {type_name(value)}")
        if not (math.isfinite(value) and 0 < value <= most):
            self.refuse(name, f"expected more than 0 and at most {most:g} s, found {_shown(value)}")
        return float(value)

    def flag(self, name: str) -> bool:
        """Read a boolean; false where it is not there."""
        value = self.take(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            self.refuse(name, f"expected true or false, found {type_name(value)}")
        return value

    def money(self, name: str, expected: str) -> Decimal:
        """Read an amount that must be there; see `check_money`."""
        return self.check_money(name, self.require(name, expected))

    def check_money(self, name: str, value: object) -> Decimal:
        """Hold a value to be an amount: a string of digits, so that no binary fraction enters.

        Raises:
            UsageError: it is a TOML number, negative, or no plain decimal.
        """
        if isinstance(value, float):
            why = f'a TOML float is a binary fraction and not exact: write {name} = "0.10"'
            self.refuse(name, f"found the float {value!r}: {why}")
        if isinstance(value, int) and not isinstance(value, bool):
            self.refuse(name, f"found the number {_shown(value)}: money is written as a string")
        if not isinstance(value, str):
            self.refuse(name, f"expected a decimal as a string, found {type_name(value)}")
        if value.startswith("-"):
            self.refuse(name, f"negative: {quote(value)}")
        if _MONEY.fullmatch(value) is None:
            self.refuse(name, f'expected a plain decimal such as "0.10", found {quote(value)}')
        return Decimal(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of strings, each once; empty where it is not there."""
        value = self.take(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(name, f"expected a list of strings, found {type_name(value)}")
        found: dict[str, int] = {}
        for number, entry in enumerate(value):
            text = self.check_text(f"{name}[{number}]", entry)
            if text in found:
                self.refuse(f"{name}[{number}]", f"{quote(text)} stands twice")
            found[text] = number
        return tuple(found)

    def table(self, name: str) -> "Table":
        """Read a table; an absent one is empty."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            self.refuse(name, f"expected a table, found {type_name(value)}")
        return Table(value or {}, self.file, self._below(name))

    def tables(self, name: str) -> tuple["Table", ...]:
        """Read a list of tables; an absent one is empty."""
        value = self.take(name)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(name, f"expected a list of tables, found {type_name(value)}")
        for number, entry in enumerate(value):
            if not isinstance(entry, dict):
                self.refuse(f"{name}[{number}]", f"expected a table, found {type_name(entry)}")
        return tuple(
            Table(entry, self.file, self._below(f"{name}[{number}]"))
            for number, entry in enumerate(value)
        )

    def rest(self) -> dict[str, Any]:
        """Take every key that was not read yet, as JSON values."""
        names = [name for name in self._values if name not in self._known]
        return {name: self.json(name) for name in names}

    def json(self, name: str) -> Any:
        """Take a value that JSON can hold.

        Raises:
            UsageError: it holds a date, NaN or an infinity, or is nested too deeply.
        """
        value = self.take(name)
        self._hold_json(name, value, 0)
        return value

    def _hold_json(self, name: str, value: object, depth: int) -> None:
        if depth > MAX_NESTING:
            self.refuse(name, "nested too deeply")
        if isinstance(value, dict):
            for key, inner in value.items():
                self._hold_json(f"{name}.{key}", inner, depth + 1)
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                self._hold_json(f"{name}[{number}]", inner, depth + 1)
        elif isinstance(value, float) and not math.isfinite(value):
            self.refuse(name, f"{value} has no JSON form")
        elif value is not None and type_name(value) == "a date or time":
            self.refuse(name, "a date or time has no JSON form: write it as a string")

    def close(self) -> None:
        """Hold that every key was read.

        Raises:
            UsageError: there is another one; the known ones are the hint.
        """
        for name in self._values:
            if name not in self._known:
                hint = f"known: {', '.join(sorted(self._known))}"
                self.refuse(name if name.isprintable() else repr(name), "unknown key", hint)

    def _below(self, name: str) -> str:
        return f"{self.key}.{name}" if self.key else name


def _shown(value: float) -> str:
    """Show a number; one of many digits by its size."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return str(value)
