import io
import os
import socket
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.app import trial_tree
from redrive.app.trial_tree import TreeCaps
from redrive.app.trial_workspace import copy_workspace, digest_workspace
from redrive.errors import UsageError

GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.test")


def _make(root: Path) -> Path:
    (root / "src" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "src" / "a.txt").write_text("one")
    (root / "src" / "deep" / "run.sh").write_text("#!/bin/sh\n")
    (root / "src" / "deep" / "run.sh").chmod(0o755)
    (root / "link").symlink_to("src/a.txt")
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _make(tmp_path / "folder")


def _tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> str:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload] # a mode from a table
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return str(path)


def _member(name: str, kind: bytes = tarfile.REGTYPE, linkname: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname
    return info


def _zip(path: Path, folder: Path) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for item in sorted(folder.rglob("*")):
            name = item.relative_to(folder).as_posix()
            info = zipfile.ZipInfo(name + ("/" if item.is_dir() and not item.is_symlink() else ""))
            info.external_attr = item.lstat().st_mode << 16
            data = b""
            if item.is_symlink():
                data = os.fsencode(os.readlink(item))
            elif item.is_file():
                data = item.read_bytes()
            archive.writestr(info, data)
    return str(path)


def test_equal_trees_have_one_digest_whatever_holds_them(folder: Path, tmp_path: Path) -> None:
    (folder / "empty").rmdir()  # git knows no empty folders
    expected = digest_workspace(str(folder), "folder")
    for mode, name in (("w", "t.tar"), ("w:gz", "t.tgz"), ("w:bz2", "t.tbz"), ("w:xz", "t.txz")):
        with tarfile.open(tmp_path / name, mode) as archive:  # type: ignore[call-overload] # see above
            archive.add(folder, ".")
        assert digest_workspace(str(tmp_path / name), "archive") == expected
    assert digest_workspace(_zip(tmp_path / "t.zip", folder), "archive") == expected
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    assert digest_workspace(str(folder), "git", "HEAD") == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda f: (f / "src" / "a.txt").write_text("two"),
        lambda f: (f / "src" / "a.txt").chmod(0o755),
        lambda f: (f / "src" / "a.txt").rename(f / "src" / "b.txt"),
        lambda f: (f / "empty").rmdir(),
        lambda f: ((f / "link").unlink(), (f / "link").symlink_to("src/b.txt")),
        lambda f: (f / "new").mkdir(),
    ],
)
def test_every_change_of_a_tree_changes_its_digest(
    folder: Path, change: Callable[[Path], object]
) -> None:
    before = digest_workspace(str(folder), "folder")
    change(folder)
    assert digest_workspace(str(folder), "folder") != before


def test_the_store_and_what_is_no_file_are_no_part_of_a_workspace(folder: Path) -> None:
    before = digest_workspace(str(folder), "folder")
    (folder / ".redrive").mkdir()
    (folder / ".redrive" / "store.db").write_bytes(b"evidence")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(folder / "socket"))
        assert digest_workspace(str(folder), "folder") == before


def test_a_copy_is_equal_and_private_and_holds_links_as_links(folder: Path, tmp_path: Path) -> None:
    (folder / "out").symlink_to("/etc/hostname")
    (folder / "src" / "a.txt").chmod(0o6777)
    target = tmp_path / "copy"
    digest = copy_workspace(target, str(folder), "folder")
    assert digest == digest_workspace(str(folder), "folder")
    assert digest == digest_workspace(str(target), "folder")
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert stat.S_IMODE((target / "src" / "a.txt").stat().st_mode) == 0o700
    assert os.readlink(target / "out") == "/etc/hostname"
    assert (target / "empty").is_dir()


