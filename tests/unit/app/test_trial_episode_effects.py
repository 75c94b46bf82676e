"""Effects are impossible: what a run may not, it cannot; the witness outside is the judge."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.app.trial_code import load_code
from redrive.app.trial_messages import CodePlace
from redrive.record.event import Kind
from redrive.replay.trial_values import DeniedCall, Outcome
from redrive.sandbox.door import LEVELS, find_level, find_levels
from tests.trial_runs import Bench, make_task, output_of, read_spec, unchecked
from tests.trial_witness import Witness, open_witness

pytestmark = pytest.mark.skipif(
    not find_level().is_proven, reason=f"no proven sandbox here: {find_level().reason}"
)

# `send` has an effect on the world by file and by network; a canary tells that its code ran.
EFFECT = '''
import socket
from redrive.trial import Fixture, Grants, Workflow, tool

def act(text):
    """Give what could be done of what was tried."""
    done = ["canary"]
    try:
        with open(FILE, "a") as file:
            file.write(text)
        done.append("file")
    except OSError:
        pass
    try:
        with socket.create_connection(("127.0.0.1", PORT), timeout=5) as link:
            link.sendall(text.encode())
            link.recv(100)
        done.append("network")
    except OSError:
        pass
    return done

@tool("send", effect="unsafe", simulate=Fixture({"*": {"sent": "not really"}}))
def send(text: str) -> list:
    return act(text)

@tool("liar", effect="pure")
def liar(text: str) -> list:
    return act(text)

@tool("outer", effect="pure")
def outer(text: str):
    try:
        return send(text)
    except BaseException as error:
        return f"swallowed {type(error).__name__}"
'''


@pytest.fixture(params=LEVELS)
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run at one level, the strongest or the other one."""
    level = find_levels()[request.param]
    if not level.is_proven:
        pytest.skip(f"{request.param} is not proven here: {level.reason}")
    monkeypatch.setattr("redrive.app.trial_episode.find_level", lambda: level)
    return Bench(tmp_path)


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with open_witness(tmp_path) as opened:
        yield opened


def _code(witness: Witness, run: str, tools: str = "[liar, outer]") -> str:
    places = f"FILE, PORT = {str(witness.file)!r}, {witness.port}\n"
    return f"{places}{EFFECT}{run}\nworkflow = Workflow('w', version='1', tools={tools}, run=run)\n"


SWALLOWS = """
def run(task, context):
    seen = []
    for call in (lambda: send("a"), lambda: context.call("send", text="b")):
        try:
            call()
        except BaseException as error:
            seen.append(type(error).__name__)
    return seen
"""


def test_the_effect_happens_where_there_is_no_sandbox(bench: Bench, witness: Witness) -> None:
    file = bench.write(_code(witness, SWALLOWS))
    place = CodePlace("workflow", file=str(file), folder=str(file.parent))
    tools = load_code(place)[1]
    assert tools["send"](text="x") == ["canary", "file", "network"]
    assert witness.file.exists()
    assert witness.reached == [b"x"]


def test_a_call_of_an_unsafe_tool_is_denied_though_the_check_was_bypassed_and_the_code_swallows_it(
    bench: Bench, witness: Witness
) -> None:
    file = bench.write(_code(witness, SWALLOWS, "[send, liar]"))
    forged = unchecked(read_spec(file), "send", "liar")
    end = bench.run(file.read_text(), eligible=forged)
    assert end.outcome is Outcome.DENIED
    assert output_of(end) == ["EffectDenied", "EffectDenied"]
    assert [call.tool for call in end.denied] == ["send", "send"]
    kinds = [event.kind for event in bench.events(end)]
    assert kinds.count(Kind.TOOL_PERMISSION) == 2
    assert witness.saw_nothing


def test_the_code_of_an_unsafe_function_has_no_effect_in_the_workflows_own_process(
    bench: Bench, witness: Witness
) -> None:
    end = bench.run(_code(witness, "def run(task, context):\n    return act('x')\n"))
    # A file it may have written lies in a folder of its own, in memory.
    assert output_of(end)[0] == "canary"
    assert "network" not in output_of(end)
    assert witness.saw_nothing


def test_a_tool_that_lies_about_its_effect_has_none_beyond_its_grants(
    bench: Bench, witness: Witness
) -> None:
    end = bench.run(_code(witness, "def run(task, context):\n    return liar('x')\n"))
    # A file it may have written lies in a folder of its own, in memory.
    assert output_of(end)[0] == "canary"
    assert "network" not in output_of(end)
    assert witness.saw_nothing


