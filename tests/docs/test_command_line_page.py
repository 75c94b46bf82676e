"""Every verb, exit code and setting has its place on the page; the page says what the code says."""

import re
from pathlib import Path

import click

from redrive.cli.exits import MEANINGS
from redrive.cli.main import VERBS, Verbs, redrive

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text()
HEADINGS = set(re.findall(r"^### (\S+)$", PAGE, re.MULTILINE))


def test_every_verb_and_setting_has_its_heading_and_nothing_else_has():
    named = {
        name
        for path in (ROOT / "src" / "redrive").rglob("*.py")
        for name in re.findall(r'"([A-Z]+_[A-Z_]+)"', path.read_text())
        if name.startswith("REDRIVE_") or name.endswith("_API_KEY")
    }
    assert {*VERBS, *named} == HEADINGS


def test_the_exit_table_is_the_code_s():
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, re.MULTILINE))
    assert rows == {str(int(code)): text for code, text in MEANINGS.items()}


def test_every_option_of_shadow_is_explained():
    assert isinstance(redrive, Verbs)
    command = redrive.get_command(click.Context(redrive), "shadow")
    names = {option for p in command.params for option in p.opts if option.startswith("--")}
    assert not {name for name in names - {"--model", "--json"} if name not in PAGE}


def test_the_readme_names_only_verbs_that_exist():
    readme = (ROOT / "README.md").read_text()
    called = re.findall(r"(?:`|\$ |run: )redrive ([a-z]+)", readme)
    assert len(called) > 5
    assert set(called) <= {*VERBS}
