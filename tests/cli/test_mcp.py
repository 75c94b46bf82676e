"""The MCP proxy between a client and a server of the real SDK, each a process of its own."""

import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Redrive
from tests.ports import held_port

SDK = Path(__file__).resolve().parents[1] / "mcp_sdk"
CLIENT, SERVER, TAP = (str(SDK / f"{name}.py") for name in ("client", "server", "tap"))
ACTIONS = ("listing", "parallel", "fail", "unknown", "cancelled", "big", "ask", "crash")
PROTOCOLS = {"legacy": "2025-11-25", "auto": "2026-07-28"}
TOOLS = ["add", "ask", "big", "crash", "fail", "slow"]
BIG = "0123456789abcdef" * 655_360


@dataclass
class Run:
    """What one connection left: what the client saw, and what was recorded."""

    mode: str
    seen: dict[str, Any]
    events: list[dict[str, Any]]
    folder: Path

    def notes(self, name: str) -> list[Any]:
        customs = [e["payload"] for e in self.events if e["kind"] == "custom"]
        return [payload["data"] for payload in customs if payload["name"] == name]

    def results(self, tool: str) -> list[tuple[str, Any]]:
        return [
            (data["status"], data.get("result"))
            for data in self.notes("harness.result")
            if data["tool"] == f"files__{tool}"
        ]


def environment(store: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("REDRIVE_RECORDER")}
    return kept | {"REDRIVE_STORE": str(store), "PYTHONWARNINGS": "ignore"}


def run_client(store: Path, mode: str, *words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, CLIENT, mode, *words],
        env=environment(store),
        capture_output=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def events_of(folder: Path) -> list[dict[str, Any]]:
    redrive = Redrive(folder)
    (session,) = redrive.json("sessions")["sessions"]
    found: list[dict[str, Any]] = redrive.json("cat", session["session_id"])["events"]
    return found


