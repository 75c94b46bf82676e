"""`redrive record -- COMMAND`: agents in any language, before a scripted model on loopback."""

import gzip
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.loopback_server import Answer, LoopbackServer, run_server
from tests.recorded import asks, chat_answer, said

KEY = "sk-proj-4h8Jq2LmN6vX9pRtYb3Z"
ASK = """
import json, os, sys, urllib.request as u
opener = u.build_opener(u.ProxyHandler({}))
def ask(*messages, **fields):
    body = {"model": "m", "temperature": 0, "seed": 7, "messages": messages} | fields
    request = u.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(), {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return opener.open(request, timeout=60).read()
"""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with run_server() as fake:
        yield fake


def answers(*texts: str) -> list[Answer]:
    return [Answer((chat_answer(text),)) for text in texts]


def record(redrive: Any, server: LoopbackServer, *command: object, **options: Any) -> Any:
    arguments = [word for name, value in options.items() for word in option(name, value)]
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": KEY}
    return redrive("record", *arguments, "--", *command, **environment)


def option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    return [flag] if value is True else [flag, str(value)]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", ASK + code]


def events(redrive: Any, session: str = "redrive:") -> list[dict[str, Any]]:
    done = redrive("cat", session)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def gaps(redrive: Any, session: str = "redrive:") -> set[str]:
    (report,) = redrive.json("audit", session, code=3)["sessions"]
    return {gap["class"] for step in report["steps"] for gap in step["missing"]}


def stored_bytes(redrive: Any) -> bytes:
    """Give all that the store holds: its files, and every compressed piece of it unpacked."""
    import zstandard

    found = b"".join(path.read_bytes() for path in redrive.folder.glob("store.db*"))
    with sqlite3.connect(redrive.store) as database:
        for table, column in (("segments", "data"), ("parts", "data"), ("texts", "data")):
            for (data,) in database.execute(f"SELECT {column} FROM {table}"):  # noqa: S608
                try:
                    found += zstandard.ZstdDecompressor().decompress(data, 10_000_000)
                except zstandard.ZstdError:
                    found += data
    database.close()
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_is_recorded_and_open_in_exactly_what_a_proxy_cannot_see(redrive, server):
    chunk = {"choices": [{"index": 0, "delta": {"content": "é7"}, "finish_reason": "stop"}]}
    stream = f"data: {json.dumps(chunk, ensure_ascii=False)}\n\ndata: [DONE]\n\n".encode()
    pieces = tuple(stream[n : n + 1] for n in range(len(stream)))
    server.answers = [Answer(pieces, headers=(("content-type", "text/event-stream"),))]
    messages = '[{"role": "user", "content": "x"}]'
    body = f'{{"model": "m",  "temperature": 0.0, "seed": 7, "messages": {messages}}}'
    script = f"curl -sN --noproxy '*' \"$OPENAI_BASE_URL/chat/completions\" -d '{body}'"
    done = record(redrive, server, "sh", "-c", script, agent="curl", task="x")
    assert (done.code, done.out.encode()) == (0, stream)
    assert gaps(redrive) == {"clock", "prng"}
    request, response = [e for e in events(redrive) if e["kind"].startswith("model.")]
    assert request["payload"]["body"] == body == server.received[0].body.decode()
    assert response["payload"]["text"] == "é7"
    assert response["payload"]["wire"]["sha256"] == sha256(stream).hexdigest()


def test_the_exit_code_is_the_command_s_and_the_outcome_follows_it(redrive, server):
    server.answers = answers("7", "8")
    assert record(redrive, server, *python("ask()\nsys.exit(9)"), agent="bad").code == 9
    assert record(redrive, server, *python("ask()"), agent="good").code == 0
    ends = {
        name: events(redrive, f"redrive:{name}")[-1]["payload"].get("status")
        for name in ("bad", "good")
    }
    assert ends == {"bad": "failure", "good": None}


def test_a_command_that_asks_no_model_leaves_nothing(redrive, server):
    done = record(redrive, server, "true")
    assert done.code == 0
    assert "nothing was recorded" in done.err
    assert redrive.json("sessions")["sessions"] == []


def test_a_command_that_does_not_exist_is_a_wrong_call(redrive, server):
    done = record(redrive, server, "no-such-agent")
    assert done.code == 2
    assert "no such command: no-such-agent" in done.err


