"""Whether a workflow may run is said before anything runs: refused by name, nothing happened."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.sandbox.bubblewrap import probe
from tests.mcp_files import write_server
from tests.schemas import check

needs_sandbox = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)
CASE = "47-unsafe-by-alias-subagent-mcp"
EFFECTS = """
import pathlib, socket

for attempt in (
    lambda: pathlib.Path({path!r}).write_text("happened"),
    lambda: pathlib.Path(__file__).with_name("beside").write_text("happened"),
    lambda: socket.create_connection(("127.0.0.1", {port}), 5).sendall(b"happened"),
):
    try:
        attempt()
    except OSError:
        pass
"""
WORKFLOWS = """
from redrive.trial import Grants, McpServer, Step, Subagent, Workflow, tool

@tool("look", effect="read_only", grants=Grants(read=(".",)))
def look(path: str) -> str:
    return path

@tool("push", effect="unsafe", simulate=lambda state, **arguments: "would push")
def push(branch: str) -> str:
    raise AssertionError("never called")

def run(task, context):
    return None

safe = Workflow("wf", version="1", tools=[look], run=run)
unsafe = Workflow("wf", version="2", tools=[look], run=run,
    subagents={"cleaner": Subagent(tools=["exec"])}, aliases={"exec": ["push"]},
    steps=[Step("s1", subagent="cleaner")])
any_tool = Workflow("wf", version="3", tools="*", run=run)
served = Workflow("wf", version="4", tools=["mcp:files"], run=run, mcp=[McpServer("files",
    command=["python3", "server.py"], effects={"list": "read_only"})])
part = Workflow("wf", version="5", tools=["mcp__files__list"], run=run, mcp=served.mcp)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wf").mkdir()
    (tmp_path / "wf" / "workflows.py").write_text(WORKFLOWS)
    write_server(tmp_path / "wf")
    return tmp_path / "wf"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        yield listener


def test_47_every_offender_is_named_with_its_chain_and_nothing_runs(redrive, cases):
    expected = json.loads((cases / CASE / "expected.json").read_text())["expect"]
    registry = ("--registry", cases / CASE / "registry.json")
    for name, wanted in expected.items():
        code = 0 if wanted["eligible"] else 4
        found = check(
            redrive.json("eligible", cases / CASE / name, *registry, code=code), "eligible"
        )
        assert found["eligible"] == wanted["eligible"]
        assert [refusal["tool"] for refusal in found["refusals"]] == wanted["named_tools"]
        assert found["runs_spawned"] == wanted.get("runs_spawned", 0)
    chains = [refusal["chain"] for refusal in found["refusals"]] or [
        refusal["chain"]
        for refusal in redrive.json(
            "eligible", cases / CASE / "workflow_unsafe.json", *registry, code=4
        )["refusals"]
    ]
    assert chains == [
        ["wf@2", "s2", "exec", "bash"],
        ["wf@2", "s3", "cleaner", "crm_tools", "mcp__crm__delete_record"],
        ["wf@2", "s4", "mcp__new__thing"],
    ]
    assert not redrive.store.exists()


@needs_sandbox
def test_an_unsafe_workflow_is_rejected_at_load_by_the_name_of_its_tool(redrive, folder):
    found = check(redrive.json("eligible", "wf/workflows.py:unsafe", code=4), "eligible")
    (refusal,) = found["refusals"]
    assert (refusal["tool"], refusal["effect"]) == ("push", "unsafe")
    assert refusal["chain"] == ["wf@2", "s1", "cleaner", "exec", "push"]
    shown = redrive("eligible", "wf/workflows.py:unsafe")
    assert shown.code == 4
    assert "push  unsafe: declared unsafe; it has a simulator: --simulate push" in shown.out
    assert "wf@2 → s1 → cleaner → exec → push" in shown.out


@needs_sandbox
def test_before_any_run_an_external_witness_saw_nothing(redrive, folder, server, tmp_path):
    witness = tmp_path / "witness"
    port = server.getsockname()[1]
    file = folder / "workflows.py"
    file.write_text(EFFECTS.format(path=str(witness), port=port) + WORKFLOWS)
    found = redrive.json("eligible", "wf/workflows.py:unsafe", code=4)
    assert [refusal["tool"] for refusal in found["refusals"]] == ["push"]
    assert found["runs_spawned"] == 0
    assert not redrive.store.exists()
    assert not witness.exists()
    assert sorted(path.name for path in folder.iterdir()) == ["server.py", "workflows.py"]
    with pytest.raises(TimeoutError):
        server.accept()
    # The control: the same import without the sandbox has every one of these effects.
    subprocess.run([sys.executable, str(file)], check=True)
    assert witness.read_text() == "happened"
    assert (folder / "beside").exists()
    with server.accept()[0] as connection:
        assert connection.recv(100) == b"happened"


