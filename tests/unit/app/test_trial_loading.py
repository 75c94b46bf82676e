"""A workflow's code is imported in the sandbox alone, and what comes out of it is not trusted."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import msgpack

from redrive.app import trial_loading
from redrive.app.trial_loading import (
    is_json,
    list_server,
    load_json,
    load_workflow,
    place_command,
)
from redrive.app.trial_messages import CodePlace
from redrive.audit.workflow import Grants, McpSpec
from redrive.errors import ContainmentError, PluginError, UsageError
from redrive.sandbox.bubblewrap import probe
from redrive.sandbox.confinement import Limits
from redrive.sandbox.door import find_level, find_levels
from tests.mcp_files import write_server

needs_sandbox = pytest.mark.skipif(
    not find_level().is_proven, reason=f"no proven sandbox here: {find_level().reason}"
)
needs_bubblewrap = pytest.mark.skipif(not probe().is_proven, reason="no proven bubblewrap here")
LEVELS = [
    pytest.param(name, marks=pytest.mark.skipif(not level.is_proven, reason=level.reason))
    for name, level in find_levels().items()
]
EFFECTS = """
import os, socket
for attempt in (
    lambda: open({path!r}, "w").write(os.environ.get("REDRIVE_TEST_SECRET", "")),
    lambda: socket.create_connection(("127.0.0.1", {port}), 5).close(),
):
    try: attempt()
    except OSError: pass
"""
FORGE = """
import os
for descriptor in range(3, 9):
    try:
        while {is_flood}: os.write(descriptor, b" " * 65536)
        os.write(descriptor, {data!r})
    except OSError: pass
os._exit(0)
"""
PLAIN = """
from redrive.trial import Workflow, tool

@tool("look", effect="read_only")
def look(path: str) -> str:
    return path

def run(task, context):
    return None

