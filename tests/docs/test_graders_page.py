"""The page on graders says what the code says, and its examples work."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import plugins
from redrive.graders.callable import CallableOptions
from redrive.graders.exact import ExactOptions
from redrive.graders.json_schema import SchemaOptions
from redrive.graders.judge import JudgeOptions
from redrive.graders.judge import open_grader as open_judge
from redrive.graders.regex import RegexOptions
from redrive.graders.workspace_tests import SuiteOptions
from redrive.grading import GraderSpec
from redrive.testing import check_grader
from tests.grading import FakeContext, make_group, setup_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "graders.md").read_text()
OPTIONS = {
    "exact": ExactOptions,
    "regex": RegexOptions,
    "json_schema": SchemaOptions,
    "callable": CallableOptions,
    "tests": SuiteOptions,
    "judge": JudgeOptions,
}
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PLANS = re.findall(r"```toml\n(\[\[graders.*?)```", PAGE, re.DOTALL)


def row(kind: str) -> str:
    (found,) = re.findall(rf"^\| `{kind}` \|.*$", PAGE, re.MULTILINE)
    return str(found)


def run(text: str) -> dict[str, Any]:
    """Run an example's text here: its text is ours, and does nothing but declare."""
    names: dict[str, Any] = {}
    exec(compile(text, "page.py", "exec"), names)  # noqa: S102 - the page's own text
    return names


def test_every_kind_that_ships_has_its_row() -> None:
    assert set(OPTIONS) == set(plugins.names(plugins.GRADERS))
    assert len(re.findall(r"^\| `\w+` \|.*`\w+`.*\|$", PAGE, re.MULTILINE)) >= len(OPTIONS)


@pytest.mark.parametrize("kind", sorted(OPTIONS))
def test_every_option_and_every_default_number_is_told(kind: str) -> None:
    for field in msgspec.structs.fields(OPTIONS[kind]):
        assert f"`{field.encode_name}" in row(kind)
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert re.search(
                rf"`{field.encode_name}` \({field.default:g}|\({field.default}", row(kind)
            )


def test_the_plans_of_the_page_open(tmp_path: Path) -> None:
    entries = [tomllib.loads(text)["graders"][0] for text in PLANS]
    assert [entry["kind"] for entry in entries] == ["exact", "judge"]
    for entry in entries:
        kind = entry.pop("kind")
        assert GraderSpec(entry.pop("name"), kind, entry).options == entry
        plugins.load(plugins.GRADERS, kind)(setup_of(tmp_path, kind, entry))
    assert open_judge(setup_of(tmp_path, "judge", entries[1]))


def test_the_grader_of_the_page_keeps_its_promises() -> None:
    [text] = [text for text in CODE if "def open_grader" in text]
    names = run(text)
    check_grader(names["open_grader"], {})
    grade = names["Shortest"]().grade(make_group({"A@1": "ab", "B@1": "abcdef"}), FakeContext())
    assert grade.scores == {"A@1#1": 1, "B@1#1": 0.5}


def test_the_function_of_the_page_grades() -> None:
    [text] = [text for text in CODE if "report.md" in text]
    grade = run(text)["grade"]
    assert grade({"expected": 3}, {"total": 3}, {}) == {"score": 0.0, "note": "no report"}
    assert grade({"expected": 3}, {"total": 3}, {"report.md": b""}) is True
