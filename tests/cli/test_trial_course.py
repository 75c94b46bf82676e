"""How a trial goes on and where it stops: ceilings, interruptions, gates, levels of the sandbox."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive.sandbox.bubblewrap import probe
from redrive.sandbox.proof import prove_landlock
from tests.chat_server import answer_with
from tests.cli.conftest import Redrive
from tests.loopback_server import Answer, LoopbackServer, Received, run_server
from tests.schemas import check
from tests.trial_program import keys_of

pytestmark = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)
needs_landlock = pytest.mark.skipif(
    not prove_landlock().is_proven, reason=f"no Landlock here: {prove_landlock().reason}"
)
WAIT_S = 120
GATE = 'gate = "challenger within 0.05 of incumbent"'

WORKFLOWS = """
from pathlib import Path
from redrive.trial import CommandWorkflow, Grants, Workflow, tool


@tool("read_it", effect="read_only", grants=Grants(read=(".",)))
def read_it(name: str) -> str:
    return Path(name).read_text()


@tool("fetch", effect="read_only", grants=Grants(network=("shop.example:80",)))
def fetch(path: str) -> str:
    raise AssertionError("never called")


@tool("keyed", effect="read_only", grants=Grants(secrets=("SHOP_WORD",)))
def keyed() -> str:
    raise AssertionError("never called")


def agent(version):
    def run(task, context):
        said = f"version {version} on {task}"
        answer = context.complete({"messages": [{"role": "user", "content": said}]})
        return {"label": answer["choices"][0]["message"]["content"]}

    return run


def reads(task, context):
    return {"label": read_it(name="a.txt")}


