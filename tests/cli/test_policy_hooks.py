"""Hooks of Claude Code as policies: run against history, in the sandbox or not at all."""

import json
import subprocess
import sys

import pytest

from redrive.sandbox.bubblewrap import find_bubblewrap
from tests.policy_corpus import policy_text, write_guards
from tests.stored import opened

needs_sandbox = pytest.mark.skipif(find_bubblewrap() is None, reason="bwrap is not installed")
SESSION = ("--sessions", "claude_code:5e55")

GUARD = """#!/bin/sh
input=$(cat)
case "$input" in
  *"--force"*) echo "never force" >&2; exit 2;;
  *"rm -rf"*)
    printf '{"hookSpecificOutput":{"hookEventName":"PreToolUse",'
    printf '"permissionDecision":"ask","permissionDecisionReason":"deletes"}}';;
esac
"""
FICKLE = """#!/bin/bash
cat > /dev/null
echo "number $RANDOM$RANDOM" >&2
[ $((RANDOM % 2)) = 0 ] || exit 2
date +%N%s | grep -q '^[0-4]' && exit 2
exit 0
"""


@pytest.fixture
def project(redrive, corpora):
    """A store with the corpus, run from a project's folder that holds hooks."""
    corpora.put_into(redrive, 1)
    redrive.folder = redrive.folder / "project"
    redrive.folder.mkdir()
    script(redrive, "guard.sh", GUARD)
    return redrive


def script(redrive, name, text):
    path = redrive.folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def replay(project, *specs, code=0, more=SESSION):
    words = [word for spec in specs for word in ("--policy", spec)]
    done = project("policy", "replay", *words, "--json", *more)
    assert (done.code, done.err) == (code, ""), done
    return done


def fires(report):
    return [
        (fire["action"], fire["context"], fire["reason"])
        for session in report["per_session"]
        for fire in session["fires"]
    ]


@needs_sandbox
def test_a_hook_fires_where_it_would_have_decided(project):
    spec = "hook:PreToolUse:Bash=./guard.sh"
    done = replay(project, spec)
    (report,) = done.document["reports"]
    assert fires(report) == [
        ("ask", "rm -rf build", "deletes"),
        ("deny", "git push --force", "never force"),
        ("ask", "rm -rf cache", "deletes"),
    ]
    assert (report["lane"], report["policy"], report["faults"]) == ("gate", "guard.sh", [])
    assert report["events_offered"] == 6
    for word in ("clock", "randomness", "files", "effects"):
        assert any(line.startswith(f"{word}: ") for line in report["unenforced"])
    assert replay(project, spec, more=(*SESSION, "--recheck", "all", "--workers", "2")).out == (
        done.out
    )
    with opened(project.store) as store:
        versions = {row.version for row in store.policies.reports("guard.sh")}
    assert versions == {report["version"]}
    script(project, "guard.sh", GUARD + "# another\n")
    assert replay(project, spec).document["reports"][0]["version"] != report["version"]


@needs_sandbox
def test_a_matcher_keeps_other_tools_from_a_hook(project):
    specs = ("hook:PreToolUse:Read|Edit=./guard.sh", "hook:PreToolUse=exit 2")
    edits, every = replay(project, *specs).document["reports"]
    assert fires(edits) == []
    assert fires(every)[0][1] == "git status"
    assert every["fired"] == 6


@needs_sandbox
@pytest.mark.parametrize(
    ("command", "what"),
    [
        ("exit 1", "exit 1"),
        ("echo so >&2; exit 3", "exit 3: so"),
        ("no-such-program", "exit 127"),
        ("echo '{\"decision\": 5}'", "an answer that Claude Code does not accept"),
        ("kill -9 $$", ""),
    ],
)
def test_a_hook_without_a_decision_is_a_fault_and_other_policies_go_on(project, command, what):
    guards = write_guards(project.folder)
    specs = (f"hook:PreToolUse:Bash={command}", f"{guards}:NoDestruction")
    hook, sound = replay(project, *specs, code=7).document["reports"]
    assert what in hook["faults"][0]["what"]
    assert len(hook["faults"]) == 3
    assert hook["fired"] == 0
    assert sound["fired"] == 3