@pytest.mark.parametrize("name", ["../out", "/out", "a/../../out", "a\\..\\out"])
def test_an_archive_that_leads_outside_is_refused_and_writes_nothing(
    tmp_path: Path, name: str
) -> None:
    path = _tar(tmp_path / "t.tar", (_member("in"), b"x"), (_member(name), b"x"))
    (tmp_path / "work").mkdir()
    with pytest.raises(UsageError, match="leads outside"):
        copy_workspace(tmp_path / "work" / "copy", path, "archive")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["copy", "in", "t.tar", "work"]
    with zipfile.ZipFile(tmp_path / "t.zip", "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(UsageError, match="leads outside"):
        digest_workspace(str(tmp_path / "t.zip"), "archive")


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([(_member("a", tarfile.SYMTYPE, "/etc"), b"")], "leads outside"),
        ([(_member("a", tarfile.SYMTYPE, "b/../../x"), b"")], "leads outside"),
        ([(_member("a", tarfile.LNKTYPE, "../x"), b"")], "leads outside"),
        ([(_member("a", tarfile.LNKTYPE, "missing"), b"")], "cannot be read"),
        ([(_member("a", tarfile.FIFOTYPE), b"")], "neither file"),
        ([(_member("a", tarfile.CHRTYPE), b"")], "neither file"),
        ([(_member("a"), b"1"), (_member("a"), b"2")], "there twice"),
        ([(_member("a", tarfile.SYMTYPE, "b"), b""), (_member("a/x"), b"1")], "no folder"),
        ([(_member("a/x"), b"1"), (_member("a", tarfile.SYMTYPE, "b"), b"")], "there twice"),
    ],
)
def test_an_archive_with_links_out_or_devices_or_doubles_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]], why: str
) -> None:
    path = _tar(tmp_path / "t.tar", *members)
    with pytest.raises(UsageError, match=why):
        copy_workspace(tmp_path / "copy", path, "archive")
    assert not (tmp_path / "copy" / "a" / "x").is_file() or why == "there twice"


def test_a_hard_link_of_an_archive_is_a_copy(tmp_path: Path) -> None:
    link = _member("b", tarfile.LNKTYPE, "a")
    path = _tar(tmp_path / "t.tar", (_member("a"), b"one"), (link, b""))
    copy_workspace(tmp_path / "copy", path, "archive")
    assert (tmp_path / "copy" / "b").read_bytes() == b"one"


def test_a_bomb_is_refused_before_it_is_written(tmp_path: Path) -> None:
    path = _tar(tmp_path / "t.tgz", (_member("a"), b"\0" * 4_000_000))
    caps = TreeCaps(ratio=100, free_bytes=1_000_000)
    with pytest.raises(UsageError, match="MiB"):
        copy_workspace(tmp_path / "copy", path, "archive", caps=caps)
    assert (tmp_path / "copy" / "a").stat().st_size <= 1_000_000
    with pytest.raises(UsageError, match="more than 1 files"):
        copy_workspace(tmp_path / "two", str(_make(tmp_path / "f")), "folder", caps=TreeCaps(1))


def test_a_header_that_claims_gigabytes_is_not_read(tmp_path: Path) -> None:
    info = _member("x", tarfile.XHDTYPE)
    info.size = 8 * 1024**3
    (tmp_path / "t.tar").write_bytes(info.tobuf(tarfile.GNU_FORMAT) + b"\0" * 1024)
    with pytest.raises(UsageError, match="header"):
        digest_workspace(str(tmp_path / "t.tar"), "archive")


@pytest.mark.parametrize("kind", ["folder", "archive", "git", "tape"])
def test_a_workspace_that_is_not_there_is_a_usage_error(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UsageError):
        digest_workspace(str(tmp_path / "none"), kind, "HEAD")


def test_a_file_that_is_no_archive_and_a_commit_that_is_an_option_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "t.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(UsageError, match="cannot be read"):
        digest_workspace(str(tmp_path / "t.tar"), "archive")
    with pytest.raises(UsageError, match="names no commit"):
        digest_workspace(str(folder), "git", "--output=/tmp/x")


def test_reading_a_repository_runs_nothing_of_it(folder: Path, tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    (folder / ".gitattributes").write_text("* filter=evil export-subst\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {witness}\ncat\n")
    evil.chmod(0o755)
    for name in ("core.fsmonitor", "filter.evil.smudge", "filter.evil.clean", "core.pager"):
        subprocess.run(["git", "config", name, str(evil)], cwd=folder, check=True)
    subprocess.run(["git", "config", "core.hooksPath", str(tmp_path)], cwd=folder, check=True)
    copy_workspace(tmp_path / "copy", str(folder), "git", "HEAD")
    assert (tmp_path / "copy" / "src" / "a.txt").read_text() == "one"
    assert not witness.exists()


def test_a_file_swapped_for_a_link_while_it_is_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for entry in trial_tree.read_tree("folder", str(folder)):
        if entry.path == "src/a.txt":
            (folder / "src" / "a.txt").unlink()
            (folder / "src" / "a.txt").symlink_to("/etc/hostname")
            with pytest.raises(UsageError, match="cannot be read"):
                list(entry.open())
            return
    pytest.fail("the file was not listed")
