"""A command as a workflow: what it finds its run in, and what counts as its output."""

import os
from pathlib import Path
from typing import Any

import pytest

from redrive.app.trial_command import read_file
from redrive.replay.trial_values import EpisodeEnd, Outcome
from redrive.sandbox.bubblewrap import probe
from tests.trial_runs import Bench, make_model, make_task, output_of, read_spec, unchecked

needs_sandbox = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)

WORKFLOW = """
import sys
from redrive.trial import CommandWorkflow, Grants, tool

@tool("read_file", effect="read_only", grants=Grants(read=(".",)))
def read_file(path: str) -> dict:
    return {"text": open(path).read()}

@tool("read_part", effect="read_only", grants=Grants(read=("part",)))
def read_part(path: str) -> str:
    return open(path).read()

workflow = CommandWorkflow(
    "agent", version="1", tools=[read_file, read_part], command=[sys.executable, "agent.py"]
)
"""
AGENT = """
import asyncio, json, os, urllib.request
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

def ask(url, value):
    headers = {"content-type": "application/json", "authorization": "Bearer mine"}
    request = urllib.request.Request(url + "/chat/completions", json.dumps(value).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())["choices"][0]["message"]["content"]

async def main():
    name = os.environ["REDRIVE_MODEL"]
    task = json.load(open(os.environ["REDRIVE_TASK"]))
    messages = [{"role": "user", "content": task}]
    said = ask(os.environ["OPENAI_BASE_URL"], {"model": name, "messages": messages})
    other = ask(os.environ["REDRIVE_MODEL_LARGE_2_URL"], {"model": "large-2", "messages": messages})
    transport = streamable_http_client(os.environ["REDRIVE_MCP_URL"])
    async with Client(transport, mode="legacy") as client:
        tools = sorted(tool.name for tool in (await client.list_tools()).tools)
        read = await client.call_tool("read_file", {"path": "a.txt"})
        missing = await client.call_tool("read_file", {"path": "none"})
        part = await client.call_tool("read_part", {"path": "part/x"})
        if task == "reach":
            refused = await client.call_tool("delete_all", {})
    open("made.txt", "w").write(said)
    output = [said, other, tools, read.structured_content, missing.is_error]
    output += [missing.content[0].text]
    output += [part.content[0].text, os.getcwd(), os.environ["REDRIVE_SEED"]]
    output += [sorted(n for n in os.environ if "HOME" in n), os.environ.get("CALLERS")]
    json.dump(output, open(os.environ["REDRIVE_OUTPUT"], "w"))

asyncio.run(main())
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, caller={"CALLERS": "secret"})


def _run(bench: Bench, agent: str, value: Any = "x") -> EpisodeEnd:
    workspace = bench.folder / "workspace"
    (workspace / "part").mkdir(parents=True, exist_ok=True)
    (workspace / "a.txt").write_text("hello")
    bench.write(agent, "agent.py")
    models = (make_model(lambda _: "fine"), make_model(lambda _: "big", "large-2"))
    # The load check refuses the tool that is granted a part; a run refuses its calls as well.
    eligible = unchecked(read_spec(bench.write(WORKFLOW)), "read_file", "read_part")
    task = make_task(value, workspace)
    return bench.run(WORKFLOW, task=task, models=models, eligible=eligible)


@needs_sandbox
def test_a_command_asks_models_and_calls_tools_with_the_sdks_that_it_has(bench: Bench) -> None:
    end = _run(bench, AGENT)
    assert end.outcome is Outcome.COMPLETE, end.error
    said, other, tools, read, is_error, words, part, cwd, seed, homes, callers = output_of(end)
    assert (said, other, tools) == ("fine", "big", ["read_file", "read_part"])
    assert read == {"text": "hello"}
    assert (is_error, "FileNotFoundError" in words) == (True, True)
    # The command could swap the folder for a link while it is shown.
    assert "which the command may swap for a link" in part
    assert (cwd, seed, homes, callers) == ("/workspace", "7", ["HOME"], None)
    assert [file.path for file in end.files] == ["made.txt"]
    assert not (bench.folder / "workspace" / "made.txt").exists()
    assert bench.account.settled_once


@needs_sandbox
def test_a_tool_that_is_not_declared_is_denied_to_a_command_as_well(bench: Bench) -> None:
    end = _run(bench, AGENT, "reach")
    assert end.outcome is Outcome.DENIED
    assert [call.tool for call in end.denied] == ["delete_all"]


@needs_sandbox
@pytest.mark.parametrize(
    ("agent", "outcome", "shown"),
    [
        ("print('plain text')", Outcome.COMPLETE, "plain text\n"),
        ("raise SystemExit('no luck')", Outcome.FAILED, "exit: it exited with 1: no luck"),
        (
            "import os; open(os.environ['REDRIVE_OUTPUT'], 'w').write('{')",
            Outcome.FAILED,
            "ValueError: what it wrote to $REDRIVE_OUTPUT is no JSON",
        ),
        (
            "import os; open(os.environ['REDRIVE_OUTPUT'], 'w').write('1' * 2_000_000)",
            Outcome.LIMIT,
            "OverflowError: its output is too long",
        ),
        (
            "import os; os.symlink('/etc/hostname', os.environ['REDRIVE_OUTPUT'])",
            Outcome.COMPLETE,
            "",
        ),
    ],
)
def test_the_output_is_what_was_written_for_it_else_the_text_that_was_printed(
    bench: Bench, agent: str, outcome: Outcome, shown: str
) -> None:
    end = _run(bench, agent)
    assert end.outcome is outcome, end.error
    assert (output_of(end) if outcome is Outcome.COMPLETE else end.error) == shown


def test_a_file_of_a_run_is_read_within_bounds_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("12345")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path / "file", 3) == b"1234"
    for name in ("empty", "link", "pipe", "none", "."):
        assert read_file(tmp_path / name, 3) is None


@needs_sandbox
def test_an_output_that_is_no_json_fails_and_leaves_a_whole_session(bench: Bench) -> None:
    command = "['sh', '-c', 'printf NaN > $REDRIVE_OUTPUT']"
    end = bench.run(
        "from redrive.trial import CommandWorkflow\n"
        f"workflow = CommandWorkflow('agent', version='1', command={command})\n"
    )
    assert end.outcome is Outcome.FAILED
    assert end.error == "ValueError: what it wrote to $REDRIVE_OUTPUT is no JSON"
    assert bench.events(end)