@needs_sandbox
def test_a_safe_workflow_is_accepted(redrive, folder):
    found = check(redrive.json("eligible", "wf/workflows.py:safe"), "eligible")
    assert found["eligible"]
    assert found["refusals"] == []
    assert [tool["tool"] for tool in found["tools"]] == ["look"]
    assert found["tools"][0]["grants"] == {"read": ["."]}
    assert found["isolation"] == probe().name
    assert len(found["digest"]) == 64
    shown = redrive("eligible", "wf/workflows.py:safe")
    assert shown.out.startswith("wf@1  eligible\n")


@needs_sandbox
def test_a_simulator_stands_in_where_it_is_named(redrive, folder):
    found = redrive.json("eligible", "wf/workflows.py:unsafe", "--simulate", "push")
    assert check(found, "eligible")["simulated"] == ["push"]
    shown = redrive("eligible", "wf/workflows.py:unsafe", "--simulate", "push")
    assert "simulated, and so is all that rests on it: push" in shown.out
    refused = redrive("eligible", "wf/workflows.py:unsafe", "--simulate", "look")
    assert refused.code == 2
    assert "'look' has no simulator" in refused.err
    unknown = redrive("eligible", "wf/workflows.py:unsafe", "--simulate", "psuh")
    assert unknown.code == 2
    assert "no tool 'psuh' to simulate (hint: with a simulator: push)" in unknown.err


@needs_sandbox
def test_tools_that_are_chosen_at_run_time_are_refused(redrive, folder):
    found = check(redrive.json("eligible", "wf/workflows.py:any_tool", code=4), "eligible")
    assert [refusal["effect"] for refusal in found["refusals"]] == ["dynamic"]
    assert "it reaches no declared tool" in redrive("eligible", "wf/workflows.py:any_tool").out


@needs_sandbox
def test_an_mcp_server_s_listing_is_walked_and_its_hints_are_hints(redrive, folder):
    found = check(redrive.json("eligible", "wf/workflows.py:served", code=4), "eligible")
    (refusal,) = found["refusals"]
    assert (refusal["tool"], refusal["effect"]) == ("mcp__files__remove", "undeclared")
    assert refusal["chain"] == ["wf@4", "mcp:files", "mcp__files__remove"]
    assert [tool["hints"].get("readOnlyHint") for tool in found["tools"]] == [True, True]
    assert (
        "hints (not believed): readOnlyHint=True"
        in redrive("eligible", "wf/workflows.py:served").out
    )
    assert redrive.json("eligible", "wf/workflows.py:part")["eligible"]


@needs_sandbox
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("x = 1\ny = (", 6, "workflows.py:2: raised while it was imported: SyntaxError"),
        ("safe = 3", 2, "this is no workflow, but int"),
    ],
)
def test_a_file_that_declares_nothing_is_an_error_in_one_line(redrive, folder, text, code, said):
    (folder / "workflows.py").write_text(text)
    finished = redrive("eligible", "wf/workflows.py:safe")
    assert finished.code == code, finished.err
    assert said in finished.err
    assert len(finished.err.splitlines()) == 1


@needs_sandbox
def test_a_name_that_is_not_there_is_answered_with_those_that_are(redrive, folder):
    finished = redrive("eligible", "wf/workflows.py:saef")
    assert finished.code == 2
    assert "safe, unsafe, any_tool, served, part" in finished.err


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("absent.py:x", "no such file: absent.py"),
        ("absent", "no workflow named 'absent'"),
        ("absent.json", "no such file: absent.json"),
        ("absent.py", "no workflow named 'absent.py'"),
    ],
)
def test_what_is_not_there_is_a_usage_error(redrive, source, said):
    finished = redrive("eligible", source)
    assert finished.code == 2
    assert said in finished.err


def test_a_registry_belongs_to_a_declaration_as_json(redrive):
    finished = redrive("eligible", "absent.py:x", "--registry", "registry.json")
    assert finished.code == 2
    assert "--registry belongs to a workflow as JSON" in finished.err


def test_without_a_sandbox_code_is_not_imported_and_json_is_judged(
    redrive, folder, cases, tmp_path
):
    witness = tmp_path / "witness"
    port = 9
    file = folder / "workflows.py"
    file.write_text(EFFECTS.format(path=str(witness), port=port) + WORKFLOWS)
    bare = {"PATH": str(tmp_path / "nowhere")}
    finished = redrive("eligible", "wf/workflows.py:safe", **bare)
    if finished.code == 7:  # where no other level is proven
        assert "imported in a sandbox alone" in finished.err
    assert not witness.exists()
    judged = redrive(
        "eligible",
        cases / CASE / "workflow_safe.json",
        "--registry",
        cases / CASE / "registry.json",
        **bare,
    )
    assert judged.code == 0
