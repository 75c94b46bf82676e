"""The verbs for seeing, as whole processes, and their documents against the shipped schemas."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.schemas import check

HOSTILE = "\x1b[2Jwipe\x9b\u202e[red]\n\ud83d"
MEGABYTES = 150 if os.environ.get("REDRIVE_SOAK") == "full" else 10
_MEASURED = """
import sys
from redrive.cli.main import run
code = run(sys.argv[1:])
with open("/proc/self/status") as status:  # getrusage would count the parent before exec
    sys.stderr.write(next(line for line in status if line.startswith("VmHWM")))
sys.exit(code)
"""


@pytest.fixture
def hostile(redrive, tmp_path):
    """A session whose every text would like to own the terminal; gives its id."""
    lines = [
        {"type": "session", "id": "h", "task": HOSTILE, "parent_session": "earlier"},
        {"type": "event", "id": "u1", "kind": "user", "text": HOSTILE},
        {
            "type": "decision",
            "id": HOSTILE,
            "parent": "u1",
            "ts": "2026-01-02T03:04:05Z",
            "model": {"served": HOSTILE},
            "usage": {"input_tokens": 3, "cost_usd": "0.25"},
            "output": {
                "text": HOSTILE,
                "tool_calls": [
                    {"call_id": "c1", "name": "Bash", "args": {"command": f"curl {HOSTILE}"}},
                    {"call_id": "c2", "name": HOSTILE, "args": {HOSTILE: HOSTILE}},
                ],
            },
        },
        {"type": "permission", "id": "p", "call_id": "c1", "decision": "allowed", "by": HOSTILE},
        {"type": "tool_result", "id": "r", "call_id": "c1", "status": "ok", "result": HOSTILE},
    ]
    path = tmp_path / "hostile.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (session,) = redrive.imported(path)["sessions"]
    return session["session_id"]


def test_every_document_has_the_shape_of_its_schema(redrive, cases, hostile):
    for case in ("09-rewind-dead-branch", "13-sidechain-interleaved"):
        redrive.json("import", cases / case / "session.jsonl")
    sessions = check(redrive.json("sessions"), "sessions")["sessions"]
    assert len(sessions) == 3
    for session in sessions:
        name = f"{session['session_id'].partition('@')[0]}@{session['revision']}"
        shown = check(redrive.json("show", name), "show")
        assert shown["session"]["head"] == session["head"]
        assert len(shown["steps"]) > 0
        check(redrive.json("show", name, "--effects"), "effects")
        cat = check(redrive.json("cat", name), "cat")
        assert len(cat["events"]) == session["events"]
    assert check(redrive.json("grep", "wipe", hostile), "grep")["matches"]


def test_hostile_text_is_escaped_in_every_verb(redrive, hostile):
    for command in (
        ["sessions"],
        ["show", hostile],
        ["show", hostile, "--effects"],
        ["grep", "wipe"],
    ):
        done = redrive(*command)
        assert done.code == 0
        assert "wipe" in done.out
        assert "[red]" in done.out
        assert not {"\x1b", "\x9b", "\u202e"} & set(done.out)


def test_effects_say_what_ran_and_what_asked_for_it(redrive, hostile):
    effects = redrive.json("show", hostile, "--effects")
    command, odd, approval = effects["effects"]
    assert (command["category"], command["network_hints"]) == ("command", ["curl"])
    assert command["asked_by"]["source"] == "decision"
    assert (odd["category"], odd["basis"], odd["status"]) == ("other", "undeclared", "no result")
    assert approval["category"] == "approval"
    assert effects["totals"]["undeclared_tools"] == {HOSTILE: 1}


def test_effects_take_no_path(redrive, hostile):
    done = redrive("show", hostile, "--effects", "--actor", "main")
    assert done.code == 2
    assert "no --path" in done.err


def test_cat_prints_one_event_per_line_with_its_time(redrive, hostile):
    lines = redrive("cat", hostile).out.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(len(events)))
    times = {event.get("ts") for event in events}
    assert "2026-01-02T03:04:05.000000000Z" in times
    only = redrive("cat", hostile, "--kind", "tool.call", "--kind", "tool.result")
    assert {json.loads(line)["kind"] for line in only.out.splitlines()} == {
        "tool.call",
        "tool.result",
    }
    assert redrive("cat", hostile, "--kind", "nothing").code == 2
    assert redrive("cat", hostile, "--raw", "--json").code == 2


def test_cat_raw_gives_the_source_back(redrive, cases):
    path = cases / "06-nul-block-mid-file" / "session.jsonl"
    (session,) = redrive.imported(path)["sessions"]
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "cat", session["session_id"], "--raw"],
        capture_output=True,
        check=True,
        env=os.environ | {"REDRIVE_STORE": str(redrive.store)},
    )
    assert done.stdout == path.read_bytes()


def test_grep_finds_or_finds_nothing_and_both_are_done(redrive, hostile):
    assert redrive("grep", "WIPE", "-i", "all").out.count("wipe") >= 4
    nothing = redrive("grep", "no such text")
    assert (nothing.code, nothing.out) == (0, "")
    assert "0 lines match" in nothing.err
    one = redrive("grep", "curl")
    assert re.search(r"1 line matches, \d+ events in 1 session searched", one.err)
    assert redrive("grep", "(").code == 2
    assert redrive("grep", "wipe", "--tool", "Bash").out.count("wipe") == 2
    assert redrive("grep", "[2J", "--fixed").code == 0
    assert redrive("grep", "x", "nowhere").code == 2


def test_a_session_that_is_not_there_is_the_callers_mistake(redrive, hostile):
    for verb in ("show", "cat"):
        done = redrive(verb, "nowhere", "--json")
        assert done.code == 2
        assert done.document["error"]["code"] == 2
    assert redrive("show", hostile, "--path", "nowhere").code == 2


def test_no_verb_answers_from_damaged_evidence(redrive, cases):
    (session,) = redrive.imported(cases / "09-rewind-dead-branch/session.jsonl")["sessions"]
    damage_a_segment(redrive.store)
    for command in (["show"], ["show", "--effects"], ["cat"], ["cat", "--json"]):
        done = redrive(command[0], session["session_id"], *command[1:])
        assert done.code == 7, (command, done.err)
        assert not done.out or "error" in done.document


def test_one_damaged_session_blocks_no_other(redrive, cases):
    broken, sound = "interchange:s25", "interchange:s26"
    redrive.imported(cases / "25-polled-identical-calls/session.jsonl")
    damage_a_segment(redrive.store)
    redrive.imported(cases / "26-changed-arguments-no-fallback/session.jsonl")
    listed = redrive("sessions")
    assert listed.code == 7
    assert f"{sound}  " in listed.out
    assert f"DAMAGED: session {broken}, segment at seq 0" in listed.out
    assert f"damaged: {broken}" in listed.err
    document = check(redrive.json("sessions", code=7), "sessions")
    assert {s["session_id"]: "damage" in s for s in document["sessions"]} == {
        broken: True,
        sound: False,
    }
    for command in (["show"], ["show", "--effects"], ["cat"], ["audit"]):
        done = redrive(command[0], sound, *command[1:])
        assert (done.code, done.err) in {(0, ""), (3, "")}
    found = check(redrive.json("grep", "a", "all", code=7), "grep")
    assert {match["session_id"] for match in found["matches"]} == {sound}
    assert [entry["session_id"] for entry in found["damaged"]] == [broken]
    audited = check(redrive.json("audit", "all", code=7), "audit")
    assert [entry["session_id"] for entry in audited["sessions"]] == [sound]
    assert [entry["session_id"] for entry in audited["damaged"]] == [broken]
    for verb in (["audit", broken], ["grep", "a", broken]):
        assert check(redrive.json(*verb, code=7), "error")["error"]["type"] == "TamperError"
        assert not redrive(*verb).out


def test_a_ring_of_parents_is_no_complete_record(redrive, tmp_path):
    parents = {"d1": "d3", "d2": "d1", "d3": "d2"}
    lines = [{"type": "session", "id": "ring"}]
    lines += [
        {"type": "decision", "id": node, "parent": parent, "output": {"text": node}}
        for node, parent in parents.items()
    ]
    path = tmp_path / "ring.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (session,) = redrive.imported(path)["sessions"]
    assert (session["complete"], session["broken"]) == (False, "cycle")
    shown = redrive("show", "ring")
    assert "Record    incomplete, parent links form a cycle" in shown.out
    assert "Broken    cycle: node d1 names as its parent d3, which is below it" in shown.out
    assert re.search(r"Branches\n  main  live: 3 steps, leaf d3", shown.out)
    assert check(redrive.json("show", "ring"), "show")["path"]["breaks"]["what"] == "cycle"
    assert check(redrive.json("sessions"), "sessions")["sessions"][0]["broken"] == "cycle"


def test_show_and_cat_take_one_session(redrive, hostile):
    for verb in ("show", "cat"):
        done = redrive(verb, "all")
        assert done.code == 2
        assert f"{verb} takes one session" in done.err
        assert "redrive sessions" in done.err


def test_a_long_name_is_not_echoed_whole(redrive, hostile):
    for command in (
        ["show", "x" * 5000],
        ["show", hostile, "--path", "x" * 5000],
        ["show", hostile, "--actor", "x" * 5000],
        ["cat", hostile, "--kind", "x" * 5000],
        ["grep", "(" * 5000],
        ["audit", "x" * 5000],
    ):
        done = redrive(*command)
        assert done.code == 2
        assert len(done.err) < 600, command
        assert "(5000 characters)" in done.err


def test_an_audit_beyond_the_end_of_the_path_says_so(redrive, cases):
    redrive.imported(cases / "25-polled-identical-calls/session.jsonl")
    done = redrive("audit", "s25", "--until", "999")
    assert done.code == 0
    assert "--until 999, but the path has 4 steps" in done.err
    assert redrive("audit", "s25", "--until", "4").err == ""


def damage_a_segment(store):
    import sqlite3

    database = sqlite3.connect(store)
    (size,) = database.execute("SELECT length(data) FROM segments LIMIT 1").fetchone()
    for rowid, data in database.execute("SELECT rowid, data FROM segments").fetchall():
        changed = bytearray(data)
        changed[size // 2] ^= 1
        database.execute("UPDATE segments SET data = ? WHERE rowid = ?", (bytes(changed), rowid))
        break
    database.commit()
    database.close()


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_case_58_is_shown_and_printed_in_bounded_memory(redrive, cases, tmp_path):
    path = tmp_path / "big.jsonl"
    script = cases / "58-huge-session" / "make_input.py"
    made = subprocess.run(
        [sys.executable, str(script), str(path), str(MEGABYTES)], capture_output=True, check=True
    )
    counts = json.loads(made.stdout)
    (session,) = redrive.imported(path)["sessions"]
    with path.open("rb") as file:
        longest = max(map(len, file))
    bound = 64 * 2**20 + 4 * longest + 300 * session["events"]
    for command in (["show"], ["show", "--json"], ["cat"], ["cat", "--json"]):
        done = subprocess.run(
            [sys.executable, "-c", _MEASURED, command[0], session["session_id"], *command[1:]],
            capture_output=True,
            env=os.environ | {"REDRIVE_STORE": str(redrive.store)},
        )
        assert done.returncode == 0, done.stderr[-2000:]
        peak = 1024 * int(re.search(rb"VmHWM:\s+(\d+)", done.stderr)[1])
        assert peak <= bound, (command, peak, bound)
        if command == ["cat"]:
            assert done.stdout.count(b"\n") == session["events"] >= counts["lines"]
