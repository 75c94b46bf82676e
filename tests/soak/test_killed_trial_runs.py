"""`kill -9` of `redrive trial run` and `resume`, with real runs in the sandbox: paid for once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from redrive import canonical
from redrive.replay.ledger import Finished, Ledger, apply
from redrive.replay.trial_values import FINISHED, Purpose
from redrive.sandbox.door import find_level
from tests.billing_endpoint import Bills, started_endpoint
from tests.stored import opened

KILLS = 100 if os.environ.get("REDRIVE_SOAK") == "full" else 3
N_RUNS, N_CALLS = 4, 4
LONGEST_MS = 300

WORKFLOWS = """
from redrive.trial import Workflow


def ask(task, context):
    said = task["text"]
    for _ in range({n_calls}):
        answer = context.complete({{"messages": [{{"role": "user", "content": said}}]}})
        said = answer["choices"][0]["message"]["content"]
    return {{"said": said}}


v1 = Workflow("w", version="1", tools=[], run=ask)
v2 = Workflow("w", version="2", tools=[], run=ask)
"""
PLAN = """
name = "billed"
seed = {seed}
workflows = [
  {{ source = "workflows.py:v1", role = "incumbent" }},
  {{ source = "workflows.py:v2", role = "challenger" }},
]

[tasks]
jsonl = "tasks.jsonl"

[[models]]
name = "small"
spec = "openai:billed@{url}"
input_usd_per_mtok = "1.00"
output_usd_per_mtok = "10.00"
max_tokens = 16
idempotent = true

[ceilings]
replay_usd = "0.50"
"""
TASKS = '{"name":"a","input":{"text":"one"}}\n{"name":"b","input":{"text":"two"}}\n'


class Trial:
    """A plan in a folder of its own, and the program that works on it."""

    def __init__(self, folder: Path, url: str, seed: int) -> None:
        folder.mkdir()
        self.folder, self.store = folder, folder / "store.db"
        (folder / "workflows.py").write_text(WORKFLOWS.format(n_calls=N_CALLS))
        (folder / "tasks.jsonl").write_text(TASKS)
        (folder / "plan.toml").write_text(PLAN.format(url=url, seed=seed))

    def start(self, verb: str) -> "subprocess.Popen[bytes]":
        words = ["-m", "redrive", "--store", str(self.store), "trial", verb, "plan.toml"]
        with (self.folder / "output").open("wb") as out:
            return subprocess.Popen(
                [sys.executable, *words], cwd=self.folder, stdout=out, stderr=subprocess.STDOUT
            )

    def verb(self) -> str:
        """Say how to go on: a trial is resumed as soon as it is stored."""
        if not self.store.exists():
            return "run"
        with opened(self.store) as store:
            return "resume" if store.trials.list_trials() else "run"

    def ledger(self) -> Ledger:
        """Fold the stored entries, holding what each step promises."""
        ledger, ends = Ledger(), Counter[str]()
        with opened(self.store) as store:
            verified = store.verify()
            assert verified.is_ok, verified.faults
            (trial,) = store.trials.list_trials()
            for entry in store.trials.entries(trial.trial_id):
                ledger = apply(ledger, entry)
                budget = ledger.budgets[Purpose.REPLAY]
                assert budget.spent + budget.reserved <= budget.ceiling
                if isinstance(entry.fact, Finished) and entry.fact.end.outcome in FINISHED:
                    ends[str(entry.fact.key)] += 1
                    assert store.get_row(entry.fact.end.session_id).n_events
        assert set(ends.values()) <= {1}, "a run finished twice"
        return ledger


def kill_after(process: "subprocess.Popen[bytes]", bills: Bills, n_bills: int, ms: int) -> bool:
    """Kill a process so long after so many more bills; false where it ended before."""
    n_before = len(bills.lines)
    while len(bills.lines) < n_before + n_bills:
        if process.poll() is not None:
            return False
        time.sleep(0.01)
    time.sleep(ms / 1000)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def test_a_trial_of_real_runs_that_is_killed_is_paid_for_once(tmp_path: Path) -> None:
    if find_level().name == "none":
        pytest.skip("no level of the sandbox is proven here")
    bills, draws = Bills(tmp_path / "bills"), canonical.stream("kill", "runs")
    n_kills = n_trials = n_open = 0
    with started_endpoint(bills.path, delay_ms=200) as url:
        while n_kills < KILLS:
            n_trials += 1
            trial = Trial(tmp_path / str(n_trials), url, n_trials)
            while True:
                n_bills = 1 + next(draws) % 5 if n_kills < KILLS else N_RUNS * N_CALLS + 1
                process = trial.start(trial.verb())
                # Every other one while an answer is on its way, which takes 100 ms or more.
                after_ms = next(draws) % LONGEST_MS if n_kills % 2 else 0
                is_killed = kill_after(process, bills, n_bills, after_ms)
                if not is_killed:
                    break
                n_kills += 1
                n_open += bool(trial.ledger().open_charges)
            assert process.returncode == 0, (trial.folder / "output").read_text()
            check_end(trial, bills)
    if KILLS > 20:  # fewer may all miss, on a machine that is busy
        assert n_open, "the control: killed while something was asked"


def check_end(trial: Trial, bills: Bills) -> None:
    """Hold that a trial is complete and paid for once, and that going on with it costs nothing."""
    ledger = trial.ledger()
    states = ledger.runs.merged().values()
    assert [state.is_finished for state in states] == [True] * N_RUNS
    outcomes = {state.end.outcome.value for state in states if state.end is not None}
    assert outcomes == {"complete"}
    charges = ledger.charges.merged()
    assert len(charges) == N_RUNS * N_CALLS
    assert ledger.budgets[Purpose.REPLAY].spent == bills.usd_of(set(charges)) > 0
    assert sum(key in charges for key, _ in bills.lines) == N_RUNS * N_CALLS
    n_bills = len(bills.lines)
    assert trial.start("resume").wait() == 0
    assert len(bills.lines) == n_bills
