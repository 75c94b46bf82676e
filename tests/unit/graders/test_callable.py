from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from redrive import canonical
from redrive.errors import PluginError, UsageError
from redrive.graders.callable import open_grader, read_mark
from redrive.grading import JobEnd, SandboxJob
from tests.grading import FakeContext, end_of, make_group, make_task, setup_of


def _setup(
    tmp_path: Path, text: str = "def grade(task, output, files): return True\n", **more: Any
):  # type: ignore[no-untyped-def]
    (tmp_path / "checks.py").write_text(text)
    return setup_of(tmp_path, "callable", {"function": "checks.py:grade", **more})


def _answering(*lines: Mapping[str, Any], fault: str = "") -> FakeContext:
    data = b"".join(canonical.encode(line) + b"\n" for line in lines)
    return FakeContext(run=lambda _: JobEnd(0, data, b"words", fault))


def test_all_episodes_go_to_one_child_with_their_outputs_and_nothing_of_the_variant(
    tmp_path: Path,
) -> None:
    task = make_task("yes", input={"q": 1})
    collected = end_of("b", files_artefact="f" * 64)
    group = make_group({"A@1": "a", "B@1": collected, "C@1": end_of()}, task=task)
    context = _answering(
        {"loaded": True}, {"found": True}, {"found": 0.5}, {"error": "KeyError: 1"}
    )
    grade = open_grader(_setup(tmp_path)).grade(group, context)
    assert list(grade.scores.values()) == [1, 0.5, None]
    assert list(grade.passed.values()) == [True, False, None]
    assert grade.reasons == {"C@1#1": "KeyError: 1"}
    [job] = context.jobs
    told = canonical.decode_value(job.stdin)
    assert told["task"] == {"id": "t1-id", "name": "t1", "input": {"q": 1}, "expected": "yes"}
    assert told["episodes"] == [
        {"output": "a", "folder": "0"},
        {"output": "b", "folder": "1"},
        {"output": None, "folder": "2"},
    ]
    assert job.shown == group.episodes
    assert b"A@1" not in job.stdin


def test_only_code_beside_the_file_is_shown_to_it(tmp_path: Path) -> None:
    grader = open_grader(_setup(tmp_path))
    (tmp_path / "helper.py").write_text("")
    (tmp_path / ".env").write_text("SECRET=1")
    (tmp_path / "data").mkdir()
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    context = _answering({"loaded": True}, {"found": True})
    grader.grade(make_group({"A@1": "a"}), context)
    names = [Path(path).name for path in context.jobs[0].code]
    assert names == ["callable_child.py", "checks.py", "helper.py", "package"]


def test_a_child_that_ends_early_leaves_the_rest_inconclusive(tmp_path: Path) -> None:
    group = make_group({"A@1": "a", "B@1": "b"})
    context = _answering({"loaded": True}, {"found": True}, fault="did not end within 60 s")
    grade = open_grader(_setup(tmp_path)).grade(group, context)
    assert grade.scores == {"A@1#1": 1, "B@1#1": None}
    assert grade.reasons == {"B@1#1": "did not end within 60 s"}


@pytest.mark.parametrize(
    "between", [b"7\n", b"{}\n", b"{'a'\n", b'{"found":true}\n', b"[" * 5000 + b"\n"]
)
def test_answers_among_which_the_function_wrote_are_taken_for_none(
    tmp_path: Path, between: bytes
) -> None:
    data = b'{"loaded":true}\n{"found":true}\n' + between + b'{"found":true}\n'
    context = FakeContext(run=lambda _: JobEnd(0, data, b"", ""))
    grade = open_grader(_setup(tmp_path)).grade(make_group({"A@1": "a", "B@1": "b"}), context)
    assert set(grade.scores.values()) == {None}
    assert set(grade.reasons.values()) == {"the function wrote among its answers"}


@pytest.mark.parametrize(
    "context",
    [
        _answering({"error": "ImportError: no numpy"}),
        _answering({"loaded": False}),
        FakeContext(run=lambda _: JobEnd(1, b"", b"words")),
        FakeContext(run=lambda _: JobEnd(None, b"", b"", "was ended")),
    ],
)
def test_a_file_that_does_not_load_is_a_fault_of_the_plug_in(
    tmp_path: Path, context: FakeContext
) -> None:
    with pytest.raises(PluginError, match="the grader does not load"):
        open_grader(_setup(tmp_path)).grade(make_group({"A@1": "a"}), context)


def test_nothing_is_started_for_no_episode(tmp_path: Path) -> None:
    def run(job: SandboxJob) -> JobEnd:
        raise AssertionError(job)

    assert open_grader(_setup(tmp_path)).grade(make_group({}), FakeContext(run=run)).scores == {}


@pytest.mark.parametrize(
    ("found", "score", "passed"),
    [
        (True, 1, True),
        (False, 0, False),
        (0.7, 0.7, True),
        (0.4, 0.4, False),
        ({"score": 0.2, "passed": True, "note": "x"}, 0.2, True),
        ({"passed": False}, 0, False),
        (1.5, None, None),
        (float("nan"), None, None),
        (-0.1, None, None),
        ("yes", None, None),
        (None, None, None),
        ({}, None, None),
        ({"score": 1, "grade": 2}, None, None),
        ({"score": 1, "passed": "yes"}, None, None),
    ],
)
def test_what_a_function_gives_is_read(
    found: Any, score: float | None, passed: bool | None
) -> None:
    mark = read_mark(found, 0.5)
    assert (mark.score, mark.passed) == (score, passed)
    assert bool(mark.reason) is (
        score is None or found == {"score": 0.2, "passed": True, "note": "x"}
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "missing required field `function`"),
        ({"function": "checks.py"}, "no PATH.py:NAME"),
        ({"function": "none.py:grade"}, "no such file"),
        ({"function": "checks.py:other"}, "there is no other in"),
        ({"function": "broken.py:grade"}, "no Python"),
        ({"function": "checks.py:grade", "threshold": 2}, "threshold"),
        ({"function": "checks.py:grade", "timeout_s": 0}, "timeout_s"),
    ],
)
def test_a_wrong_option_is_refused_at_load_and_the_file_is_not_run(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "checks.py").write_text(f"open({str(ran)!r}, 'w')\ndef grade(*a): return True\n")
    (tmp_path / "broken.py").write_text("def grade(:")
    with pytest.raises(UsageError, match=message):
        open_grader(setup_of(tmp_path, "callable", options))
    open_grader(setup_of(tmp_path, "callable", {"function": "checks.py:grade"}))
    assert not ran.exists()
