"""What each kind of event adds to the standard state; whole sessions are in tests/playbook."""

import pytest

from redrive.record.event import (
    Custom,
    Kind,
    ModelResponse,
    PolicyAction,
    SessionStarted,
    StateInferred,
    ToolCall,
    ToolPermission,
    ToolResult,
    UserMessage,
    raw_of,
)
from redrive.replay.policy_state import InferenceMissing, StandardState, State, ToolRecord
from redrive.replay.standard_fold import fold_standard, snapshot
from tests.policy_sessions import line_of

EDIT = ToolCall("Edit", raw_of({"file_path": "/srv/app/src/a.py"}))
TEST = ToolCall("Bash", raw_of({"command": "pytest"}))
STARTED = (Kind.SESSION_STARTED, SessionStarted(cwd="/srv/app", tools={"a": "pure"}))
USER = (Kind.USER_MESSAGE, UserMessage("do it"))


def call(payload, call_id="c"):
    return (Kind.TOOL_CALL, payload, {"call_id": call_id})


def result(value="ok", status="ok", call_id="c"):
    return (Kind.TOOL_RESULT, ToolResult(status, raw_of(value)), {"call_id": call_id})


def folded(*parts):
    state = StandardState()
    for event in line_of(parts):
        state = fold_standard(state, event)
    return state


def test_a_kind_that_says_nothing_leaves_the_same_state():
    state = StandardState()
    (event,) = line_of([(Kind.CUSTOM, Custom("x"))])
    assert fold_standard(state, event) is state


def test_a_turn_begins_with_a_user_message():
    answer = (Kind.MODEL_RESPONSE, ModelResponse("done"))
    state = State(folded(USER, answer, call(TEST), USER, answer))
    assert (state.turn.number, state.turn.event_id, state.segment) == (2, "e3", 2)
    assert (state.turn.calls, state.turn.decisions, state.turn.is_over) == (0, 1, True)
    assert (state.turn.text, state.turn.ts_ns) == ("do it", 3 * 10**9)
    assert state.last_text == "done"


def test_a_change_counts_when_its_result_is_there():
    state = State(folded(STARTED, call(EDIT)))
    assert (state.changed_files, state.changes.n_edits) == ((), 0)
    state = State(folded(STARTED, call(EDIT), result()))
    assert state.changed_files == ("/srv/app/src/a.py",)
    assert state.touched_modules == ("src",)
    assert (state.changes.n_edits, state.changes.source_at, state.changes.test_at) == (1, 3, 0)
    assert state.cwd == "/srv/app"
    assert State().cwd is None


def test_verified_is_what_a_check_after_the_last_change_says():
    edit, test = (call(EDIT), result()), (call(TEST), result("1 passed"))
    assert not State(folded(*edit)).is_verified
    assert State(folded(*edit, *test)).is_verified
    assert not State(folded(*test, *edit)).is_verified
    failed = (call(TEST), result("1 failed"))
    assert not State(folded(*edit, *test, *failed)).is_verified
    lint = (call(ToolCall("Bash", raw_of({"command": "ruff check"}))), result("fine"))
    assert not State(folded(*edit, *failed, *lint)).is_verified
    assert State(folded(*edit, *lint)).is_verified
    state = State(folded(*failed))
    assert (state.verification.passed, state.verification.command) == (False, "pytest")


def test_a_tool_has_a_record_of_its_answers():
    denied = (Kind.TOOL_PERMISSION, ToolPermission("denied"), {"call_id": "c"})
    state = State(
        folded(
            *(call(TEST), result("no", "error")),
            *(call(TEST), result("no", "error")),
            *(call(TEST), denied, result("not now", "error")),
            *(call(EDIT), result()),
            *(call(TEST), result("rejected by user")),
        )
    )
    assert state.tool("Bash") == ToolRecord(calls=4, errors=2, errors_in_row=2, denied=2)
    assert state.tool("Edit") == ToolRecord(calls=1)
    assert state.tool("none") == ToolRecord()


