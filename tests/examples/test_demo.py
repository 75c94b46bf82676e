"""`make demo` on this machine: what it does without the local model, and with it in the soak.

CI runs `make demo` itself, on the real model, and fails where an exit code or a verdict is another.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.models import local

DEMO = Path(__file__).resolve().parent.parent.parent / "examples" / "demo.py"
OK = "Every exit code and verdict was as expected."


def run_demo(*prelude: str) -> subprocess.CompletedProcess[str]:
    code = f"import runpy, sys; {'; '.join([*prelude, 'sys.argv = [sys.argv[1]]'])}; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code, str(DEMO)], capture_output=True, text=True, check=False
    )


@pytest.mark.local_model
@pytest.mark.skipif(
    os.environ.get("REDRIVE_SOAK") != "full", reason="long: `make demo` does the same"
)
def test_the_demo_holds_on_a_real_model() -> None:
    if not local.is_installed():
        pytest.skip(f"the local model is not installed: {local.INSTALL_HINT}")
    done = run_demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "IDENTICAL_REPLAY" in done.stdout
    assert OK in done.stdout


def test_without_the_local_model_the_demo_says_so_and_runs_the_rest() -> None:
    done = run_demo("from redrive.models import local", "local.is_installed = lambda: False")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The local model is not installed" in done.stdout
    assert "→ exit 3" in done.stdout
    assert OK in done.stdout
