import os
from pathlib import Path

import pytest

from redrive.app.trial_grants import is_below_written, show_grants
from redrive.audit.workflow import Grants
from redrive.errors import UsageError
from redrive.sandbox.confinement import Bind


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "link").symlink_to("/etc")
    (folder / "src" / "up").symlink_to("..")
    os.mkfifo(folder / "pipe")
    return folder


def test_what_is_granted_is_shown_and_a_frame_stands_for_the_rest(
    workspace: Path, tmp_path: Path
) -> None:
    grants = Grants(read=("src", "a.txt", "none", "pipe"), write=("out", "made/report.md"))
    shown = show_grants(grants, workspace, tmp_path / "frame", "/w")
    assert shown.readable == (
        Bind(str(tmp_path / "frame"), "/w"),
        Bind(str(workspace / "src"), "/w/src"),
        Bind(str(workspace / "a.txt"), "/w/a.txt"),
    )
    assert shown.writable == (
        Bind(str(workspace / "out"), "/w/out"),
        Bind(str(workspace / "made/report.md"), "/w/made/report.md"),
    )
    assert shown.made == ("out", "made/report.md")
    assert (workspace / "out").is_dir()
    assert (workspace / "made" / "report.md").is_file()
    assert sorted(path.name for path in (tmp_path / "frame").rglob("*")) == [
        *("a.txt", "made", "out", "report.md", "src")
    ]


def test_what_may_be_written_may_be_read_and_needs_no_frame_where_it_is_all(
    workspace: Path, tmp_path: Path
) -> None:
    shown = show_grants(Grants(read=("src",), write=(".",)), workspace, tmp_path / "f", "/w")
    assert (shown.readable, shown.writable) == ((), (Bind(str(workspace), "/w"),))
    assert not (tmp_path / "f").exists()


def test_without_namespaces_nothing_stands_for_the_rest(workspace: Path, tmp_path: Path) -> None:
    shown = show_grants(Grants(read=("src",)), workspace, tmp_path / "f", str(workspace))
    assert shown.readable == (Bind(str(workspace / "src"), str(workspace / "src")),)


def test_a_folder_of_the_machine_is_shown_where_it_is(workspace: Path, tmp_path: Path) -> None:
    grants = Grants(read=(str(tmp_path / "ws"), "/usr/share", "/no/such"))
    shown = show_grants(grants, workspace, tmp_path / "f", "/w")
    assert shown.readable[1:] == (Bind(str(tmp_path / "ws")),)


@pytest.mark.parametrize(
    "grants",
    [
        Grants(read=("link",)),
        Grants(read=("link/passwd",)),
        Grants(write=("link/new",)),
        Grants(write=("src/up/a.txt",)),
    ],
)
def test_a_path_through_a_link_is_never_shown_and_nothing_is_made_there(
    workspace: Path, tmp_path: Path, grants: Grants
) -> None:
    before = sorted(workspace.rglob("*"))
    with pytest.raises(UsageError, match="passes through a link"):
        show_grants(grants, workspace, tmp_path / "f", "/w")
    assert sorted(workspace.rglob("*")) == before


@pytest.mark.parametrize(
    ("own", "other", "is_below"),
    [
        (Grants(read=("a/b",)), Grants(write=("a",)), True),
        (Grants(write=("a",)), Grants(write=(".",)), True),
        (Grants(read=("a",)), Grants(write=("a",)), False),
        (Grants(read=(".",)), Grants(write=(".",)), False),
        (Grants(read=("ab",)), Grants(write=("a",)), False),
        (Grants(read=("/a/b",)), Grants(write=("a",)), False),
        (Grants(read=("a/b",)), Grants(read=("a",)), False),
    ],
)
def test_a_path_below_what_another_tool_writes_may_be_swapped(
    own: Grants, other: Grants, *, is_below: bool
) -> None:
    assert is_below_written(own, [other]) is is_below
