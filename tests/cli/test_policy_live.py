"""The live hook decides what the replay reported, at every call of a session as it grew."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from redrive.app.policy_live import decide_live
from redrive.app.policy_loading import find_policy
from redrive.policies.hook_protocol import parse_input
from tests import claude_files as claude
from tests.cli.conftest import Redrive
from tests.policy_corpus import HEAD, named, policy_text, write_guards
from tests.stored import opened

N_CALLS = 30
MAIN = claude.SESSION
# What the agent does, over and over; a rewind goes back to the user's message of the round.
WORKS = (
    ("Bash", {"command": "git push origin main"}, "pushed", False),
    ("Edit", {"file_path": "/srv/demo/a.py", "old_string": "1", "new_string": "2"}, "ok", False),
    ("Bash", {"command": "git push --force"}, "pushed", False),
    ("Bash", {"command": "pytest -q"}, "1 failed, 2 passed", True),
    ("Bash", {"command": "git push origin main"}, "pushed", False),
    ("Bash", {"command": "pytest -q"}, "3 passed in 0.1s", False),
    ("Bash", {"command": "git push origin main"}, "pushed", False),
)


def transcript():
    """Give the lines of a session with rewinds, and (number of lines, call id, tool, arguments).

    The session is rewound twice in its middle; what came before lies on a discarded branch.
    """
    lines, calls = [], []
    number, parent, before = 0, None, None

    def add(make, *rest, **fields):
        nonlocal number, parent
        number += 1
        lines.append(make(number, parent, *rest, **fields))
        parent = number

    for n in range(N_CALLS):
        if n in (12, 21):  # a rewind: the user's last message and all since are discarded
            parent = before
        if n % 8 == 0 or n in (12, 21):
            before = parent
            add(claude.user, f"work on part {n}")
        tool, arguments, result, is_error = WORKS[n % len(WORKS)]
        call_id = f"toolu_{n}"
        add(claude.assistant, claude.call(call_id, tool, **arguments))
        calls.append((len(lines), call_id, tool, arguments))
        add(claude.user, [claude.result(call_id, result, is_error=is_error)])
    return lines, calls


def shifted(lines, last_at):
    """Move the times so that the last line was written at `last_at`."""
    form = "%Y-%m-%dT%H:%M:%S.%fZ"
    times = [datetime.strptime(line["timestamp"], form).replace(tzinfo=UTC) for line in lines]
    by = last_at - times[-1]
    return [
        line | {"timestamp": (at + by).strftime(form)[:-4] + "Z"}
        for line, at in zip(lines, times, strict=True)
    ]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A store with the whole session, and guards that were replayed on it."""
    redrive = Redrive(tmp_path_factory.mktemp("live"))
    lines, _ = transcript()
    path = redrive.folder / f"{MAIN}.jsonl"
    path.write_bytes(claude.dump(lines))
    redrive.imported(path)
    guards = named(write_guards(redrive.folder), ["NoDestruction", "PushAfterTests", "Repeats"])
    redrive.document = redrive.json("policy", "replay", *guards)
    (redrive.folder / "live").mkdir()
    return redrive


@pytest.fixture
def replayed(prepared, tmp_path):
    """A copy of it, for one test."""
    redrive = Redrive(tmp_path / "copy")
    shutil.copytree(prepared.folder, redrive.folder)
    redrive.document = prepared.document
    redrive.lines, redrive.calls = transcript()
    redrive.guards = redrive.folder / "guards.py"
    redrive.live = redrive.folder / "live" / f"{MAIN}.jsonl"
    return redrive


def fires(redrive, policy):
    """Map a call id to (action, suppressed), as the replay reported it."""
    (report,) = [r for r in redrive.document["reports"] if r["policy"] == policy]
    return {
        fire["call_id"]: (fire["action"], fire["cooldown_suppressed"])
        for session in report["per_session"]
        for fire in session["fires"]
    }


