"""Hooks run as Claude Code runs them, and cannot do here what they could do there."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest

from redrive.errors import ContainmentError, UsageError
from redrive.policies.claude_hook import (
    NO_TRANSCRIPT,
    UNENFORCED,
    ClaudeHook,
    applies,
    find_script,
    read_version,
    run_hook,
)
from redrive.policies.hook_protocol import Action, HookDecision, HookInput
from redrive.sandbox import bubblewrap
from redrive.sandbox.bubblewrap import probe
from redrive.sandbox.confinement import Limits

EXAMPLE = Path(__file__).parents[3] / "examples" / "hooks" / "block_rm.sh"
needs_bubblewrap = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)


def bash(command: str, **fields: object) -> HookInput:
    """Give the input of a call of Bash."""
    return HookInput(
        **{"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash"}
        | {"tool_input": {"command": command}, "transcript_path": "/srv/t.jsonl"}
        | fields
    )


@pytest.fixture
def home(tmp_path):
    """A home folder with a secret, a project and a user's own hooks."""
    folder = tmp_path / "home"
    for below in ("project/.claude/hooks", ".claude/hooks", "tools"):
        (folder / below).mkdir(parents=True)
    (folder / ".netrc").write_text("s3cret")
    (folder / ".claude" / ".credentials.json").write_text("t0ken")
    return folder


@pytest.fixture
def hook(home):
    """Make a hook in the project: `hook(command)`, fields as of `ClaudeHook`."""

    def make(command, **fields):
        return ClaudeHook(
            **{"name": "h", "event": "PreToolUse", "project_folder": str(home / "project")}
            | {"command": command}
            | fields
        )

    return make


