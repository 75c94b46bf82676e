import importlib.metadata
from pathlib import Path

import pytest

from redrive import plugins
from redrive.app import trial_code_digest
from redrive.app.trial_code_digest import digest_code, find_place
from redrive.app.trial_messages import CodePlace
from redrive.errors import PluginError, UsageError


def files(folder: Path, **texts: str) -> CodePlace:
    for name, text in {"wf": "import beside\nimport pkg.inner\n", **texts}.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return find_place("wf.py:x", folder)


def test_a_file_is_found_below_its_base_and_not_run(tmp_path: Path) -> None:
    place = files(tmp_path, wf="raise AssertionError")
    assert place == CodePlace("x", file=str(tmp_path / "wf.py"), folder=str(tmp_path))
    with pytest.raises(UsageError, match="no such file"):
        find_place("absent.py:x", tmp_path)
    with pytest.raises(UsageError, match=r"no workflow named 'wf\.py'"):
        find_place("wf.py", tmp_path)


def test_the_digest_is_the_same_wherever_the_code_lies(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = digest_code(files(tmp_path / "a", beside="1", pkg__inner="2"))
    assert one == digest_code(files(tmp_path / "b", beside="1", pkg__inner="2"))
    assert len(one) == 64


def test_every_module_that_it_may_import_changes_the_digest(tmp_path: Path) -> None:
    digests = [
        digest_code(files(tmp_path, beside="1", pkg__inner="2")),
        digest_code(files(tmp_path, beside="3")),
        digest_code(files(tmp_path, pkg__deep__more="4")),
        digest_code(files(tmp_path, not_imported="5")),
        digest_code(CodePlace("y", file=str(tmp_path / "wf.py"), folder=str(tmp_path))),
    ]
    assert len(set(digests)) == len(digests)


def test_what_is_not_imported_and_not_python_leaves_the_digest(tmp_path: Path) -> None:
    before = digest_code(files(tmp_path))
    (tmp_path / "data.txt").write_text("x")
    files(tmp_path, elsewhere__module="1")
    assert digest_code(files(tmp_path)) == before


def test_code_without_bounds_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = files(tmp_path, a="", b="", c="")
    monkeypatch.setattr(trial_code_digest, "MOST_FILES", 3)
    with pytest.raises(UsageError, match="more than 3 files"):
        digest_code(place)


def test_code_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    place = files(tmp_path)
    (tmp_path / "wf.py").unlink()
    gone = CodePlace("x", module="wf", folder=str(tmp_path))
    assert digest_code(gone) != digest_code(place)
    with pytest.raises(PluginError, match="cannot be read"):
        trial_code_digest._read(tmp_path)


def entry_points(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    points = tuple(
        importlib.metadata.EntryPoint(name, target, plugins.WORKFLOWS)
        for name, target in targets.items()
    )
    monkeypatch.setattr(plugins, "_points", lambda group: points)


def test_an_entry_point_is_found_without_running_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "redrive_test_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError")
    (package / "flows.py").write_text("raise AssertionError")
    (tmp_path / "redrive_test_lone.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_points(
        monkeypatch,
        packed="redrive_test_package.flows:x",
        lone="redrive_test_lone:x",
        gone="redrive_test_gone:x",
        odd="redrive_test_lone",
        builtin="sys:x",
    )
    packed = find_place("packed", tmp_path)
    assert packed == CodePlace(
        "x", module="redrive_test_package.flows", folder=str(package.resolve())
    )
    lone = find_place("lone", tmp_path)
    before = digest_code(packed), digest_code(lone)
    (tmp_path / "other.py").write_text("")
    assert before == (digest_code(packed), digest_code(lone))
    (package / "flows.py").write_text("2")
    assert digest_code(packed) != before[0]
    for name in ("gone", "odd", "builtin"):
        with pytest.raises(PluginError, match="no Python source here"):
            find_place(name, tmp_path)
    with pytest.raises(UsageError, match="no workflow named 'absent'") as caught:
        find_place("absent", tmp_path)
    assert "packed" in caught.value.hint
