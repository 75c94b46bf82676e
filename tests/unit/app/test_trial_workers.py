"""Tools in their workers: each with what it is granted, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.app.trial_loading import load_workflow
from redrive.audit.eligibility import load
from redrive.record.event import Kind
from redrive.replay.trial_values import DeniedCall, EpisodeEnd, Outcome
from redrive.sandbox.bubblewrap import probe
from tests.trial_runs import Bench, make_task, output_of
from tests.trial_witness import Witness, open_witness

pytestmark = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)

HEAD = """
import os, urllib.request
from redrive.trial import Fixture, Grants, McpServer, Workflow, tool
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, caller={"TOKEN": "of-the-caller", "OTHER": "not granted"})


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with open_witness(tmp_path) as opened:
        yield opened


def _run(bench: Bench, code: str, tools: str, **options: object) -> EpisodeEnd:
    tail = f"\nworkflow = Workflow('w', version='1', tools={tools}, run=run)\n"
    return bench.run(HEAD + code + tail, **options)


def _workspace(bench: Bench) -> Path:
    folder = bench.folder / "workspace"
    (folder / "data" / "in").mkdir(parents=True)
    (folder / "data" / "in" / "x").write_text("inside")
    (folder / "other").write_text("other")
    return folder


GRANTED = """
@tool("look", effect="read_only", grants=Grants(read=("data",), secrets=("TOKEN", "UNSET")))
def look() -> dict:
    seen = {}
    for path in ("data/in/x", "other"):
        try:
            seen[path] = open(path).read()
        except OSError as error:
            seen[path] = type(error).__name__
    try:
        open("data/in/x", "w")
    except OSError as error:
        seen["write"] = type(error).__name__
    names = ("TOKEN", "OTHER", "UNSET", "HTTP_PROXY")
    return seen | {"env": [os.environ.get(name) for name in names], "cwd": os.getcwd()}

def run(task, context):
    return [look(), os.environ.get("TOKEN"), os.path.exists("/workspace")]
"""


def test_a_worker_has_its_grants_and_the_workflow_has_none_of_them(bench: Bench) -> None:
    end = _run(bench, GRANTED, "[look]", task=make_task(1, _workspace(bench)))
    seen, token, has_workspace = output_of(end)
    assert (seen["data/in/x"], seen["other"]) == ("inside", "FileNotFoundError")
    assert (seen["write"], seen["cwd"]) == ("OSError", "/workspace")
    assert seen["env"] == ["of-the-caller", None, None, None]
    assert (token, has_workspace) == (None, False)
    assert end.notes == ("the variable UNSET, which a tool is granted, is not set",)


FETCHING = """
@tool("fetch", effect="read_only", grants=Grants(network=(f"127.0.0.1:{PORT}",)))
def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()

@tool("alone", effect="read_only")
def alone(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()

def run(task, context):
    seen = []
    for call in (lambda: fetch(f"http://127.0.0.1:{PORT}/a"), lambda: fetch("http://127.0.0.1:1/"),
                 lambda: alone(f"http://127.0.0.1:{PORT}/b")):
        try:
            seen.append(call())
        except Exception as error:
            seen.append(type(error).__name__)
    return seen
"""


def test_the_network_is_what_is_granted_through_the_forwarder_and_the_rest_is_denied(
    bench: Bench, witness: Witness
) -> None:
    end = _run(bench, f"PORT = {witness.port}\n{FETCHING}", "[fetch, alone]")
    first, second, third = output_of(end)
    assert first == "hi"
    assert {second, third} == {"RecordedToolError"}
    assert end.outcome is Outcome.DENIED
    reason = "the tool is not granted this place"
    assert end.denied == (DeniedCall("network 127.0.0.1:1", reason),)
    assert len(witness.reached) == 1
    permissions = [e for e in bench.events(end) if e.kind is Kind.TOOL_PERMISSION]
    assert len(permissions) == 1


