import io
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import pytest

from redrive.app import trial_grading_sandbox
from redrive.app.trial_grading_sandbox import Workspaces, _lay_out, run_job
from redrive.app.trial_workspace import digest_workspace
from redrive.errors import ContainmentError, RecordError, UsageError
from redrive.graders.callable import open_grader as open_callable
from redrive.graders.workspace_tests import open_grader as open_tests
from redrive.grading import GradedEpisode, GradeGroup, JobEnd, SandboxJob
from redrive.replay.trial_values import OutputFile, Workspace
from redrive.sandbox.confinement import ConfinedResult
from redrive.sandbox.door import BUBBLEWRAP, LANDLOCK, find_level, find_levels
from redrive.sandbox.proof import SandboxLevel
from tests.grading import FakeContext, end_of, make_group, make_task, setup_of, tar_of

needs_sandbox = pytest.mark.skipif(
    not find_level().is_proven, reason=f"no proven sandbox here: {find_level().reason}"
)


@pytest.fixture(params=[BUBBLEWRAP, LANDLOCK])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SandboxLevel:
    """Each level that is proven here, by itself."""
    found = find_levels()[request.param]
    if not found.is_proven:
        pytest.skip(f"{request.param} is not proven here: {found.reason}")
    monkeypatch.setattr(trial_grading_sandbox, "find_level", lambda: found)
    return found


NOTHING = Workspaces(lambda _: None)
CALLER = {"PATH": os.environ.get("PATH", ""), "HOME": "/nonexistent"}


def _group(outputs: Mapping[str, object], tars: Mapping[str, bytes]) -> GradeGroup:
    return make_group(
        {
            label: end_of(output, files_artefact=label if label in tars else None)
            for label, output in outputs.items()
        },
        task=make_task("yes"),
    )


def _context(tars: Mapping[str, bytes]) -> FakeContext:
    def open_workspace(episode: GradedEpisode) -> BinaryIO | None:
        name = episode.end.files_artefact
        return None if name is None else io.BytesIO(tars[name])

    return FakeContext(run=lambda job: run_job(job, Workspaces(open_workspace), CALLER))


def test_a_function_marks_episodes_and_reaches_neither_network_nor_files_nor_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: SandboxLevel
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "beside.py").write_text("WORD = 'yes'")
    (tmp_path / "checks.py").write_text(f"""
import beside, os, pathlib, socket
def tried(what):
    try:
        what()
    except OSError:
        return 0
    return 1
def grade(task, output, files):
    reached = tried(lambda: socket.create_connection(("127.0.0.1", 9), 1))
    reached += tried(lambda: pathlib.Path({str(tmp_path / "secret.txt")!r}).read_bytes())
    tried(lambda: pathlib.Path({str(tmp_path / "planted")!r}).write_text("x"))  # in memory at most
    reached += "OPENAI_API_KEY" in os.environ
    same = output == beside.WORD == task["expected"]
    return {{"score": float(same), "note": f"reached {{reached}}, {{sorted(files)}}"}}
""")
    tars = {"B@1": tar_of({"a.txt": "x", "sub/b.txt": "y"}, links={"l": "/etc/passwd"})}
    grader = open_callable(setup_of(tmp_path, "callable", {"function": "checks.py:grade"}))
    grade = grader.grade(_group({"A@1": "no", "B@1": "yes"}, tars), _context(tars))
    assert grade.scores == {"A@1#1": 0, "B@1#1": 1}
    assert grade.reasons["A@1#1"] == "reached 0, []"
    assert grade.reasons["B@1#1"] == "reached 0, ['a.txt', 'sub/b.txt']"
    assert not (tmp_path / "planted").exists()


