"""The checkers of `make check`: each lets the right thing pass and names the wrong one."""

import tomllib
from pathlib import Path

import pytest

from scripts import check_core, check_core_coverage, check_docs, check_size, check_tests_mirror

ROOT = Path(__file__).resolve().parents[2]
MODULE = Path("src/redrive/module.py")
INIT = Path("src/redrive/__init__.py")


def test_a_long_function_fails_and_a_longish_one_warns() -> None:
    def source(lines: int) -> str:
        return "def f():\n" + "    x = 1\n" * (lines - 1)

    assert list(check_size.find_size_problems(MODULE, source(40))) == []
    assert [fails for fails, _ in check_size.find_size_problems(MODULE, source(41))] == [False]
    assert [fails for fails, _ in check_size.find_size_problems(MODULE, source(61))] == [True]


def test_a_long_file_fails_and_a_longish_one_warns() -> None:
    assert list(check_size.find_size_problems(MODULE, "x = 1\n" * 400)) == []
    assert [fails for fails, _ in check_size.find_size_problems(MODULE, "x = 1\n" * 401)] == [False]
    assert [fails for fails, _ in check_size.find_size_problems(MODULE, "x = 1\n" * 601)] == [True]


@pytest.mark.parametrize(
    "source",
    [
        "",
        '"""Docstring."""\n',
        'from a import b\n__all__ = ["b"]\n',
        'from a import b as c\n__version__ = "1"\n__all__ = ["__version__", "c"]\n',
    ],
)
def test_an_init_may_hand_names_on(source: str) -> None:
    assert list(check_size.find_init_problems(INIT, source)) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("from a import b\n", "without __all__"),
        ('from a import b, c\n__all__ = ["b"]\n', "differ: c"),
        ("def f(): ...\n", "only hands names on"),
        ("x = 1\n", "only hands names on"),
    ],
)
def test_an_init_may_do_nothing_else(source: str, message: str) -> None:
    assert message in "\n".join(check_size.find_init_problems(INIT, source))


def test_a_folder_of_modules_needs_an_init(tmp_path: Path) -> None:
    for name in ("whole/__init__.py", "whole/a.py", "bare/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert check_size.find_bare_folders(tmp_path) == [tmp_path / "bare"]


@pytest.mark.parametrize("folder", ["work", "home", "root"])
def test_an_absolute_machine_path_is_found(folder: str) -> None:
    data = f"first\nsee /{folder}/somebody\n".encode()
    assert list(check_docs.find_machine_traces("a.md", data)) == [
        f"a.md:2: absolute path '/{folder}/'"
    ]


@pytest.mark.parametrize("text", ["src/work/x", "~/home/x", "../root/x", "https://a.example/home"])
def test_a_relative_path_is_no_machine_path(text: str) -> None:
    assert list(check_docs.find_machine_traces("a.md", text.encode())) == []


@pytest.mark.parametrize("parts", [("pypi", ".org"), ("files.pythonhosted", ".org")])
def test_a_registry_host_is_found(parts: tuple[str, str]) -> None:
    data = "".join(parts).encode()
    assert len(list(check_docs.find_machine_traces("a.md", data))) == 1


def test_the_marks_of_a_merge_are_found():
    data = b"a\n" + b"<" * 7 + b" HEAD\nb\n=======\nc\n" + b">" * 7 + b" other\n"
    found = list(check_docs.find_machine_traces("a.md", data))
    assert [message.split(":")[1] for message in found] == ["2", "6"]


def test_a_link_must_lead_somewhere(tmp_path: Path) -> None:
    (tmp_path / "there.md").touch()
    text = (
        "[a](there.md#part) [b](https://example.org/x) [c](#here) `[d](code.md)`\n"
        "```\n[e](fenced.md)\n```\n[f](gone.md)\n\n[g]: lost.md\n"
    )
    found = list(check_docs.find_broken_links(tmp_path / "a.md", "a.md", text))
    assert [message.split("'")[1] for message in found] == ["gone.md", "lost.md"]


def test_a_test_file_mirrors_a_module(tmp_path: Path) -> None:
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "event.py").touch()
    (tmp_path / "record" / "_private.py").touch()
    for name in ("test_event", "test_event_order_of_copies", "test_private"):
        assert check_tests_mirror.has_module(Path("record") / f"{name}.py", tmp_path)
    for name in ("record/test_events", "audit/test_event", "test_event"):
        assert not check_tests_mirror.has_module(Path(f"{name}.py"), tmp_path)


def _report(name: str, *, covered_branches: int) -> dict[str, object]:
    return {
        "files": {
            name: {
                "summary": {
                    "num_statements": 10,
                    "covered_lines": 10,
                    "num_branches": 4,
                    "covered_branches": covered_branches,
                },
                "missing_lines": [],
                "missing_branches": [[3, 5]][: 4 - covered_branches],
            }
        }
    }


def test_a_missed_branch_of_the_core_is_named() -> None:
    name = "src/redrive/record/event.py"
    assert list(check_core_coverage.find_gaps(_report(name, covered_branches=4), 100)) == []
    (gap,) = check_core_coverage.find_gaps(_report(name, covered_branches=3), 100)
    assert "record/event.py: 92.9 %" in gap
    assert "branches [3->5]" in gap


def test_the_shell_is_not_held_to_the_minimum_of_the_core() -> None:
    report = _report("src/redrive/cli/entry.py", covered_branches=0)
    assert list(check_core_coverage.find_gaps(report, 100)) == []


def test_a_builtin_that_reaches_the_world_is_found_in_the_core() -> None:
    source = "self.open(path)\nx = open(path)\n"
    (message,) = check_core.find_banned_calls("core.py", source)
    assert message.startswith("core.py:2: open() in the core")
    assert list(check_core.find_banned_calls("core.py", "value.id\nsorted(id_of(x))\n")) == []


def test_the_core_may_import_no_declared_package_but_msgspec() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = config["project"]
    extras = project["optional-dependencies"]
    declared = {*project["dependencies"], *extras["http"], *extras["local"], *extras["proxy"]}
    names = {requirement.split(">")[0].split("=")[0] for requirement in declared}
    contracts = {entry["id"]: entry for entry in config["tool"]["importlinter"]["contracts"]}
    forbidden = set(contracts["core-third-party"]["forbidden_modules"])
    assert names - {"msgspec"} <= forbidden
    assert forbidden - {"orjson", "rfc8785"} == set(
        contracts["canonical-third-party"]["forbidden_modules"]
    )
