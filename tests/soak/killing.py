"""Starts importers, to be killed; one small process that forks them, so that each starts at once.

Run: python -m tests.soak.killing INPUT…, then one line per importer on stdin: STORE AFTER_S. The
answer is `killed` or `finished`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from redrive import plugins
from redrive.app.importing import import_paths
from redrive.stores.sqlite import open_store

_ROOT = Path(__file__).resolve().parents[2]


class Killer:
    """Starts importers of one set of files and kills them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def kill(self, store: Path, after_s: float) -> bool:
        """Import into a store and kill the importer; say whether it was killed before its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{after_s} {store}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline() == "killed\n"


@contextmanager
def started_killer(inputs: Path) -> Iterator[Killer]:
    """Start the process that forks importers of `inputs`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.killing", str(inputs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])},
        cwd=_ROOT,
    )
    with process:
        yield Killer(process)
        assert process.stdin is not None
        process.stdin.close()


def import_into(store_path: Path, inputs: Path) -> None:
    """Import everything, as the verb does."""
    with closing(open_store(store_path, create=True)) as store:
        import_paths(store, [str(inputs)], progress=lambda *_: None)


def _fork_and_kill(store_path: Path, inputs: Path, after_s: float) -> str:
    child = os.fork()
    if not child:
        import_into(store_path, inputs)
        os._exit(0)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return "killed" if os.WIFSIGNALED(status) else "finished"


def _main(inputs: Path) -> None:
    plugins.load_all(plugins.IMPORTERS)
    for line in sys.stdin:
        after_s, _, store = line.strip().partition(" ")
        print(_fork_and_kill(Path(store), inputs, float(after_s)), flush=True)  # noqa: T201


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
