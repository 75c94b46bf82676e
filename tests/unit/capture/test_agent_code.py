import sys
import sysconfig
from pathlib import Path
from types import FrameType, ModuleType

import pytest

import redrive
from redrive.capture.agent_code import AgentCode, find_root, find_roots, is_machinery, is_typed_in


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_files_below_the_root_are_the_agents_own_and_others_are_not(tmp_path: Path) -> None:
    is_own = AgentCode([tmp_path / "agent"])
    assert is_own(str(tmp_path / "agent" / "deep" / "tools.py"))
    assert not is_own(str(tmp_path / "agents.py"))
    assert not is_own(str(tmp_path / "agent_two" / "x.py"))


@pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
def test_installed_packages_below_the_root_are_not_the_agents(tmp_path: Path, folder: str) -> None:
    assert not AgentCode([tmp_path])(str(tmp_path / ".venv" / folder / "lib.py"))


def test_neither_the_interpreter_nor_redrive_is_the_agents_whatever_the_root() -> None:
    is_own = AgentCode([Path("/")])
    assert not is_own(redrive.__file__)
    assert not is_own(sysconfig.get_path("stdlib") + "/logging/__init__.py")
    assert not is_own(sys.prefix + "/bin/tool")


def test_a_file_reached_by_a_link_is_judged_by_where_it_lies(tmp_path: Path) -> None:
    lib = touch(tmp_path / "cache" / "site-packages" / "lib.py")
    root = tmp_path / "agent"
    root.mkdir()
    (root / "lib.py").symlink_to(lib)
    (tmp_path / "link").symlink_to(root)
    is_own = AgentCode([tmp_path / "link"])
    assert not is_own(str(root / "lib.py"))
    assert is_own(str(tmp_path / "link" / "main.py"))
    assert is_own(str(root / "main.py"))


def test_a_relative_name_is_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert AgentCode([tmp_path])("main.py")


@pytest.mark.parametrize("marker", [".git", "pyproject.toml", "setup.py", "setup.cfg"])
def test_the_root_is_the_project_that_a_file_belongs_to(tmp_path: Path, marker: str) -> None:
    touch(tmp_path / "project" / marker)
    script = touch(tmp_path / "project" / "examples" / "agent.py")
    assert find_root(script) == tmp_path / "project"


def test_without_a_project_the_root_is_the_folder_above_the_files_packages(tmp_path: Path) -> None:
    script = touch(tmp_path / "code" / "pack" / "sub" / "main.py")
    touch(tmp_path / "code" / "pack" / "__init__.py")
    touch(tmp_path / "code" / "pack" / "sub" / "__init__.py")
    assert find_root(script) == tmp_path / "code"


def test_the_home_folder_is_no_root_even_where_it_is_under_version_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    touch(tmp_path / ".git")
    assert find_root(touch(tmp_path / "code" / "agent.py")) == tmp_path / "code"


def frame_of(path: Path) -> FrameType:
    names: dict[str, FrameType] = {}
    code = compile("import sys\nframe = sys._getframe()", str(path), "exec")
    exec(code, names)  # noqa: S102 - a frame whose file is of our choosing
    return names["frame"]


def test_the_roots_are_those_of_the_main_script_and_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = ModuleType("__main__")
    main.__file__ = str(touch(tmp_path / "one" / "main.py"))
    monkeypatch.setitem(sys.modules, "__main__", main)
    frame = frame_of(touch(tmp_path / "two" / "lib.py"))
    assert find_roots(frame) == (tmp_path / "one", tmp_path / "two")
    assert find_roots(None) == (tmp_path / "one",)


def test_an_installed_package_that_calls_is_the_agent_and_its_neighbours_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    folder = Path(sysconfig.get_path("purelib"))
    roots = find_roots(frame_of(folder / "my_agent" / "deep" / "main.py"))
    assert roots == (folder.resolve() / "my_agent",)
    is_own = AgentCode(roots)
    assert is_own(str(folder / "my_agent" / "tools.py"))
    assert not is_own(str(folder / "my_agent_two" / "tools.py"))
    assert not is_own(str(folder / "my_agent" / "site-packages" / "lib.py"))


def test_an_installed_agent_may_be_a_single_file() -> None:
    folder = Path(sysconfig.get_path("purelib"))
    is_own = AgentCode(find_roots(frame_of(folder / "my_agent.py")))
    assert is_own(str(folder / "my_agent.py"))
    assert not is_own(str(folder / "other.py"))


def test_the_standard_library_and_redrive_are_machinery_and_installed_packages_are_not() -> None:
    assert is_machinery(redrive.__file__)
    assert is_machinery(sysconfig.get_path("stdlib") + "/queue.py")
    assert not is_machinery(sysconfig.get_path("purelib") + "/lib.py")
    assert not is_machinery(sysconfig.get_path("stdlib") + "/site-packages/lib.py")


def test_a_main_script_of_the_environment_is_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__file__ = sys.prefix + "/bin/pytest"
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert find_roots(None) == ()


def test_frames_of_redrive_and_of_the_standard_library_are_no_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    assert find_roots(frame_of(Path(redrive.__file__))) == (find_root(__file__),)


def test_code_without_a_file_is_typed_in_only_as_the_main_module() -> None:
    assert is_typed_in({"__name__": "__main__"})
    assert not is_typed_in({"__name__": "__main__", "__file__": "x.py"})
    assert not is_typed_in({"__name__": "builtins"})