def test_permissions_are_counted_by_their_word():
    def asked(word, **fields):
        return (Kind.TOOL_PERMISSION, ToolPermission(word, **fields), {"call_id": "c"})

    state = State(
        folded(
            call(TEST), asked("asked"), asked("denied"), asked("denied", tool="X"), asked("allowed")
        )
    )
    found = state.permissions
    assert (found.asked, found.denied, found.allowed) == (1, 2, 1)
    assert list(found.denied_tools.merged()) == ["Bash", "X"]
    assert folded(asked("denied")).permissions.denied_tools.merged() == {"": 1}


def test_a_result_without_a_call_says_nothing():
    assert folded(result()).tools.merged() == {}
    provider = ToolCall("Bash", raw_of({"command": "pytest"}), is_provider_side=True)
    assert folded(call(provider), result()).open_calls == ()
    assert folded((Kind.TOOL_CALL, TEST), result()).tools.merged() == {}


@pytest.mark.parametrize(
    "value",
    [
        "x 1 failed",
        [{"text": "1 failed"}],
        ["1 failed"],
        {"stdout": "", "stderr": "1 failed"},
        {"lines": ["1 failed"]},
    ],
)
def test_a_failure_is_read_from_any_form_of_output(value):
    assert folded(call(TEST), result(value)).verification.passed is False


def test_an_output_that_was_not_recorded_is_judged_by_its_status():
    absent = (Kind.TOOL_RESULT, ToolResult(), {"call_id": "c"})
    assert folded(call(TEST), absent).verification.passed is True
    assert folded(call(TEST), result(None)).verification.passed is True


def test_what_policies_did_at_run_time_is_known_since_the_users_message():
    def action(word):
        return (Kind.POLICY_ACTION, PolicyAction("p", word))

    state = State(folded(USER, action("Notify"), action("mute"), action("Notify")))
    assert (state.standard.framework.depth, state.is_muted) == (2, True)
    state = State(folded(USER, action("Notify"), action("mute"), USER, action("unmute")))
    assert (state.standard.framework.depth, state.is_muted) == (0, False)


def test_an_inference_holds_until_the_user_speaks():
    inferred = (Kind.STATE_INFERRED, StateInferred("topic", raw_of({"a": [1]})))
    state = folded(USER, inferred)
    assert state.inferred.find("topic")["a"] == (1,)
    assert folded(USER, inferred, USER).inferred.merged() == {}
    assert folded((Kind.STATE_INFERRED, StateInferred("topic"))).inferred.merged() == {}


def test_only_needed_inferences_may_be_asked_for():
    state = State(inferences={"topic": 0}, needs=("topic", "mood"))
    assert state.infer("topic") == 0
    with pytest.raises(InferenceMissing) as missing:
        state.infer("mood")
    assert missing.value.name == "mood"
    with pytest.raises(KeyError):
        state.infer("other")


def test_own_values_are_found_by_their_name():
    state = State(own={"n": 1})
    assert state["n"] == 1
    assert state.actor == "main"
    with pytest.raises(KeyError):
        state["other"]


def test_what_is_known_of_a_session_cannot_be_changed():
    state = folded(STARTED)
    with pytest.raises(TypeError):
        state.session.tools["a"] = "unsafe"


def test_a_snapshot_is_plain_and_bounded():
    edits = [
        part
        for number in range(30)
        for part in (call(ToolCall("Edit", raw_of({"file_path": f"f{number}.py"}))), result())
    ]
    inferred = (Kind.STATE_INFERRED, StateInferred("topic", raw_of({"a": [1]})))
    plain = snapshot(folded(STARTED, USER, inferred, *edits, call(TEST)))
    assert plain["changes"]["n_files"] == 30
    assert plain["changes"]["files"][0] == "f29.py"
    assert len(plain["changes"]["files"]) == 20
    assert plain["inferred"] == {"topic": {"a": [1]}}
    assert plain["open_calls"] == ["Bash"]
    assert plain["turn"]["number"] == 1


def test_at_most_256_calls_are_held_open():
    state = folded(*[call(TEST, f"c{number}") for number in range(300)])
    assert len(state.open_calls) == 256
    assert state.open_calls[-1].call_id == "c299"
