"""The page on trials: its plan is read, its commands exist, its tables are the code's."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from redrive.app.trial_plan import read_plan
from redrive.cli.main import Verbs, redrive
from redrive.compare.trial_report import INTERRUPTED, NOT_STARTED
from redrive.replay.trial_plan import RunLimits
from redrive.replay.trial_values import Outcome
from redrive.sandbox.door import find_level
from tests.trial_plans import digest_fake, load_fake, no_store

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "trials.md").read_text()
(WORKFLOWS,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(LINES,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
PLAN, SESSIONS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line.split() for line in re.findall(r"^\$ redrive (.+)$", PAGE, re.MULTILINE)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The three files of the page, and the workspace they name."""
    (tmp_path / "workflows.py").write_text(WORKFLOWS)
    (tmp_path / "tasks.jsonl").write_text(LINES)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "crash.txt").write_text("It crashes when I save.\n")
    (tmp_path / "mail" / "dark.txt").write_text("Please add a dark mode.\n")
    return tmp_path


def test_the_plan_of_the_page_is_read(folder: Path) -> None:
    plan = read_plan(
        folder / "plan.toml", no_store, load_workflow=load_fake, digest_workspace=digest_fake
    )
    assert (plan.n_runs, plan.limits.model_calls) == (4, 4)
    assert [task.name for task in plan.tasks] == ["crash", "dark mode"]


def test_every_command_of_the_page_exists() -> None:
    assert isinstance(redrive, Verbs)
    group = redrive.get_command(click.Context(redrive), "trial")
    assert isinstance(group, click.Group)
    named = {words[1] for words in COMMANDS} | set(re.findall(r"`redrive trial (\w+)", PAGE))
    assert named == set(group.commands)
    for words in COMMANDS:
        command = group.commands[words[1]]
        known = {option for entry in command.params for option in entry.opts}
        assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.skipif(not find_level().is_proven, reason="no proven sandbox here")
def test_the_page_s_trial_runs_from_plan_to_report(folder: Path) -> None:
    """With a script in the model's place: what a real one says is not the page's to promise."""
    answers = '{"text": "bug", "final": true}\n'
    (folder / "answers.jsonl").write_text(answers * 4)
    plan = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(plan.replace('"local"', '"script:answers.jsonl"'))
    environment = os.environ | {"REDRIVE_STORE": str(folder / "store.db")}
    for words in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "redrive", *words],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        wanted = 0 if words[1] == "plan" else 3  # two tasks cannot show a margin of 0.05
        assert done.returncode == wanted, (words, done.stdout, done.stderr)
    assert "2 variants × 2 tasks: 4 planned, 4 started, 4 finished, 0 not run" in done.stdout
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_every_limit_end_and_key_of_a_plan_is_on_the_page() -> None:
    for name in RunLimits.__struct_fields__:
        assert f"`{name}`" in PAGE
    for word in (*map(str, Outcome), NOT_STARTED, INTERRUPTED):
        assert f"`{word}`" in PAGE
    default = RunLimits()
    assert f"`wall_s` ({default.wall_s:g})" in PAGE
    assert f"`model_calls` ({default.model_calls})" in PAGE
    assert f"`tool_calls` ({default.tool_calls})" in PAGE


def test_the_tasks_from_sessions_use_keys_that_are_known() -> None:
    table = tomllib.loads(SESSIONS)["tasks"]
    assert set(table) == {"sessions", "workspace", "workspaces", "expected"}
    assert table["workspaces"]["interchange:incident-login"]["commit"]
