"""Runs the hostile workflow without a sandbox and as an episode at each level.

A process of its own, once as each user, which prints JSON: `python -m
tests.sandbox_cases.workflow_matrix`.
"""

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from redrive.app.trial_episode import run_episode
from redrive.replay.trial_values import EpisodeEnd
from redrive.sandbox.door import LEVELS, find_levels
from redrive.stores.sqlite import open_store
from tests.sandbox_cases.matrix import OFF
from tests.trial_runs import Bench, make_model, output_of, read_spec, unchecked

_HERE = Path(__file__).parent
_NAMES = ("send", "liar", "turncoat", "go_between", "import_it_again")
_TIMEOUT_S = 60


@contextlib.contextmanager
def _hidden_bubblewrap(level: str) -> Iterator[None]:
    """Leave only what leads to a level: bubblewrap is looked for on the path."""
    kept = os.environ["PATH"]
    if level != LEVELS[0]:
        os.environ["PATH"] = "/nonexistent"
    try:
        yield
    finally:
        os.environ["PATH"] = kept


class _Witness:
    """A folder and a server outside."""

    def __init__(self, bench: Bench) -> None:
        self.outside = bench.folder / "outside"
        self.outside.mkdir()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.file = bench.write((_HERE / "workflow_payloads.py").read_text("utf-8"))
        self.store = bench.folder / "control-store"
        aims = {"outside": str(self.outside), "port": self.server.getsockname()[1]}
        aims["store"] = str(self.store)
        self.file.with_name("aims.json").write_text(json.dumps(aims))

    def seen(self) -> dict[str, bool]:
        """Say of each trick whether it had an effect; connections count for `connected`."""
        found = {name: (self.outside / name).exists() for name in _tricks(self.file)}
        found["poison_the_store"] = self.store.exists()
        found["connected"] = bool(select.select([self.server], [], [], 0)[0])
        return found


def _tricks(file: Path) -> list[str]:
    text = file.read_text("utf-8")
    return [one.split("(")[0] for one in text.split("@trick\ndef ")[1:]]


def run_workflow(level: str) -> dict[str, Any]:
    """Run the workflow once; give what was seen, what was denied, and what was said."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="redrive-cases-")))
    try:
        bench = Bench(folder)
        witness = _Witness(bench)
        with witness.server:
            if level == OFF:
                said = _run_off(witness.file)
                return {"seen": witness.seen(), "denied": [], "said": said, "isolation": OFF}
            end = _run_episode(bench, witness.file, level)
            return {
                "seen": witness.seen() | {"poison_the_store": not _is_whole(bench)},
                "denied": sorted({one.tool for one in end.denied}),
                "outcome": end.outcome.value,
                "said": output_of(end),
                "isolation": end.isolation,
            }
    finally:
        shutil.rmtree(folder)


def _run_off(file: Path) -> Any:
    done = subprocess.run(
        (sys.executable, "-m", "tests.sandbox_cases.workflow_control", str(file)),
        stdout=subprocess.PIPE,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return json.loads(done.stdout)


def _run_episode(bench: Bench, file: Path, level: str) -> EpisodeEnd:
    # Every tool is let in, as no load check would: what holds is what comes after it.
    eligible = unchecked(read_spec(file), *_NAMES)
    aims = file.with_name("aims.json")
    told = json.loads(aims.read_text()) | {"store": str(bench.store)}
    aims.write_text(json.dumps(told))
    with _hidden_bubblewrap(level):
        job = bench.job(file, eligible=eligible, models=(make_model(lambda _: "send"),))
        return run_episode(job, bench.account, bench.stop)


def _is_whole(bench: Bench) -> bool:
    store = open_store(bench.store, create=False)
    try:
        return store.verify().is_ok
    finally:
        store.close()


def run_workflows() -> dict[str, Any]:
    """Run it at all levels that are proven here; level → what came of it."""
    proven = [name for name, level in find_levels().items() if level.is_proven]
    return {level: run_workflow(level) for level in (OFF, *(n for n in LEVELS if n in proven))}


if __name__ == "__main__":
    json.dump(run_workflows(), sys.stdout)