def script(path: Path, text: str) -> Path:
    """Write an executable script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# --- the example -------------------------------------------------------------------------------
RM = [
    ("rm -rf build", True),
    ("sudo /bin/rm -r -f x", True),
    ("cd a && rm -fr b", True),
    ("echo $(rm --recursive --force x)", True),
    ("rm file; ls -rf", False),
    ("rm -r folder", False),
    ("echo warm -rf", False),
]


@needs_bubblewrap
@pytest.mark.parametrize(("command", "is_denied"), RM)
def test_the_example_denies_what_it_says(home, hook, command, is_denied):
    shutil.copy(EXAMPLE, home / "project" / "block_rm.sh")
    guard = hook('"$CLAUDE_PROJECT_DIR"/block_rm.sh', matcher="Bash")
    done = run_hook(guard, bash(command), str(home))
    assert done.fault == ""
    assert done.action is (Action.DENY if is_denied else Action.NONE)
    assert (command in done.reason) is is_denied


@pytest.mark.parametrize(("command", "is_denied"), RM)
def test_the_example_decides_the_same_where_claude_code_runs_it(command, is_denied):
    data = msgspec.json.encode(bash(command))
    done = subprocess.run(["/bin/sh", "-c", f"'{EXAMPLE}'"], input=data, capture_output=True)
    assert done.returncode == (2 if is_denied else 0)


def test_the_example_blocks_what_it_does_not_understand():
    done = subprocess.run([EXAMPLE], input=b"garbage", capture_output=True)
    assert done.returncode == 2
    assert b"not understood" in done.stderr


# --- how it is called --------------------------------------------------------------------------
@needs_bubblewrap
def test_a_hook_gets_its_input_folder_and_variables(home, hook):
    told = 'echo "$(pwd) $CLAUDE_PROJECT_DIR $HOME" >&2; cat >&2; exit 2'
    done = run_hook(hook(told), bash("ls", cwd="/not/here"), str(home))
    project = f"{home}/project"
    first, _, rest = done.reason.partition("\n")
    assert first == f"{project} {project} {home}"
    assert msgspec.json.decode(rest)["tool_input"] == {"command": "ls"}
    assert msgspec.json.decode(rest)["cwd"] == "/not/here"


@needs_bubblewrap
def test_a_hook_runs_in_the_recorded_folder_if_the_project_has_it(home, hook):
    (home / "project" / "sub").mkdir()
    (home / "project" / "link").symlink_to(home)
    for cwd, expected in (("sub", "project/sub"), ("link", "project"), ("..", "project")):
        recorded = bash("ls", cwd=f"{home}/project/{cwd}")
        assert run_hook(hook("pwd >&2; exit 2"), recorded, str(home)).reason == f"{home}/{expected}"


@needs_bubblewrap
def test_the_transcript_is_an_empty_file(home, hook):
    told = f'cat {NO_TRANSCRIPT} && grep -o \'"transcript_path":"[^"]*"\' >&2; exit 2'
    done = run_hook(hook(told), bash("ls"), str(home))
    assert done.reason == f'"transcript_path":"{NO_TRANSCRIPT}"'
    assert any(line.startswith("transcript:") for line in UNENFORCED)


@needs_bubblewrap
def test_a_command_with_arguments_runs_without_a_shell(home, hook):
    script(home / "project" / "a b.sh", 'echo "$1" >&2; exit 2')
    argv = ("${CLAUDE_PROJECT_DIR}/a b.sh", "$HOME; exit 0")
    assert run_hook(hook(argv), bash("ls"), str(home)).reason == "$HOME; exit 0"


@needs_bubblewrap
def test_json_is_read(home, hook):
    answer = '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"ask"}}'
    assert run_hook(hook(f"echo '{answer}'"), bash("ls"), str(home)) == HookDecision(
        action=Action.ASK
    )


def test_a_hook_applies_to_its_event_and_tools(hook):
    guard = hook("true", matcher="Bash|Edit")
    assert applies(guard, bash("ls"))
    assert not applies(guard, bash("ls", tool_name="Read"))
    assert not applies(guard, bash("ls", hook_event_name="PostToolUse"))
    assert applies(hook("true", event="Stop"), HookInput(hook_event_name="Stop"))


# --- what it cannot do -------------------------------------------------------------------------
@needs_bubblewrap
def test_a_hook_changes_nothing_of_the_project(home, hook):
    command = 'touch "$CLAUDE_PROJECT_DIR/mark" ~/mark /tmp/redrive-mark; exit 0'
    run_hook(hook(command), bash("ls"), str(home))
    assert not (home / "project" / "mark").exists()
    assert not (home / "mark").exists()
    assert not os.path.exists("/tmp/redrive-mark")
    env = {"HOME": str(home), "CLAUDE_PROJECT_DIR": str(home / "project")}
    subprocess.run(["/bin/sh", "-c", command.replace("/tmp/redrive-mark", "")], env=env)
    assert (home / "project" / "mark").exists()


@needs_bubblewrap
def test_a_hook_does_not_read_the_home_folder(home, hook):
    command = "cat ~/.netrc ~/.claude/.credentials.json >&2; exit 2"
    done = run_hook(hook(command), bash("ls"), str(home))
    assert done.action is Action.DENY
    assert "s3cret" not in done.reason
    assert "t0ken" not in done.reason
    control = subprocess.run(
        ["/bin/sh", "-c", command], env={"HOME": str(home)}, capture_output=True
    )
    assert b"s3cret" in control.stderr


@needs_bubblewrap
def test_a_hook_reaches_no_server(home, hook):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        port = server.getsockname()[1]
        connect = f'bash -c "exec 3<>/dev/tcp/127.0.0.1/{port}" && echo reached >&2; exit 2'
        assert "reached" not in run_hook(hook(connect), bash("ls"), str(home)).reason
        with pytest.raises(TimeoutError):
            server.accept()
        control = subprocess.run(["/bin/sh", "-c", connect], capture_output=True)
        assert control.stderr == b"reached\n"


@needs_bubblewrap
def test_a_hook_of_the_user_is_found_by_its_tilde_and_sees_its_own_folder_alone(home, hook):
    (home / ".claude" / "hooks" / "lib.sh").write_text("told=helped")
    text = '. "$(dirname "$0")/lib.sh"; echo "$told $(cat ~/.claude/.credentials.json)" >&2; exit 2'
    script(home / ".claude" / "hooks" / "guard.sh", text)
    done = run_hook(hook("~/.claude/hooks/guard.sh"), bash("ls"), str(home))
    assert done.reason.splitlines()[-1].strip() == "helped"
    assert "t0ken" not in done.reason


@needs_bubblewrap
@pytest.mark.parametrize("place", ["guard.sh", ".claude/guard.sh"])
def test_a_script_beside_private_files_is_shown_alone(home, hook, place):
    script(home / place, 'ls -A "$(dirname "$0")" >&2; exit 2')
    done = run_hook(hook(f"$HOME/{place}"), bash("ls"), str(home))
    shown = {"guard.sh", "project"} if place == "guard.sh" else {"guard.sh"}
    assert set(done.reason.split()) == shown


@needs_bubblewrap
def test_a_linked_script_is_shown_where_the_link_lies(home, hook):
    script(home / "tools" / "real.sh", "echo linked >&2; exit 2")
    (home / ".claude" / "hooks" / "guard.sh").symlink_to(home / "tools" / "real.sh")
    done = run_hook(hook("~/.claude/hooks/guard.sh"), bash("ls"), str(home))
    assert done.reason == "linked"


@needs_bubblewrap
def test_what_is_named_readable_is_read(home, hook):
    (home / "tools" / "data").write_text("named")
    guard = hook("cat ~/tools/data >&2; exit 2", readable=(f"{home}/tools",))
    assert run_hook(guard, bash("ls"), str(home)).reason == "named"


@pytest.mark.parametrize("folder", ["", "none", "relative"])
def test_a_project_that_shows_the_home_folder_or_is_none_is_refused(home, hook, folder):
    path = folder if folder == "relative" else str(home / folder)
    with pytest.raises(UsageError, match=r"home folder|no such project"):
        run_hook(hook("true", project_folder=path), bash("ls"), str(home))


def test_a_link_to_the_home_folder_is_no_project(home, hook, tmp_path):
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(UsageError, match="holds the home folder"):
        run_hook(hook("true", project_folder=str(tmp_path / "link")), bash("ls"), str(home))


def test_without_a_sandbox_the_hook_does_not_run(home, hook, monkeypatch):
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: None)
    with pytest.raises(ContainmentError):
        run_hook(hook(f"touch {home}/ran"), bash("ls"), str(home))
    assert not (home / "ran").exists()


# --- when it fails -----------------------------------------------------------------------------
@needs_bubblewrap
@pytest.mark.parametrize(
    ("command", "timeout_s", "words"),
    [
        ("exit 1", 120, "exit 1"),
        ("no-such-program", 120, "exit 127"),
        ("sleep 600", 0.5, "longer than 0.5 s"),
        ('echo \'{"decision":"maybe"}\'', 120, "does not accept"),
    ],
)
def test_a_hook_that_gives_no_decision_says_why(home, hook, command, timeout_s, words):
    done = run_hook(hook(command, timeout_s=timeout_s), bash("ls"), str(home))
    assert done.action is Action.NONE
    assert words in done.fault


@needs_bubblewrap
def test_a_missing_program_is_told_what_is_there(home, hook):
    assert "named readable" in run_hook(hook("nope"), bash("ls"), str(home)).fault


@needs_bubblewrap
def test_a_flood_is_cut_and_said_while_the_decision_stands(home, hook):
    limits = Limits(output_bytes=100)
    done = run_hook(
        hook("head -c 9999 /dev/zero; echo no >&2; exit 2", limits=limits), bash("ls"), str(home)
    )
    assert (done.action, done.reason) == (Action.DENY, "no")
    assert "cut at 100 bytes" in done.fault


@needs_bubblewrap
def test_too_many_processes_end_the_hook(home, hook):
    many = "for i in $(seq 40); do sleep 9 & done; wait"
    done = run_hook(hook(many, limits=Limits(n_processes=10)), bash("ls"), str(home))
    assert done == HookDecision(fault="ended: it wanted more than 10 processes")


@needs_bubblewrap
@pytest.mark.parametrize(
    "command",
    [
        'set -e; echo x >> "$CLAUDE_PROJECT_DIR/log"; exit 0',
        "bash -c 'echo > /dev/tcp/127.0.0.1/9' || exit 2",
        "head -c 9000000 /dev/zero > ~/big || exit 2",
    ],
)
def test_what_the_sandbox_refused_is_no_decision_of_the_hook(home, hook, command):
    guard = hook(command, limits=Limits(scratch_bytes=1_000_000))
    done = run_hook(guard, bash("ls"), str(home))
    assert done.action is Action.NONE
    assert done.fault.startswith("exit 2 after the sandbox refused something: ")


@needs_bubblewrap
def test_a_reason_that_only_quotes_such_words_is_a_decision(home, hook):
    quoting = "echo 'curl said Connection refused, so ask first' >&2; exit 2"
    assert run_hook(hook(quoting), bash("ls"), str(home)).action is Action.DENY


# --- what ran ----------------------------------------------------------------------------------
def test_a_script_is_found_behind_its_interpreter_and_quotes(home, hook):
    path = script(home / "project" / ".claude" / "hooks" / "a b.sh", "")
    for command in (
        'bash "$CLAUDE_PROJECT_DIR/.claude/hooks/a b.sh" --flag',
        "/bin/sh '.claude/hooks/a b.sh'",
        'cd sub && FLAG=1 env python3 -u ".claude/hooks/a b.sh"; true',
        ("${CLAUDE_PROJECT_DIR}/.claude/hooks/a b.sh",),
    ):
        assert find_script(hook(command), str(home)) == path


@pytest.mark.parametrize(
    "command",
    [
        *("true", "/bin/sh -c 'exit 0'", "unbalanced '", "none.sh", "", "# ~/.netrc"),
        *("cat ~/.netrc", "true && grep x ~/.netrc", "sh < ~/.netrc", "cat 2> ~/.netrc"),
    ],
)
def test_a_command_may_name_no_script(home, hook, command):
    assert find_script(hook(command), str(home)) is None


def test_the_version_changes_with_the_command_and_the_script(home, hook):
    path = script(home / "project" / "guard.sh", "exit 0")
    version = read_version(hook("./guard.sh"), str(home))
    assert version.startswith("sha256:")
    assert read_version(hook("./guard.sh"), str(home)) == version
    assert read_version(hook("./guard.sh --strict"), str(home)) != version
    assert read_version(hook(("./guard.sh",)), str(home)) != version
    script(path, "exit 2")
    assert read_version(hook("./guard.sh"), str(home)) != version


def test_what_cannot_be_held_is_named():
    assert {line.partition(":")[0] for line in UNENFORCED} == {
        *("clock", "randomness", "cooldown"),
        *("memory", "files", "transcript", "effects"),
    }
