"""Reading the system's table of locks."""

from pathlib import Path

import pytest

from redrive.stores.locks import find_lock_holder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store.db-shm").touch()
    return tmp_path / "store.db"


def table(store: Path, line: str) -> Path:
    inode = store.with_name("store.db-shm").stat().st_ino
    file = store.with_name("locks")
    file.write_text(line.replace("INODE", f"08:01:{inode}") + "\n")
    return file


def test_the_holder_of_the_write_lock_is_named(store: Path) -> None:
    file = table(store, "1: POSIX  ADVISORY  WRITE 1 INODE 120 120")
    assert (find_lock_holder(store, file) or "").startswith("pid 1")


def test_a_process_that_is_gone_is_named_by_its_number(store: Path) -> None:
    file = table(store, "1: POSIX  ADVISORY  WRITE 999999999 INODE 120 120")
    assert find_lock_holder(store, file) == "pid 999999999"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "1: FLOCK  ADVISORY  WRITE 1 INODE 120 120",
        "1: POSIX  ADVISORY  READ 1 INODE 120 120",
        "1: POSIX  ADVISORY  WRITE 1 08:01:1 120 120",
        "1: POSIX  ADVISORY  WRITE 1 INODE 124 124",
        "1: POSIX  ADVISORY  WRITE 1 INODE 0 EOF",
        "1: POSIX  ADVISORY  WRITE 0 INODE 120 120",
    ],
)
def test_any_other_lock_is_not_it(store: Path, line: str) -> None:
    assert find_lock_holder(store, table(store, line)) is None


def test_a_system_without_such_a_table_tells_nothing(store: Path) -> None:
    assert find_lock_holder(store, store.with_name("none")) is None
    assert find_lock_holder(store.with_name("other.db")) is None
