"""A hostile tree is measured and removed, whatever it does; what cannot be measured is too much."""

import os
import threading
from pathlib import Path

import pytest

from redrive.errors import ContainmentError
from redrive.sandbox import disk
from redrive.sandbox.confinement import MIB
from redrive.sandbox.disk import ENTRY_BYTES, MAX_DEPTH, DiskBudget, DiskWatch, exceeds, remove_tree


def takes(folder: Path, least: int, most: int) -> None:
    """Assert that a folder takes at least so much, and at most so much."""
    assert exceeds(DiskBudget((str(folder),), least - 1))
    assert not exceeds(DiskBudget((str(folder),), most))


def deep(folder: Path, depth: int) -> None:
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        deeper = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = deeper
    os.close(at)


# --- measuring ---------------------------------------------------------------------------------
def test_allocated_blocks_count_and_holes_do_not(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(MIB)
    takes(tmp_path, 100_000, 150_000)


def test_empty_files_count(tmp_path):
    for number in range(100):
        (tmp_path / str(number)).touch()
    takes(tmp_path, 100 * ENTRY_BYTES, 110 * ENTRY_BYTES)


def test_a_file_with_several_names_counts_once(tmp_path):
    (tmp_path / "one").write_bytes(b"x" * 100_000)
    for number in range(5):
        os.link(tmp_path / "one", tmp_path / str(number))
    takes(tmp_path, 100_000, 150_000)


def test_a_folder_in_another_counts_once(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(b"x" * 100_000)
    assert not exceeds(DiskBudget((str(tmp_path), str(tmp_path / "in")), 150_000))


def test_a_single_file_can_be_measured(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    takes(tmp_path / "file", 100_000, 150_000)


def test_links_are_not_followed(tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "big").write_bytes(b"x" * MIB)
    (tmp_path / "tree" / "file").symlink_to(tmp_path / "big")
    (tmp_path / "tree" / "folder").symlink_to(tmp_path)
    (tmp_path / "tree" / "loop").symlink_to("loop")
    takes(tmp_path / "tree", 1, 20 * ENTRY_BYTES)


def test_a_folder_swapped_for_a_link_while_it_is_looked_at_is_not_followed(tmp_path, monkeypatch):
    tree, other = tmp_path / "tree", tmp_path / "other"
    for folder in (tree / "sub", other):
        folder.mkdir(parents=True)
    (other / "big").write_bytes(b"x" * MIB)
    real = disk._opened

    def swap(root, names):
        if names and not (tree / "sub").is_symlink():
            (tree / "sub").rmdir()
            (tree / "sub").symlink_to(other)
        return real(root, names)

    monkeypatch.setattr(disk, "_opened", swap)
    assert not exceeds(DiskBudget((str(tree),), 20 * ENTRY_BYTES))
    assert (tree / "sub").is_symlink()


def test_what_is_not_there_takes_nothing(tmp_path):
    assert not exceeds(DiskBudget((str(tmp_path / "none"),), 0))


def test_a_tree_that_is_too_deep_is_too_much(tmp_path):
    deep(tmp_path, MAX_DEPTH)
    assert not exceeds(DiskBudget((str(tmp_path),), 100 * MIB))
    deep(tmp_path.joinpath(*["d"] * MAX_DEPTH), 1)
    assert exceeds(DiskBudget((str(tmp_path),), 100 * MIB))
    remove_tree(str(tmp_path))


def test_a_closed_folder_is_too_much(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError

    monkeypatch.setattr(disk.os, "open", refuse)
    assert exceeds(DiskBudget((str(tmp_path),), 100 * MIB))


def test_a_file_without_a_name_counts_while_it_is_open(tmp_path):
    budget = DiskBudget((str(tmp_path),), MIB // 2)
    with open(tmp_path / "file", "wb") as file:
        file.write(b"x" * MIB)
        file.flush()
        os.unlink(tmp_path / "file")
        assert not exceeds(budget)
        assert exceeds(budget, (os.getpid(),))
    assert not exceeds(budget, (os.getpid(),))


# --- watching ----------------------------------------------------------------------------------
def test_a_watch_sees_what_grows(tmp_path):
    with DiskWatch([DiskBudget((str(tmp_path),), MIB // 2)], lambda: None) as watch:
        assert not watch.look()
        (tmp_path / "file").write_bytes(b"x" * MIB)
        watch._thread.join(30)
        assert watch.is_full
    # It stays so, even if room is made.
    (tmp_path / "file").unlink()
    assert watch.look()


def test_nothing_to_watch_starts_nothing(tmp_path):
    before = threading.active_count()
    with DiskWatch([DiskBudget((), 0)], lambda: None) as watch:
        assert threading.active_count() == before
    assert not watch.look()


# --- removing ----------------------------------------------------------------------------------
def test_a_hostile_tree_is_removed_and_nothing_else(tmp_path):
    tree, other = tmp_path / "tree", tmp_path / "other"
    (tree / "1" / "2" / "1").mkdir(parents=True)
    other.mkdir()
    (other / "kept").write_text("kept")
    (tree / "1" / "link").symlink_to(other)
    (tree / "up").symlink_to("..")
    os.mkfifo(tree / "1" / "2" / "pipe")
    deep(tree, 1200)
    (tree / "1" / "2").chmod(0)
    remove_tree(str(tree))
    assert os.listdir(tmp_path) == ["other"]
    assert (other / "kept").read_text() == "kept"


def test_a_link_in_place_of_the_folder_is_removed_alone(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    remove_tree(str(tmp_path / "link"))
    assert os.listdir(tmp_path) == ["other"]


def test_what_is_gone_already_is_no_fault(tmp_path):
    remove_tree(str(tmp_path / "none"))


def test_what_cannot_be_removed_is_named(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "not permitted")

    (tmp_path / "file").touch()
    monkeypatch.setattr(disk.os, "unlink", refuse)
    with pytest.raises(ContainmentError, match="cannot be removed"):
        remove_tree(str(tmp_path))