v1 = Workflow("small", version="1", tools=[], run=agent(1))
v2 = Workflow("small", version="2", tools=[], run=agent(2))
reading = Workflow("small", version="3", tools=[read_it], run=reads)
fetching = Workflow("small", version="4", tools=[fetch], run=reads)
keyed = Workflow("small", version="6", tools=[keyed], run=reads)
command = CommandWorkflow("small", version="5", command=["true"], tools=[read_it])
"""
# Each answer is billed with all the tokens that it may have, so that what is reserved is spent: a
# cent a call, and nothing worth counting for the request.
PLAN = """
name = "small"
{gate}
workflows = [
  {{ source = "workflows.py:{incumbent}", role = "incumbent" }},
  {{ source = "workflows.py:{challenger}", role = "challenger" }},
]
[tasks]
jsonl = "tasks.jsonl"
workspace = "files"
[[models]]
name = "small"
spec = "openai:served@{url}/v1"
input_usd_per_mtok = "0.0001"
output_usd_per_mtok = "100"
max_tokens = 100
idempotent = true
[ceilings]
replay_usd = "{ceiling}"
[[graders]]
name = "right"
kind = "exact"
at = "/label"
"""


def write_plan(
    folder: Path, url: str = "http://127.0.0.1:9", *, n_tasks: int = 2, **words: str
) -> None:
    """Write workflows, tasks `t1…` and a plan; a plan that is there is written anew."""
    fields = {"incumbent": "v1", "challenger": "v2", "ceiling": "1.00", "gate": ""} | words
    (folder / "workflows.py").write_text(WORKFLOWS)
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files" / "a.txt").write_text("right")
    lines = [
        f'{{"name":"t{n}","input":"t{n}","expected":"right"}}\n' for n in range(1, n_tasks + 1)
    ]
    (folder / "tasks.jsonl").write_text("".join(lines))
    (folder / "plan.toml").write_text(PLAN.format(url=url, **fields))


def answers(received: Received, label: str = "right") -> Answer:
    """Answer, and bill all of the 100 tokens that were allowed."""
    made = answer_with(lambda *_: label)(received)
    return Answer((made.chunks[0].replace(b'"completion_tokens": 2', b'"completion_tokens": 100'),))


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with run_server() as started:
        started.answer = answers
        yield started


def names(report: Any, *, task: int) -> list[str]:
    """Give the names of a task's runs, in the plan's order."""
    return [run["key"] for run in report["runs"] if run["task"] == f"t{task}"]


def test_a_ceiling_stops_in_whole_blocks_and_a_higher_one_goes_on_and_pays_nothing_twice(
    redrive: Redrive, server: LoopbackServer
) -> None:
    write_plan(redrive.folder, server.url, ceiling="0.025")
    words = ("plan.toml", "--parallel", "1")
    stopped = check(redrive.json("trial", "run", *words, code=5), "trial_report")
    assert (stopped["planned"], stopped["started"], stopped["finished"]) == (4, 3, 2)
    # The first task has both its variants; the second has none, and each is named.
    assert [run["outcome"] for run in stopped["runs"]] == [
        *("complete", "complete", "ceiling"),
        "not_started",
    ]
    assert stopped["not_run"] == names(stopped, task=2)
    assert [stop["purpose"] for stop in stopped["stopped"]] == ["replay"]
    assert len(server.received) == 2
    text = redrive("trial", "report", "plan.toml")
    assert text.code == 5
    assert "4 planned, 3 started, 2 finished, 2 not run" in text.out
    assert "STOPPED at the ceiling of replay" in text.out
    for name in stopped["not_run"]:
        assert name in text.out

    again = redrive("trial", "run", *words)
    assert again.code == 2
    assert "2 unfinished runs" in again.err
    write_plan(redrive.folder, server.url, ceiling="1.00")
    found = check(redrive.json("trial", "resume", *words), "trial_report")
    assert (found["trial_id"], found["finished"], found["not_run"]) == (stopped["trial_id"], 4, [])
    assert [run["execution"] for run in found["runs"]] == [1, 1, 2, 1]
    assert len(server.received) == 4
    assert len(set(keys_of(server))) == 4
    assert found["runs"][:2] == stopped["runs"][:2]
    assert found["spend"]["replay"]["spent_usd"].startswith("0.0400")


def test_an_interrupt_ends_what_runs_with_130_and_a_resume_makes_what_is_left(
    redrive: Redrive, server: LoopbackServer
) -> None:
    def hold(received: Received) -> Answer:
        if b"version 2" in received.body:
            server.go_on.wait(WAIT_S)
        return answers(received)

    server.answer = hold
    write_plan(redrive.folder, server.url, n_tasks=1)
    words = [sys.executable, "-m", "redrive", "--store", str(redrive.store)]
    with subprocess.Popen(
        [*words, "trial", "run", "plan.toml", "--parallel", "1"],
        cwd=redrive.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: len(server.received) == 2 or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, out) == (130, ""), err
    assert "redrive trial resume goes on" in err
    assert "Traceback" not in err
    cut = check(redrive.json("trial", "report", "plan.toml", code=3), "trial_report")
    assert [run["outcome"] for run in cut["runs"]] == ["complete", "cancelled"]
    assert [stop["purpose"] for stop in cut["stopped"]] == [None]
    server.go_on.set()
    found = check(redrive.json("trial", "resume", "plan.toml"), "trial_report")
    assert (found["finished"], found["stopped"]) == (2, [])
    assert [run["execution"] for run in found["runs"]] == [1, 2]
    # What was on its way is sent again under its own key: this endpoint bills a key once.
    first, second, third = keys_of(server)
    assert first != second == third
    assert found["spend"]["replay"]["calls"] == 2


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for another process; a machine under load may take long."""
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def test_a_gate_that_fails_is_exit_1(redrive: Redrive, server: LoopbackServer) -> None:
    server.answer = lambda r: answers(r, "wrong" if b"version 2" in r.body else "right")
    write_plan(redrive.folder, server.url, n_tasks=5, gate=GATE)
    failed = check(redrive.json("trial", "run", "plan.toml", code=1), "trial_report")
    assert failed["grading"]["gate"]["status"] == "failed"
    assert failed["finished"] == 10
    assert redrive.json("trial", "report", "plan.toml", code=1) == failed


def test_a_model_that_fails_is_no_failure_of_a_workflow_and_is_asked_anew_on_resume(
    redrive: Redrive, server: LoopbackServer
) -> None:
    def out_of_order(received: Received) -> Answer:
        if b"version 2" in received.body:
            return Answer((b'{"error":{"message":"overloaded"}}',), status=503)
        return answers(received)

    server.answer = out_of_order
    write_plan(redrive.folder, server.url, n_tasks=1)
    failed = check(redrive.json("trial", "run", "plan.toml", code=6), "trial_report")
    assert [run["outcome"] for run in failed["runs"]] == ["complete", "model"]
    assert failed["not_run"] == names(failed, task=1)[1:]
    assert failed["runs"][1]["error"].startswith("the model small answered 503; ")
    text = redrive("trial", "report", "plan.toml", "--junit", "report.xml")
    assert text.code == 6
    assert "MODEL" in text.out
    assert "<failure" not in (redrive.folder / "report.xml").read_text()
    # Missing is never failed: no grade was kept of a block that is not whole.
    server.answer = answers
    found = check(redrive.json("trial", "resume", "plan.toml"), "trial_report")
    assert [run["outcome"] for run in found["runs"]] == ["complete", "complete"]
    assert [run["execution"] for run in found["runs"]] == [1, 2]
    assert len(server.received) == 3
    (grader,) = found["grading"]["graders"]
    assert {row["mean_score"] for row in grader["variants"]} == {1.0}