safe = Workflow("wf", version="1", tools=[look], run=run)
"""


def write(folder: Path, text: str) -> str:
    (folder / "workflows.py").write_text(text)
    return "workflows.py:safe"


def failure(folder: Path, text: str) -> PluginError | UsageError:
    with pytest.raises((PluginError, UsageError)) as caught:
        load_workflow(write(folder, text), folder)
    return caught.value  # type: ignore[no-any-return]


@needs_sandbox
def test_what_a_file_declares_comes_out_and_its_prints_do_not(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'wf'\n")
    text = "from beside import NAME\nprint('noise')\n" + PLAIN.replace('"wf"', "NAME")
    loaded = load_workflow(write(tmp_path, text), tmp_path)
    assert loaded.spec.label == "wf@1"
    assert loaded.planned.source == "workflows.py:safe"
    assert loaded.planned.role == ""
    assert loaded.place == CodePlace(
        "safe", file=str(tmp_path / "workflows.py"), folder=str(tmp_path)
    )
    assert "beside" not in sys.modules


@needs_sandbox
@pytest.mark.parametrize(
    ("text", "message", "where"),
    [
        ("\nimport absent_module", "ModuleNotFoundError", "workflows.py:2"),
        ("\nx = (", "SyntaxError", "workflows.py:2"),
        ("raise SystemExit('no')", "SystemExit: no", "workflows.py:1"),
        ("def f():\n    raise KeyError\nf()", "KeyError", "workflows.py:2"),
        ("import beside", "ZeroDivisionError", "beside.py:1"),
        (
            "class E(Exception):\n  def __str__(self): raise E\nraise E",
            "while it was imported: E:",
            "workflows.py:3",
        ),
        ("import os; os._exit(3)", "without a declaration (exit 3)", "workflows.py"),
        ("x = 'a' * 10 ** 11", "MemoryError", "workflows.py:1"),
    ],
)
def test_code_that_fails_is_named_by_file_and_line(
    tmp_path: Path, text: str, message: str, where: str
) -> None:
    (tmp_path / "beside.py").write_text("1 / 0\n")
    error = failure(tmp_path, text)
    assert isinstance(error, PluginError)
    assert message in error.message
    assert error.where == where


@needs_sandbox
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"spec": {"id": "a b", "version": "1"}}', "no workflow can be named 'a b'"),
        (
            b'{"spec": {"id": "a", "version": "1", "tools": '
            b'[{"id": "t", "effect": "pure", "grants": {"write": ["/etc"]}}]}}',
            "cannot grant to write '/etc'",
        ),
        (b'{"spec": {"id": "a"}}', "without a declaration"),
        (b"[" * 99_999, "without a declaration"),
        (b"\xff", "without a declaration"),
        (b"{}", "without a declaration"),
        (b'{"fault": {"kind": "failed", "message": "' + b"x" * 5000 + b'"}}', "xxx"),
    ],
)
def test_a_forged_answer_is_held_to_its_form(tmp_path: Path, data: bytes, said: str) -> None:
    error = failure(tmp_path, FORGE.format(data=data, is_flood=False))
    assert said in error.message
    assert len(error.message) < 1000


@needs_sandbox
def test_an_answer_without_end_is_no_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_loading, "_IMPORT_LIMITS", Limits(cpu_s=1, output_bytes=1000))
    error = failure(tmp_path, FORGE.format(data=b"", is_flood=True))
    assert "without a declaration" in error.message


@needs_sandbox
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("from redrive.trial import tool\ntool('a b')(lambda: 1)", "a tool's id is"),
        ("safe = 3", "this is no workflow"),
        ("other = 3", "no 'safe' in it"),
        (PLAIN.replace('"1"', "1"), "a version is a text"),
    ],
)
def test_a_wrong_declaration_is_a_usage_error(tmp_path: Path, text: str, message: str) -> None:
    error = failure(tmp_path, text)
    assert isinstance(error, UsageError)
    assert message in error.message
    assert error.hint


@needs_sandbox
def test_a_declaration_that_runs_code_and_fails_is_named(tmp_path: Path) -> None:
    text = PLAIN + "\nclass Odd(list):\n  def __iter__(self):\n    1 / 0\nsafe.steps = Odd([1])\n"
    error = failure(tmp_path, text)
    assert isinstance(error, PluginError)
    assert "ZeroDivisionError" in error.message


@needs_sandbox
def test_an_import_that_does_not_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_loading, "_IMPORT_LIMITS", Limits(wall_s=1.0))
    assert "took longer than 1 s" in failure(tmp_path, "while True: pass").message


@needs_sandbox
def test_an_import_that_multiplies_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_loading, "_IMPORT_LIMITS", Limits(n_processes=8))
    text = "import subprocess, time\nfor _ in range(20): subprocess.Popen(['sleep', '60'])\n"
    error = failure(tmp_path, text + "time.sleep(60)")
    # Ended from outside, or refused by the kernel, as the user's rights have it.
    assert "too many processes" in error.message or "BlockingIOError" in error.message


@pytest.mark.parametrize("level", LEVELS)
def test_effects_at_import_have_no_effect_at_any_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    monkeypatch.setenv("REDRIVE_TEST_SECRET", "hunter2")
    written = tmp_path / "written"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        text = EFFECTS.format(path=str(written), port=listener.getsockname()[1])
        loaded = load_workflow(write(tmp_path, text + PLAIN), tmp_path, level)
        assert loaded.spec.id == "wf"
        assert not written.exists()
        with pytest.raises(TimeoutError):
            listener.accept()
        # The control: without a sandbox each of them happens.
        subprocess.run([sys.executable, str(tmp_path / "workflows.py")], check=True)
        assert written.read_text() == "hunter2"
        listener.accept()[0].close()


def test_without_a_sandbox_nothing_is_imported(tmp_path: Path) -> None:
    source = write(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\n" + PLAIN)
    with pytest.raises(ContainmentError, match="in a sandbox alone"):
        load_workflow(source, tmp_path, "none")
    assert not (tmp_path / "ran").exists()
    # The control: imported as anything else, it runs.
    subprocess.run([sys.executable, str(tmp_path / "workflows.py")], check=True)
    assert (tmp_path / "ran").exists()


@needs_sandbox
def test_code_in_the_home_folder_is_not_shown(tmp_path: Path) -> None:
    caller = {"HOME": str(tmp_path / "me"), "PATH": "/usr/bin"}
    with pytest.raises(UsageError, match="holds the home folder"):
        load_workflow(write(tmp_path, PLAIN), tmp_path, caller=caller)


@needs_bubblewrap
def test_what_holds_secrets_beside_a_workflow_is_covered(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=hunter2")
    (tmp_path / ".redrive").mkdir()
    (tmp_path / ".redrive" / "store.db").write_text("evidence")
    text = "from pathlib import Path\nhere = Path(__file__).parent\n"
    text += "try: assert (here / '.env').read_bytes() == b''\n"
    text += "except PermissionError: pass\n"
    text += "assert list((here / '.redrive').iterdir()) == []\n"
    assert load_workflow(write(tmp_path, text + PLAIN), tmp_path, "bubblewrap").spec.id == "wf"


@pytest.mark.parametrize("level", LEVELS)
def test_an_mcp_server_is_listed_with_its_declared_effects(tmp_path: Path, level: str) -> None:
    write_server(tmp_path)
    text = PLAIN.replace("Workflow, tool", "McpServer, Workflow, tool").replace(
        "tools=[look]",
        "tools=['mcp:files'], mcp=[McpServer('files', command=['python3', 'server.py'], "
        "effects={'list': 'read_only'})]",
    )
    spec = load_workflow(write(tmp_path, text), tmp_path, level).spec
    found = {tool.id: tool for tool in spec.tools}
    assert spec.aliases == {"mcp:files": ("mcp__files__list", "mcp__files__remove")}
    assert (found["mcp__files__list"].effect, found["mcp__files__remove"].effect) == (
        "read_only",
        "",
    )
    assert found["mcp__files__list"].origin == "mcp:files"
    assert found["mcp__files__remove"].hints == {"readOnlyHint": True, "title": "Remove"}


@pytest.mark.parametrize("level", LEVELS)
def test_a_server_of_the_real_sdk_is_listed(level: str) -> None:
    folder = Path(__file__).parents[2] / "mcp_sdk"
    server = McpSpec("sdk", (sys.executable, "server.py"))
    listed = list_server(server, CodePlace("x", folder=str(folder)), level, caller=os.environ)
    add = next(tool for tool in listed if tool.name == "add")
    assert add.hints == {"readOnlyHint": True, "idempotentHint": True}
    assert b'"integer"' in bytes(add.parameters)


@needs_sandbox
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("crash", "its last words: no configuration"),
        ("endless", "does not end within"),
    ],
)
def test_a_server_that_does_not_list_is_named(tmp_path: Path, mode: str, said: str) -> None:
    write_server(tmp_path)
    server = McpSpec("files", ("python3", "server.py", mode), grants=Grants(secrets=("TOKEN",)))
    place = CodePlace("x", folder=str(tmp_path))
    with pytest.raises(PluginError, match=said):
        list_server(server, place, find_level().name, caller=os.environ)


@needs_sandbox
def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    server = McpSpec("files", ("no-such-program",))
    place = CodePlace("x", folder=str(tmp_path))
    with pytest.raises(PluginError, match="no-such-program: No such file"):
        list_server(server, place, find_level().name, caller=os.environ)


def test_words_that_name_files_beside_the_workflow_are_found_there(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("server.py", "python3", "bin/run"):
        (tmp_path / name).write_text("")
    place = CodePlace("x", folder=str(tmp_path))
    assert place_command(("python3", "server.py", "-x"), place) == (
        *("python3", str(tmp_path / "server.py")),
        "-x",
    )
    assert place_command(("bin/run", "/etc"), place) == (str(tmp_path / "bin/run"), "/etc")


def test_a_declaration_as_json_needs_no_sandbox(tmp_path: Path) -> None:
    assert is_json("a/wf.json")
    assert not is_json("wf.json:x")
    (tmp_path / "wf.json").write_text('{"id": "wf", "version": "1", "tools": ["a"]}')
    (tmp_path / "reg.json").write_text('{"tools": {"a": {"effect": "pure"}}}')
    spec = load_json(str(tmp_path / "wf.json"), str(tmp_path / "reg.json"))
    assert spec.tools[0].effect == "pure"
    assert load_json(str(tmp_path / "wf.json"), None).tools == ()
    (tmp_path / "bad.json").write_bytes(msgpack.encode({"a": b"\xff"}))
    for name, said in (("absent.json", "no such file"), ("bad.json", "cannot be read")):
        with pytest.raises(UsageError, match=said):
            load_json(str(tmp_path / name), None)
