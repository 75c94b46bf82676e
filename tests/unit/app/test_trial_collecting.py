import io
import os
import tarfile
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from redrive.app import trial_collecting
from redrive.app.trial_collecting import collect_workspace
from redrive.app.trial_workspace import copy_workspace, digest_workspace
from redrive.replay.trial_plan import RunLimits
from redrive.replay.trial_values import OutputFile, Workspace

LIMITS = RunLimits()


@pytest.fixture
def before(tmp_path: Path) -> Workspace:
    folder = tmp_path / "before"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.txt").write_text("a")
    (folder / "gone").write_text("g")
    return Workspace("folder", str(folder), digest_workspace(str(folder), "folder"))


@pytest.fixture
def workspace(before: Workspace, tmp_path: Path) -> Path:
    copy_workspace(tmp_path / "ws", before.path, before.kind)
    return tmp_path / "ws"


def test_what_did_not_change_is_not_collected(workspace: Path, before: Workspace) -> None:
    (workspace / "out").mkdir()
    (workspace / "report.md").touch()
    made = {"out", "report.md"}
    found = collect_workspace(workspace, before, made, LIMITS)
    assert (found.files, found.archive, found.notes) == ((), None, ())


def test_names_that_are_no_utf8_are_told_as_texts_and_apart(
    workspace: Path, before: Workspace
) -> None:
    folder = os.fsencode(workspace)
    for name in (b"\xff", b"\xfe"):
        (Path(os.fsdecode(folder + b"/" + name))).write_text("x")
    os.symlink(b"\xfd", folder + b"/link")
    found = collect_workspace(workspace, before, set(), LIMITS)
    told = {file.path: file.target for file in found.files}
    assert told == {"\ufffd\\udcff": None, "\ufffd\\udcfe": None, "link": "\ufffd\\udcfd"}
    msgspec.json.encode(found.files)


def test_every_kind_of_change_is_named_and_the_whole_is_kept(
    workspace: Path, before: Workspace
) -> None:
    (workspace / "src" / "a.txt").chmod(0o755)
    (workspace / "gone").unlink()
    (workspace / "new").mkdir()
    (workspace / "new" / "b").write_text("b")
    (workspace / "link").symlink_to("/etc/passwd")
    os.mkfifo(workspace / "pipe")
    (workspace / "closed").mkdir()
    (workspace / "closed").chmod(0)
    found = collect_workspace(workspace, before, set(), LIMITS)
    kinds = {file.path: file.kind for file in found.files}
    assert kinds == {
        "closed": "folder",
        "gone": "removed",
        "link": "link",
        "new": "folder",
        "new/b": "file",
        "pipe": "other",
        "src/a.txt": "file",
    }
    assert found.files[2] == OutputFile("link", "link", target="/etc/passwd")
    with tarfile.open(fileobj=io.BytesIO(found.archive or b"")) as archive:
        members = {member.name: member for member in archive}
        content = archive.extractfile("new/b")
        assert content is not None
        assert content.read() == b"b"
    assert sorted(members) == ["closed", "link", "new", "new/b", "src", "src/a.txt"]
    assert members["src/a.txt"].mode == 0o755
    assert {member.mtime for member in members.values()} == {0}
    again = collect_workspace(workspace, before, set(), LIMITS)
    assert again.archive == found.archive


def test_caps_hold_and_say_so(
    workspace: Path, before: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "big").write_bytes(b"x" * 1000)
    found = collect_workspace(workspace, before, set(), replace(LIMITS, disk_bytes=100))
    assert [(file.path, file.size_bytes) for file in found.files] == [("big", 1000)]
    assert found.notes == ("some files are too large to be kept: their digests are",)
    assert not found.is_cut
    monkeypatch.setattr(trial_collecting, "MAX_FILES", 2)
    for name in "abc":
        (workspace / "a").joinpath(name).parent.mkdir(exist_ok=True)
        (workspace / "a" / name).touch()
    found = collect_workspace(workspace, before, set(), LIMITS)
    assert any("files: the others are not collected" in note for note in found.notes)
    # What was not looked at was not removed.
    assert (found.is_cut, "removed" in {file.kind for file in found.files}) == (True, False)


def test_what_a_task_starts_with_counts_for_no_cap(
    workspace: Path, before: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_collecting, "MAX_FILES", 1)
    monkeypatch.setattr(trial_collecting, "MAX_DEPTH", 0)
    (workspace / "zz").write_text("new")
    found = collect_workspace(workspace, before, set(), LIMITS)
    assert [(file.path, file.kind) for file in found.files] == [("zz", "file")]
    assert (found.is_cut, found.notes) == (False, ())


def test_a_deep_tree_is_not_walked_to_its_end(workspace: Path, before: Workspace) -> None:
    place = workspace
    for _ in range(trial_collecting.MAX_DEPTH + 3):
        place = place / "d"
        place.mkdir()
    found = collect_workspace(workspace, before, set(), LIMITS)
    assert found.notes == (f"folders below {trial_collecting.MAX_DEPTH} others are not collected",)
