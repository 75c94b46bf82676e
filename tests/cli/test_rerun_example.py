"""The example agent, recorded in process before a scripted model, rerun with the network off.

Each change of its code is made by editing a copy of the file. The rerun must stop at the right
place, and say what was expected and what was found.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive.sandbox.bubblewrap import probe
from tests.loopback_server import Answer, LoopbackServer, run_server

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "agent.py"
DECISIONS = (
    '{"tool": "list_logs", "arguments": {}}',
    '{"tool": "read_log", "arguments": {"name": "backup.log"}}',
    '{"tool": "look_up", "arguments": {"code": "E17"}}',
    '{"answer": "E17"}',
)
BUSY = Answer((b'{"error": {"message": "busy"}}',), status=500)

pytestmark = pytest.mark.skipif(not probe().is_proven, reason="the sandbox is not proven here")


def streamed(text: str) -> Answer:
    """Stream a decision in pieces of three characters."""
    pieces = [text[n : n + 3] for n in range(0, len(text), 3)]
    deltas: list[tuple[dict[str, str], str | None]] = [({"content": p}, None) for p in pieces]
    chunks = tuple(
        b"data: %s\n\n"
        % json.dumps(
            {
                "id": "r",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "m-1",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            }
        ).encode()
        for delta, reason in [*deltas, ({}, "stop")]
    )
    headers = (("content-type", "text/event-stream"),)
    return Answer((*chunks, b"data: [DONE]\n\n"), headers=headers)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with run_server() as fake:
        fake.answers = [BUSY, BUSY, *map(streamed, DECISIONS)]
        yield fake


@pytest.fixture
def folder(redrive: Any) -> Path:
    """Give the agent's own folder, a project of its own."""
    folder: Path = redrive.folder / "agent"
    folder.mkdir()
    (folder / "pyproject.toml").touch()
    shutil.copy(EXAMPLE, folder / "agent.py")
    return folder


@pytest.fixture
def recorded(redrive: Any, server: LoopbackServer, folder: Path) -> str:
    """Record the agent; give its session."""
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none"}
    command = ("--", sys.executable, folder / "agent.py")
    done = redrive("record", "--json", *command, **environment)
    assert done.code == 0, done.err
    (session,) = done.document["sessions"]
    assert not server.answers
    return str(session["session_id"])


def rerun(redrive: Any, folder: Path, session: str, *edits: tuple[str, str], code: int) -> Any:
    """Rerun the agent after some edits of its file."""
    path = folder / "agent.py"
    text = path.read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    path.write_text(text)
    return rerun_file(redrive, path, session, code)


def rerun_file(redrive: Any, path: Path, session: str, code: int) -> Any:
    done = redrive("rerun", "--json", session, "--", sys.executable, path)
    assert done.code == code, (done.code, done.out, done.err)
    return done.document


def first_difference(document: Any) -> Any:
    return document["divergence"]


def test_the_session_is_closed_with_its_retries_and_their_jitter(redrive, recorded):
    assert redrive("audit", recorded).code == 0
    events = [json.loads(line) for line in redrive("cat", recorded).out.splitlines()]
    reads = [e["payload"]["name"] for e in events if e["kind"] == "prng.read"]
    assert reads[1:3] == ["random.uniform(0, 0.05)"] * 2
    assert sum(e["kind"] == "model.error" for e in events) == 2


def test_unchanged_code_asks_for_the_same_byte_for_byte(redrive, recorded, folder):
    document = rerun(redrive, folder, recorded, code=0)
    assert document["identical"]
    assert document["live_calls"] == 0


def test_a_changed_prompt_is_found_at_the_first_request(redrive, recorded, folder):
    edit = ("The nightly backup failed.", "The nightly backup broke.")
    found = first_difference(rerun(redrive, folder, recorded, edit, code=1))
    assert found["step"] == 1
    assert "messages" in json.dumps(found)


def test_a_changed_tool_argument_is_found_at_its_call(redrive, recorded, folder):
    call = 'tools[decision["tool"]](**decision["arguments"])'
    lowered = '{k: v.lower() for k, v in decision["arguments"].items()}'
    edit = (call, call.replace('decision["arguments"]', lowered))
    found = first_difference(rerun(redrive, folder, recorded, edit, code=1))
    assert found["step"] == 3
    assert "e17" in json.dumps(found)


def test_another_clock_is_found_where_it_is_read(redrive, recorded, folder):
    edit = ("started_s, done = time.monotonic()", "started_s, done = time.perf_counter()")
    # The record does not hold what the agent now reads: it cannot say what that would lead to.
    found = first_difference(rerun(redrive, folder, recorded, edit, code=3))
    assert "time.monotonic" in json.dumps(found)
    assert "time.perf_counter" in json.dumps(found)


def test_another_order_of_draws_is_found_at_the_first_of_them(redrive, recorded, folder):
    edit = (
        "    seed = random.randrange(2**31)\n",
        "    first_s = random.uniform(0, 0.05)\n    seed = random.randrange(2**31)\n",
    )
    use = ("+ random.uniform(0, 0.05))", "+ first_s)")
    found = first_difference(rerun(redrive, folder, recorded, edit, use, code=1))
    assert "randrange" in json.dumps(found)
    assert "uniform" in json.dumps(found)


def test_an_unrecorded_read_of_an_intercepted_clock_is_a_clock_gap(redrive, server, folder):
    """Recorded without interception, rerun with it: the read was never in the record."""
    path = folder / "agent.py"
    path.write_text(
        path.read_text()
        .replace("intercept=True", 'vouch=("clock", "prng")')
        .replace('"content": TASK}]', '"content": f"{TASK} It is {time.time()}."}]')
    )
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none"}
    done = redrive("record", "--json", "--", sys.executable, path, **environment)
    session = done.document["sessions"][0]["session_id"]
    document = rerun_file(redrive, path, session, 3)
    assert "clock" in json.dumps(document["divergence"])
    assert "code" not in document["divergence"].get("attribution", "")


def test_an_unrecorded_input_of_another_kind_is_named_as_such_and_never_as_a_code_change(
    redrive, server, folder
):
    """The time comes through a file's date, which no seam sees."""
    (folder / "stamp.txt").write_text("one")
    path = folder / "agent.py"
    path.write_text(
        path.read_text().replace(
            '"content": TASK}]', '"content": TASK + open("stamp.txt").read()}]'
        )
    )
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "none"}
    (redrive.folder / "stamp.txt").write_text("one")
    done = redrive("record", "--json", "--", sys.executable, path, **environment)
    assert done.code == 0, done.err
    session = done.document["sessions"][0]["session_id"]
    (redrive.folder / "stamp.txt").write_text("two")
    document = rerun_file(redrive, path, session, 3)
    assert "unrecorded input, class unknown" in json.dumps(document)
