"""Whatever a policy verb prints or writes holds no secret of the recording (case 28)."""

import json
import subprocess
import sys

import pytest

POLICY = '''
from redrive.policy import Notify, Policy


class Echo(Policy):
    """Says everything that it is shown, as a careless policy would."""

    version = "1"
    on = ("session.started", "tool.call", "tool.result", "model.response")
    needs = ("completion_claim",)

    def evaluate(self, event, state):
        said = f"{event.arguments} {event.result} {event.text}"
        claimed = state.infer("completion_claim") if event.kind == "model.response" else None
        return Notify(f"{claimed} {said}", dedup_key=said)
'''
MODEL = 'def complete(prompt, config):\n    return \'{"answer": "yes"}\'\n'
SESSION = "s28"
WORDS = ("policy", "replay", "--policy", "echo.py:Echo", "--model", "python:model.py:complete")


@pytest.fixture
def planted(redrive, cases, tmp_path):
    """Import case 28 into a store, with a policy beside it; give the planted values."""
    folder = cases / "28-secrets-in-reports"
    session = tmp_path / "session.jsonl"
    subprocess.run([sys.executable, folder / "make_input.py", session], check=True)
    (tmp_path / "echo.py").write_text(POLICY)
    (tmp_path / "echo2.py").write_text(POLICY.replace('version = "1"', 'version = "2"'))
    (tmp_path / "model.py").write_text(MODEL)
    redrive.imported(session)
    return json.loads((folder / "expected.json").read_text())["expect"]


def leaks(expected, text):
    """Name the planted values that stand in a text: whole, or nine characters of a secret part."""
    parts = expected["planted_parts"]
    return [
        name
        for name, (first, *rest) in parts.items()
        if first + "".join(rest) in text or "".join(rest)[:9] in text
    ]


def test_the_watch_sees_a_planted_value(redrive, planted, tmp_path):
    assert len(leaks(planted, (tmp_path / "session.jsonl").read_text())) == 11


def test_no_report_holds_a_planted_value(redrive, planted, tmp_path):
    files = ("--html", "r.html", "--junit", "r.xml", "--export-cache", "cache.jsonl")
    texts = [
        redrive(*WORDS).out,
        redrive(*WORDS, "--json", *files).out,
        *((tmp_path / name).read_text() for name in ("r.html", "r.xml", "cache.jsonl")),
    ]
    for text in texts:
        assert leaks(planted, text) == []
        assert len(text) > 200
    assert "3f786850e387550fdab836ed7e6dc881de23001b" in texts[1]
    stored = redrive("policy", "precision", "Echo")
    assert leaks(planted, stored.out + stored.err) == []


def test_no_comparison_and_no_card_holds_a_planted_value(redrive, planted, tmp_path):
    model = ("--model", "python:model.py:complete")
    sides = ("echo.py:Echo", "echo2.py:Echo")
    diff = redrive("policy", "diff", *sides, *model, "--json", "--sarif", "d.sarif")
    assert diff.document["counts"]["same"] > 3
    assert leaks(planted, diff.out + (tmp_path / "d.sarif").read_text()) == []
    redrive(*WORDS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "redrive",
            "--store",
            str(redrive.store),
            "policy",
            "annotate",
            "Echo",
            "--rater",
            "ann",
            "--terminal",
        ],
        input=b"o\nt\n" * 12,
        capture_output=True,
        cwd=tmp_path,
        check=False,
    )
    cards = done.stdout.decode() + done.stderr.decode()
    assert "Should it have fired here?" in cards
    assert leaks(planted, cards) == []


def test_a_live_decision_holds_no_planted_value(redrive, planted, tmp_path):
    secret = "".join(planted["planted_parts"]["google"])
    told = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": f"export KEY={secret}; rm -rf src-{secret}"},
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "redrive",
            "--store",
            str(redrive.store),
            "policy",
            "hook",
            "DangerousCommandGuard",
            "--unreplayed",
        ],
        input=json.dumps(told).encode(),
        capture_output=True,
        check=False,
    )
    assert b'"deny"' in done.stdout
    assert leaks(planted, (done.stdout + done.stderr).decode()) == []
