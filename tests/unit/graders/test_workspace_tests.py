from pathlib import Path
from typing import Any

import pytest

from redrive.errors import RecordError, UsageError
from redrive.graders.workspace_tests import open_grader
from redrive.grading import JobEnd, SandboxJob
from tests.grading import FakeContext, make_group, setup_of


def test_a_command_runs_on_the_workspace_of_each_episode_and_its_last_words_are_kept(
    tmp_path: Path,
) -> None:
    (tmp_path / "hidden").mkdir()

    def run(job: SandboxJob) -> JobEnd:
        assert job.workspace is not None
        if job.workspace.run.variant == "A@1":
            return JobEnd(0, b"2 passed", b"")
        if job.workspace.run.variant == "B@1":
            return JobEnd(1, b"x" * 5000 + b"\x1b[31m1 failed", b"")
        if job.workspace.run.variant == "C@1":
            return JobEnd(None, b"", b"", "did not end within 120 s")
        raise RecordError("a workspace that is no archive")

    context = FakeContext(run=run)
    options = {"command": ["pytest", "-q"], "files": "hidden"}
    grade = open_grader(setup_of(tmp_path, "tests", options)).grade(
        make_group({"A@1": 1, "B@1": 2, "C@1": 3, "D@1": 4}), context
    )
    assert list(grade.scores.values()) == [1, 0, 0, None]
    assert grade.reasons["A@1#1"] == "exit 0: 2 passed"
    assert grade.reasons["B@1#1"].startswith("exit 1: x")
    assert grade.reasons["B@1#1"].endswith("1 failed")
    assert grade.reasons["B@1#1"].isprintable()
    assert grade.reasons["C@1#1"] == "did not end within 120 s"
    assert grade.reasons["D@1#1"] == "a workspace that is no archive"
    assert {job.overlay for job in context.jobs} == {str(tmp_path / "hidden")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "missing required field `command`"),
        ({"command": []}, "command is empty"),
        ({"command": [""]}, "command is empty"),
        ({"command": ["a\0b"]}, "command is empty"),
        ({"command": "pytest"}, "Expected `array`"),
        ({"command": ["x"], "files": "none"}, "no such folder"),
        ({"command": ["x"], "timeout_s": 1e9}, "timeout_s"),
        ({"command": ["x"], "memory_mib": 1}, "memory_mib"),
    ],
)
def test_a_wrong_option_is_refused_at_load(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        open_grader(setup_of(tmp_path, "tests", options))


def test_without_files_nothing_is_put_over_the_workspace(tmp_path: Path) -> None:
    context = FakeContext()
    grader = open_grader(setup_of(tmp_path, "tests", {"command": ["true"]}))
    grader.grade(make_group({"A@1": 1}), context)
    assert context.jobs[0].overlay == ""
