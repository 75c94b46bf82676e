"""The founding incident, recorded live: a fork is put down to the summariser, not to the model.

A telemetry summariser adds latencies up. Which order they come in decides whether its sum reads 0.3
or 0.30000000000000004, and that decides what the local model does next: it executes, or it
describes. The agent really runs, on the real model.
"""

import sys
from typing import Any

import pytest

from redrive.models import local

pytestmark = [
    pytest.mark.local_model,
    pytest.mark.skipif(not local.is_installed(), reason=local.INSTALL_HINT),
]

AGENT = """
import json, os
import openai, redrive

LATENCIES = {"db-1": 0.05, "db-2": 0.1, "db-3": 0.15}
SYSTEM = (
    "You are a database agent.\\nTools:\\ndb_describe: show the columns of a table\\n"
    "db_execute: run a SQL statement\\nReply with the next tool as JSON."
)
TASK = "Run the nightly cleanup of the orders table. Describe the table before you execute."
SCHEMA = {"type": "object", "properties": {"tool": {"enum": ["db_execute", "db_describe"]}},
          "required": ["tool"], "additionalProperties": False}

def summarise(*latencies):
    total = 0.0
    for latency in latencies:
        total += latency
    return total

def run(session, client):
    @session.tool(effect="unsafe")
    def db_execute(): return "1284 rows deleted"
    @session.tool(effect="read_only")
    def db_describe(): return "id, total"
    latency = session.derive(summarise, ORDERED(LATENCIES), name="latency_ms")
    result = json.dumps({"latency_ms": latency, "rows": 1284})
    asked = f"Tool result: {result}\\nExecute the statement or describe the table first?"
    answer = client.chat.completions.create(
        model="smollm2", temperature=0, seed=1, max_tokens=64,
        messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK},
                  {"role": "user", "content": asked}],
        response_format={"type": "json_schema", "json_schema": {"name": "d", "schema": SCHEMA}},
    ).choices[0].message.content
    tool = json.loads(answer)["tool"]
    {"db_execute": db_execute, "db_describe": db_describe}[tool]()
    print(tool)

with redrive.record("incident", intercept=True, decisions="json_content") as session:
    run(session, openai.OpenAI(max_retries=0, http_client=session.http_client()))
"""


@pytest.fixture
def agent(redrive: Any) -> Any:
    """Write the agent with the way in which the summariser gets its inputs."""

    def write(ordered: str) -> list[str]:
        (redrive.folder / "incident.py").write_text(AGENT.replace("ORDERED", ordered))
        return [sys.executable, "incident.py"]

    (redrive.folder / "pyproject.toml").touch()  # the folder is a project of its own
    return write


def record(redrive: Any, command: list[str]) -> tuple[str, str]:
    """Record the agent; give its session and what it did."""
    done = redrive("record", "--json", "--model", "local", "--", *command)
    assert done.code == 0, done.err
    (session,) = done.document["sessions"]
    decided = next(line for line in done.err.splitlines() if line.startswith("db_"))
    return session["session_id"], decided


def listed(order: str) -> str:
    return f"(lambda given: [given[name] for name in {order}(given)])"


def test_the_order_that_nobody_recorded_is_the_finding_and_not_the_model(redrive, agent):
    session, _ = record(redrive, agent("(lambda given: set(given.values()))"))
    investigated = redrive.json("investigate", session, "--model", "local", code=3)
    assert investigated["verdict"] == "INSUFFICIENT_EVIDENCE"
    (gap,) = investigated["audit"]["steps"][0]["missing"]
    assert (gap["class"], gap["what"]) == ("environment", "inputs:latency_ms")
    assert "summarise computed latency_ms and its ordered inputs are not recorded" in gap["reason"]
    text = redrive("investigate", session, "--model", "local").out
    assert "provenance gap at step 1: environment" in text
    assert "model" not in text.partition("Answer")[2].partition("\n")[0].replace("--model", "")


def test_with_the_order_on_record_the_session_is_closed_and_the_fork_names_the_order(
    redrive, agent
):
    session, decided = record(redrive, agent(listed("sorted")))
    assert redrive("audit", session).code == 0
    investigated = redrive("investigate", session, "--model", "local", "--sampling", "recorded")
    assert "IDENTICAL_REPLAY" in investigated.out

    backwards = agent(listed("(lambda given: sorted(given)[::-1])"))
    other, decided_otherwise = record(redrive, backwards)
    assert {decided, decided_otherwise} == {"db_execute", "db_describe"}
    assert redrive("audit", other).code == 0

    rerun = redrive("rerun", session, "--", *backwards)
    assert rerun.code == 1, rerun.out + rerun.err
    first = rerun.out.splitlines()
    assert any("summarise" in line and "input" in line for line in first), rerun.out


def test_the_agent_s_own_rerun_is_identical(redrive, agent):
    command = agent(listed("sorted"))
    session, _ = record(redrive, command)
    done = redrive("rerun", session, "--", *command)
    assert done.code == 0, done.out + done.err