def test_a_secret_that_is_not_set_is_refused_before_anything_runs(
    redrive: Redrive, server: LoopbackServer
) -> None:
    write_plan(redrive.folder, server.url, challenger="keyed")
    for words in ({}, {"SHOP_WORD": ""}):
        refused = redrive("trial", "run", "plan.toml", **words)
        assert (refused.code, refused.out) == (2, "")
        assert "the tool keyed is granted the secret SHOP_WORD, which is not set" in refused.err
    assert server.received == []
    assert not redrive.store.exists()


@pytest.mark.parametrize("option", ["--html", "--junit"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_paid(
    redrive: Redrive, server: LoopbackServer, option: str
) -> None:
    write_plan(redrive.folder, server.url)
    for name in ("absent/report", "files"):
        refused = redrive("trial", "run", "plan.toml", option, name)
        assert (refused.code, refused.out) == (2, "")
        assert f"{name} cannot be written" in refused.err
    assert server.received == []
    assert not redrive.store.exists()


# --- levels of the sandbox


@needs_landlock
def test_where_there_is_no_bubblewrap_python_workflows_run_under_landlock_and_it_is_said(
    redrive: Redrive, server: LoopbackServer
) -> None:
    write_plan(redrive.folder, server.url, n_tasks=1, challenger="reading")
    bare = {"PATH": str(redrive.folder / "nowhere")}
    ran = redrive("trial", "run", "plan.toml", "--json", **bare)
    assert ran.code == 0, ran.err
    found = check(ran.document, "trial_report")
    assert {run["outcome"] for run in found["runs"]} == {"complete"}
    assert {run["isolation"] for run in found["runs"]} == {"landlock"} == {found["isolation"]}
    assert [run["output"]["label"] for run in found["runs"]] == ["right", "right"]
    assert "Isolation  landlock" in redrive("trial", "report", "plan.toml").out


@needs_landlock
@pytest.mark.parametrize(
    ("challenger", "named"), [("command", "true: a command needs"), ("fetching", "fetch: ")]
)
def test_what_needs_a_network_is_refused_under_landlock_before_anything_runs(
    redrive: Redrive, challenger: str, named: str
) -> None:
    write_plan(redrive.folder, challenger=challenger)
    bare = {"PATH": str(redrive.folder / "nowhere")}
    ran = redrive("trial", "run", "plan.toml", **bare)
    assert (ran.code, ran.out) == (4, ""), ran.err
    assert named in ran.err
    assert "landlock" in ran.err
    assert not redrive.store.exists()


# Refuses the call that makes a ruleset, as a kernel without Landlock does; then runs redrive.
NO_LANDLOCK = """
import ctypes, runpy, struct, sys
REFUSE, ALLOW = 0x00050000 | 38, 0x7FFF0000
LINES = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, REFUSE), (0x06, 0, 0, ALLOW)]
data = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in LINES))
program = struct.pack("HxxxxxxQ", len(LINES), ctypes.addressof(data))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0
sys.argv[0] = "redrive"
runpy.run_module("redrive", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("verb", ["run", "resume"])
def test_without_any_level_nothing_runs_and_that_is_exit_7(redrive: Redrive, verb: str) -> None:
    write_plan(redrive.folder)
    with (redrive.folder / "workflows.py").open("a") as file:
        file.write(f"open({str(redrive.folder / 'imported')!r}, 'w')\n")
    done = subprocess.run(
        [sys.executable, "-c", NO_LANDLOCK, "--store", "store.db", "trial", verb, "plan.toml"],
        cwd=redrive.folder,
        env=os.environ | {"PATH": str(redrive.folder / "nowhere")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, ""), done.stderr
    assert "no sandbox is proven here" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not redrive.store.exists()
    assert not (redrive.folder / "imported").exists()
