"""Runs the child as it is run, but outside the sandbox: these functions are ours."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.graders import callable_child
from redrive.graders.callable_child import Files


def _run(tmp_path: Path, text: str, *outputs: Any) -> tuple[list[Any], str]:
    (tmp_path / "checks.py").write_text(text)
    episodes = tmp_path / "episodes"
    (episodes / "0").mkdir(parents=True)
    (episodes / "0" / "a.txt").write_text("words")
    asked = {
        "task": {"input": 1},
        "episodes": [{"output": one, "folder": str(n)} for n, one in enumerate(outputs)],
    }
    command = [sys.executable, "-I", callable_child.__file__, str(tmp_path / "checks.py"), "grade"]
    done = subprocess.run(
        [*command, str(episodes)],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()


def test_a_function_is_called_once_for_each_episode_and_may_print() -> None:
    text = """
import beside
def grade(task, output, files):
    print("called", output)
    if output == "raise":
        raise ValueError("no")
    return {"score": task["input"], "note": str({k: v for k, v in files.items()}) + beside.WORD}
"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "beside.py").write_text("WORD = '!'")
        answers, err = _run(path, text, "a", "raise", "c")
    assert answers[0] == {"loaded": True}
    assert answers[1]["found"] == {"score": 1, "note": "{'a.txt': b'words'}!"}
    assert answers[2] == {"error": "ValueError: no"}
    assert answers[3]["found"]["note"] == "{}!"
    assert "called a" in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("raise SystemExit(0)", "SystemExit"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("x = 1", "AttributeError"),
    ],
)
def test_a_file_that_does_not_load_is_told(tmp_path: Path, text: str, says: str) -> None:
    [answer], _ = _run(tmp_path, text, "a")
    assert says in answer["error"]


def test_what_has_no_json_form_is_an_error_of_that_episode(tmp_path: Path) -> None:
    text = """
import decimal
def grade(task, output, files):
    return object() if output else decimal.Decimal("0.5")
"""
    answers, _ = _run(tmp_path, text, 0, 1)
    assert answers[1] == {"found": 0.5}
    assert answers[2]["error"].startswith("TypeError")


def test_files_are_read_inside_the_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/b.txt").write_text("b")
    (folder / "a.txt").write_text("a")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("s")
    (folder / "link").symlink_to(tmp_path / "outside/secret")
    (folder / "folder").symlink_to(tmp_path / "outside")
    files = Files(folder)
    assert dict(files) == {"a.txt": b"a", "sub/b.txt": b"b"}
    assert len(files) == 2
    for name in ("link", "folder/secret", "../outside/secret", "/etc/passwd", "sub", "none"):
        with pytest.raises(KeyError):
            files[name]
