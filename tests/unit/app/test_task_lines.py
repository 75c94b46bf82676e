"""A line is a task, or it is refused by file and line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from redrive.app import task_lines
from redrive.app.task_lines import read_task_lines
from redrive.errors import RedriveError, UsageError


def lines_of(folder: Path, data: bytes):
    path = folder / "tasks.jsonl"
    path.write_bytes(data)
    return read_task_lines(path)


def test_lines_are_read_in_order_and_empty_ones_passed_over(tmp_path: Path) -> None:
    one, other = lines_of(
        tmp_path,
        b'{"input": null, "workspace": "w", "expected": null}\r\n\n'
        b'{"name": "b", "input": [1], "environment": {"z": 1, "a": 2}}',
    )
    assert (one.place, one.name, one.input) == ("tasks.jsonl:1", "tasks.jsonl:1", None)
    assert (one.workspace, bytes(one.expected)) == ("w", b"null")
    assert (other.place, other.name, other.expected) == ("tasks.jsonl:3", "b", UNSET)
    assert bytes(other.environment) == b'{"a":2,"z":1}'


def test_large_numbers_and_lone_surrogates_stay_exact(tmp_path: Path) -> None:
    (line,) = lines_of(tmp_path, b'{"input": [18446744073709551617, "\\ud800"]}\n')
    assert line.input == [2**64 + 1, "\ud800"]


BAD = [
    (b'{"input": 1}\n{"input": 2', "tasks.jsonl:2: not JSON: ", ", and the file ends within it"),
    (b'{"input": 1}\n\0\0\0\0\n{"input": 3}\n', "tasks.jsonl:2: not JSON: ", ""),
    (b'{"input": "\xff"}\n', "tasks.jsonl:1: not JSON: ", ""),
    (b"[1]\n", "tasks.jsonl:1: expected an object, found a list", ""),
    (b"null\n", "tasks.jsonl:1: expected an object, found null", ""),
    (b'{"input": 1}{"input": 2}\n', "tasks.jsonl:1: not JSON: ", ""),
    (b'{"name": "a"}\n', "tasks.jsonl:1: no `input`", ""),
    (b'{"input": 1, "inptu": 2}\n', "tasks.jsonl:1: unknown key 'inptu'", ""),
    (b'{"input": 1, "input": 2}\n', "tasks.jsonl:1: the key 'input' stands twice", ""),
    (b'{"input": NaN}\n', "tasks.jsonl:1: holds a number", ""),
    (b'{"input": 1, "name": 1}\n', "name: expected a string, found an integer", ""),
    (b'{"input": 1, "name": "a\\u001bb"}\n', "name: expected one line of 1 to 200", ""),
    (b'{"input": 1, "name": " "}\n', "name: expected one line of 1 to 200", ""),
    (b'{"input": 1, "name": "' + b"a" * 201 + b'"}\n', "name: expected one line", ""),
    (b'{"input": 1, "workspace": 1}\n', "workspace: expected a path or {git, commit}", ""),
    (b'{"input": 1, "workspace": null}\n', "found null", ""),
    (b'{"input": 1, "environment": "x"}\n', "environment: expected an object", ""),
    (b'\xef\xbb\xbf{"input": 1}\n', "tasks.jsonl:1: begins with a byte order mark", ""),
    (b"[" * 100_000, "tasks.jsonl:1: not JSON: nested too deeply", ""),
    (b"\n \n", "tasks.jsonl: no task in it", ""),
    (b"", "tasks.jsonl: no task in it", ""),
]


@pytest.mark.parametrize(("data", "message", "more"), BAD)
def test_a_line_that_is_no_task_is_refused(
    tmp_path: Path, data: bytes, message: str, more: str
) -> None:
    with pytest.raises(UsageError) as found:
        lines_of(tmp_path, data)
    assert message in found.value.message
    assert found.value.message.endswith(more)
    assert "\n" not in found.value.message


def test_bounds_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_lines, "MAX_LINE_BYTES", 20)
    with pytest.raises(UsageError, match=r"tasks\.jsonl:2: more than 20 bytes in a line"):
        lines_of(tmp_path, b'{"input": 1}\n{"input": "' + b"a" * 20 + b'"}\n')
    monkeypatch.setattr(task_lines, "MAX_FILE_BYTES", 20)
    with pytest.raises(UsageError, match=r"tasks\.jsonl:2: more than 20 bytes of tasks"):
        lines_of(tmp_path, b'{"input": 1}\n{"input": 2}\n')
    monkeypatch.setattr(task_lines, "MAX_TASKS", 0)
    with pytest.raises(UsageError, match=r"tasks\.jsonl:1: more than 0 tasks"):
        lines_of(tmp_path, b'{"input": 1}\n')


def test_a_file_that_is_not_there_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file of tasks"):
        read_task_lines(tmp_path / "absent.jsonl")
    with pytest.raises(RedriveError, match="directory"):
        read_task_lines(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_tasks_or_a_usage_error(tmp_path_factory, data: bytes) -> None:
    try:
        found = lines_of(tmp_path_factory.getbasetemp(), data)
    except UsageError:
        return
    assert [json.loads(line)["input"] for line in data.splitlines() if line.strip()] == [
        line.input for line in found
    ]
