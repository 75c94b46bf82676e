"""`redrive trial plan`: all is said beforehand, and nothing is started or written."""

import json
import os
from pathlib import Path

import pytest

from redrive.sandbox.door import find_level
from tests.schemas import check

LEVEL = find_level()
pytestmark = pytest.mark.skipif(not LEVEL.is_proven, reason=f"no proven sandbox: {LEVEL.reason}")
WORKFLOWS = """
from pathlib import Path

from redrive.trial import Grants, Workflow, tool


@tool("read_file", effect="read_only", grants=Grants(read=(".",)))
def read_file(path: str) -> str:
    return open(path).read()


@tool("push", effect="unsafe", simulate=lambda state, **arguments: "pushed")
def push(branch: str) -> str:
    return "pushed"


def run(task, context):
    return {"label": context.complete({"messages": [{"role": "user", "content": task}]})}


v1 = Workflow("triage", version="1", tools=[read_file], run=run)
v2 = Workflow("triage", version="2", tools=[read_file], run=run)
unsafe = Workflow("triage", version="3", tools=[read_file, push], run=run)
"""
PLAN = """
name = "triage"
attempts = 2
parallel = 2
gate = "challenger within 0.05 of incumbent"
workflows = [
  { source = "workflows.py:v1", role = "incumbent" },
  { source = "workflows.py:v2", role = "challenger" },
]
[tasks]
jsonl = "tasks.jsonl"
[[models]]
name = "small"
spec = "script:answers.jsonl"
input_usd_per_mtok = "0.10"
output_usd_per_mtok = "0.40"
[ceilings]
replay_usd = "1.00"
judging_usd = "0.20"
[[graders]]
name = "correct"
kind = "exact"
[[graders]]
name = "style"
kind = "judge"
model = "small"
criteria = "Which one is shorter?"
"""
TASKS = '{"input": "a", "expected": "x"}\n{"input": "b", "expected": "y"}\n'


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "workflows.py").write_text(WORKFLOWS)
    (tmp_path / "tasks.jsonl").write_text(TASKS)
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def listing(folder: Path) -> set[str]:
    return {os.path.relpath(path, folder) for path in folder.rglob("*")}


def test_a_plan_is_previewed_and_nothing_is_written(redrive, plan: Path, tmp_path: Path) -> None:
    before = listing(tmp_path)
    found = check(redrive.json("trial", "plan", plan), "trial_plan")
    assert listing(tmp_path) == before
    assert (found["planned"], found["n_variants"], found["n_tasks"], found["attempts"]) == (
        *(8, 2, 2),
        2,
    )
    assert found["judge_calls"] > 0
    assert found["unpriced"] == []
    assert found["estimate_usd"] == "1.20" or found["is_bound"]
    assert [line["purpose"] for line in found["costs"]] == ["replay", "judging"]
    assert 0 < found["smallest_margin"] <= 1
    assert [variant["tools"] for variant in found["variants"]] == [["read_file"]] * 2
    assert found["isolation"] == LEVEL.name
    assert any("most expensive rung" in note for note in found["notes"])


def test_an_unsafe_variant_is_named_with_its_chain(redrive, plan: Path) -> None:
    plan.write_text(PLAN.replace(":v2", ":unsafe"))
    found = check(redrive.json("trial", "plan", plan, code=4), "trial_plan")
    (refusal,) = found["variants"][1]["refusals"]
    assert (refusal["tool"], refusal["effect"]) == ("push", "unsafe")
    assert refusal["chain"][-1] == "push"
    found = redrive.json("trial", "plan", plan, "--simulate", "push")
    assert found["variants"][1]["simulated"] == ["push"]
    assert any("simulated" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('"1.00"', "1.00"), "ceilings.replay_usd: found the float 1.0"),
        (('input_usd_per_mtok = "0.10"', ""), "the model 'small' has no price"),
        (('"exact"', '"exakt"'), "plan.toml: no grader named 'exakt'"),
        (("parallel = 2", 'simulate = ["nope"]'), "plan.toml: no tool 'nope' to simulate"),
        (("parallel = 2", "environment = 3"), "expected a table, or the path of a JSON file"),
    ],
)
def test_a_wrong_plan_is_one_line_and_exit_2(redrive, plan: Path, change, message: str) -> None:
    assert change[0] in PLAN
    plan.write_text("\ufeff" + PLAN.replace(*change))  # a byte order mark is no fault of it
    found = redrive("trial", "plan", plan)
    assert (found.code, found.out) == (2, "")
    assert message in found.err
    assert found.err.count("\n") == 1


def test_case_61_restated_in_interchange_names_each_field_and_attributes_nothing(
    redrive, plan: Path, cases: Path, tmp_path: Path
) -> None:
    folder = cases / "61-environment-config-dropped"
    expected = json.loads((folder / "expected.json").read_text())["expect"]
    config = json.loads(json.loads((folder / "recorded.traj").read_text())["replay_config"])["env"]
    lines = [
        {"type": "session", "id": "s61", "task": "fix the build", "environment": config},
        {"type": "decision", "id": "d", "output": {"text": "done", "tool_calls": []}},
    ]
    recording = tmp_path / "s61.jsonl"
    recording.write_text("".join(json.dumps(line) + "\n" for line in lines))
    redrive.imported(recording)
    tasks = '[tasks]\nsessions = ["s61"]\nno_workspace = true\nexpected = {s61 = 1}\n'
    for name in ("replay_env.json", "same_env.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
        text = PLAN.replace('[tasks]\njsonl = "tasks.jsonl"\n', tasks)
        plan.write_text(f'environment = "{name}"\n' + text)
        found = check(redrive.json("trial", "plan", plan), "trial_plan")
        (task,) = found["tasks"]
        wanted = expected[f"recorded.traj + {name}"]["differing_fields"]
        assert [entry["field"] for entry in task["environment"]["differences"]] == wanted
        assert task["environment"]["status"] == ("differs" if wanted else "same")
        assert any("is attributed" in note for note in found["notes"]) is bool(wanted)


def test_recorded_tasks_need_a_store_and_a_word_on_their_workspace(redrive, plan: Path) -> None:
    text = PLAN.replace('jsonl = "tasks.jsonl"', 'sessions = ["nobody"]')
    plan.write_text(text)
    assert "no store there yet" in redrive("trial", "plan", plan, "--no-workspace").err
