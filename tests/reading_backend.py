"""A backend in memory that records reads, or serves what another one recorded."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from redrive.record.event import Kind, raw_of, raw_value


class ReadingBackend:
    """Keeps each read as (kind, name, value); its values are JSON and back.

    Args:
        served: names and values to serve; `None` records.
    """

    def __init__(self, served: Iterable[tuple[str, Any]] | None = None) -> None:
        self.is_serving = served is not None
        self.reads: list[tuple[Kind, str, Any]] = []
        self._served = iter(served or ())
        self._lock = threading.Lock()

    def read(self, kind: Kind, name: str, take: Callable[[], Any]) -> Any:
        value = self._serve(name) if self.is_serving else take()
        value = raw_value(raw_of(value))
        with self._lock:
            self.reads.append((kind, name, value))
        return value

    def _serve(self, name: str) -> Any:
        expected, value = next(self._served, ("nothing", None))
        if expected != name:
            raise AssertionError(f"{name} was read, {expected} is recorded")
        return value

    @property
    def names(self) -> list[str]:
        return [name for _, name, _ in self.reads]

    @property
    def values(self) -> list[Any]:
        return [value for _, _, value in self.reads]

    def rerun(self) -> "ReadingBackend":
        """Serve what was recorded here."""
        return ReadingBackend([(name, value) for _, name, value in self.reads])
