"""Runs a command as a process of its own and tells what it cost: CPU seconds and peak memory.

A child's peak counts from before its `exec`, so a large parent would be charged to it. The command
is therefore started by a small process: this file, run as a program.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
REDRIVE = (sys.executable, "-m", "redrive")
_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


class Cost(NamedTuple):
    """What a process cost."""

    code: int
    cpu_s: float
    peak_mb: float


def run(command: Sequence[str | Path]) -> Cost:
    """Run a command to its end, its output thrown away.

    The repository is on its path, and byte code is kept, as that of an installed package is.
    """
    settings = {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(ROOT / ".benchmarks" / "pycache"),
    }
    found = subprocess.run(
        [sys.executable, "-I", "-S", __file__, *map(str, command)],
        env={**os.environ, **settings},
        check=True,
        capture_output=True,
    )
    return Cost(*json.loads(found.stdout))


def _launch(command: Sequence[str]) -> Cost:
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0o600) for fd in (1, 2)]
    pid = os.posix_spawn(command[0], list(command), os.environ, file_actions=quiet)
    _, status, usage = os.wait4(pid, 0)
    cpu_s = usage.ru_utime + usage.ru_stime
    return Cost(os.waitstatus_to_exitcode(status), cpu_s, usage.ru_maxrss * _UNIT_BYTES / 1e6)


if __name__ == "__main__":
    print(json.dumps(_launch(sys.argv[1:])))
