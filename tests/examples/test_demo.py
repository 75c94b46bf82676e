"""The demo without the local model; with it, `make demo` checks itself, as CI does."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parent.parent.parent / "examples" / "demo.py"
OK = "Every exit code and verdict was as expected."


def run_demo(*prelude: str) -> subprocess.CompletedProcess[str]:
    code = f"import runpy, sys; {'; '.join([*prelude, 'sys.argv = [sys.argv[1]]'])}; "
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", code, str(DEMO)], capture_output=True, text=True, check=False
    )


def test_without_the_local_model_the_demo_says_so_and_runs_the_rest() -> None:
    done = run_demo("from redrive.models import local", "local.is_installed = lambda: False")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The local model is not installed" in done.stdout
    assert "→ exit 3" in done.stdout
    assert OK in done.stdout
