"""Matchers as documented, and the hooks of a settings file with what cannot be run named."""

import json

import pytest

from redrive.errors import UsageError
from redrive.policies.hook_settings import HookSetting, matches, parse_settings


@pytest.mark.parametrize(
    ("matcher", "tool", "is_match"),
    [
        *((None, "Bash", True), ("", "Bash", True), ("*", "mcp__a__b", True)),
        *(("Bash", "Bash", True), ("Bash", "BashOutput", False), ("bash", "Bash", False)),
        *(("Edit|Write", "Write", True), ("Edit|Write", "NotebookEdit", False)),
        *(("Edit, Write", "Edit", True), ("Edit | Write", "Write", True)),
        *(("code-reviewer", "senior-code-reviewer", False), ("^Edit$", "NotebookEdit", False)),
        *(("Edit.*", "NotebookEdit", True), ("^Notebook", "NotebookEdit", True)),
        *(("mcp__memory", "mcp__memory__read", False), ("mcp__memory__.*", "mcp__memory__r", True)),
        *(("mcp__.*__write.*", "mcp__fs__write_file", True), ("(Bash", "Bash", False)),
        *((r"(?<tool>Ba)sh", "Bash", True), (r"(?<!x)Bash.?", "Bash", True), (r"\d.", "٣x", False)),
    ],
)
def test_a_matcher_takes_what_the_reference_says(matcher, tool, is_match):
    assert matches(matcher, tool) is is_match


def settings(*handlers, event="PreToolUse", matcher="Bash", **fields):
    group = {"matcher": matcher, "hooks": list(handlers)}
    return json.dumps({"hooks": {event: [group]}, **fields}).encode()


def test_hooks_are_listed_in_their_order():
    data = json.dumps(
        {
            "permissions": {"allow": []},
            "hooks": {
                "PreToolUse": [
                    {"matcher": "Bash", "hooks": [{"type": "command", "command": "a"}]},
                    {
                        "hooks": [
                            {"type": "command", "command": "b", "timeout": 5},
                            {"type": "command", "command": "c", "args": ["x y"]},
                        ]
                    },
                ],
                "Stop": [{"matcher": "ignored", "hooks": [{"type": "command", "command": "d"}]}],
            },
        }
    ).encode()
    assert parse_settings(data) == (
        HookSetting("PreToolUse", "Bash", "a", None, 600.0),
        HookSetting("PreToolUse", None, "b", None, 5.0),
        HookSetting("PreToolUse", None, "c", ("x y",), 600.0),
        HookSetting("Stop", None, "d", None, 600.0),
    )


def test_a_file_without_hooks_has_none():
    assert parse_settings(b'{"model": "x"}') == ()


def test_a_prompt_is_waited_for_less_long():
    (found,) = parse_settings(settings({"command": "a"}, event="UserPromptSubmit"))
    assert found.timeout_s == 30.0


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        ({"type": "http", "url": "x"}, "no command"),
        ({"type": "command"}, "names no command"),
        ({"command": "a", "async": True}, "background"),
        ({"command": "a", "asyncRewake": True}, "background"),
        ({"command": "a", "if": "Bash(git *)"}, "not evaluated"),
        ({"command": "a", "shell": "powershell"}, "another shell"),
    ],
)
def test_a_hook_that_would_run_otherwise_here_says_so(handler, words):
    (found,) = parse_settings(settings(handler))
    assert words in found.unsupported


def test_a_matcher_that_never_matches_says_so():
    (found,) = parse_settings(settings({"command": "a"}, matcher="(Bash"))
    assert "no regular expression" in found.unsupported


def test_hooks_that_are_switched_off_say_so():
    (found,) = parse_settings(settings({"command": "a"}, disableAllHooks=True))
    assert found.unsupported == "disableAllHooks is set"


@pytest.mark.parametrize(
    "data", [b"", b"x", b"[]", b'{"hooks": []}', b'{"hooks": {"Stop": [{"hooks": 7}]}}', b"\xff"]
)
def test_settings_of_another_form_are_refused(data):
    with pytest.raises(UsageError, match="no settings with hooks"):
        parse_settings(data)
