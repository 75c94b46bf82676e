"""Tasks come from lines or from recorded sessions, each once, with its workspace."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import UNSET

from redrive.app.trial_plan import PlanChanges
from redrive.app.trial_tasks import make_task
from redrive.errors import UsageError
from redrive.replay.trial_values import Workspace
from tests.trial_plans import HEAD, TASKS, plan_of

SESSIONS = '[tasks]\nsessions = ["interchange:a", "interchange:b"]\n'
WITHOUT = SESSIONS + "no_workspace = true\n"


@pytest.fixture
def stored(recorded, decision):
    """Give what opens a store with two sessions, `a` with an environment."""
    environment = {"name": "image-1", "post_startup_commands": ["make"]}
    head = {"type": "session", "id": "a", "task": "do a", "environment": environment}
    store, _ = recorded(head, decision("d", text="x"), name="a")
    recorded({"type": "session", "id": "b", "task": "do b"}, decision("d", text="x"), name="b")

    @contextmanager
    def opened() -> Iterator[object]:
        yield store

    return opened


def tasks_of(folder: Path, text: str, **fields):
    return plan_of(folder, HEAD + text, **fields).tasks


def refused(folder: Path, text: str, **fields) -> str:
    with pytest.raises(UsageError) as found:
        tasks_of(folder, text, **fields)
    return f"{found.value.message} ({found.value.hint})"


def test_a_task_is_named_by_its_canonical_input_and_its_workspace() -> None:
    place = Workspace("folder", "/somewhere", "d" * 64)
    one = make_task("a", {"x": 1, "y": 2.0}, None, "")
    assert one.task_id == make_task("b", {"y": 2, "x": 1.0}, None, "c").task_id
    assert len(one.task_id) == 16
    others = [
        make_task("a", {"x": True, "y": 2}, None, ""),
        make_task("a", {"x": 1, "y": 2}, place, ""),
        make_task("a", [{"x": 1, "y": 2}, None], None, ""),
    ]
    assert len({one.task_id, *(task.task_id for task in others)}) == 4
    elsewhere = Workspace("archive", "/elsewhere", "d" * 64)
    assert make_task("a", 1, place, "").task_id == make_task("a", 1, elsewhere, "").task_id


def test_lines_have_workspaces_of_their_own_or_the_plan_s(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "file").touch()
    (tmp_path / "v.tar").touch()
    lines = [
        {"input": 1},
        {"input": 2, "workspace": "v.tar"},
        {"input": 3, "workspace": {"git": "w", "commit": "0123abc"}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    tasks = tasks_of(tmp_path, TASKS + 'workspace = "w"\n', lines=text)
    found = [task.workspace for task in tasks]
    assert [(w.kind, Path(w.path).name, w.commit) for w in found] == [
        ("folder", "w", None),
        ("archive", "v.tar", None),
        ("git", "w", "0123abc"),
    ]
    assert all(Path(w.path).is_absolute() for w in found)
    assert len({w.digest for w in found}) == 3


BAD_WORKSPACES = [
    ("absent", "no such folder or archive: 'absent'"),
    ("", "expected the path of a workspace"),
    ("a\0b", "expected the path of a workspace"),
    ({"git": "w"}, "expected a path, or a table of `git` and `commit`"),
    ({"git": "w", "commit": ""}, "`commit`: expected a commit's name"),
    ({"git": 1, "commit": "0123abc"}, "expected the path of a workspace, found an integer"),
    ({"git": ".", "commit": "absent"}, "no commit absent"),
]


@pytest.mark.parametrize(("workspace", "message"), BAD_WORKSPACES)
def test_a_workspace_that_is_none_is_refused_by_line(tmp_path: Path, workspace, message) -> None:
    lines = json.dumps({"input": 1, "workspace": workspace}) + "\n"
    assert f"tasks.jsonl:1: workspace: {message}" in refused(tmp_path, TASKS, lines=lines)


def test_the_plan_s_workspace_is_refused_by_key(tmp_path: Path) -> None:
    message = refused(tmp_path, TASKS + 'workspace = "absent"\n')
    assert "plan.toml: tasks.workspace: no such folder or archive" in message


def test_the_same_task_twice_is_named(tmp_path: Path) -> None:
    lines = '{"input": {"a": 1, "b": 2}}\n{"input": 3}\n{"input": {"b": 2.0, "a": 1}}\n'
    message = refused(tmp_path, TASKS, lines=lines)
    assert "tasks.jsonl:3: the same input and workspace as tasks.jsonl:1" in message
    lines = '{"input": 1, "name": "x"}\n{"input": 2, "name": "x"}\n'
    message = refused(tmp_path, TASKS, lines=lines)
    assert "tasks.jsonl:2: the same name as tasks.jsonl:1 ('x')" in message


def test_tasks_of_sessions_carry_input_environment_and_what_is_expected(
    tmp_path: Path, stored
) -> None:
    text = WITHOUT + '[tasks.expected]\n"interchange:b" = { label = "b" }\n'
    one, other = tasks_of(tmp_path, text, open_store=stored)
    assert (one.name, one.session_id, bytes(one.input)) == (
        "interchange:a",
        "interchange:a",
        b'"do a"',
    )
    assert json.loads(bytes(one.environment))["name"] == "image-1"
    assert (one.origin, one.workspace, one.expected) == ("stated task", None, UNSET)
    assert bytes(other.expected) == b'{"label":"b"}'
    assert other.environment is UNSET


def test_what_is_expected_may_stand_in_a_file(tmp_path: Path, stored) -> None:
    (tmp_path / "expected.json").write_text('{"interchange:a": null}')
    tasks = tasks_of(tmp_path, WITHOUT + 'expected = "expected.json"\n', open_store=stored)
    assert [task.expected is UNSET for task in tasks] == [False, True]
    assert bytes(tasks[0].expected) == b"null"
    for data, message in [
        ("[1]", "expected one JSON object by session id"),
        ('{"interchange:a": NaN}', "expected one JSON object by session id"),
        ("{", "not JSON"),
        ('{"interchange:c": 1}', "'interchange:c' is none of the sessions"),
    ]:
        (tmp_path / "expected.json").write_text(data)
        text = WITHOUT + 'expected = "expected.json"\n'
        assert message in refused(tmp_path, text, open_store=stored)
    text = WITHOUT + 'expected = "absent.json"\n'
    assert "No such file" in refused(tmp_path, text, open_store=stored)
    text = WITHOUT + 'expected = "/dev/zero"\n'
    assert "/dev/zero: no file" in refused(tmp_path, text, open_store=stored)


def test_a_session_without_a_workspace_needs_the_user_s_word(tmp_path: Path, stored) -> None:
    message = refused(tmp_path, SESSIONS, open_store=stored)
    assert "tasks.sessions[0]: interchange:a has no workspace" in message
    assert "--no-workspace" in message
    changes = PlanChanges(is_without_workspace=True)
    assert len(tasks_of(tmp_path, SESSIONS, open_store=stored, changes=changes)) == 2
    (tmp_path / "w").mkdir()
    both = WITHOUT + 'workspace = "w"\n'
    assert "stands beside no_workspace" in refused(tmp_path, both, open_store=stored)


def test_sessions_have_workspaces_of_their_own_or_the_plan_s(tmp_path: Path, stored) -> None:
    for name in ("v", "w"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    text = SESSIONS + 'workspace = "w"\n[tasks.workspaces]\n"interchange:b" = "v"\n'
    tasks = tasks_of(tmp_path, text, open_store=stored)
    assert [Path(task.workspace.path).name for task in tasks] == ["w", "v"]
    text = SESSIONS + 'workspace = "w"\n[tasks.workspaces]\n"interchange:c" = "v"\n'
    message = refused(tmp_path, text, open_store=stored)
    assert "tasks.workspaces: 'interchange:c' is none of the sessions" in message
    text = SESSIONS + '[tasks.workspaces]\n"interchange:b" = 1\n'
    assert "tasks.workspaces.interchange:b: expected the path" in refused(tmp_path, text)


def test_a_session_that_cannot_be_a_task_is_named_with_its_key(
    tmp_path: Path, stored, recorded, decision
) -> None:
    recorded({"type": "session", "id": "c"}, decision("d", text="x"), name="c")
    text = '[tasks]\nno_workspace = true\nsessions = ["interchange:a", "interchange:c"]\n'
    message = refused(tmp_path, text, open_store=stored)
    assert "plan.toml: tasks.sessions[1]: interchange:c: what was asked is missing" in message
    text = '[tasks]\nno_workspace = true\nsessions = ["interchange:nope"]\n'
    assert "plan.toml: tasks.sessions[0]: " in refused(tmp_path, text, open_store=stored)


def test_one_session_by_two_names_is_one_task_too_many(tmp_path: Path, stored) -> None:
    text = '[tasks]\nno_workspace = true\nsessions = ["interchange:a", "a"]\n'
    message = refused(tmp_path, text, open_store=stored)
    assert "interchange:a: the same input and workspace as interchange:a" in message


def test_tasks_name_one_source(tmp_path: Path) -> None:
    assert "exactly one of" in refused(tmp_path, TASKS + 'sessions = ["a"]\n')
    assert "names no session" in refused(tmp_path, "[tasks]\nsessions = []\n")
    assert "tasks.sesions: unknown key" in refused(tmp_path, TASKS + "sesions = 1\n")
