"""A confined MCP server answers what it is asked, and has what it is granted and nothing else."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.app.confined_agent import find_shown
from redrive.app.trial_mcp import McpCommand, McpWorker
from redrive.errors import ContainmentError, PluginError
from redrive.sandbox.bubblewrap import probe
from redrive.sandbox.confinement import DEFAULT_PATH, Bind, Confinement, Limits
from redrive.sandbox.door import find_levels
from redrive.sandbox.loopback import LOOPBACK_PORT
from tests.mcp_files import write_server

needs_sandbox = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)

LEVELS = [
    pytest.param(name, marks=pytest.mark.skipif(not level.is_proven, reason=level.reason))
    for name, level in find_levels().items()
]


def command(
    folder: Path, *words: str, port: int = 0, level: str = "bubblewrap", **more: object
) -> McpCommand:
    fields = {
        "readable": find_shown("python3", DEFAULT_PATH, "/nonexistent", [str(folder)]),
        "cwd": str(folder),
        "environment": {"PATH": DEFAULT_PATH, "GIVEN": "yes"},
        "limits": Limits(wall_s=120.0, n_processes=16),
    }
    confinement = Confinement(**(fields | more))  # type: ignore[arg-type]
    argv = (sys.executable, str(write_server(folder)), *words)
    return McpCommand("files", argv, confinement, level, port)


@pytest.fixture(params=LEVELS)
def worker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[McpWorker]:
    with McpWorker(command(tmp_path, level=request.param)) as started:
        yield started


def test_a_listing_is_read_page_by_page_and_calls_are_answered(worker: McpWorker) -> None:
    assert [tool.name for tool in worker.list_tools()] == ["list", "remove"]
    assert worker.call("list", b"{}").value() == "list"
    failed = worker.call("fail", b"{}")
    assert failed.is_error
    assert failed.value() == "fail"
    wrong = worker.call("wrong", b"{}")
    assert wrong.is_error
    assert "no such tool" in wrong.value()
    assert worker.call("list", b'{"a":1}').value() == "list"


def test_a_server_has_what_it_is_given_and_no_network(worker: McpWorker, tmp_path: Path) -> None:
    environment, folder, names = json.loads(worker.call("env", b"{}").value())
    assert environment.pop("GIVEN") == "yes"
    assert set(environment) <= {"PATH", "PWD", "LC_CTYPE", "HOME", "TMPDIR"}
    assert (folder, names) == (str(tmp_path), ["server.py"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = b'{"port":%d}' % listener.getsockname()[1]
        assert worker.call("connect", asked).is_error
        listener.settimeout(0.2)
        with pytest.raises(TimeoutError):
            listener.accept()
    target = tmp_path / "written"
    assert worker.call("write", json.dumps({"path": str(target)}).encode()).is_error
    assert not target.exists()


@needs_sandbox
def test_a_server_writes_where_it_may(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    granted = (Bind(str(tmp_path / "out")),)
    with McpWorker(command(tmp_path, writable=granted)) as worker:
        asked = json.dumps({"path": str(tmp_path / "out" / "file")}).encode()
        assert worker.call("write", asked).value() == "written"
    assert (tmp_path / "out" / "file").read_text() == "x"


@needs_sandbox
def test_a_server_with_a_loopback_reaches_what_is_served_there(tmp_path: Path) -> None:
    async def forward(connection: socket.socket) -> None:
        connection.sendall(b"forwarded")
        connection.close()

    with McpWorker(command(tmp_path, port=LOOPBACK_PORT), forward=forward) as worker:
        asked = b'{"port":%d}' % LOOPBACK_PORT
        assert worker.call("connect", asked).value() == "forwarded"
    with McpWorker(command(tmp_path, port=LOOPBACK_PORT)) as worker:
        assert worker.call("connect", asked).value() == ""


@needs_sandbox
def test_a_server_that_grows_says_more_later_and_the_first_listing_stays(tmp_path: Path) -> None:
    with McpWorker(command(tmp_path, "growing")) as worker:
        first = [tool.name for tool in worker.list_tools()]
        assert first == ["list", "remove"]
        assert [tool.name for tool in worker.list_tools()] == ["list", "remove", "added_2"]


@needs_sandbox
def test_a_server_that_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    silent = McpWorker(command(tmp_path, "silent"), start_s=1.0)
    with pytest.raises(PluginError, match="does not answer initialize in time"):
        silent.start()
    assert silent.result is not None
    assert silent.result.is_stopped
    with McpWorker(command(tmp_path), call_s=0.5) as worker:
        with pytest.raises(PluginError, match="does not answer tools/call in time"):
            worker.call("slow", b"{}")
        with pytest.raises(PluginError, match="does not run"):
            worker.call("list", b"{}")
        assert worker.result is not None


@needs_sandbox
def test_a_server_that_dies_is_named_with_its_last_words(tmp_path: Path) -> None:
    with (
        McpWorker(command(tmp_path)) as worker,
        pytest.raises(PluginError, match=r"MCP server files: it .* words: out of paper"),
    ):
        worker.call("die", b"{}")


@needs_sandbox
def test_a_server_that_does_not_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="its last words: no configuration"):
        McpWorker(command(tmp_path, "crash")).start()


def test_without_a_sandbox_no_server_is_started(tmp_path: Path) -> None:
    path = tmp_path / "ran"
    server = McpCommand("files", ("/bin/touch", str(path)), Confinement(), "none")
    with pytest.raises(ContainmentError, match="nothing is run"):
        McpWorker(server).start()
    assert not path.exists()


def test_calls_from_many_threads_each_get_their_own_answer(worker: McpWorker) -> None:
    found: dict[str, str] = {}

    def ask(name: str) -> None:
        found[name] = worker.call(name, b"{}").value()

    threads = [threading.Thread(target=ask, args=(f"tool_{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {f"tool_{n}": f"tool_{n}" for n in range(8)}


@needs_sandbox
def test_a_worker_that_never_started_closes() -> None:
    worker = McpWorker(McpCommand("files", ("true",), Confinement(), "none"))
    worker.close()
    assert worker.result is None
