"""Tools of an MCP server, and a shell script as a workflow, in a trial of their own."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.sandbox.bubblewrap import probe
from tests.chat_server import answer_with
from tests.cli.conftest import Redrive
from tests.loopback_server import LoopbackServer, run_server
from tests.mcp_files import write_server
from tests.schemas import check

pytestmark = [
    pytest.mark.skipif(not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here"),
]

# It knows nothing of redrive: a model behind a base URL, tools behind another one. What it is
# denied it does not mind.
AGENT = """#!/bin/sh
set -eu
json='Content-Type: application/json'
ask='{"model":"'"$REDRIVE_MODEL"'","messages":[{"role":"user","content":"shell"}]}'
said=$(curl -sS -H "$json" -d "$ask" "$OPENAI_BASE_URL/chat/completions")
call() {
    curl -sS -H "$json" -H 'Accept: application/json, text/event-stream' \\
        -d '{"jsonrpc":"2.0","id":1,"method":"'"$1"'","params":'"$2"'}' "$REDRIVE_MCP_URL"
}
listed=$(call tools/list '{}')
file=$(call tools/call '{"name":"read_it","arguments":{"name":"a.txt"}}')
served=$(call tools/call '{"name":"mcp__files__list","arguments":{}}')
task=$(cat "$REDRIVE_TASK")
echo changed > left.txt
printf '{"said":%s,"listed":%s,"file":%s,"served":%s,"task":%s}' \\
    "$said" "$listed" "$file" "$served" "$task" > "$REDRIVE_OUTPUT"
"""
WORKFLOWS = """
from pathlib import Path
from redrive.trial import CommandWorkflow, Grants, McpServer, Workflow, tool


@tool("read_it", effect="read_only", grants=Grants(read=(".",)))
def read_it(name: str) -> str:
    return Path(name).read_text()


def run(task, context):
    ask = {"messages": [{"role": "user", "content": "python"}]}
    return {
        "said": context.complete(ask)["choices"][0]["message"]["content"],
        "file": read_it(name="a.txt"),
        "served": context.call("mcp__files__list"),
        "task": task,
    }


tools = [read_it, "mcp__files__list"]
mcp = [McpServer("files", command=["python3", "server.py"], effects={"list": "read_only"})]
python = Workflow("both", version="python", tools=tools, mcp=mcp, run=run)
shell = CommandWorkflow("both", version="shell", command=["sh", "agent.sh"], tools=tools, mcp=mcp)
whole = Workflow("both", version="whole", tools=["mcp:files"], mcp=mcp, run=run)
"""
PLAN = """
name = "both"
workflows = [{{ source = "workflows.py:python" }}, {{ source = "workflows.py:{second}" }}]
[tasks]
jsonl = "tasks.jsonl"
workspace = "files"
[[models]]
name = "small"
spec = "openai:served@{url}/v1"
key_env = "HOUSE_KEY"
input_usd_per_mtok = "1"
output_usd_per_mtok = "10"
[ceilings]
replay_usd = "1.00"
[[graders]]
name = "asked"
kind = "regex"
pattern = "looks"
"""
KEY = "hk-" + "b7d1f0c95a2e4"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with run_server() as started:
        started.answer = answer_with(lambda messages, _: f"to {messages[0]['content']}: looks good")
        yield started


def write(folder: Path, url: str, second: str) -> None:
    write_server(folder)
    (folder / "agent.sh").write_text(AGENT)
    (folder / "workflows.py").write_text(WORKFLOWS)
    (folder / "files").mkdir()
    (folder / "files" / "a.txt").write_text("the file")
    (folder / "tasks.jsonl").write_text('{"name":"one","input":{"n":1}}\n')
    (folder / "plan.toml").write_text(PLAN.format(url=url, second=second))


def test_a_python_workflow_and_a_shell_script_reach_the_model_and_the_same_tools(
    redrive: Redrive, server: LoopbackServer
) -> None:
    folder = redrive.folder
    write(folder, server.url, "shell")
    ran = redrive("trial", "run", "plan.toml", "--json", HOUSE_KEY=KEY)
    assert ran.code == 0, ran.err
    found = check(ran.document, "trial_report")
    python, shell = found["runs"]
    assert (python["outcome"], shell["outcome"]) == ("complete", "complete"), found["runs"]
    assert python["output"] == {
        "said": "to python: looks good",
        "file": "the file",
        "served": python["output"]["served"],
        "task": {"n": 1},
    }
    assert "list" in json.dumps(python["output"]["served"])
    said = shell["output"]
    assert said["said"]["choices"][0]["message"]["content"] == "to shell: looks good"
    tools = {one["name"] for one in said["listed"]["result"]["tools"]}
    assert tools == {"read_it", "mcp__files__list"}
    assert said["file"]["result"]["content"] == [{"type": "text", "text": "the file"}]
    assert said["served"]["result"]["isError"] is False
    assert said["task"] == {"n": 1}
    # It works in a copy of its own; what it left there is collected, the workspace is as it was.
    assert [(file["path"], file["kind"]) for file in shell["files"]] == [("left.txt", "file")]
    assert sorted(path.name for path in (folder / "files").iterdir()) == ["a.txt"]
    # The endpoint's key is added outside, to requests of both; no run and no record holds it.
    assert {one.headers["authorization"] for one in server.received} == {f"Bearer {KEY}"}
    assert KEY not in ran.out
    for run in found["runs"]:
        assert KEY not in redrive("cat", run["session_id"], "--raw").out
    assert found["spend"]["replay"]["calls"] == len(server.received) == 2
    # In Python clock and dice are recorded as well; of a program nobody can say what it read.
    assert redrive("audit", python["session_id"]).code == 0
    opened = redrive("audit", shell["session_id"])
    assert opened.code == 3
    assert "clock" in opened.out


def test_what_an_mcp_server_lists_and_nobody_declared_is_refused(
    redrive: Redrive, server: LoopbackServer
) -> None:
    write(redrive.folder, server.url, "whole")
    ran = redrive("trial", "run", "plan.toml", HOUSE_KEY=KEY)
    assert (ran.code, ran.out) == (4, "")
    assert "both@whole → mcp:files → mcp__files__remove" in ran.err
    assert not redrive.store.exists()
    assert server.received == []
