"""The example's trial on the real local model, with two of its eight tasks: from plan to report."""

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.models import local
from redrive.sandbox.door import find_level
from tests.schemas import check

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TASKS = ("interchange:incident-backup", "interchange:incident-import")


class Example:
    """The example in a folder of its own, its plan shortened as the demo shortens it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(EXAMPLES / "workflows.py", folder)
        shutil.copytree(EXAMPLES / "incidents", folder / "incidents")
        shorten = runpy.run_path(str(EXAMPLES / "demo.py"))["shorten_plan"]
        self.text: str = shorten((EXAMPLES / "trial.toml").read_text(encoding="utf-8"))
        self.set_ceiling("0.10")

    def set_ceiling(self, usd: str) -> None:
        text = self.text.replace('replay_usd = "0.10"', f'replay_usd = "{usd}"')
        assert f'replay_usd = "{usd}"' in text
        (self.folder / "trial.toml").write_text(text, encoding="utf-8")

    def json(self, *words: str, code: int = 0) -> Any:
        command = [sys.executable, "-m", "redrive", "--store", "store.db", *words, "--json"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr + done.stdout[:2000]
        return json.loads(done.stdout)


@pytest.fixture
def example(tmp_path: Path) -> Example:
    if not find_level().is_proven:
        pytest.skip(f"no proven sandbox: {find_level().reason}")
    return Example(tmp_path)


def test_the_example_is_planned_without_a_model_and_its_unsafe_version_refused(
    example: Example,
) -> None:
    example.json("import", "incidents/sessions")
    plan = check(example.json("trial", "plan", "trial.toml"), "trial_plan")
    assert (plan["n_variants"], plan["n_tasks"], plan["planned"]) == (3, 2, 6)
    assert plan["judge_calls"] == 4
    whole = (EXAMPLES / "trial.toml").read_text(encoding="utf-8")
    (example.folder / "whole.toml").write_text(whole, encoding="utf-8")
    plan = check(example.json("trial", "plan", "whole.toml"), "trial_plan")
    assert (plan["n_variants"], plan["n_tasks"], plan["planned"]) == (3, 8, 24)
    judged = example.json("eligible", "workflows.py:unsafe_workflow", code=4)
    assert [one["tool"] for one in judged["refusals"]] == ["page_someone"]


@pytest.mark.local_model
def test_the_example_stops_at_a_small_ceiling_goes_on_and_is_reported(example: Example) -> None:
    if not local.is_installed():
        pytest.skip(f"the local model is not installed: {local.INSTALL_HINT}")
    example.json("import", "incidents/sessions")
    # A call of a run reserves some USD 0.00009 and costs a tenth of that.
    example.set_ceiling("0.0001")
    stopped = example.json("trial", "run", "trial.toml", "--parallel", "1", code=5)
    assert 0 < stopped["finished"] < 6
    assert len(stopped["not_run"]) == 6 - stopped["finished"]

    example.set_ceiling("0.10")
    # Two tasks cannot decide the gate.
    found = check(example.json("trial", "resume", "trial.toml", code=3), "trial_report")
    assert (found["trial_id"], found["finished"], found["not_run"]) == (
        stopped["trial_id"],
        6,
        [],
    )
    assert {run["outcome"] for run in found["runs"]} == {"complete"}
    assert {run["task"] for run in found["runs"]} == set(TASKS)
    replay, judging = found["spend"]["replay"], found["spend"]["judging"]
    assert (replay["calls"], judging["calls"]) == (6, 4)
    for run in found["runs"]:
        # With the log before it, the model may name a code of the log alone.
        if run["variant"] != "triage@1":
            assert run["output"]["code"] in {"E17", "E08"}
        (audit,) = example.json("audit", run["session_id"])["sessions"]
        assert audit["status"] == "closed"
    graders = {one["grader"]: one for one in found["grading"]["graders"]}
    assert graders.keys() == {"right-code", "better-report"}

    # An episode is a session like any other: the model decides again what it decided in the trial.
    episode = found["runs"][-1]["session_id"]
    words = ("--model", "local", "--sampling", "recorded")
    shadow = example.json("shadow", episode, *words)
    assert shadow["verdict"] == "IDENTICAL_REPLAY"
