import json
from pathlib import Path
from typing import Any

import pytest

from redrive.testing import ConformanceError, check_interchange

SESSION = {"type": "session", "id": "s", "task": "t", "tools": {"f": "pure"}}
CALL = {"call_id": "c", "name": "f", "args_json": "{}"}
DECISION = {
    "type": "decision",
    "id": "d",
    "parent": "u",
    "ts": "2026-02-03T04:05:06Z",
    "sampling": {"temperature": 0, "seed": None},
    "output": {"text": "", "tool_calls": [CALL]},
}
USER = {"type": "event", "id": "u", "parent": None, "kind": "user", "text": "hi", "anything": [1]}
RESULT = {"type": "tool_result", "id": "r", "parent": "d", "call_id": "c", "result": None}
LINES = [SESSION, DECISION, USER, RESULT]


def _write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_a_session_as_the_page_describes_it_passes(tmp_path: Path) -> None:
    check_interchange(_write(tmp_path / "s.jsonl", LINES))


@pytest.mark.parametrize(
    ("number", "line", "fault"),
    [
        (1, {**DECISION, "id": "x", "parent": None}, "the first line is a 'decision'"),
        (2, {**DECISION, "type": "decison"}, "the type is 'decison', expected one of session, "),
        (2, {**DECISION, "type": ["decision"]}, "the type is ['decision']"),
        (2, {"type": "decision", "id": "d"}, "decision has no 'output'"),
        (2, {**DECISION, "id": None}, "decision has no 'id'"),
        (2, {**DECISION, "step": True}, "step is of type bool, expected int"),
        (2, {**DECISION, "step": "1"}, "step is of type str, expected int"),
        (2, {**DECISION, "sampling": {"seed": 1.5}}, "sampling.seed is of type float"),
        (2, {**DECISION, "sampling": {"top_p": "1"}}, "is of type str, expected int or float"),
        (2, {**DECISION, "output": "hi"}, "output is of type str, expected dict"),
        (2, {**DECISION, "output": {"tool_calls": [1]}}, "tool_calls[0] is of type int"),
        (2, {**DECISION, "output": {"tool_calls": [{}]}}, "tool_calls[0] has no 'call_id'"),
        (2, {**DECISION, "output": {"tool_calls": [{**CALL, "args": {}}]}}, "has both 'args' and"),
        (2, {**DECISION, "output": {"tool_calls": [{**CALL, "args_json": {}}]}}, "args_json is of"),
        (2, {**DECISION, "ts": "today"}, "ts is 'today', expected an RFC 3339 time"),
        (2, {**DECISION, "id": "s"}, "the id 's' was given before"),
        (4, {**RESULT, "parent": "nobody"}, "no line has the parent's id 'nobody'"),
        (4, {**RESULT, "status": "failed"}, "status is 'failed', expected error or ok"),
        (4, [RESULT], "a JSON list, not an object"),
    ],
)
def test_a_line_that_is_not_as_the_page_says_is_named(
    tmp_path: Path, number: int, line: object, fault: str
) -> None:
    path = _write(tmp_path / "s.jsonl", [*LINES[: number - 1], line, *LINES[number:]])
    with pytest.raises(ConformanceError) as raised:
        check_interchange(path)
    assert str(raised.value).startswith(f"{path}:{number}: ")
    assert fault in str(raised.value)


def test_a_file_without_lines_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConformanceError, match="does not claim the file"):
        check_interchange(_write(tmp_path / "s.jsonl", []))