@needs_sandbox
def test_a_fickle_hook_is_found_by_asking_twice(project):
    script(project, "fickle.sh", FICKLE)
    more = ()  # every session: by chance alone it would pass once in a great many
    (report,) = replay(project, "hook:PreToolUse:Bash=./fickle.sh", code=7, more=more).document[
        "reports"
    ]
    assert any("answers differently when asked again" in f["what"] for f in report["faults"])


@needs_sandbox
def test_a_hook_gets_its_own_command_behind_a_policy_that_does_not_load(project):
    broken, hidden = project.folder / "broken.py", project.folder / "hidden.py"
    broken.write_text("class Suspect(:\n")
    hidden.write_text(policy_text(["return None"], before="1 / 0"))
    specs = (f"{broken}:Suspect", f"{hidden}:Suspect", "hook:PreToolUse:Bash=./guard.sh")
    *unloaded, hook = replay(project, *specs, code=6).document["reports"]
    assert [len(report["faults"]) for report in unloaded] == [1, 1]
    assert hook["fired"] == 3


@needs_sandbox
def test_a_hook_changes_nothing_outside_its_sandbox(project):
    command = "touch ./made /tmp/made-by-a-hook; cat > /dev/null; exit 2"
    report = replay(project, f"hook:PreToolUse:Bash={command}", code=7).document["reports"][0]
    assert "Read-only file system" in report["faults"][0]["what"]
    assert not (project.folder / "made").exists()


@needs_sandbox
def test_the_hooks_of_a_settings_file_are_replayed_each_on_its_own(project):
    folder = project.folder / ".claude"
    folder.mkdir()
    command = {"type": "command", "command": "$CLAUDE_PROJECT_DIR/guard.sh"}
    after = {"type": "command", "command": 'echo \'{"systemMessage": "seen"}\''}
    stop = {"type": "command", "command": "echo 'not yet' >&2; exit 2"}
    hooks = {
        "PreToolUse": [{"matcher": "Bash", "hooks": [command]}],
        "PostToolUse": [{"matcher": "Bash", "hooks": [after]}],
        "Stop": [{"hooks": [stop]}],
        "SessionStart": [{"hooks": [{"type": "command", "command": "exit 1"}]}],
    }
    (folder / "settings.json").write_text(json.dumps({"hooks": hooks}))
    reports = replay(project, "settings:.claude/settings.json").document["reports"]
    assert [report["on"] for report in reports] == [
        ["tool.call"],
        ["tool.result"],
        ["model.response"],
    ]
    assert reports[0]["fired"] == 3
    assert [action for action, _, _ in fires(reports[2])] == ["Inject"] * reports[2]["fired"]
    assert reports[2]["fired"] >= 1


def test_without_a_sandbox_no_hook_is_run(project, tmp_path):
    ran = tmp_path / "ran"
    words = ("--policy", f"hook:PreToolUse:Bash=touch {ran}", *SESSION)
    done = project("policy", "replay", *words, "--json", PATH=str(tmp_path))
    assert (done.code, done.err.count("\n")) == (7, 1)
    assert "bwrap is not installed" in done.err
    assert done.document["error"]["type"] == "ContainmentError"
    assert not ran.exists()
    with opened(project.store) as store:
        assert store.policies.reports() == []


@needs_sandbox
@pytest.mark.parametrize(
    "spec",
    ["hook:", "hook:SessionStart=x", "settings:nowhere.json", "settings:empty.json", "settings:"],
)
def test_a_spec_that_names_no_hook_is_a_usage_error(project, spec):
    (project.folder / "empty.json").write_text("{}")
    done = project("policy", "replay", "--policy", spec)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "hint" in done.err


@needs_sandbox
def test_a_settings_file_that_is_no_json_is_one_line(project):
    (project.folder / "torn.json").write_text('{"hooks": ')
    done = project("policy", "replay", "--policy", "settings:torn.json")
    assert done.code in (2, 6)
    assert done.err.count("\n") == 1


def test_a_hook_is_no_policy_of_the_live_hook(project):
    told = json.dumps({"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}})
    done = subprocess.run(
        [sys.executable, "-m", "redrive", "policy", "hook", "hook:PreToolUse:Bash=true"],
        input=told.encode(),
        capture_output=True,
        cwd=project.folder,
        env={"REDRIVE_STORE": str(project.store)},
        timeout=300,
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (6, 1)
