"""Plans of trials as users write them, and stand-ins for what reading one asks of the world."""

import hashlib
from contextlib import contextmanager
from pathlib import Path

from redrive.app.trial_plan import NO_CHANGES, read_plan
from redrive.audit.workflow import WorkflowSpec
from redrive.errors import UsageError
from redrive.replay.trial_plan import PlannedWorkflow

HEAD = """name = "triage"
workflows = [
  { source = "workflows.py:v1", role = "incumbent" },
  { source = "workflows.py:v2", role = "challenger" },
]
"""
MODEL = """[[models]]
name = "small"
spec = "local"
input_usd_per_mtok = "0.10"
output_usd_per_mtok = "0.40"
max_tokens = 256
"""
CEILINGS = """[ceilings]
replay_usd = "1.00"
judging_usd = "0.20"
"""
TASKS = """[tasks]
jsonl = "tasks.jsonl"
"""
GRADER = """[[graders]]
name = "correct"
kind = "exact"
"""
LINES = '{"name": "one", "input": {"text": "a"}, "expected": "x"}\n{"input": 2}\n'
WHOLE = HEAD + 'gate = "challenger within 0.05 of incumbent"\n' + TASKS + MODEL + CEILINGS + GRADER


def load_fake(source: str, folder: Path) -> PlannedWorkflow:
    """Take `FILE.py:vN` for version N of the file's workflow; the folder does not matter."""
    path, _, name = source.partition(":")
    if name == "absent":
        raise UsageError(f"no {name} in the file", where=path)
    spec = WorkflowSpec(Path(path).stem, name.removeprefix("v"))
    return PlannedWorkflow("", spec, hashlib.sha256(source.encode()).hexdigest())


def digest_fake(path: str, kind: str, commit: str | None = None) -> str:
    """Sum up a workspace by the names in it."""
    if commit == "absent":
        raise UsageError(f"no commit {commit}")
    names = sorted(entry.name for entry in Path(path).iterdir()) if kind == "folder" else []
    return hashlib.sha256(repr((kind, names, commit)).encode()).hexdigest()


@contextmanager
def no_store():
    """Stand for a store that must not be asked for."""
    raise AssertionError("the store was opened")
    yield


def write_plan(folder: Path, text: str = WHOLE, lines: str = LINES) -> Path:
    """Write a plan and its tasks."""
    path = folder / "plan.toml"
    path.write_text(text, "utf-8")
    (folder / "tasks.jsonl").write_text(lines, "utf-8")
    return path


def plan_of(folder: Path, text: str = WHOLE, lines: str = LINES, *, open_store=no_store, **changes):
    """Write a plan and read it."""
    return read_plan(
        write_plan(folder, text, lines),
        open_store,
        load_workflow=load_fake,
        digest_workspace=digest_fake,
        changes=changes.get("changes", NO_CHANGES),
    )