def hook(redrive, policy, told, *more, code=0, said=b""):
    """Run the live hook on what Claude Code says; give what it answers."""
    data = told if isinstance(told, bytes) else json.dumps(told).encode()
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "policy", "hook", policy, *more],
        input=data,
        capture_output=True,
        cwd=redrive.folder,
        env=os.environ | {"REDRIVE_STORE": str(redrive.store)},
        timeout=300,
    )
    assert done.returncode == code, done
    assert b"Traceback" not in done.stderr
    if code:
        assert done.stdout == b""
        assert done.stderr.count(b"\n") == 1
        return done.stderr.decode()
    assert said in done.stderr
    assert bool(said) == bool(done.stderr)
    return json.loads(done.stdout) if done.stdout else {}


def hook_here(redrive, policy, told):
    """Do in this process what the live hook does in one of its own."""
    hook_input = parse_input(json.dumps(told).encode())
    with opened(redrive.store) as store:
        decided = decide_live(store, find_policy(policy), hook_input, allow_unreplayed=False)
    assert decided.problem == ""
    return json.loads(decided.output) if decided.output else {}


def told_of(redrive, call, event="PreToolUse", **more):
    _, call_id, tool, arguments = call
    return {
        "hook_event_name": event,
        "session_id": MAIN,
        "transcript_path": str(redrive.live),
        "cwd": "/srv/demo",
        "tool_name": tool,
        "tool_input": arguments,
        "tool_use_id": call_id,
        **more,
    }


def decision(answer):
    if "systemMessage" in answer:
        return "Notify"
    return answer.get("hookSpecificOutput", {}).get("permissionDecision")


# Each is thirty processes; the last two are made with REDRIVE_SOAK=full.
WITH_CALL = [("NoDestruction", True), ("PushAfterTests", True), ("Repeats", True)]
BEFORE_CALL = [("Repeats", False)]
if os.environ.get("REDRIVE_SOAK") == "full":
    BEFORE_CALL += [("NoDestruction", False), ("PushAfterTests", False)]


@pytest.mark.parametrize(("policy", "has_call"), WITH_CALL + BEFORE_CALL)
def test_thirty_of_thirty_decisions_are_those_of_the_replay(replayed, policy, has_call):
    expected = fires(replayed, policy)
    assert len(expected) >= 4
    spec = f"{replayed.guards}:{policy}"
    found, wanted = {}, {}
    for number, call in enumerate(replayed.calls):
        n_lines, call_id, _, _ = call
        # The transcript as it was, and the clock as it was: the call is being made now.
        lines = shifted(replayed.lines[:n_lines], datetime.now(UTC) + timedelta(seconds=0.5))
        replayed.live.write_bytes(claude.dump(lines if has_call else lines[:-1]))
        # Every tenth as Claude Code runs it; a process of its own takes longer than all it does.
        decide = hook if number % 10 == 2 else hook_here
        found[call_id] = decision(decide(replayed, spec, told_of(replayed, call)))
        action, is_suppressed = expected.get(call_id, (None, False))
        wanted[call_id] = None if is_suppressed else action
    assert len(found) == N_CALLS
    assert found == wanted
    with opened(replayed.store) as store:
        rows = list(store.policies.hook_decisions(policy))
    assert [row.tool_use_id for row in rows] == list(found)
    assert {row.is_unreplayed for row in rows} == {False}
    acted = {row.tool_use_id: row.action for row in rows if row.action != "none"}
    assert acted == {c: "suppressed" if held else act for c, (act, held) in expected.items()}


def test_the_session_has_branches_and_the_policies_have_something_to_do(replayed):
    assert replayed.json("sessions")["sessions"][0]["branches"] >= 2
    held = [held for _, held in fires(replayed, "Repeats").values()]
    assert True in held
    assert False in held
    assert set(fires(replayed, "PushAfterTests").values()) == {("deny", False)}


def write_live(replayed, n_lines):
    replayed.live.write_bytes(claude.dump(replayed.lines[:n_lines]))


