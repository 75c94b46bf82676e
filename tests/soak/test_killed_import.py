"""`kill -9` at any moment of an import: the store is whole, and a second import completes it."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redrive import canonical
from redrive.app.importing import import_paths
from redrive.stores.port import Store
from tests.soak.killing import import_into, started_killer
from tests.stored import opened

KILLS = 1000 if os.environ.get("REDRIVE_SOAK") == "full" else 50
N_LINES = 700
Sessions = dict[str, tuple[str, int]]


def long_session() -> Iterator[str]:
    """Yield a session of more than one segment, so that half of it could be written."""
    for number in range(N_LINES):
        parent = f"m{number - 1}" if number else None
        content = f"message {number} " * 20
        yield json.dumps(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "sessionId": "5e55a000-0000-4000-8000-0000000000aa",
                "type": "user",
                "message": {"role": "user", "content": content},
                "uuid": f"m{number}",
                "timestamp": f"2026-03-02T09:{number // 60:02d}:{number % 60:02d}.000Z",
            }
        )


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of several formats and one long session, in the middle by name."""
    folder = tmp_path_factory.mktemp("inputs")
    cases = Path(__file__).resolve().parents[1] / "cases"
    for case in ("04-torn-tail", "09-rewind-dead-branch", "17-otlp-truncated-messages"):
        shutil.copytree(cases / case, folder / case)
    shutil.copytree(cases / "25-polled-identical-calls", folder / "z-last")
    (folder / "long.jsonl").write_text("".join(line + "\n" for line in long_session()))
    return folder


def stored(store: Store) -> Sessions:
    """Give each session's head and number of events."""
    return {row.session_id: (row.head, row.n_events) for row in store.sessions()}


def check_whole(path: Path, wanted: Sessions) -> None:
    """Hold that a store is sound and that each session in it is there whole."""
    with opened(path) as store:
        verified = store.verify()
        assert verified.is_ok, verified.faults
        assert stored(store).items() <= wanted.items()


@pytest.fixture(scope="module")
def wanted(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    path = tmp_path_factory.mktemp("wanted") / "store.db"
    import_into(path, inputs)
    with opened(path) as store:
        found = stored(store)
    assert len(found) >= 5
    return found


def _timed_s(path: Path, inputs: Path) -> float:
    started = time.monotonic()
    import_into(path, inputs)
    return time.monotonic() - started


def test_a_killed_importer_leaves_whole_sessions_and_a_second_import_completes_them(
    inputs: Path, wanted: Sessions, tmp_path: Path
) -> None:
    draws = canonical.stream("kill", "importer")
    whole_s = _timed_s(tmp_path / "timed.db", inputs)
    n_killed, states = 0, set()
    with started_killer(inputs) as killer:
        for number in range(KILLS):
            path = tmp_path / f"{number}.db"
            is_killed = killer.kill(path, whole_s * (next(draws) % 1000) / 1000)
            n_killed += is_killed
            whole_s *= 1.05 if is_killed else 0.8  # however busy the machine is: 4 of 5 are killed
            check_whole(path, wanted)
            with opened(path) as store:
                states.add(frozenset(stored(store)))
            import_into(path, inputs)
            with opened(path) as store:
                assert store.verify().is_ok
                assert stored(store) == wanted
            path.unlink()
    assert n_killed >= KILLS // 4, "the control: importers were killed before their end"
    assert len(states) > 2, "the control: they were killed at different places"


class _Killed(BaseException):
    pass


class HalfStore:
    """The planted defect: what a transaction wrote before it was cut short is kept."""

    def __init__(self, store: Any, n_events: int) -> None:
        self._store = store
        self._left = n_events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        killed = None
        with self._store._database.transaction():
            try:
                yield
            except _Killed as error:
                killed = error
                self._store._writers.clear()
        if killed is not None:
            raise killed

    def create(self, *arguments: Any, **options: Any) -> Any:
        return _HalfWriter(self, self._store.create(*arguments, **options))

    def count(self) -> None:
        self._left -= 1
        if not self._left:
            raise _Killed


class _HalfWriter:
    def __init__(self, store: HalfStore, writer: Any) -> None:
        self._store = store
        self._writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def append(self, event: Any) -> None:
        self._store.count()
        self._writer.append(event)


def test_the_check_finds_a_store_that_commits_half_an_import(
    inputs: Path, wanted: Sessions, tmp_path: Path
) -> None:
    with opened(tmp_path / "half.db") as store:
        half: Any = HalfStore(store, 600)
        with pytest.raises(_Killed):
            import_paths(half, [str(inputs / "long.jsonl")], progress=lambda *_: None)
    with pytest.raises(AssertionError):
        check_whole(tmp_path / "half.db", wanted)