def test_a_store_that_cannot_be_used_is_said_before_anything_runs(redrive, server):
    redrive.store.write_bytes(b"no database, but something else")
    done = record(redrive, server, "touch", redrive.folder / "ran")
    assert done.code == 6
    assert not (redrive.folder / "ran").exists()


BREAK_STORE = "open(os.environ['REDRIVE_STORE'], 'wb').write(b'no store' * 999)\n"


def test_a_store_that_breaks_before_the_first_request_leaves_the_agent_alone(redrive, server):
    server.answers += answers("7")
    done = record(redrive, server, *python(BREAK_STORE + "sys.stdout.buffer.write(ask())"))
    assert (done.code, done.out) == (6, chat_answer("7").decode())
    assert done.err.count("NOTHING IS RECORDED") == 1
    assert "redrive: recorded" not in done.err


def test_a_store_that_breaks_stops_the_agent_of_a_recorder_that_is_fail_closed(redrive, server):
    agent = BREAK_STORE + "try: ask()\nexcept OSError: sys.exit(9)"
    done = record(redrive, server, *python(agent), fail_closed=True)
    assert done.code == 9
    assert not server.received


def test_results_seen_in_the_next_request_are_evidence(redrive, server):
    call = asks("c1", "look", '{"a": 1}')
    server.answers = [Answer((chat_answer("", call),)), *answers("7")]
    code = f"""
user = {said("user", "how many?")!r}
ask(user)
ask(user, {said("assistant", "", tool_calls=[call])!r}, {said("tool", "7", tool_call_id="c1")!r})
"""
    assert record(redrive, server, *python(code)).code == 0
    assert gaps(redrive) == {"clock", "prng"}
    (result,) = [e for e in events(redrive) if e["kind"] == "tool.result"]
    assert result["payload"]["seam"] == "request"


def test_an_agent_that_records_itself_is_recorded_once(redrive, server):
    server.answers = answers("7")
    code = """
import httpx2, redrive
with redrive.record("own", intercept=True) as session:
    with session.http_client() as client:
        client.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions",
            json={"model": "m", "temperature": 0, "seed": 7, "messages": []})
"""
    done = record(redrive, server, *python(code))
    assert done.code == 0, done.err
    (session,) = redrive.json("sessions")["sessions"]
    assert session["session_id"].startswith("redrive:own-")
    assert f"recorded {session['session_id']} (by the agent itself)" in done.err
    assert redrive("audit", "redrive:own").code == 0
    (request,) = [e for e in events(redrive) if e["kind"] == "model.request"]
    assert request["payload"]["wire"]["endpoint"] == f"POST {server.url}/v1/chat/completions"


def test_the_document_holds_what_was_recorded_and_the_agent_s_words_go_elsewhere(redrive, server):
    from tests.schemas import check

    server.answers = answers("7")
    command = python("ask()\nprint('words of the agent')")
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": KEY}
    done = redrive("record", "--json", "--", *command, **environment)
    document = check(done.document, "record")
    assert [s["seam"] for s in document["sessions"]] == ["proxy"]
    assert "words of the agent" in done.err


def test_no_credential_argument_or_variable_reaches_the_store(redrive, server):
    server.answers = answers("7")
    command = [*python("ask()"), "--password=hunter2-of-argv"]
    environment = {
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": KEY,
        "SOME_SECRET": "value-of-the-environment",
    }
    redrive("record", "--", *command, **environment)
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"
    stored = stored_bytes(redrive)
    assert b"temperature" in stored  # the check sees what is stored
    for secret in (KEY, "hunter2-of-argv", "value-of-the-environment"):
        assert secret.encode() not in stored


def test_secrets_in_bodies_are_masked_before_they_are_stored_and_open_their_step(redrive, server):
    server.answers = answers(f"use {KEY}")
    command = python(f'ask({{"role": "user", "content": "my key is {KEY}"}})')
    assert record(redrive, server, *command, redact_at_write=True).code == 0
    assert KEY.encode() not in stored_bytes(redrive)
    assert "input" in gaps(redrive)


def test_token_evidence_is_asked_for_and_named_as_a_change(redrive, server):
    server.answers = answers("7")
    assert record(redrive, server, *python("ask()"), token_evidence=True).code == 0
    assert json.loads(server.received[0].body)["logprobs"] is True
    (request,) = [e for e in events(redrive) if e["kind"] == "model.request"]
    assert "logprobs" in request["payload"]["wire"]["added"]
    assert request["payload"]["body"].encode() == server.received[0].body


