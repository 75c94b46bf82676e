"""The verb `rerun` as a whole process: refusals, control flow, a proof, and what is shown."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.sandbox.bubblewrap import probe
from tests.loopback_server import Answer, run_server
from tests.recorded import chat_answer
from tests.schemas import check

needs_sandbox = pytest.mark.skipif(not probe().is_proven, reason="the sandbox is not proven here")
AGENT = """
import os, sys, time, random
import httpx2, redrive

def ask(client, text):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    return client.post(url, json=body).json()["choices"][0]["message"]["content"]

with redrive.record("small", intercept=True) as session:
    draw = random.randrange(1000)
    words = set("abcdefghij")
    words = sorted(words) if "--sorted" in sys.argv else words
    print(ask(session.http_client(), f"{draw} {' '.join(words)} {time.time()}"))
"""


@pytest.fixture
def record(redrive: Any) -> Any:
    (redrive.folder / "pyproject.toml").touch()
    (redrive.folder / "agent.py").write_text(AGENT)

    def run(*command: object) -> str:
        with run_server() as server:
            server.answers = [Answer((chat_answer("hello"),))]
            environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "NO_PROXY": "127.0.0.1"}
            done = redrive("record", "--json", "--", *command, **environment)
        assert done.code == 0, done.err
        return str(done.document["sessions"][0]["session_id"])

    return run


def rerun(
    redrive: Any,
    session: str,
    *command: object,
    options: tuple[str, ...] = (),
    code: int = 0,
    name: str = "rerun",
) -> Any:
    """Rerun with `--json`, which stands before the command; hold code and schema."""
    done = redrive("rerun", "--json", *options, session, "--", *command)
    assert done.code == code, (done.code, done.out, done.err)
    return check(done.document, name)


@needs_sandbox
def test_a_proof_is_written_into_the_session_and_audited(redrive, record):
    command = (sys.executable, "agent.py", "--sorted")
    session = record(*command)
    document = rerun(redrive, session, *command, options=("--prove",))
    assert document["proof"]["basis"] == "proved_by_rerun"
    assert document["control_flow"] == "proved"
    assert document["isolation"] == "bubblewrap"
    (audited,) = redrive.json("audit", session, code=3)["sessions"]
    assert {step["basis"] for step in audited["steps"]} == {"proved_by_rerun"}
    assert redrive("verify").code == 0


@needs_sandbox
def test_an_agent_that_hangs_on_the_hash_seed_has_an_unrecorded_input(redrive, record):
    command = (sys.executable, "agent.py")
    document = rerun(redrive, record(*command), *command, options=("--prove",), code=3)
    assert document["finding"] == "unrecorded input, class unknown"
    assert document["code"]["state"] == "equal"
    assert document["proof"] is None


@needs_sandbox
def test_a_command_in_another_language_proves_no_control_flow(redrive, record):
    curl = shutil.which("curl", path="/usr/bin:/bin")
    if curl is None:
        pytest.skip("the system has no curl")
    body = '{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
    script = f"{curl} -sS -d '{body}' -H 'content-type: application/json'"
    command = ("/bin/sh", "-c", f'{script} "$OPENAI_BASE_URL/chat/completions"')
    session = record(*command)
    document = rerun(redrive, session, *command)
    assert document["identical"]
    assert document["control_flow"] == "not proved"
    shown = redrive("rerun", "--show-output", session, "--", *command)
    assert "control flow not proved" in shown.out
    assert "hello" in shown.err
    changed = (*command[:2], command[2].replace('"x"', '"y"'))
    document = rerun(redrive, session, *changed, code=1)
    assert document["divergence"]["where"] == "/messages/0/content"


def test_a_session_of_another_format_is_refused_with_exit_4(redrive, cases):
    redrive.imported(cases / "25-polled-identical-calls/session.jsonl")
    error = rerun(redrive, "s25", "true", code=4, name="error")
    assert error["error"]["type"] == "IneligibleError"


def test_tools_that_no_seam_saw_are_refused_by_name_and_nothing_runs(redrive, record):
    call = {"id": "c1", "type": "function", "function": {"name": "wipe", "arguments": "{}"}}
    told = [
        {"role": "user", "content": "x"},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]
    script = (
        "import json, os, sys, urllib.request\n"
        "open('ran', 'a').write('x')\n"
        "for messages in json.loads(sys.argv[1]):\n"
        "    url = os.environ['OPENAI_BASE_URL'] + '/chat/completions'\n"
        "    data = json.dumps({'model': 'm', 'messages': messages}).encode()\n"
        "    urllib.request.urlopen(urllib.request.Request(url, data)).read()\n"
    )
    (redrive.folder / "plain.py").write_text(script)
    command = (sys.executable, "plain.py", json.dumps([told[:1], told]))
    with run_server() as server:
        server.answers = [
            Answer((chat_answer("", call),)),
            Answer((chat_answer("done"),)),
        ]
        environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "NO_PROXY": "127.0.0.1"}
        done = redrive("record", "--json", "--", *command, **environment)
    session = done.document["sessions"][0]["session_id"]
    before = Path(redrive.folder / "ran").read_text()
    error = rerun(redrive, session, *command, code=4, name="error")
    assert "wipe" in error["error"]["message"]
    assert Path(redrive.folder / "ran").read_text() == before


def test_a_command_that_is_missing_is_usage(redrive, record):
    assert redrive("rerun", "nobody").code == 2
    assert redrive("rerun", "nobody", "--", "true").code == 2


@needs_sandbox
@pytest.mark.parametrize("command", ["no-such-program", "./agent.py"])
def test_a_command_that_is_not_there_is_no_divergence(redrive, record, command):
    done = redrive("rerun", record(sys.executable, "agent.py", "--sorted"), "--", command)
    assert (done.code, done.out) == (2, "")
    assert done.err.strip() == f"redrive: no such command: {command}"
