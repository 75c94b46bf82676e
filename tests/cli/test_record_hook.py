"""Hooks of Claude Code, as whole processes beside a recorder that runs."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.conftest import Redrive

HOOK = (sys.executable, "-m", "redrive", "record-hook")


def hook(event: str, **fields: Any) -> bytes:
    return json.dumps({"hook_event_name": event, "session_id": "s"} | fields).encode()


def test_what_hooks_are_told_below_record_is_part_of_its_session(redrive: Redrive):
    inputs = [
        hook("SessionStart", source="startup"),
        hook("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}, tool_use_id="t1"),
        hook("PermissionRequest", tool_name="Bash", tool_input={"command": "ls"}),
        hook("PostToolUse", tool_name="Bash", tool_input={}, tool_use_id="t1", tool_response="x"),
        b"garbage",
    ]
    agent = (
        "import subprocess, sys\n"
        "for data in eval(sys.argv[1]):\n"
        f"    done = subprocess.run({HOOK!r}, input=data, capture_output=True)\n"
        "    assert (done.returncode, done.stdout, done.stderr) == (0, b'', b''), done\n"
    )
    done = redrive("record", "--agent", "claude", "--", sys.executable, "-c", agent, repr(inputs))
    assert done.code == 0
    (session,) = redrive.json("sessions")["sessions"]
    events = redrive.json("cat", session["session_id"])["events"]
    names = [event["payload"]["name"] for event in events if event["kind"] == "custom"]
    assert names == ["hook.SessionStart", "tool.intent", "tool.reported"]
    (asked,) = [event["payload"] for event in events if event["kind"] == "tool.permission"]
    assert asked["decision"] == "asked"


@pytest.mark.parametrize(
    ("words", "data", "recorder"),
    [
        ((), hook("Stop"), ""),
        ((), b"", "http://127.0.0.1:9/TOKEN/redrive"),
        ((), hook("Stop"), "http://127.0.0.1:9/TOKEN/redrive"),
        ((), hook("Stop"), "nonsense"),
        (("--no-such-option", "word"), hook("Stop"), ""),
    ],
)
def test_a_hook_is_silent_and_succeeds_whatever_is_wrong(
    words: tuple[str, ...], data: bytes, recorder: str
):
    environment = {"REDRIVE_RECORDER": recorder, "PATH": "/usr/bin:/bin"}
    done = subprocess.run([*HOOK, *words], input=data, env=environment, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_hook_succeeds_whichever_of_its_streams_is_closed(closed: str):
    command = f'"$0" -m redrive record-hook {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable], input=b"{}", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_hook_whose_input_never_ends_does_not_hold_the_agent():
    with subprocess.Popen(HOOK, stdin=subprocess.PIPE) as process:
        assert process.wait(120) == 0