def test_tests_run_on_a_private_copy_with_ours_put_over_it(
    tmp_path: Path, level: SandboxLevel
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/check.sh").write_text("""
echo changed > answer.txt.new
: > planted || exit 3
grep -q 42 answer.txt
""")
    tars = {
        "A@1": tar_of({"answer.txt": "42\n", "check.sh": "exit 0"}),
        "B@1": tar_of({"answer.txt": "41\n", "check.sh": "exit 0"}),
        "D@1": tar_of({}, links={"answer.txt": str(tmp_path / "outside")}),
    }
    (tmp_path / "outside").write_text("42")
    options = {"command": ["sh", "check.sh"], "files": "hidden"}
    grader = open_tests(setup_of(tmp_path, "tests", options))
    outputs = dict.fromkeys(("A@1", "B@1", "C@1", "D@1"), "x")
    grade = grader.grade(_group(outputs, tars), _context(tars))
    assert list(grade.scores.values()) == [1, 0, 0, 0], grade.reasons
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hidden", "outside"]


def test_a_command_that_does_not_end_or_floods_is_ended_and_fails(
    tmp_path: Path, level: SandboxLevel
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden/loop.sh").write_text("while :; do echo flood; done")
    options = {"command": ["sh", "loop.sh"], "files": "hidden", "timeout_s": 1.0}
    grade = open_tests(setup_of(tmp_path, "tests", options)).grade(
        _group({"A@1": 1}, {}), _context({})
    )
    assert grade.scores == {"A@1#1": 0}
    assert grade.reasons["A@1#1"].startswith(("did not end within 1 s", "exit 1"))


@needs_sandbox
def test_pythons_own_packages_are_there_and_its_path_can_be_asked_for(tmp_path: Path) -> None:
    job = SandboxJob(command=("{python}", "-c", "import msgspec, os; print(os.listdir('.'))"))
    end = run_job(job, NOTHING, CALLER)
    assert (end.exit_code, end.stdout, end.fault) == (0, b"[]\n", ""), end.stderr


@needs_sandbox
def test_a_stop_ends_a_job() -> None:
    stop = threading.Event()
    stop.set()
    end = run_job(SandboxJob(command=("sleep", "60")), NOTHING, CALLER, stop)
    assert (end.exit_code, end.fault) == (None, "was stopped")


def test_a_command_that_is_not_there_is_no_failed_test() -> None:
    with pytest.raises(UsageError, match="no such command: 'no-such-program'"):
        run_job(SandboxJob(command=("no-such-program",)), NOTHING, CALLER)


def test_without_a_proven_sandbox_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    level = SandboxLevel("none", is_proven=False, reason="hidden for this test")
    monkeypatch.setattr(trial_grading_sandbox, "find_level", lambda: level)
    with pytest.raises(ContainmentError, match="nothing is run"):
        run_job(SandboxJob(command=("sh", "-c", "true")), NOTHING, CALLER)


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"is_timeout": True}, "did not end within 60 s"),
        ({"is_process_flood": True}, "started too many processes"),
        ({"is_disk_full": True}, "wrote too much"),
        ({}, "was ended"),
    ],
)
def test_what_ended_a_job_is_said(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, bool], end: str
) -> None:
    values = {"is_timeout": False, "is_process_flood": False} | changes
    result = ConfinedResult(None, None, b"o", b"e", is_output_cut=False, wall_s=0.1, **values)
    monkeypatch.setattr(trial_grading_sandbox, "run_at", lambda *_: result)
    job = SandboxJob(command=(sys.executable, "-c", "1"))
    assert run_job(job, NOTHING, CALLER) == JobEnd(None, b"o", b"e", end)


def test_a_workspace_that_does_not_fit_is_no_failed_test(monkeypatch: pytest.MonkeyPatch) -> None:
    words = b"cp: no space\nredrive: the workspace was not copied\n"
    result = ConfinedResult(
        125,
        None,
        b"",
        words,
        is_timeout=False,
        is_process_flood=False,
        is_output_cut=False,
        wall_s=1,
    )
    monkeypatch.setattr(trial_grading_sandbox, "run_at", lambda *_: result)
    with pytest.raises(RecordError, match="could not be copied"):
        run_job(SandboxJob(command=("sh",)), NOTHING, CALLER)


def test_what_was_too_large_to_collect_comes_from_the_start_or_is_missed(tmp_path: Path) -> None:
    folder = tmp_path / "start"
    (folder / "sub").mkdir(parents=True)
    for name in ("large.bin", "sub/b.txt", "removed.txt"):
        (folder / name).write_text(name)
    (folder / "link").symlink_to("large.bin")
    before = Workspace("folder", str(folder), digest_workspace(str(folder), "folder"))
    files = (OutputFile("new.txt", "file", 3), OutputFile("removed.txt", "removed"))
    end = end_of("x", files=files, notes=("some files are too large",), files_artefact="f")
    episode = make_group({"A@1": end}).episodes[0]
    made = tmp_path / "made"
    data = tar_of({"new.txt": "new"})
    _lay_out(episode, Workspaces(lambda _: io.BytesIO(data), before), made)
    found = sorted(path.relative_to(made).as_posix() for path in made.rglob("*"))
    assert found == ["large.bin", "link", "new.txt", "sub", "sub/b.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "start"]
    lacking = Workspaces(lambda _: io.BytesIO(tar_of({})), before)
    with pytest.raises(RecordError, match=r"'new\.txt' was too large to be collected"):
        _lay_out(episode, lacking, tmp_path / "other")


def test_files_whose_names_are_no_utf8_are_found_again(tmp_path: Path) -> None:
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "\udcfe").write_text("removed")
    before = Workspace("folder", str(folder), digest_workspace(str(folder), "folder"))
    files = (OutputFile("\ufffd\\udcff", "file", 3), OutputFile("\ufffd\\udcfe", "removed"))
    end = end_of("x", files=files, notes=("some files are too large",), files_artefact="f")
    data = tar_of({"\udcff": "new"})
    made = tmp_path / "made"
    _lay_out(
        make_group({"A@1": end}).episodes[0], Workspaces(lambda _: io.BytesIO(data), before), made
    )
    assert [path.name for path in made.iterdir()] == ["\udcff"]


def test_an_episode_that_changed_nothing_is_graded_on_what_it_started_from(
    tmp_path: Path, level: SandboxLevel
) -> None:
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "a.txt").write_text("as it was")
    before = Workspace("folder", str(folder), digest_workspace(str(folder), "folder"))
    episode = make_group({"A@1": 1}).episodes[0]
    job = SandboxJob(("sh", "-c", "cat a.txt && echo changed > a.txt"), workspace=episode)
    workspaces = Workspaces(lambda _: None, before)
    for _ in range(2):
        end = run_job(job, workspaces, CALLER)
        assert (end.exit_code, end.stdout) == (0, b"as it was"), end.stderr
    (folder / "a.txt").write_text("edited meanwhile")
    with pytest.raises(RecordError, match="not what its runs started from"):
        run_job(job, workspaces, CALLER)