SIMULATING = """
def put(state, key, value):
    state[key] = value
    return {"stored": key}

def get(state, key):
    return state.get(key)

@tool("put", effect="unsafe", simulate=put)
def put_real(key: str, value: int) -> dict:
    raise AssertionError("the real one ran")

@tool("get", effect="unsafe", simulate=get)
def get_real(key: str) -> int:
    raise AssertionError("the real one ran")

@tool("mail", effect="unsafe", simulate=Fixture({'{"to": "a"}': "sent"}))
def mail(to: str) -> str:
    raise AssertionError("the real one ran")

def run(task, context):
    seen = [get_real("a"), put_real("a", 1), get_real("a"), mail("a")]
    try:
        mail("b")
    except LookupError as error:
        seen.append(str(error))
    return seen
"""


def test_simulators_share_one_state_and_a_fixture_makes_nothing_up(bench: Bench) -> None:
    simulated = frozenset({"put", "get", "mail"})
    end = _run(bench, SIMULATING, "[put_real, get_real, mail]", simulate=simulated)
    seen = output_of(end)
    assert seen[:4] == [None, {"stored": "a"}, 1, "sent"]
    assert "no answer" in seen[4]
    assert end.simulated == ("get", "mail", "put")


SWAPPING = """
@tool("swap", effect="idempotent", grants=Grants(write=("data",)))
def swap() -> str:
    import shutil
    shutil.rmtree("data/in")
    os.symlink("/etc", "data/in")
    return "swapped"

@tool("peek", effect="read_only", grants=Grants(read=("data/in",)))
def peek() -> list:
    return sorted(os.listdir("data/in"))

def run(task, context):
    seen = [peek()] if task == "first" else []
    for call in (swap, peek):
        try:
            seen.append(call())
        except Exception as error:
            seen.append(str(error))
    return seen
"""


@pytest.mark.parametrize("order", ["first", "after"])
def test_a_path_that_a_tool_swaps_for_a_link_shows_no_other_tool_the_host(
    bench: Bench, order: str
) -> None:
    task = make_task(order, _workspace(bench))
    seen = output_of(_run(bench, SWAPPING, "[swap, peek]", task=task))
    assert "swapped" in seen
    if order == "after":
        assert "passes through a link" in seen[-1]
    assert not any("hostname" in str(one) or "passwd" in str(one) for one in seen)


SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    result = None
    if asked.get("method") == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                  "serverInfo": {"name": "s", "version": "1"}}
    elif asked.get("method") == "tools/call":
        name, arguments = asked["params"]["name"], asked["params"]["arguments"]
        if name == "cat":
            try:
                text, wrong = open(arguments["path"]).read(), False
            except OSError as error:
                text, wrong = str(error), True
            result = {"content": [{"type": "text", "text": text}], "isError": wrong}
        if name == "die":
            sys.exit(5)
    elif asked.get("method") == "tools/list":
        names = ["cat", "die"]
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in names]}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
SERVED = """
def run(task, context):
    seen = []
    for tool, arguments in (("cat", {"path": "other"}), ("cat", {"path": "none"}), ("die", {}),
                            ("cat", {"path": "other"})):
        try:
            seen.append(context.call("mcp__files__" + tool, **arguments))
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
    return seen

workflow = Workflow("w", version="1", tools=["mcp:files"], run=run, mcp=[McpServer(
    "files", command=["python3", "server.py"], effects={"cat": "read_only", "die": "read_only"},
    grants=Grants(read=(".",)))])
"""


def test_the_tools_of_an_mcp_server_run_in_its_own_worker(bench: Bench) -> None:
    bench.write(SERVER, "server.py")
    file = bench.write(HEAD + SERVED)
    spec = load_workflow(f"{file}:workflow", bench.folder).spec
    task = make_task(1, _workspace(bench))
    end = bench.run(file.read_text(), eligible=load(spec), task=task)
    assert end.outcome is Outcome.COMPLETE, end.error
    text, missing, died, again = output_of(end)
    assert (text, again) == ("other", "other")
    assert missing.startswith("RecordedToolError: ")
    assert "No such file" in missing
    assert died.startswith("RecordedToolError: tool mcp__files__die")
