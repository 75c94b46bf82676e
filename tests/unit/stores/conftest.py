"""A store of three sessions, rows about policies and a trial, made once; each test has a copy."""

import shutil
from pathlib import Path

import pytest

from tests.stored import messages, opened, put_policy_rows, put_session, put_trial


@pytest.fixture(scope="session")
def _filled_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "store.db"
    with opened(path) as store:
        put_session(store, "test:aaaa-1", messages(120, 60))
        put_session(store, "test:bbbb-2", messages(8))
        put_session(store, "test:bbbb-2", messages(9))
        put_policy_rows(store, "test:aaaa-1")
        put_trial(store)
    return path


@pytest.fixture
def filled(_filled_once: Path, tmp_path: Path) -> Path:
    """The path of a store with `test:aaaa-1` (two segments), `test:bbbb-2` and `test:bbbb-2@2`."""
    path = tmp_path / "store.db"
    shutil.copy(_filled_once, path)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a new store may lie."""
    return tmp_path / "store.db"
