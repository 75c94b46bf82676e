"""An episode is a session like any other: shown, audited, replayed, and free of secrets."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.app.trial_session import episode_id
from redrive.cli.main import run
from redrive.record.event import Event, Kind, payload_of
from redrive.replay.trial_values import EpisodeEnd, Outcome, RunKey
from redrive.sandbox.bubblewrap import probe
from tests.trial_runs import Bench, Script, make_model, make_task, output_of

pytestmark = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)

AGENT = '''
import json
from redrive.trial import Fixture, Grants, Workflow, tool

@tool("lookup", effect="read_only", grants=Grants(read=(".",)))
def lookup(name: str) -> str:
    """Read a file."""
    return open(name).read()

@tool("refund", effect="unsafe", simulate=Fixture({"*": {"ok": True}}))
def refund(order: int) -> dict:
    open(LEDGER, "a").write("refund")

@tool("liar", effect="pure")
def liar(order: int) -> dict:
    open(LEDGER, "a").write("liar")

TOOLS = {tool.id: tool for tool in (lookup, refund, liar)}

def run(task, context):
    messages = [{"role": "user", "content": task}]
    while True:
        said = context.complete({"temperature": 0, "messages": messages})["choices"][0]["message"]
        if not said.get("tool_calls"):
            return said["content"]
        messages.append(said)
        for call in said["tool_calls"]:
            function = call["function"]
            try:
                told = context.call(function["name"], **json.loads(function["arguments"]))
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
            result = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(told)}
            messages.append(result)

workflow = Workflow("agent", version="VERSION", tools=[lookup, refund, liar], run=run)
'''


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _workspace(bench: Bench, files: Mapping[str, str]) -> Path:
    folder = bench.folder / "workspace"
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def _run(bench: Bench, script: Script, *, version: str = "1", **files: str) -> EpisodeEnd:
    ledger = f"LEDGER = {str(bench.folder / 'ledger.txt')!r}\n"
    task = make_task("Refund the customer", _workspace(bench, files or {"a": "first"}))
    return bench.run(
        ledger + AGENT.replace("VERSION", version),
        task=task,
        models=(make_model(script),),
        simulate=frozenset({"refund"}),
    )


def _steps(*decisions: Any) -> Script:
    """Answer with one decision after another, by how many answers the request holds."""

    def answer(body: dict[str, Any]) -> Any:
        return decisions[sum(one["role"] == "assistant" for one in body["messages"])]

    return answer


def _redrive(bench: Bench, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a verb; give its exit status, and both outputs."""
    capfd.readouterr()
    code = run(["--store", str(bench.store), *words])
    return code, *capfd.readouterr()


def _tools(events: list[Event]) -> list[Any]:
    calls: list[Any] = [payload_of(event) for event in events if event.kind is Kind.TOOL_CALL]
    return [(call.tool, json.loads(call.arguments_text)) for call in calls]


TWO_CALLS = _steps([("c1", "lookup", {"name": "a"})], [("c2", "refund", {"order": 7})], "Refunded.")


