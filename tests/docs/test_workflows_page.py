"""The page on workflows says what the code says, and its examples are judged as it says."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive import trial
from redrive.audit.effects import Effect
from redrive.audit.eligibility import judge
from redrive.audit.workflow import Grants
from redrive.audit.workflow_json import parse_workflow
from redrive.trial import WorkflowContext, to_spec

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "workflows.md").read_text()
EXAMPLES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))


def example(name: str) -> dict[str, Any]:
    """Run an example's text here: its text is ours, and does nothing but declare."""
    names: dict[str, Any] = {}
    exec(compile(EXAMPLES[name], name, "exec"), names)  # noqa: S102 - the page's own text
    return names


def spec_of(name: str, attribute: str) -> Any:
    names = example(name)
    tools = [value for value in names.values() if isinstance(value, trial.Tool)]
    return to_spec(names[attribute], tools)


def test_every_example_declares_what_the_page_says() -> None:
    assert judge(spec_of("workflows.py", "v2")).is_eligible
    assert judge(spec_of("agent.py", "agent")).is_eligible
    mailing = spec_of("mail.py", "workflow")
    assert [refusal.tool for refusal in judge(mailing).refusals] == ["send_mail", "charge"]
    names = frozenset({"send_mail", "list_sent", "charge"})
    assert judge(mailing, simulate=names).is_eligible
    (refusal,) = judge(spec_of("release.py", "release")).refusals
    assert " → ".join(refusal.chain) in PAGE
    assert not judge(spec_of("files.py", "workflow")).is_eligible  # its listing was not read


def test_the_simulators_of_the_page_work() -> None:
    names = example("mail.py")
    state: dict[str, Any] = {}
    assert names["fake_send"](state, "a", "b") == {"queued": 1}
    assert names["fake_list"](state) == ["a"]
    assert names["charge"].take_simulator().answer({"cents": 100}) == {"ok": True}


def test_the_tools_of_the_page_are_functions_in_a_test(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    assert example("workflows.py")["read_file"](path=str(tmp_path / "a.txt")) == "text"


def test_the_declaration_as_json_is_judged() -> None:
    workflow, registry = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(workflow)
    (refusal,) = judge(parse_workflow(workflow, registry)).refusals
    assert refusal.chain == ("wf@2", "s1", "exec", "bash")


def test_every_effect_grant_and_door_of_the_context_is_explained() -> None:
    context = [name for name in vars(WorkflowContext) if not name.startswith("_")]
    words = [*(effect.value for effect in Effect), *Grants.__struct_fields__]
    assert not [name for name in words if f"`{name}`" not in PAGE]
    assert not [name for name in context if not re.search(rf"`{name}[`(]", PAGE)]
    made = ["Workflow", "CommandWorkflow", "McpServer", "Step", "Subagent", "Fixture", "Grants"]
    assert set(made) <= set(trial.__all__)
    assert not [name for name in made if name not in PAGE]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_example_is_imported_as_a_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(EXAMPLES[name])
    subprocess.run([sys.executable, "-I", str(tmp_path / name)], check=True, capture_output=True)
