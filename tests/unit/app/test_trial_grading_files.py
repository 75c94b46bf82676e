import io
import tarfile
from pathlib import Path

import pytest

from redrive.app.trial_grading_files import overlay, size_bytes, unpack
from redrive.errors import RecordError
from tests.grading import tar_of


def test_files_folders_and_links_are_made_and_links_are_not_followed(tmp_path: Path) -> None:
    data = tar_of({"a/b.txt": "b", "run.sh": "#!"}, links={"link": "/etc/passwd"})
    unpack(io.BytesIO(data), tmp_path / "w")
    assert (tmp_path / "w/a/b.txt").read_text() == "b"
    assert (tmp_path / "w/run.sh").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "w/a/b.txt").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "w/link").is_symlink()
    assert size_bytes(tmp_path / "w") == 3 + len("/etc/passwd")


def test_a_hostile_archive_writes_nothing_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    names = {"../x": "1", "/outside/y": "2", "sub/../../z": "3", "link/inside": "4", ".": "5"}
    data = tar_of(names, links={"link": str(outside)})
    unpack(io.BytesIO(data), tmp_path / "w")
    assert list(outside.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "w"]
    assert sorted(path.name for path in (tmp_path / "w").rglob("*")) == ["link", "outside", "y"]


def test_devices_pipes_and_hard_links_are_left_out(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, kind in (("p", tarfile.FIFOTYPE), ("d", tarfile.CHRTYPE), ("h", tarfile.LNKTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "a"
            archive.addfile(member)
        member = tarfile.TarInfo("folder")
        member.type, member.mode = tarfile.DIRTYPE, 0
        archive.addfile(member)
    unpack(io.BytesIO(data.getvalue()), tmp_path / "w")
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["folder"]
    (tmp_path / "w/folder/x").write_text("still ours")


def test_the_first_of_two_entries_stays(tmp_path: Path) -> None:
    data = tar_of({"a": "file"}, links={"a": "elsewhere"})
    unpack(io.BytesIO(data), tmp_path / "w")
    assert (tmp_path / "w/a").is_symlink()


def test_what_is_no_archive_is_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no archive"):
        unpack(io.BytesIO(b"not a tar" * 100), tmp_path / "w")


def test_an_overlay_replaces_files_and_is_never_written_through_a_link(tmp_path: Path) -> None:
    outside, tests, work = tmp_path / "outside", tmp_path / "tests", tmp_path / "w"
    for folder in (outside, tests / "suite/deep", work):
        folder.mkdir(parents=True)
    (outside / "kept").write_text("kept")
    (tests / "suite/deep/test_a.py").write_text("ours")
    (tests / "suite/run.sh").write_text("#!")
    (tests / "suite/run.sh").chmod(0o755)
    (tests / "check").write_text("ours")
    (tests / "link").symlink_to("check")
    (tests / "folder").mkdir()
    (work / "suite").symlink_to(outside)
    (work / "check").mkdir()
    (work / "check/planted").write_text("theirs")
    (work / "folder").write_text("a file where a folder belongs")
    (work / "link").symlink_to(outside / "kept")
    overlay(tests, work)
    assert (work / "suite/deep/test_a.py").read_text() == "ours"
    assert (work / "suite/run.sh").stat().st_mode & 0o777 == 0o700
    assert (work / "check").read_text() == "ours"
    assert (work / "folder").is_dir()
    assert (work / "link").readlink() == Path("check")
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "kept"


def test_an_overlay_keeps_what_lies_beside_its_files(tmp_path: Path) -> None:
    for name in ("tests/a/x", "w/a/y"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    overlay(tmp_path / "tests", tmp_path / "w")
    assert sorted(path.name for path in (tmp_path / "w/a").iterdir()) == ["x", "y"]