def test_a_version_that_was_never_replayed_is_refused(replayed):
    call = replayed.calls[2]
    write_live(replayed, call[0])
    told = told_of(replayed, call)
    fresh = replayed.folder / "fresh.py"
    fresh.write_text(policy_text(["return Deny('no')"], name="Fresh", lane="gate"))
    spec = f"{fresh}:Fresh"
    assert "no stored replay report" in hook(replayed, spec, told, code=6)
    assert "no stored replay report" in hook(replayed, spec, told, "--fail-closed", code=2)
    with opened(replayed.store) as store:
        assert list(store.policies.hook_decisions()) == []
    assert decision(hook(replayed, spec, told, "--unreplayed")) == "deny"
    with opened(replayed.store) as store:
        (row,) = store.policies.hook_decisions()
    assert (row.is_unreplayed, row.action, row.policy) == (True, "deny", "Fresh")
    replayed.json("policy", "replay", "--policy", spec)
    assert decision(hook(replayed, spec, told)) == "deny"


def test_a_changed_file_is_another_version_though_it_says_the_same(replayed):
    call = replayed.calls[2]
    write_live(replayed, call[0])
    spec, told = f"{replayed.guards}:NoDestruction", told_of(replayed, call)
    assert decision(hook(replayed, spec, told)) == "deny"
    replayed.guards.write_text(replayed.guards.read_text().replace("rewrites", "overwrites"))
    assert "no stored replay report" in hook(replayed, spec, told, code=6)


def test_a_session_that_was_interrupted_in_its_first_second_has_no_transcript(replayed):
    told = told_of(replayed, replayed.calls[0])
    assert not replayed.live.exists()
    spec = f"{replayed.guards}:PushAfterTests"
    assert decision(hook(replayed, spec, told)) == "deny"
    del told["transcript_path"], told["session_id"], told["cwd"], told["tool_use_id"]
    assert decision(hook(replayed, spec, told)) == "deny"
    replayed.live.write_bytes(b'{"type":"user","torn')
    told["transcript_path"] = str(replayed.live)
    assert decision(hook(replayed, spec, told)) == "deny"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b'{"tool_name": 5}',
        b'{"hook_event_name": 7}',
        b"[" * 100_000,
        b'{"hook_event_name":"PreToolUse","session_id":null}',
    ],
)
def test_garbage_on_stdin_is_one_line_and_blocks_nothing(replayed, data):
    spec = f"{replayed.guards}:NoDestruction"
    hook(replayed, spec, data, code=6)
    hook(replayed, spec, data, "--fail-closed", code=2)


def test_a_mistyped_command_line_blocks_nothing_either(replayed):
    told = told_of(replayed, replayed.calls[2])
    spec = f"{replayed.guards}:NoDestruction"
    assert "--unreplayd" in hook(replayed, spec, told, "--unreplayd", code=6)
    hook(replayed, spec, told, "--unreplayd", "--fail-closed", code=2)
    hook(replayed, spec, told, "more", code=6)
    hook(replayed, spec, told, "--model", "nonsense", code=6)


def test_arguments_of_any_kind_are_judged(replayed):
    spec = f"{replayed.guards}:NoDestruction"
    for arguments in (None, [], "x", {"command": 5}, {"command": None}, {}, 7):
        told = told_of(replayed, (0, "toolu_x", "Bash", arguments))
        assert hook(replayed, spec, told) == {}
    half = (
        b'{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"\\ud800",'
        b'"tool_input":{"command":"rm -rf \\ud800"}}'
    )
    assert decision(hook(replayed, spec, half)) == "ask"
    unknown = told_of(replayed, replayed.calls[2], "NewEvent")
    assert hook(replayed, spec, unknown) == {}


