"""The page on policies says what the code says, and its examples run."""

import re
import subprocess
import sys
from pathlib import Path

import click

from redrive import plugins
from redrive.cli.verbs.policy import policy_verb
from redrive.replay.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "policies.md").read_text()
COMMANDS = (ROOT / "docs" / "command-line.md").read_text()


def test_the_first_policy_on_the_page_is_the_example():
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks[0] == (ROOT / "examples" / "policies" / "push_needs_test.py").read_text()


def test_every_declaration_of_a_policy_is_explained():
    declared = {name for name in vars(Policy) if not name.startswith("_")}
    assert {name for name in declared - {"evaluate", "dedup_key"} if f"`{name}`" not in PAGE} <= {
        "name",
        "notes",
        "uses_standard_state",
    }


def test_every_verb_and_option_is_on_a_page():
    context = click.Context(policy_verb)
    verbs = policy_verb.list_commands(context)
    assert not [verb for verb in verbs if verb not in COMMANDS]
    command = policy_verb.get_command(context, "replay")
    assert command is not None
    names = {option for p in command.params for option in p.opts if option.startswith("--")}
    assert not {name for name in names - {"--json"} if name not in PAGE + COMMANDS}


def test_every_policy_that_ships_is_described():
    assert not [name for name in plugins.names(plugins.POLICIES) if f"`{name}`" not in PAGE]


def test_the_examples_replay(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "own.py").write_text(blocks[1])
    session = ROOT / "tests" / "cases" / "66-destructive-sql-and-freeze" / "freeze.jsonl"
    redrive = [sys.executable, "-m", "redrive", "--store", str(tmp_path / "s.db")]
    subprocess.run([*redrive, "import", str(session)], check=True, capture_output=True)
    example = ROOT / "examples" / "policies" / "push_needs_test.py"
    specs = [f"{example}:PushNeedsTest", f"{tmp_path / 'own.py'}:NoDeployInFreeze"]
    named = [word for spec in specs for word in ("--policy", spec)]
    done = subprocess.run([*redrive, "policy", "replay", *named], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
