import shutil
import subprocess
from pathlib import Path

import pytest

from redrive.capture import worktree
from redrive.capture.worktree import describe_worktree

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def git(folder: Path, *args: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *args], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "agent.py").write_text("A = 1\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    return folder


def test_a_clean_tree_has_its_commit_and_nothing_else(repository: Path) -> None:
    found = describe_worktree(repository / "src")
    assert found.pop("state") == "clean"
    assert list(found) == ["commit"]
    assert len(found["commit"]) == 40


def test_a_changed_file_changes_the_digest_and_the_same_change_gives_the_same(
    repository: Path,
) -> None:
    file = repository / "src" / "agent.py"
    seen = []
    for text in ("A = 2\n", "A = 3\n", "A = 2\n"):
        file.write_text(text)
        seen.append(describe_worktree(repository))
    assert seen[0] == seen[2] != seen[1]
    assert seen[0]["state"] == "dirty"


def test_a_staged_file_is_dirty_as_a_changed_one_is(repository: Path) -> None:
    (repository / "src" / "agent.py").write_text("A = 2\n")
    before = describe_worktree(repository)
    git(repository, "add", ".")
    assert describe_worktree(repository) == before


def test_an_untracked_file_counts_by_its_content_and_its_name_stays_out(repository: Path) -> None:
    (repository / "sk-secret-name.txt").write_text("one")
    first = describe_worktree(repository / "src")
    (repository / "sk-secret-name.txt").rename(repository / "other.txt")
    assert describe_worktree(repository) == first
    (repository / "other.txt").write_text("two")
    second = describe_worktree(repository)
    assert first["state"] == second["state"] == "dirty"
    assert first["dirty_digest"] != second["dirty_digest"]
    assert "sk-secret" not in str(first)


def test_ignored_files_do_not_count(repository: Path) -> None:
    (repository / ".git" / "info" / "exclude").write_text("*.log\n")
    (repository / "x.log").write_text("x")
    assert describe_worktree(repository)["state"] == "clean"


def test_an_untracked_link_or_unreadable_file_is_no_error(repository: Path) -> None:
    (repository / "link").symlink_to("/nowhere/at/all")
    assert describe_worktree(repository)["state"] == "dirty"


def test_a_programs_name_in_the_repositorys_settings_is_not_run(repository: Path) -> None:
    witness = repository.parent / "ran"
    program = repository.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {witness}\ncat\n")
    program.chmod(0o755)
    for name in ("core.fsmonitor", "diff.external", "diff.x.textconv"):
        git(repository, "config", name, str(program))
    (repository / ".git" / "info" / "attributes").write_text("*.py diff=x\n")
    (repository / "src" / "agent.py").write_text("A = 2\n")
    assert describe_worktree(repository)["state"] == "dirty"
    assert not witness.exists()


def test_a_folder_outside_any_repository_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_worktree(tmp_path) == {"state": "no_repository"}


def test_a_repository_without_a_commit_says_so(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert describe_worktree(tmp_path) == {"state": "no_commit"}


def test_a_machine_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_worktree(tmp_path) == {"state": "no_git"}


def test_a_git_that_fails_or_hangs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert describe_worktree(tmp_path) == {"state": "failed"}
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(worktree, "_TIMEOUT_S", 0.1)
    assert describe_worktree(tmp_path) == {"state": "failed"}


def test_what_is_too_much_is_cut_and_said(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "src" / "agent.py").write_text("A = 2\n" * 100)
    for name in ("one", "two", "three"):
        (repository / name).write_text(name)
    whole = describe_worktree(repository)
    assert "cut" not in whole
    for limit, value in (("_MAX_DIFF_BYTES", 50), ("_MAX_FILES", 2)):
        monkeypatch.setattr(worktree, limit, value)
    found = describe_worktree(repository)
    assert found["cut"] == ["difference", "untracked files"]
    assert found["dirty_digest"] != whole["dirty_digest"]
    monkeypatch.undo()
    monkeypatch.setattr(worktree, "_MAX_FILE_BYTES", 4)
    assert describe_worktree(repository)["cut"] == ["untracked files"]


def test_names_that_are_too_many_are_cut_at_a_whole_name(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        (repository / f"file-{number:02}").write_text(str(number))
    # Room for the folder's name and the commit, not for forty names.
    monkeypatch.setattr(worktree, "_MAX_NAMES_BYTES", max(100, len(str(repository)) + 1))
    found = describe_worktree(repository)
    assert (found["state"], found["cut"]) == ("dirty", ["untracked files"])
