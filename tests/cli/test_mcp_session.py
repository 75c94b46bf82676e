"""An agent whose tools lie on an MCP server: recorded below `record`, and run again."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.sandbox.bubblewrap import find_bubblewrap
from tests.cli.conftest import Redrive
from tests.loopback_server import Answer, run_server
from tests.recorded import asks, chat_answer

SDK = Path(__file__).resolve().parents[1] / "mcp_sdk"
PROXY = (sys.executable, "-m", "redrive", "mcp", "--name", "calc", "--")
AGENT = (sys.executable, "agent.py", *PROXY, sys.executable, "server.py")
QUIET = {"PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Redrive, str]:
    """The agent, recorded once; the program and the session's id."""
    redrive = Redrive(tmp_path_factory.mktemp("agent"))
    for name in ("agent.py", "server.py"):
        shutil.copy(SDK / name, redrive.folder)
    with run_server() as fake:
        call = asks("c1", "add", '{"a":2,"b":3}')
        fake.answers = [Answer((chat_answer("", call),)), Answer((chat_answer("It is 5."),))]
        url = {"OPENAI_BASE_URL": f"{fake.url}/v1"}
        done = redrive("record", "--agent", "sum", "--", *AGENT, **url, **QUIET)
    assert (done.code, done.out) == (0, "It is 5.\n"), done.err
    (session,) = redrive.json("sessions")["sessions"]
    return redrive, session["session_id"]


def test_below_record_a_tool_of_a_server_is_evidence_of_the_agent_s_own_session(
    recorded: tuple[Redrive, str],
):
    redrive, session_id = recorded
    events = redrive.json("cat", session_id)["events"]
    (result,) = [event for event in events if event["kind"] == "tool.result"]
    assert (result["call_id"], result["payload"]["seam"]) == ("c1", "mcp")
    assert result["payload"]["result"]["structuredContent"] == {"result": 5}
    notes = [e["payload"]["name"] for e in events if e["kind"] == "custom"]
    assert notes == ["mcp.server", "mcp.listing", "tool.intent", "mcp.closed"]


def test_the_result_is_recorded_before_what_the_agent_does_with_it(recorded: tuple[Redrive, str]):
    redrive, session_id = recorded
    events = redrive.json("cat", session_id)["events"]
    places = {event["id"]: event["seq"] for event in events}
    assert places["x1"] < places["r1"] < places["x2"]
    steps: list[Any] = redrive.json("audit", session_id, code=3)["sessions"][0]["steps"]
    assert [{lack["class"] for lack in step["missing"]} for step in steps] == [
        {"clock", "prng"}
    ] * 2


@pytest.mark.skipif(find_bubblewrap() is None, reason="bwrap is not installed")
def test_a_rerun_serves_the_recorded_result_and_the_server_never_runs_the_tool(
    recorded: tuple[Redrive, str],
):
    redrive, session_id = recorded
    server = redrive.folder / "server.py"
    server.write_text(server.read_text().replace("return a + b", "return 999"))
    done = redrive("rerun", session_id, "--show-output", "--", *AGENT)
    assert done.code == 0, done.out + done.err
    assert "It is 5." in done.err
    assert "1 tool call" in done.out
    assert "live calls: 0" in done.out


@pytest.mark.skipif(find_bubblewrap() is None, reason="bwrap is not installed")
def test_a_rerun_that_stops_at_a_call_of_a_tool_shows_no_traceback_of_the_proxy(
    recorded: tuple[Redrive, str],
):
    redrive, session_id = recorded
    agent = (redrive.folder / "agent.py").read_text()
    agent = agent.replace('call["function"]["arguments"]', '\'{"a":2,"b":4}\'')
    quiet = "try:\n    asyncio.run(main())\nexcept BaseException:\n    sys.exit(1)\n"
    other = redrive.folder / "other.py"
    other.write_text(agent.replace("asyncio.run(main())\n", quiet))
    done = redrive(
        "rerun", session_id, "--show-output", "--", sys.executable, "other.py", *AGENT[2:]
    )
    assert done.code == 1, done.out
    assert "tool argument at /b" in done.out
    assert "redrive: the rerun stopped at step 1 of main: tool argument" in done.err
    assert "RerunStopped" not in done.err
