"""Whole processes: each test has a store of its own and sees what a user sees."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.policy_corpus import write_corpus


@dataclass
class Finished:
    """What one process left."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Redrive:
    """Runs the program with a store in a folder of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store.db"

    def __call__(self, *arguments: object, **environment: str) -> Finished:
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *map(str, arguments)],
            capture_output=True,
            cwd=self.folder,
            env=os.environ | {"REDRIVE_STORE": str(self.store), "NO_COLOR": "1"} | environment,
            timeout=600,
        )
        finished = Finished(done.returncode, done.stdout.decode(), done.stderr.decode())
        assert "Traceback" not in finished.err + finished.out, finished.err
        return finished

    def json(self, *arguments: object, code: int = 0) -> Any:
        """Run with `--json`, hold the exit code, and give the one document on stdout."""
        finished = self(*arguments, "--json")
        assert finished.code == code, (finished.code, finished.err, finished.out[:2000])
        assert finished.out.endswith("\n")
        return finished.document

    def imported(self, path: object, *, format_name: str | None = None, code: int = 0) -> Any:
        """Import one file; give its entry of the report."""
        chosen = ("--format", format_name) if format_name else ()
        (file,) = self.json("import", path, *chosen, code=code)["files"]
        return file


class Corpora:
    """Stores that hold the corpus of policy sessions, each imported once and copied after."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put_into(self, redrive: Redrive, *counts: int) -> None:
        """Give a test a store with the corpus; see `write_corpus` for its size."""
        made = Redrive(self._folder / "-".join(map(str, ("corpus", *counts))))
        if not made.store.exists():
            paths = write_corpus(made.folder / "recorded", *counts)
            assert made("import", *paths).code == 0
        shutil.copy(made.store, redrive.store)


@pytest.fixture(scope="session")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Corpora:
    """Stores with the corpus of policy sessions."""
    return Corpora(tmp_path_factory.mktemp("corpora"))


@pytest.fixture
def redrive(tmp_path: Path) -> Redrive:
    """The program, with an empty store."""
    return Redrive(tmp_path)