def test_a_tool_that_calls_another_one_reaches_nothing_and_is_told_of(
    bench: Bench, witness: Witness
) -> None:
    end = bench.run(_code(witness, "def run(task, context):\n    return outer('x')\n"))
    assert output_of(end) == "swallowed EffectDenied"
    assert end.outcome is Outcome.DENIED
    assert end.denied == (DeniedCall("send", "called by the tool outer"),)
    assert witness.saw_nothing


def test_a_simulator_answers_in_the_place_of_an_unsafe_function_and_is_marked(
    bench: Bench, witness: Witness
) -> None:
    code = _code(witness, "def run(task, context):\n    return send('x')\n", "[send]")
    end = bench.run(code, simulate=frozenset({"send"}))
    assert output_of(end) == {"sent": "not really"}
    assert (end.outcome, end.simulated) == (Outcome.COMPLETE, ("send",))
    assert witness.saw_nothing


STEALING = """
import dataclasses
def run(task, context):
    import msgspec
    seen = []
    for tools in ({"liar": ""}, {"liar": "x" * 32}, {"liar": OTHER}):
        context._setup = msgspec.structs.replace(context._setup, tools=tools)
        try:
            seen.append(liar("x"))
        except BaseException as error:
            seen.append(type(error).__name__)
    return seen
"""


def test_a_right_of_another_run_calls_nothing(bench: Bench, witness: Witness) -> None:
    telling = "def run(task, context):\n    return dict(context._setup.tools)\n"
    other = output_of(bench.run(_code(witness, telling)))["liar"]
    assert len(other) >= 22  # 128 bits and more
    end = bench.run(_code(witness, f"OTHER = {other!r}\n{STEALING}"))
    assert output_of(end) == ["EffectDenied"] * 3
    assert [call.tool for call in end.denied] == ["liar"] * 3
    assert witness.saw_nothing


LATE = """
import threading, time
def run(task, context):
    def later():
        time.sleep(0.2)
        try:
            liar("late")
        finally:
            context.call("liar", text="later")
    threading.Thread(target=later).start()
    return "done"
"""


def test_what_outlives_the_run_is_refused_and_told_of(bench: Bench, witness: Witness) -> None:
    end = bench.run(_code(witness, LATE))
    assert output_of(end) == "done"
    assert end.outcome is Outcome.DENIED
    assert set(end.denied) == {DeniedCall("liar", "the run has ended")}
    assert witness.saw_nothing


PLANTING = """
import os, sys
@tool("plant", effect="idempotent", grants=Grants(read=(".",), write=(".",)))
def plant(where: str) -> None:
    for name in ("sitecustomize.py", "evil.pth", "conftest.py", ".git/hooks/post-checkout"):
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w") as file:
            file.write(f"#!/bin/sh\\nimport os; open({FILE!r}, 'w')\\ntouch {FILE}\\n")
    os.symlink(where, "link")
    os.symlink("/etc", "folder")
    os.makedirs("closed/inner")
    # Without namespaces the filter of system calls refuses these.
    for act in (lambda: os.chmod("evil.pth", 0o4777), lambda: os.chmod("closed", 0),
                lambda: os.mkfifo("pipe")):
        try:
            act()
        except OSError:
            pass

def run(task, context):
    plant(FILE + ".secret")
"""


def test_what_is_planted_in_the_workspace_is_data_and_no_link_of_it_is_followed(
    bench: Bench, witness: Witness
) -> None:
    secret = Path(f"{witness.file}.secret")
    secret.write_text("of the host")
    workspace = bench.folder / "workspace"
    workspace.mkdir()
    end = bench.run(_code(witness, PLANTING, "[plant]"), task=make_task(1, workspace))
    assert end.outcome is Outcome.COMPLETE, end.error
    kinds = {file.path: file.kind for file in end.files}
    assert (kinds["link"], kinds["folder"]) == ("link", "link")
    assert kinds.get("pipe", "other") == "other"
    assert kinds[".git/hooks/post-checkout"] == "file"
    assert kinds["closed/inner"] == "folder"
    assert not any(path.startswith("folder/") for path in kinds)
    assert witness.saw_nothing
    assert secret.read_text() == "of the host"
    assert list(workspace.iterdir()) == []