def test_what_is_no_policy_is_one_line(replayed):
    told = told_of(replayed, replayed.calls[2])
    hook(replayed, "nowhere.py:X", told, code=6)
    hook(replayed, "Nobody", told, code=6)
    hook(replayed, f"{replayed.guards}:Nobody", told, code=6)
    bad = replayed.folder / "bad.py"
    bad.write_text(policy_text(["1 / 0"], name="Bad", lane="gate"))
    write_live(replayed, replayed.calls[2][0])
    assert "ZeroDivisionError" in hook(replayed, f"{bad}:Bad", told, "--unreplayed", code=6)
    bad.write_text(policy_text(["while True: pass"], name="Bad", lane="gate", before="import time"))
    hook(replayed, f"{bad}:Bad", told, "--unreplayed", "--fail-closed", code=2)


AFTER = (
    HEAD
    + """
class SaysDone(Policy):
    on = ("model.response",)

    def evaluate(self, event, state):
        if event.ends_turn and "done" in event.text and not state.is_verified:
            return Inject("nothing was checked", text="run the tests")
        return None


class Failures(Policy):
    on = ("tool.result",)

    def evaluate(self, event, state):
        return Notify("it failed") if event.status == "error" else None
"""
)


@pytest.mark.parametrize("has_line", [True, False])
def test_stop_and_post_tool_use_are_judged_too(replayed, has_line):
    path = replayed.folder / "after.py"
    path.write_text(AFTER)
    replayed.json("policy", "replay", *named(path, ["SaysDone", "Failures"]))
    n = len(replayed.lines)
    last = claude.assistant(n + 1, n, claude.text("All is done."))
    # The edit of a part, and its end: nothing was checked since.
    kept = replayed.lines[: replayed.calls[1][0] + 1]
    last = claude.assistant(900, int(kept[-1]["uuid"][-12:]), claude.text("All is done."))
    replayed.live.write_bytes(claude.dump([*kept, *([last] if has_line else [])]))
    stop = {
        "hook_event_name": "Stop",
        "session_id": MAIN,
        "transcript_path": str(replayed.live),
        "stop_hook_active": False,
        "last_assistant_message": "All is done.",
    }
    answer = hook(replayed, f"{path}:SaysDone", stop)
    assert answer["decision"] == "block"
    assert "nothing was checked" in answer["reason"]
    assert hook(replayed, f"{path}:SaysDone", stop | {"last_assistant_message": "Well."}) == {}
    failing = replayed.calls[3]
    n_lines = failing[0] + has_line
    replayed.live.write_bytes(claude.dump(replayed.lines[:n_lines]))
    response = {"stdout": "1 failed", "is_error": True}
    told = told_of(replayed, failing, "PostToolUse", tool_response=response)
    answer = hook(replayed, f"{path}:Failures", told)
    if has_line:
        assert "it failed" in answer["systemMessage"]


def test_a_store_that_cannot_be_used_is_one_line(replayed):
    spec, told = f"{replayed.guards}:NoDestruction", told_of(replayed, replayed.calls[2])
    with sqlite3.connect(replayed.store) as connection:
        connection.execute("BEGIN IMMEDIATE")  # another process writes
        started = time.monotonic()
        assert decision(hook(replayed, spec, told, said=b"is not recorded")) == "deny"
        assert time.monotonic() - started < 60
    connection.close()
    replayed.store.write_bytes(b"no store at all")
    hook(replayed, spec, told, code=6)
    replayed.store.unlink()
    hook(replayed, spec, told, code=6)


def test_without_a_store_an_unreplayed_policy_decides_all_the_same(tmp_path):
    told = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}
    told["tool_input"] = {"command": "rm -rf src"}
    words = ["policy", "hook", "DangerousCommandGuard", "--unreplayed", "--fail-closed"]
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "--store", str(tmp_path / "new.db"), *words],
        input=json.dumps(told).encode(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b'"deny"' in done.stdout


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_where_the_hook_can_hear_or_say_nothing_it_blocks_if_it_should(tmp_path, closed):
    command = f'"{sys.executable}" -m redrive policy hook DangerousCommandGuard --fail-closed'
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], input=b"{}", capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"a fault of redrive itself" not in done.stderr