def test_an_episode_is_shown_audited_replayed_and_run_through_policies(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    end = _run(bench, TWO_CALLS)
    assert (end.outcome, output_of(end)) == (Outcome.COMPLETE, "Refunded.")
    session = end.session_id
    code, shown, _ = _redrive(bench, capfd, "show", session, "--json")
    assert (code, json.loads(shown)["schema"]) == (0, "redrive.show")
    code, audited, _ = _redrive(bench, capfd, "audit", session, "--json")
    audit = json.loads(audited)["sessions"][0]
    assert (code, audit["status"], len(audit["steps"])) == (0, "closed", 3)
    script = bench.folder / "script.jsonl"
    lines: list[Any] = [
        {"tool_calls": [{"name": "lookup", "args": {"name": "a"}}]},
        {"tool_calls": [{"name": "refund", "args": {"order": 7}}]},
        {"text": "Refunded.", "final": True},
    ]
    script.write_text("\n".join(map(json.dumps, lines)))
    model = f"script:{script}"
    code, shadowed, _ = _redrive(bench, capfd, "shadow", session, "--model", model, "--json")
    shadow = json.loads(shadowed)
    assert (code, shadow["verdict"]) == (0, "IDENTICAL_REPLAY")
    assert (shadow["runs"][0]["served"], shadow["runs"][0]["live_calls"]) == (2, 0)
    policy = ("policy", "replay", "--policy", "TestGapWatcher", "--json")
    code, replayed, _ = _redrive(bench, capfd, *policy)
    assert (code, json.loads(replayed)["reports"][0]["sessions_scanned"]) == (0, 1)
    assert not (bench.folder / "ledger.txt").exists()


def test_the_session_says_which_run_of_which_trial_it_is(bench: Bench) -> None:
    end = _run(bench, _steps("Done."))
    started: Any = payload_of(bench.events(end)[0])
    facts = json.loads(bytes(started.environment))
    assert facts["trial"]["purpose"] == "replay"
    assert (facts["trial"]["variant"], facts["trial"]["isolation"]) == ("agent@1", "bubblewrap")
    assert facts["python"]
    assert started.captures["clock"] == "captured"


def test_a_run_goes_on_past_where_it_parts_from_the_recorded_session_to_a_whole_episode(
    bench: Bench,
) -> None:
    recorded = _run(bench, TWO_CALLS)
    challenger = _steps(
        [("d1", "lookup", {"name": "b"})],  # the planted divergence: another file
        [("d2", "lookup", {"name": "a"})],
        [("d3", "refund", {"order": 8})],
        "Refunded 8.",
    )
    end = _run(bench, challenger, version="2", a="first", b="second")
    assert end.outcome is Outcome.COMPLETE
    before, after = _tools(bench.events(recorded)), _tools(bench.events(end))
    assert before[0] != after[0]
    assert after == [
        ("lookup", {"name": "b"}),
        ("lookup", {"name": "a"}),
        ("refund", {"order": 8}),
    ]
    results = [e for e in bench.events(end) if e.kind is Kind.TOOL_RESULT]
    told: list[Any] = [payload_of(event) for event in results]
    values = [json.loads(bytes(one.result)) for one in told]
    assert values == ["second", "first", {"ok": True}]
    assert output_of(end) == "Refunded 8."
    assert bench.is_closed(end)
    assert not (bench.folder / "ledger.txt").exists()


def test_live_tools_that_write_beside_their_file_leave_no_line_there(bench: Bench) -> None:
    """Case 54, and a tool that lies: what replays from any step has no effect."""
    script = _steps([("c1", "liar", {"order": 7}), ("c2", "refund", {"order": 7})], "Done.")
    end = _run(bench, script)
    assert end.outcome is Outcome.COMPLETE
    assert not (bench.folder / "ledger.txt").exists()


def test_planted_secrets_appear_in_no_output(
    bench: Bench, cases: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Case 28: in a tool's result, in the workspace, in what the workflow says and prints."""
    case = cases / "28-secrets-in-reports"
    expected = json.loads((case / "expected.json").read_text())["expect"]
    session = bench.folder / "session.jsonl"
    subprocess.run([sys.executable, case / "make_input.py", session], check=True)
    secrets = {key: "".join(parts) for key, parts in expected["planted_parts"].items()}
    texts = [json.loads(line) for line in session.read_text().splitlines()]
    told = "\n".join(
        one["result"] if isinstance(one["result"], str) else json.dumps(one["result"])
        for one in texts
        if one["type"] == "tool_result"
    )
    script = _steps([("c1", "lookup", {"name": "a"})], f"I use {secrets['openai_proj']}")
    end = _run(bench, script, a=told)
    stored = b"".join(bytes(event.payload) for event in bench.events(end))
    assert secrets["google"].encode() in stored  # evidence is kept verbatim
    outputs = [
        "".join(_redrive(bench, capfd, verb, end.session_id, *more)[1:])
        for verb in ("show", "cat", "audit")
        for more in ((), ("--json",))
    ]
    outputs.append("".join(_redrive(bench, capfd, "grep", "GEMINI")[1:]))
    assert any("sketch-ant-hill" in output for output in outputs)
    for name, parts in expected["planted_parts"].items():
        secret = "".join(parts)
        assert not any(secret in output or parts[1][:9] in output for output in outputs), name


def test_each_execution_of_a_run_has_a_session_of_its_own(bench: Bench) -> None:
    job = bench.job(
        bench.write(
            "from redrive.trial import Workflow\n"
            "workflow = Workflow('a', version='1', run=lambda t, c: 1)\n"
        )
    )
    job = replace(job, run=replace(job.run, key=RunKey("a b/c@1", "t", 2)))
    assert episode_id(job) == "redrive:trial-t-00000000-a_b_c@1-t-2"
    assert episode_id(replace(job, execution=3)) == "redrive:trial-t-00000000-a_b_c@1-t-2-x3"
