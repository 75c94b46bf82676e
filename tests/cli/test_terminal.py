"""What reaches a terminal, and what a pipe."""

import os
import pty
import subprocess
import sys


def run_on_a_terminal(arguments, environment, *, stdout_too=False):
    """Run redrive with stderr on a terminal; give (stdout, what the terminal got)."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "redrive", *arguments],
        stdout=theirs if stdout_too else subprocess.PIPE,
        stderr=theirs,
        env=os.environ | environment,
        timeout=600,
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert done.returncode == 0
    return done.stdout, seen


def test_progress_goes_to_a_terminal_and_nowhere_else(redrive, cases):
    path = str(cases / "25-polled-identical-calls/session.jsonl")
    environment = {"REDRIVE_STORE": str(redrive.store)}
    out, seen = run_on_a_terminal(["import", path], environment)
    assert b"importing 0/1" in seen
    assert b"\x1b" not in out
    assert b"importing" not in out
    assert redrive("import", path).err == ""


def test_progress_is_cleared_before_a_line_of_the_report(redrive, cases):
    redrive.imported(cases / "25-polled-identical-calls/session.jsonl")
    environment = {"REDRIVE_STORE": str(redrive.store)}
    _, seen = run_on_a_terminal(["audit", "all"], environment, stdout_too=True)
    assert b"auditing 0/1" in seen
    shown = [line.rpartition(b"\x1b[2K")[2] for line in seen.split(b"\r\n")]
    assert shown[0] == b"interchange:s25  closed: all 4 steps"


def test_a_closed_pipe_ends_quietly(redrive, cases):
    redrive.imported(cases / "14-split-content-blocks/session.jsonl")
    for verb in (["cat", "5e55"], ["show", "5e55"], ["cat", "5e55", "--json"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", *verb],
            env=os.environ | {"REDRIVE_STORE": str(redrive.store)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        process.stdout.close()  # the reader has gone before the first line
        error = process.stderr.read()
        process.stderr.close()
        assert (process.wait(), error) == (0, b"")


def test_hostile_text_is_shown_escaped_by_every_text_verb(redrive, tmp_path):
    hostile = "\\u001b]8;;http://x\\u0007\\u001b[2J\\u202e[bold]\\u0085\\n"
    path = tmp_path / "hostile.jsonl"
    path.write_text(
        '{"type":"session","id":"h' + hostile + '","task":"' + hostile + '"}\n'
        '{"type":"event","kind":"user","id":"u","text":"' + hostile + '"}\n'
        '{"type":"decision","id":"d'
        + hostile
        + '","parent":"u","output":{"text":"'
        + hostile
        + '","tool_calls":[{"call_id":"c","name":"'
        + hostile
        + '","args":{"a":"'
        + hostile
        + '"}}]}}\n'
        '{"type":"tool_result","id":"r","parent":"d'
        + hostile
        + '","call_id":"c","result":"'
        + hostile
        + '"}\n'
    )
    done = redrive("import", path)
    assert done.code == 0
    name = redrive.json("sessions")["sessions"][0]["session_id"]
    script = tmp_path / "s.jsonl"
    script.write_text('{"text":"' + hostile + '","final":true}\n')
    outputs = [done.out]
    for verb in (
        ("sessions",),
        ("show", name),
        ("show", name, "--effects"),
        ("grep", "bold"),
        ("audit", name),
        ("investigate", name, "--model", f"script:{script}", "--reconstruct"),
        ("diff", name, name),
        ("audit", name + "x"),
    ):
        finished = redrive(*verb)
        assert finished.code in (0, 2, 3), (verb, finished)
        outputs.append(finished.out + finished.err)
    for text in outputs:
        assert not {"\x1b", "\x07", "\x85", "\u202e"} & set(text)
    assert "[bold]" in "".join(outputs), "markup is text"
