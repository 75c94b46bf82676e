"""What an agent sees of this machine is what starts its program, and never the home folder."""

import os
import sys
from pathlib import Path

import pytest

from redrive.app.agent_folders import check_cwd, find_folders, find_pipes
from redrive.errors import UsageError


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home" / "me"
    folder.mkdir(parents=True)
    return folder


def make(root: Path, *paths: str) -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o755)


def found(
    home: Path, *path: object, command: str = "none", python: tuple[str, ...] = ()
) -> set[str]:
    folders = find_folders(command, os.pathsep.join(map(str, path)), python, str(home))
    assert list(folders) == sorted(folders)
    for folder in folders:
        assert folder.startswith(str(home.parent.parent))
    return {os.path.relpath(folder, home) for folder in folders}


def test_folders_of_the_system_are_shown_anyway():
    assert find_folders("sh", "/usr/bin:/bin:/usr/local/bin", (), "/nowhere") == ()


def test_entries_that_are_relative_or_not_there_are_passed_over(home):
    assert found(home, "", ".", "bin", home / "none") == set()


def test_a_virtual_environment_is_shown_with_the_python_it_was_made_with(home):
    make(home, "project/.venv/bin/python", "base/bin/python3", "base/lib/libpython.so")
    (home / "project/.venv/pyvenv.cfg").write_text(f"HOME = {home}/base/bin\nversion = 3\n")
    assert found(home, home / "project/.venv/bin") == {"project/.venv", "base/bin", "base/lib"}


def test_an_environment_in_an_environment_ends(home):
    for name, base in (("a", "b"), ("b", "a")):
        make(home, f"{name}/bin/python")
        (home / name / "pyvenv.cfg").write_text(f"home = {home}/{base}/bin")
    assert found(home, home / "a/bin") == {"a", "b"}


def test_a_relative_base_is_no_base(home):
    make(home, "v/bin/python")
    (home / "v/pyvenv.cfg").write_text("home = ../x\n")
    assert found(home, home / "v/bin") == {"v"}


def test_folders_that_programs_need_as_a_whole_are_shown_whole(home):
    make(home, ".pyenv/shims/python", ".pyenv/versions/3/bin/python")
    make(home, "conda/bin/python", "conda/conda-meta/history", "conda/ssl/cert.pem")
    assert found(home, home / ".pyenv/shims", home / "conda/bin") == {".pyenv", "conda"}


def test_of_a_users_own_programs_the_libraries_are_shown_and_no_keys(home):
    make(home, ".local/bin/tool", ".local/lib/python3.11/x.py", ".local/share/keyrings/login")
    make(home, "bin/mine")
    assert found(home, home / ".local/bin", home / "bin") == {
        *(".local/bin", ".local/lib", "bin"),
    }


def test_a_home_folder_on_the_path_is_not_shown(home):
    make(home, "tool")
    assert found(home, home, home.parent, home / "..") == set()


def test_a_link_to_the_home_folder_is_not_shown(home):
    (home.parent / "link").symlink_to(home)
    assert found(home, home.parent / "link") == set()


def test_the_program_behind_a_link_is_shown_where_it_lies(home):
    make(home, "tools/x/bin/tool", "tools/x/lib/tool.py")
    (home / "bin").mkdir()
    (home / "bin/tool").symlink_to(home / "tools/x/bin/tool")
    assert found(home, home / "bin", command="tool") == {"bin", "tools/x/bin", "tools/x/lib"}


def test_what_lies_in_a_folder_that_is_shown_is_not_listed(home):
    make(home, "conda/bin/python", "conda/conda-meta/history", "conda/bin/deep/bin/x")
    assert found(home, home / "conda/bin", home / "conda/bin/deep/bin") == {"conda"}


def test_editable_installations_are_shown(home):
    make(home, "v/bin/python", "code/src/package.py")
    (home / "v/pyvenv.cfg").touch()
    packages = home / "v/lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    (packages / "it.pth").write_text(f"{home}/code/src\nimport sys\nrelative\n/none\n{home}\n\xff")
    assert found(home, home / "v/bin") == {"v", "code/src"}


def test_prefixes_of_python_are_shown(home):
    make(home, "py/bin/python", "py/lib/x")
    assert found(home, python=(str(home / "py"),)) == {"py/bin", "py/lib"}


def test_this_python_is_found():
    folders = find_folders("python", os.path.dirname(sys.executable), (sys.prefix,), "/nowhere")
    real = os.path.realpath(sys.executable)
    assert real.startswith("/usr/") or any(real.startswith(folder) for folder in folders)


def test_the_home_folder_is_no_place_to_run_in(home):
    for folder in (home, home.parent, "/"):
        with pytest.raises(UsageError, match="holds the home folder"):
            check_cwd(str(folder), str(home))
    (home.parent / "link").symlink_to(home)
    with pytest.raises(UsageError, match="holds the home folder"):
        check_cwd(str(home.parent / "link"), str(home))


def test_a_folder_that_is_none_is_refused(home):
    make(home, "file")
    for path in ("none", "file"):
        with pytest.raises(UsageError, match="no such folder"):
            check_cwd(str(home / path), str(home))


def test_a_project_is_a_place_to_run_in(home, monkeypatch):
    make(home, "project/file")
    monkeypatch.chdir(home)
    assert check_cwd("project", str(home)) == str(home / "project")


def test_pipes_are_found_wherever_they_lie(home):
    make(home, "a/b/file")
    os.mkfifo(home / "a/b/pipe")
    os.mkfifo(home / "pipe")
    (home / "link").symlink_to("pipe")
    (home / "broken").symlink_to("none")
    assert sorted(find_pipes(str(home))) == [f"{home}/a/b/pipe", f"{home}/pipe"]
