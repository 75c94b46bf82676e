import json
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import UsageError
from redrive.graders.json_schema import open_grader
from redrive.grading import GroupGrade
from tests.grading import FakeContext, make_group, setup_of

LABEL = {
    "type": "object",
    "properties": {"label": {"$ref": "#/$defs/label"}},
    "required": ["label"],
    "additionalProperties": False,
    "$defs": {"label": {"enum": ["bug", "question"]}},
}


def _grade(options: dict[str, Any], outputs: dict[str, Any], base: Path = Path()) -> GroupGrade:
    grader = open_grader(setup_of(base, "json_schema", options))
    return grader.grade(make_group(outputs), FakeContext())


def test_outputs_are_checked_against_a_schema_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "label.json").write_text(json.dumps(LABEL))
    outputs = {"A@1": {"label": "bug"}, "B@1": {"label": "x"}, "C@1": {}, "D@1": "bug"}
    grade = _grade({"file": "label.json"}, outputs, tmp_path)
    assert list(grade.scores.values()) == [1, 0, 0, 0]
    assert grade.reasons["B@1#1"].startswith("/label: 'x' is not one of")


def test_a_part_may_be_checked_and_true_is_no_integer() -> None:
    outputs = {"A@1": {"n": 1}, "B@1": {"n": True}, "C@1": {"n": 2**70}, "D@1": [1]}
    grade = _grade({"schema": {"type": "integer"}, "at": "/n"}, outputs)
    assert list(grade.scores.values()) == [1, 0, 1, 0]


def test_hostile_outputs_are_judged_or_inconclusive_and_the_others_lose_nothing() -> None:
    schema = {"anyOf": [{"type": "string", "pattern": "^(a|a)*$"}, {"type": "array"}]}
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    outputs = {"A@1": "a", "B@1": "a" * 60 + "!", "C@1": deep, "D@1": 7}
    grade = _grade({"schema": schema, "timeout_s": 0.3}, outputs)
    assert next(iter(grade.scores.values())) == 1
    assert grade.scores["B@1#1"] is None
    assert grade.scores["C@1#1"] in (1, None)
    assert grade.scores["D@1#1"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of file and schema"),
        ({"file": "a.json", "schema": {}}, "exactly one of file and schema"),
        ({"file": "none.json"}, "no such file"),
        ({"schema": {"type": "strang"}}, "the schema is none"),
        ({"schema": []}, "an object or a boolean"),
        ({"schema": {"$ref": "https://example.com/s.json"}}, "nothing is ever fetched"),
        ({"schema": {"items": {"$ref": "file:///etc/passwd"}}}, "nothing is ever fetched"),
        ({"schema": {"$ref": "#/$defs/none"}}, "names nothing"),
        ({"schema": {}, "timeout_s": -1}, "timeout_s"),
    ],
)
def test_a_wrong_option_is_refused_at_load(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_grader(setup_of(Path(), "json_schema", options))


def test_a_file_that_is_no_json_is_refused_at_load(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{")
    with pytest.raises(UsageError, match="no JSON"):
        open_grader(setup_of(tmp_path, "json_schema", {"file": "s.json"}))


def test_without_the_library_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(UsageError, match="not installed") as caught:
        open_grader(setup_of(Path(), "json_schema", {"schema": {}}))
    assert "redrive[trial]" in caught.value.hint
