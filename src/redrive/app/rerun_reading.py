"""Reads a stored session for seams that are asked from any thread.

A store is used from the thread that opened it. An agent's threads are its own, so one thread here
has a connection of its own, and reads for all of them.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from redrive.record.event import Event
from redrive.record.session import EventReader
from redrive.stores.port import Store
from redrive.stores.sqlite import open_store

_T = TypeVar("_T")


class SharedReader:
    """Reads events and artefacts of one session; use it from any thread while it is open.

    Args:
        path: the store.
        session_id: the session.
    """

    def __init__(self, path: Path, session_id: str) -> None:
        self._path = path
        self._session_id = session_id
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="redrive-reading")
        self._store: Store | None = None
        self._reader: EventReader | None = None

    def __enter__(self) -> Self:
        self._do(self._open)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._close)
        self._executor.shutdown()

    def read_event(self, seq: int) -> Event:
        """Read one event; raises as a store's reader does."""
        return self._do(lambda: self._read_event(seq))

    def read_artefact(self, digest: str) -> bytes:
        """Read an artefact whole; `TamperError` where it does not match its digest."""
        return self._do(lambda: read_artefact(self._opened(), digest))

    def _do(self, work: Callable[[], _T]) -> _T:
        return self._executor.submit(work).result()

    def _open(self) -> None:
        self._store = open_store(self._path, create=False, read_only=True)
        self._reader = self._store.reader(self._session_id)

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _opened(self) -> Store:
        assert self._store is not None  # noqa: S101 - opened on entering
        return self._store

    def _read_event(self, seq: int) -> Event:
        assert self._reader is not None  # noqa: S101 - opened on entering
        return next(iter(self._reader.read_events((seq,))))


def read_artefact(store: Store, digest: str) -> bytes:
    """Read an artefact whole; raises `TamperError` where it does not match its digest."""
    with store.open_artefact(digest) as stream:
        return stream.read()
