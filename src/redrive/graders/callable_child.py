"""Calls a grader's function inside the sandbox, once for each episode.

Runs by its path, so it knows the standard library alone. Its own answers go to a descriptor that
the function does not know: what the function prints is for people.

Called as `callable_child.py FILE NAME EPISODES`, with `{"task", "episodes"}` as JSON on stdin.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_REASON_CHARS = 300


class Files(Mapping[str, bytes]):
    """The files of a workspace by their relative paths; links are not followed, nor listed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __iter__(self) -> Iterator[str]:
        """Walk the files in alphabetical order of their folders."""
        for root, folders, names in os.walk(self._folder):
            folders.sort()
            for name in sorted(names):
                path = Path(root, name)
                if path.is_file() and not path.is_symlink():
                    yield path.relative_to(self._folder).as_posix()

    def __len__(self) -> int:
        """Count them."""
        return sum(1 for _ in self)

    def __getitem__(self, name: str) -> bytes:
        """Read one."""
        if name.startswith("/") or ".." in name.split("/"):
            raise KeyError(name)
        path = self._folder
        for part in name.split("/"):
            path /= part
            if path.is_symlink():
                raise KeyError(name)
        if not path.is_file():
            raise KeyError(name)
        return path.read_bytes()


def _load(file: str, name: str) -> Callable[..., Any]:
    # What lies beside it is imported as the author of the plan wrote it.
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location("redrive_grader", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules["redrive_grader"] = module
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    return function


def _plain(found: Any) -> Any:
    """Make JSON of what a function gave; another number, such as one of numpy, becomes a float."""
    if isinstance(found, bool | int | float | str | None):
        return found
    if isinstance(found, Mapping):
        return {str(key): _plain(value) for key, value in found.items()}
    return float(found)


def _grade(function: Callable[..., Any], task: Any, episode: Any, episodes: Path) -> Any:
    try:
        files = Files(episodes / episode["folder"])
        return {"found": _plain(function(task, episode["output"], files))}
    except Exception as error:  # noqa: BLE001 - whatever it is, this episode has no grade
        return {"error": f"{type(error).__name__}: {error}"[:_REASON_CHARS]}


def main() -> int:
    """Answer with one JSON line for the load, then one for each episode, in order."""
    file, name, episodes = sys.argv[1:]
    answers = os.dup(1)
    os.dup2(2, 1)
    asked = json.load(sys.stdin)
    function: Callable[..., Any] | None = None
    loaded: dict[str, Any]
    try:
        function = _load(file, name)
        loaded = {"loaded": callable(function)}
    except BaseException as error:  # noqa: BLE001 - told to who asked, and nothing is graded
        loaded = {"error": f"{type(error).__name__}: {error}"[:_REASON_CHARS]}
    os.write(answers, json.dumps(loaded).encode() + b"\n")
    if function is None or not loaded.get("loaded"):
        return 1
    for episode in asked["episodes"]:
        answer = _grade(function, asked["task"], episode, Path(episodes))
        os.write(answers, json.dumps(answer).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