def test_upstream_errors_retries_and_refusals_are_what_they_were(redrive, server):
    error = json.dumps({"error": {"type": "overloaded", "message": "later"}}).encode()
    server.answers = [Answer((error,), status=529), *answers("7")]
    code = """
import urllib.error
for attempt in range(2):
    try: ask(); break
    except urllib.error.HTTPError as error: assert error.code == 529 and error.read()
"""
    assert record(redrive, server, *python(code)).code == 0
    failed, answered = [
        e for e in events(redrive) if e["kind"] in ("model.error", "model.response")
    ]
    assert failed["payload"]["status"] == 529
    assert failed["payload"]["message"] == "overloaded: later"
    assert answered["payload"]["wire"]["attempt"] == 2


def test_a_server_that_is_not_there_is_an_error_in_the_record(redrive, server):
    code = "import urllib.error\ntry: ask()\nexcept urllib.error.HTTPError as e: print(e.code)"
    environment = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": KEY}
    done = redrive("record", "--", *python(code), **environment)
    assert done.out == "502\n"
    (error,) = [e for e in events(redrive) if e["kind"] == "model.error"]
    assert error["payload"]["wire"]["outcome"] == "failed"


def test_compressed_answers_reach_the_agent_as_they_came_and_are_read(redrive, server):
    data = gzip.compress(chat_answer("zipped"), mtime=0)
    headers = (("content-type", "application/json"), ("content-encoding", "gzip"))
    server.answers = [Answer((data,), headers=headers)]
    done = record(redrive, server, *python("sys.stdout.write(ask().hex())"))
    assert done.out == data.hex()
    (response,) = [e for e in events(redrive) if e["kind"] == "model.response"]
    assert response["payload"]["text"] == "zipped"


def test_three_processes_at_once_keep_their_own_flows(redrive, server):
    server.answers = answers(*"123456")
    agent = (
        ASK
        + """
name = sys.argv[1]
user = {"role": "user", "content": name}
first = json.loads(ask({"role": "system", "content": name}, user))
said = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
ask({"role": "system", "content": name}, user, said, {"role": "user", "content": "go on"})
"""
    )
    (redrive.folder / "agent.py").write_text(agent)
    script = f'for n in a b c; do "{sys.executable}" agent.py $n & done; wait'
    assert record(redrive, server, "sh", "-c", script).code == 0
    requests = [e for e in events(redrive) if e["kind"] == "model.request"]
    systems: dict[str, set[str]] = {}
    for event in requests:
        body = json.loads(event["payload"]["body"])
        systems.setdefault(event.get("actor", "main"), set()).add(body["messages"][0]["content"])
    assert sorted(map(len, systems.values())) == [1, 1, 1]
    assert len(requests) == 6


def test_an_agent_is_told_to_end_and_what_it_did_is_kept(redrive, server):
    server.answers = answers("7")
    code = "ask()\nprint('asked', flush=True)\nimport time\ntime.sleep(60)"
    process = start(redrive, server, python(code))
    assert process.stdout is not None
    assert process.stdout.readline() == b"asked\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    process.communicate()
    assert [e["kind"] for e in events(redrive)][-1] == "session.ended"


def test_a_recorder_that_is_killed_in_a_stream_has_recorded_that_it_was_asked(redrive, server):
    events_of_stream = (b"data: {}\n\n", b"data: [DONE]\n\n")
    server.answers = [Answer(events_of_stream, n_before=1)]
    process = start(redrive, server, python("ask()"))
    deadline = time.monotonic() + 60
    while not server.received and time.monotonic() < deadline:
        time.sleep(0.05)
    while redrive("cat", "redrive:").out.count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait(60)
    server.go_on.set()
    process.communicate()
    kinds = [event["kind"] for event in events(redrive)]
    assert kinds == ["session.started", "model.request"]
    assert redrive("verify").code == 0
    assert "ended early" in redrive("sessions").out


def start(redrive: Any, server: LoopbackServer, command: list[str]) -> "subprocess.Popen[bytes]":
    environment = {
        "REDRIVE_STORE": str(redrive.store),
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": KEY,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "redrive", "record", "--", *command],
        env=os.environ | environment,
        cwd=Path(redrive.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
