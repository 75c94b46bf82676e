import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).with_name("child.py")

Run = Callable[[str, Mapping[str, str]], dict[str, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run texts of policies in a child, `sealed` or `open`; name → what came of it."""

    def run_child(mode: str, texts: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        rows = "".join(json.dumps({"name": n, "text": t}) + "\n" for n, t in texts.items())
        command = [sys.executable, "-W", "ignore", str(CHILD), mode, str(tmp_path)]
        done = subprocess.run(command, input=rows, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
        return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}

    return run_child
