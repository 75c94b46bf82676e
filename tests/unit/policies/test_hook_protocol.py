"""The hook protocol as documented: what each answer means, and that ours comes back as written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import UsageError
from redrive.policies.hook_protocol import (
    ANSWERS,
    Action,
    HookDecision,
    HookInput,
    dump_decision,
    dump_input,
    parse_decision,
    parse_input,
)

PRE = HookInput(
    hook_event_name="PreToolUse",
    session_id="abc123",
    transcript_path="/dev/null",
    cwd="/srv/project",
    permission_mode="default",
    tool_name="Bash",
    tool_input={"command": "npm test", "timeout": 120000, "ratio": 0.30000000000000004},
    tool_use_id="toolu_01",
)


def answered(event="PreToolUse", exit_code=0, stdout="", stderr=""):
    text = stdout if isinstance(stdout, str) else json.dumps(stdout)
    return parse_decision(event, exit_code, text.encode(), stderr.encode())


def specific(event="PreToolUse", **fields):
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


# --- input -------------------------------------------------------------------------------------
def test_an_input_has_the_documented_fields_in_their_order():
    written = json.loads(dump_input(PRE))
    assert list(written) == [
        *("hook_event_name", "session_id", "transcript_path", "cwd", "permission_mode"),
        *("tool_name", "tool_input", "tool_use_id"),
    ]
    assert written["tool_input"]["ratio"] == 0.30000000000000004


def test_a_result_of_null_is_given_and_an_absent_one_left_out():
    assert b"tool_response" not in dump_input(PRE)
    post = HookInput(hook_event_name="PostToolUse", tool_name="Bash", tool_response=None)
    assert b'"tool_response":null' in dump_input(post)


def test_a_stop_says_whether_a_hook_already_made_it_go_on():
    stop = HookInput(hook_event_name="Stop", session_id="s", stop_hook_active=False)
    assert json.loads(dump_input(stop)) == {
        "hook_event_name": "Stop",
        "session_id": "s",
        "stop_hook_active": False,
    }


def test_half_a_surrogate_pair_is_written_as_an_escape():
    half = HookInput(hook_event_name="PreToolUse", tool_input={"command": "echo \ud83d"})
    assert json.loads(dump_input(half))["tool_input"]["command"] == "echo \ud83d"


def test_an_input_that_is_read_is_the_one_that_was_written():
    assert parse_input(dump_input(PRE)) == PRE


def test_fields_of_later_versions_are_ignored():
    data = b'{"hook_event_name":"Stop","prompt_id":"p","effort":{"level":"high"},"new":[1]}'
    assert parse_input(data) == HookInput(hook_event_name="Stop")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"[]",
        b"{}",
        b'{"hook_event_name":7}',
        b'{"hook_event_name":"Stop"',
        b"\xff",
    ],
)
def test_garbage_is_a_usage_error_that_quotes_it(data):
    with pytest.raises(UsageError, match="no hook input") as caught:
        parse_input(data)
    assert caught.value.where == "stdin"
    assert caught.value.hint


# --- exit codes --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("event", "action"),
    [
        *(("PreToolUse", "deny"), ("PermissionRequest", "deny"), ("PostToolUse", "block")),
        *(("Stop", "block"), ("SubagentStop", "block"), ("UserPromptSubmit", "block")),
    ],
)
def test_exit_2_blocks_with_what_was_told_and_its_output_is_ignored(event, action):
    allow = specific(event, permissionDecision="allow")
    done = answered(event, 2, allow, "rm is not allowed\n")
    assert done == HookDecision(action=Action(action), reason="rm is not allowed")


@pytest.mark.parametrize("event", ["SessionStart", "Notification", "SessionEnd", "NewEvent"])
def test_exit_2_blocks_nothing_where_nothing_can_be_blocked(event):
    done = answered(event, 2, stderr="no")
    assert (done.action, done.reason) == (Action.NONE, "")
    assert "cannot block" in done.fault


@pytest.mark.parametrize("code", [1, 3, 127, 137])
def test_any_other_code_is_a_fault_that_stops_nothing(code):
    done = answered("PreToolUse", code, specific(permissionDecision="deny"), "line one\nline two")
    assert done == HookDecision(fault=f"exit {code}: line one")


def test_silence_is_no_decision():
    assert answered() == HookDecision()


# --- JSON on exit 0 ----------------------------------------------------------------------------
@pytest.mark.parametrize("decision", ["allow", "deny", "ask"])
def test_a_permission_is_read_with_its_reason_context_and_input(decision):
    done = answered(
        stdout=specific(
            permissionDecision=decision,
            permissionDecisionReason="why",
            additionalContext="told",
            updatedInput={"command": "ls"},
        )
    )
    assert done == HookDecision(
        action=Action(decision), reason="why", context="told", updated_input={"command": "ls"}
    )


def test_a_deferred_call_has_neither_reason_nor_context_nor_input():
    fields = {"permissionDecisionReason": "why", "additionalContext": "c", "updatedInput": {}}
    done = answered(stdout=specific(permissionDecision="defer", **fields))
    assert done == HookDecision(action=Action.DEFER)


@pytest.mark.parametrize(("legacy", "action"), [("approve", "allow"), ("block", "deny")])
def test_deprecated_decisions_are_read(legacy, action):
    done = answered(stdout={"decision": legacy, "reason": "why"})
    assert done == HookDecision(action=Action(action), reason="why")


def test_the_present_form_wins_over_the_deprecated_one():
    output = {"decision": "approve", "reason": "old"} | specific(
        permissionDecision="deny", permissionDecisionReason="new"
    )
    assert answered(stdout=output) == HookDecision(action=Action.DENY, reason="new")


@pytest.mark.parametrize("event", ["PostToolUse", "Stop", "SubagentStop", "UserPromptSubmit"])
def test_other_events_block_at_the_top(event):
    done = answered(event, stdout={"decision": "block", "reason": "tests fail"})
    assert done == HookDecision(action=Action.BLOCK, reason="tests fail")


def test_context_comes_without_a_decision():
    done = answered("PostToolUse", stdout=specific("PostToolUse", additionalContext="generated"))
    assert done == HookDecision(context="generated")


def test_continue_false_wins_over_every_decision():
    output = {"continue": False, "stopReason": "build failed"}
    done = answered(stdout=output | specific(permissionDecision="allow"))
    assert (done.action, done.continue_, done.stop_reason) == (Action.STOP, False, "build failed")


def test_output_and_message_for_the_user_are_read():
    done = answered(stdout={"suppressOutput": True, "systemMessage": "careful"})
    assert done == HookDecision(suppress_output=True, system_message="careful")


@pytest.mark.parametrize("behaviour", ["allow", "deny"])
def test_a_permission_request_is_answered_in_its_own_form(behaviour):
    decision = {"behavior": behaviour, "message": "why", "updatedInput": {"a": 1}}
    done = answered("PermissionRequest", stdout=specific("PermissionRequest", decision=decision))
    assert (done.action, done.reason) == (Action(behaviour), "why")
    assert done.updated_input == {"a": 1}


@pytest.mark.parametrize(
    "text", ["all good", "{broken", '{"a":1} trailing', "[1]", "7", "{" * 9999]
)
def test_text_that_is_no_json_object_is_plain_output(text):
    assert answered(stdout=text) == HookDecision()
    assert answered("UserPromptSubmit", stdout=text).context == text


@pytest.mark.parametrize(
    ("event", "output"),
    [
        ("PreToolUse", specific(permissionDecision="maybe")),
        ("PreToolUse", specific(permissionDecision="block")),
        ("PreToolUse", specific("PostToolUse", permissionDecision="deny")),
        ("PreToolUse", {"hookSpecificOutput": {"permissionDecision": "deny"}}),
        ("PreToolUse", {"decision": "perhaps"}),
        ("PreToolUse", {"continue": "no"}),
        ("Stop", {"decision": "deny"}),
        ("PermissionRequest", specific("PermissionRequest", decision={"behavior": "ask"})),
    ],
)
def test_an_answer_of_another_form_is_a_fault_and_decides_nothing(event, output):
    done = answered(event, stdout=output)
    assert done.action is Action.NONE
    assert "does not accept" in done.fault


def test_bytes_that_are_no_text_are_read_all_the_same():
    assert parse_decision("PreToolUse", 2, b"\xff", b"\xffno").reason == "\ufffdno"
    assert parse_decision("PreToolUse", 0, b"\xff\xfe", b"") == HookDecision()


# --- our own answers ---------------------------------------------------------------------------
@given(
    event=st.sampled_from(sorted(ANSWERS)),
    index=st.integers(0, 9),
    reason=st.text(max_size=20),
    context=st.text(max_size=20),
)
def test_what_we_answer_is_read_as_it_was_meant(event, index, reason, context):
    action = ANSWERS[event][index % len(ANSWERS[event])]
    stdout, code = dump_decision(event, action, reason, context)
    done = parse_decision(event, code, stdout, b"")
    assert (done.action, done.fault) == (action, "")
    if action in (Action.NONE, Action.DEFER):
        assert done.reason == ""
    else:
        assert (done.stop_reason if action is Action.STOP else done.reason) == reason
    assert done.context == ("" if action is Action.DEFER else context)


def test_nothing_to_say_is_silence():
    assert dump_decision("PreToolUse", Action.NONE) == (b"", 0)


@pytest.mark.parametrize(
    ("event", "action"),
    [("Stop", Action.DENY), ("PostToolUse", Action.ASK), ("PreToolUse", Action.BLOCK)],
)
def test_an_answer_that_the_event_does_not_know_is_refused(event, action):
    with pytest.raises(UsageError, match="cannot answer"):
        dump_decision(event, action)


def test_an_event_that_is_not_answered_is_refused():
    with pytest.raises(UsageError) as caught:
        dump_decision("SessionStart", Action.NONE)
    assert "PreToolUse" in caught.value.hint


@pytest.mark.parametrize("lacking", ["tool_name", "tool_input"])
def test_an_input_about_a_tool_names_it_and_what_it_is_given(lacking):
    told = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}}
    del told[lacking]
    with pytest.raises(UsageError, match=f"without {lacking}"):
        parse_input(json.dumps(told).encode())
