"""Case 28 and the planted corpus, through every command that prints: nothing secret comes out."""

import json
import subprocess
import sys

import pytest

from redrive.audit.redaction import find_mark
from tests.planted_secrets import plant

CASE = "28-secrets-in-reports"


@pytest.fixture
def case28(cases, tmp_path):
    """The session of the case, and its scored values."""
    path = tmp_path / "session.jsonl"
    subprocess.run([sys.executable, cases / CASE / "make_input.py", path], check=True)
    return path, json.loads((cases / CASE / "expected.json").read_text())["expect"]


def commands(session, script):
    yield ("sessions",)
    yield "show", session
    yield "show", session, "--effects"
    yield "cat", session
    yield "grep", "."
    yield "grep", "-i", "aws|sk|api_key|password|token"
    yield "audit", session
    yield "audit", session, "--environment", script
    yield "diff", session, session
    yield ("verify",)
    for mode in ((), ("--reconstruct",)):
        yield "shadow", session, "--model", f"script:{script}", *mode
        yield "investigate", session, "--model", f"script:{script}", *mode


def outputs_of(redrive, session, script):
    for command in commands(session, script):
        for form in ((), ("--json",)):
            finished = redrive(*command, *form)
            assert finished.code in (0, 1, 2, 3, 6), (command, finished.err)
            if form:
                json.loads(finished.out)
            yield " ".join((*map(str, command), *form)), finished.out + finished.err


def test_28_no_planted_value_reaches_any_output(redrive, case28, tmp_path):
    path, expected = case28
    original = path.read_bytes()
    (session,) = redrive.imported(path)["sessions"]
    planted = expected["planted_parts"]
    script = tmp_path / "script.jsonl"
    calls = [{"name": "shell", "args": {"command": "env | sort"}}]
    again = [
        {"name": "http", "args": {"url": "https://h.test/?api_key=" + "".join(planted["query"])}}
    ]
    script.write_text(
        json.dumps({"tool_calls": calls}) + "\n" + json.dumps({"tool_calls": again}) + "\n"
    )
    seen = ""
    for command, output in outputs_of(redrive, session["session_id"], script):
        seen += output
        for name in expected["must_not_occur_in_any_output"]:
            public, secret = planted[name][0], "".join(planted[name][1:])
            assert public + secret[:9] not in output, (name, command)
            assert secret[-9:] not in output, (name, command)
    assert all(word in seen for word in expected["must_remain_readable"])
    assert find_mark(seen)
    raw = redrive("cat", session["session_id"], "--raw").out
    assert not any("".join(parts) in raw for parts in planted.values())
    assert all(word in raw for word in expected["must_remain_readable"])
    assert path.read_bytes() == original


def test_no_secret_of_the_planted_corpus_reaches_any_output(redrive, tmp_path):
    planted = list(plant())[::2]
    assert len(planted) >= 200
    assert len({p.shape for p in planted}) >= 30
    rows = [{"type": "session", "id": "planted", "task": planted[0].text}]
    parent = None
    for number, p in enumerate(planted):
        call = {"call_id": f"c{number}", "name": "shell", "args": {"command": p.text, p.text: 1}}
        output = {"text": p.text, "tool_calls": [call]}
        rows += [
            {"type": "decision", "id": f"d{number}", "parent": parent, "step": number + 1}
            | {"ts": "2026-03-02T09:00:02Z", "model": {"requested": "m"}, "output": output}
            | {"sampling": {"temperature": 0, "seed": 7}, "context": p.text},
            {"type": "tool_result", "id": f"r{number}", "parent": f"d{number}", "status": "ok"}
            | {"ts": "2026-03-02T09:00:04Z", "call_id": f"c{number}", "name": "shell"}
            | {"result": {"out": p.text}},
        ]
        parent = f"r{number}"
    path = tmp_path / "planted.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (session,) = redrive.imported(path)["sessions"]
    script = tmp_path / "script.jsonl"
    script.write_text(json.dumps({"text": planted[0].text, "final": True}) + "\n")
    for command, output in outputs_of(redrive, session["session_id"], script):
        leaks = [(p.shape, p.spelling) for p in planted if p.leaks_in(output)]
        assert leaks == [], command
    raw = redrive("cat", session["session_id"], "--raw").out
    assert len(raw.splitlines()) == len(rows)
    assert [p.shape for p in planted if p.leaks_in(raw)] == []


def test_an_error_line_and_its_document_are_redacted(redrive, cases):
    redrive.imported(cases / "69-empty-result-is-evidence/session.jsonl")
    secret = "sk-" + "proj-fakefakefakefakefakefake01"
    for finished in (
        redrive("import", f"/missing/{secret}/a.jsonl"),
        redrive("import", f"/missing/{secret}/a.jsonl", "--json"),
        redrive("show", secret),
    ):
        assert finished.code in (2, 6)
        assert secret[:17] not in finished.out + finished.err
        assert "[redacted:openai:" in finished.err


def test_marks_match_over_processes_and_differ_by_key(redrive, case28, tmp_path):
    path, _ = case28
    session = redrive.imported(path)["sessions"][0]["session_id"]
    first, second = redrive("cat", session).out, redrive("cat", session).out
    assert first == second
    other = {"REDRIVE_REDACTION_KEY_FILE": str(tmp_path / "other.key")}
    assert redrive("cat", session, **other).out != first


def test_a_bad_key_is_named_and_nothing_is_printed(redrive, case28, tmp_path):
    path, _ = case28
    session = redrive.imported(path)["sessions"][0]["session_id"]
    key = tmp_path / "bad.key"
    key.write_bytes(b"short")
    key.chmod(0o600)
    finished = redrive("cat", session, REDRIVE_REDACTION_KEY_FILE=str(key))
    assert (finished.code, finished.out) == (6, "")
    assert "5 bytes, expected a key of 32" in finished.err


def test_a_run_without_a_lasting_key_says_so(redrive, case28, tmp_path):
    path, _ = case28
    session = redrive.imported(path)["sessions"][0]["session_id"]
    (tmp_path / "file").write_text("")
    broken = {"REDRIVE_REDACTION_KEY_FILE": str(tmp_path / "file" / "key")}
    finished = redrive("cat", session, **broken)
    assert finished.code in (0, 6)
    assert "redaction" in finished.err or "Not a directory" in finished.err


def test_nothing_of_the_cases_but_its_secrets_is_redacted(cases):
    """The texts of the whole suite hold no secret but those of case 28."""
    from redrive.reports.redact import Redactor

    fired = []
    for path in sorted(cases.rglob("*.json*")):
        redactor = Redactor(b"k" * 32)
        list(redactor.json_lines(path.read_bytes().splitlines()))
        fired += [str(path.relative_to(cases))] * redactor.n_marks
    assert set(fired) <= {f"{CASE}/expected.json"}
    assert len(fired) <= 1


def test_third_party_sessions_stay_readable(samples):
    """At most one false mark per thousand events; what is found here today is none at all."""
    from redrive.reports.redact import Redactor

    redactor, lines = Redactor(b"k" * 32), 0
    for path in sorted(samples.rglob("*")):
        if path.is_file() and path.suffix in (".json", ".jsonl", ".har", ".traj", ".yaml"):
            found = path.read_bytes().splitlines()
            lines += len(found)
            list(redactor.json_lines(found))
    assert redactor.n_marks <= lines / 1000
    assert redactor.n_marks <= 3