@pytest.fixture(scope="module", params=["legacy", "auto"])
def stdio(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One connection on stdio, with a tap on either side of the proxy."""
    folder = tmp_path_factory.mktemp(f"stdio-{request.param}")
    tap = (sys.executable, TAP)
    proxy = (sys.executable, "-m", "redrive", "mcp", "--name", "files", "--effect", "add=pure")
    command = (*tap, f"{folder}/client", *proxy, "--", *tap, f"{folder}/server")
    seen = run_client(
        folder / "store.db", request.param, *ACTIONS, "--", *command, sys.executable, SERVER
    )
    return Run(request.param, seen, events_of(folder), folder)


# --- on stdio ----------------------------------------------------------------------------------
def test_every_byte_passes_both_ways_as_it_was(stdio: Run):
    for way in ("in", "out"):
        at_client = (stdio.folder / f"client.{way}").read_bytes()
        assert at_client == (stdio.folder / f"server.{way}").read_bytes()
        assert len(at_client) > 1000


def test_the_client_sees_what_it_would_see_without_a_proxy(stdio: Run):
    seen = stdio.seen
    assert seen["protocol"] == PROTOCOLS[stdio.mode]
    assert seen["listing"] == TOOLS
    assert [answer["text"] for answer in seen["parallel"]] == [str(2 * n) for n in range(20)]
    assert seen["fail"]["is_error"]
    assert seen["unknown"]["is_error"]
    assert seen["cancelled"] == "cancelled"
    assert seen["big"]["sha256"] == hashlib.sha256(BIG.encode()).hexdigest()
    assert "raised" in seen["crash"]


def test_server_and_listing_are_recorded(stdio: Run):
    server = stdio.notes("mcp.server")[-1]
    assert (server["server"], server["info"]["name"]) == ("files", "disk")
    assert server["protocol"] == PROTOCOLS[stdio.mode]
    listing = stdio.notes("mcp.listing")[0]
    assert sorted(tool["name"] for tool in listing["tools"]) == TOOLS
    hints = next(tool["hints"] for tool in listing["tools"] if tool["name"] == "add")
    assert hints["readOnlyHint"] is True


def test_each_parallel_call_has_its_own_result(stdio: Run):
    calls = {
        data["call"]: data for data in stdio.notes("harness.call") if data["tool"] == "files__add"
    }
    assert {data["effect"] for data in calls.values()} == {"pure"}
    answered = {data["call"]: data["result"] for data in stdio.notes("harness.result")}
    assert len(calls) == 20
    for name, data in calls.items():
        wanted = data["arguments"]["a"] + data["arguments"]["b"]
        assert answered[name]["structuredContent"] == {"result": wanted}


def test_errors_a_cancelled_call_and_a_crash_are_recorded_as_what_they_were(stdio: Run):
    ((status, failed),) = stdio.results("fail")
    assert (status, failed["isError"]) == ("error", True)
    ((status, unknown),) = stdio.results("nope")
    assert status == "error"
    assert "nope" in json.dumps(unknown)
    ((status, cancelled),) = stdio.results("slow")
    assert (status, cancelled["type"]) == ("error", "Cancelled")
    ((status, crashed),) = stdio.results("crash")
    assert (status, crashed["type"]) == ("error", "ConnectionClosed")
    assert crashed["message"] == "the server ended with exit code 3"
    assert stdio.notes("mcp.closed")[0]["n_unanswered"] == 1
    assert stdio.events[-1]["payload"] == {"status": "exit code 3"}


def test_a_result_of_ten_megabytes_is_recorded_whole(stdio: Run):
    ((status, result),) = stdio.results("big")
    assert status == "ok"
    assert result["content"][0]["text"] == BIG


def test_progress_and_questions_to_the_user_are_recorded(stdio: Run):
    if stdio.mode == "legacy":  # later versions put a question into the answer
        (asked,) = stdio.notes("mcp.server_request")
        assert asked["method"] == "elicitation/create"
        assert stdio.notes("mcp.client_answer")[0]["result"]["action"] == "accept"
        assert stdio.seen["ask"]["text"] == "accept"
    assert len(stdio.results("ask")) == 1


def test_hostile_output_passes_is_noted_and_harms_nothing(tmp_path: Path):
    proxy = (sys.executable, "-m", "redrive", "mcp", "--name", "files", "--")
    command = (sys.executable, TAP, f"{tmp_path}/client", *proxy, sys.executable, SERVER, "noisy")
    seen = run_client(tmp_path / "store.db", "legacy", "parallel", "--", *command)
    assert len(seen["parallel"]) == 20
    assert b"\x00 \x1b]0;title\x07\n" in (tmp_path / "client.out").read_bytes()
    run = Run("legacy", seen, events_of(tmp_path), tmp_path)
    reasons = [note["reason"] for note in run.notes("mcp.damage")]
    assert len(reasons) == 3
    assert "not one JSON object" in reasons[-1]
    assert len(run.results("add")) == 20


# --- over HTTP ---------------------------------------------------------------------------------
@contextlib.contextmanager
def http_server(*words: str) -> Iterator[str]:
    with held_port() as port:
        server = subprocess.Popen(
            [sys.executable, SERVER, str(port), *words], stderr=subprocess.DEVNULL, text=True
        )
        try:
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()
            server.wait()


@pytest.mark.parametrize(
    ("mode", "words"),
    [("legacy", ()), ("legacy", ("json", "stateless")), ("auto", ())],
    ids=["events", "json", "newest"],
)
def test_over_http_the_same_is_seen_and_recorded(mode: str, words: tuple[str, ...], tmp_path: Path):
    actions = [a for a in ACTIONS if a not in ("crash", "ask", "cancelled")]
    actions += [] if words else ["cancelled"]
    is_big = mode == "legacy" and not words  # once is enough
    actions = actions if is_big else [a for a in actions if a != "big"]
    with http_server(*words) as url:
        proxy = (sys.executable, "-m", "redrive", "mcp", "--name", "files", "--url", url, "--")
        done = subprocess.run(
            [*proxy, sys.executable, CLIENT, mode, *actions, "--", "-"],
            env=environment(tmp_path / "store.db"),
            capture_output=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    run = Run(mode, json.loads(done.stdout), events_of(tmp_path), tmp_path)
    assert run.seen["listing"] == TOOLS
    assert [answer["text"] for answer in run.seen["parallel"]] == [str(2 * n) for n in range(20)]
    assert run.notes("mcp.server")[-1]["protocol"] == PROTOCOLS[mode]
    assert sorted(tool["name"] for tool in run.notes("mcp.listing")[0]["tools"]) == TOOLS
    values = {result["structuredContent"]["result"] for _, result in run.results("add")}
    assert values == {2 * n for n in range(20)}
    assert run.results("fail")[0][0] == "error"
    if is_big:
        assert run.seen["big"]["sha256"] == hashlib.sha256(BIG.encode()).hexdigest()
        assert run.results("big")[0][1]["content"][0]["text"] == BIG
    if not words:
        assert run.results("slow")[0][1]["type"] in ("Cancelled", "ConnectionClosed")
    assert run.notes("mcp.damage") == []


def test_over_http_the_bytes_of_an_answer_pass_as_they_are(tmp_path: Path):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
    }

    def ask(url: str) -> tuple[int, str | None, bytes]:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection("127.0.0.1", parts.port or 0, timeout=60)
        connection.request("POST", parts.path, body, headers)
        answer = connection.getresponse()
        found = answer.status, answer.getheader("content-type"), answer.read()
        connection.close()
        return found

    with http_server("stateless") as url:
        proxy = subprocess.Popen(
            [sys.executable, "-m", "redrive", "mcp", "--url", url],
            env=environment(tmp_path / "store.db"),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert proxy.stdout is not None
        at_proxy = proxy.stdout.readline().strip()
        assert at_proxy.startswith("http://127.0.0.1:")
        assert ask(at_proxy) == ask(url)
        assert ask(at_proxy.rsplit("/", 2)[0] + "/wrong-token/mcp")[0] == 404
        proxy.send_signal(signal.SIGTERM)
        assert proxy.wait(60) == 0
        proxy.stdout.close()
    (session,) = Redrive(tmp_path).json("sessions")["sessions"]
    assert session["session_id"].startswith("redrive:mcp-127.0.0.1-")


# --- usage -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no server"),
        (("--effect", "add=harmless", "--", "true"), "no effect of a tool: 'add=harmless'"),
        (("--effect", "pure", "--", "true"), "no effect of a tool: 'pure'"),
        (("--", "/no/such/server"), "/no/such/server: No such file"),
        (("--url", "ftp://x", "--", "true"), "no http or https URL"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_2(redrive: Redrive, words: tuple[str, ...], said: str):
    done = redrive("mcp", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1


def test_the_exit_code_is_the_server_s_and_a_signal_is_a_signal(redrive: Redrive):
    assert redrive("mcp", "--", "sh", "-c", "exit 9").code == 9
    assert redrive("mcp", "--", "sh", "-c", "kill -TERM $$").code == -signal.SIGTERM


def test_a_store_that_cannot_be_written_is_told_and_the_server_runs(redrive: Redrive):
    redrive.folder.joinpath("taken").write_bytes(b"no store")
    broken = {"REDRIVE_STORE": str(redrive.folder / "taken")}
    done = redrive("mcp", "--", "echo", "hello", **broken)
    assert (done.code, done.out) == (0, "hello\n")
    assert "redrive mcp: not recorded:" in done.err
    closed = redrive("mcp", "--fail-closed", "--", "echo", "hello", **broken)
    assert (closed.code, closed.out) == (6, "")


DEAD = "http://127.0.0.1:9/TOKEN/redrive"


@pytest.mark.parametrize("recorder", [DEAD, "http://[", "http://127.0.0.1:99999/t", "nonsense"])
def test_a_recorder_that_cannot_be_reached_is_told_and_the_server_runs(
    redrive: Redrive, recorder: str
):
    done = redrive("mcp", "--", "echo", "hello", REDRIVE_RECORDER=recorder)
    assert (done.code, done.out) == (0, "hello\n")
    assert done.err.startswith("redrive mcp: ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("variable", ["REDRIVE_RECORDER", "REDRIVE_RERUN"])
def test_where_it_must_be_reached_nothing_is_passed_on_and_no_server_is_started(
    redrive: Redrive, variable: str
):
    command = ("mcp", "--fail-closed", "--", "sh", "-c", "touch started; echo hello")
    done = redrive(*command, **{variable: DEAD})
    assert (done.code, done.out) == (6, "")
    assert done.err.startswith("redrive: the recorder is lost: ")
    assert len(done.err.splitlines()) == 1
    assert not (redrive.folder / "started").exists()
