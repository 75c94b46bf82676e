"""What counts as tested, changed and denied, in small sessions that read like a log."""

from typing import ClassVar

import pytest

from redrive.policies.completion import UnvalidatedCompletionNudge
from redrive.policies.test_gap import TestGapWatcher
from redrive.policy import Deny, Notify, Policy
from redrive.record.event import Kind, ModelResponse, StateInferred, ToolCall, UserMessage, raw_of
from redrive.record.session import FLAG_META
from tests.policy_sessions import (
    answer,
    calls,
    edited,
    fired,
    held,
    line_of,
    make_event,
    ran,
    replay_one,
    said,
    user,
    written,
)


class PushNeedsTest(Policy):
    """Denies `git push` unless a test passed after the last change."""

    on = ("tool.call",)
    lane = "gate"

    def evaluate(self, event, state):
        tested = state.verification.test_passed_at > state.changes.source_at
        return Deny("not tested") if event.command == "git push" and not tested else None


def push(**fields):
    return calls(("push", "Bash", {"command": "git push"}), id="push") | fields


def is_denied(*lines, cwd=None):
    outcome = replay_one(written(user(), *lines, push(), cwd=cwd), PushNeedsTest, recheck_all=True)
    assert not outcome.faults
    return bool(fired(outcome))


def test_a_push_after_a_passed_test_goes_through():
    assert is_denied()
    assert not is_denied(*ran("c1", "pytest", "3 passed"))


def test_a_test_that_passed_on_a_branch_rewound_later_does_not_count():
    lines = (
        user(id="u"),
        *ran("c1", "pytest", "3 passed"),
        push(id="first"),
        user("again", id="v", parent="u"),
        push(id="second"),
    )
    outcome = replay_one(written(*lines), PushNeedsTest)
    assert fired(outcome, on_head=True) == ["second/3"]
    assert fired(outcome, on_head=False) == []


@pytest.mark.parametrize(
    "lines",
    [
        ran("c1", "pytest", "3 failed, 1 passed", status="error"),
        ran("c1", "pytest", "Exit code 1\n3 failed"),
        ran("c1", "pytest", {"stdout": "3 passed", "exit_code": 2}),
        ran("c1", "pytest | tail -3", "3 failed, 1 passed in 0.1s"),
        ran("c1", "pytest", [{"type": "text", "text": "3 failed"}, "more"]),
        ran("c1", "pytest", {"odd": ["3 failed"]}),
        ran("c1", "cat latest.txt", "ok"),
        ran("c1", "python contest.py", "ok"),
        ran("c1", "pytest", "3 passed")[:1],
        (calls(("c1", "Read", {"command": "pytest"})), answer("c1")),
        (
            calls(("c1", "Bash", {"command": "pytest", "run_in_background": True})),
            answer("c1", "running in the background"),
        ),
        (
            calls(("c1", "Bash", {"command": "pytest"})),
            {"type": "permission", "call_id": "c1", "decision": "denied"},
            answer("c1", "3 passed"),
        ),
        (
            calls(("c1", "Bash", {"command": "pytest"})),
            answer("c1", "The user doesn't want to proceed with this tool use.", status="error"),
        ),
        (calls(("c1", "Bash", {"command": "pytest"})), answer("c2", "3 passed")),
        (
            calls(("c1", "Bash", {"command": "pytest"})),
            calls(("c1", "Bash", {"command": "ls"})),
            answer("c1", "3 passed"),
            answer("c1", "3 passed"),
        ),
    ],
)
def test_what_is_no_passed_test(lines):
    assert is_denied(*lines)


def test_results_of_one_id_answer_its_calls_in_call_order():
    twice = calls(("c", "Bash", {"command": "ls"}), ("c", "Bash", {"command": "pytest"}))
    assert is_denied(twice, answer("c", "3 passed"))
    assert not is_denied(twice, answer("c", "a.py"), answer("c", "3 passed"))


def test_a_call_that_was_asked_about_and_let_through_counts():
    asked = {"type": "permission", "call_id": "c1"}
    lines = (calls(("c1", "Bash", {"command": "pytest"})), asked | {"decision": "asked"})
    result = answer("c1", "3 passed")
    assert not is_denied(*lines, asked | {"decision": "allowed"}, result)
    assert not is_denied(
        *lines, asked | {"decision": "denied"}, asked | {"decision": "allowed"}, result
    )
    assert is_denied(*lines, asked | {"decision": "denied"}, result)


def test_a_test_counts_after_the_last_change_and_not_before_it():
    test, edit = ran("t", "pytest", "3 passed"), edited("e", "src/a.py")
    assert not is_denied(*edit, *test)
    assert is_denied(*test, *edit)


def test_an_edit_that_failed_or_was_denied_changed_nothing():
    test = ran("t", "pytest", "3 passed")
    assert not is_denied(*test, *edited("e", "src/a.py", status="error"))
    denied = {"type": "permission", "call_id": "e", "decision": "denied"}
    call, result = edited("e", "src/a.py")
    assert not is_denied(*test, call, denied, result)


def test_changing_documents_needs_no_new_test():
    assert not is_denied(*ran("t", "pytest", "3 passed"), *edited("e", "docs/a.md"))


def test_a_working_folder_called_tests_does_not_make_its_files_tests():
    lines = (*ran("t", "pytest", "3 passed"), *edited("e", "/srv/tests/app/src/a.py"))
    assert is_denied(*lines, cwd="/srv/tests/app")


# --- TestGapWatcher

THREE = (*edited("e1", "src/a.py"), *edited("e2", "src/b.py"), *edited("e3", "c.py"))


def gap(*lines, **options):
    return replay_one(written(user(), *lines, **options), TestGapWatcher, recheck_all=True)


def test_the_gap_watcher_prepares_where_three_code_files_changed_and_no_test():
    outcome = gap(*THREE, said(id="end"))
    (fire,) = outcome.fires
    assert (fired(outcome), fire.action) == (["end/2"], "Prepare")
    assert "Notify precision: online-only" in fire.notes
    assert "src/a.py" in fire.reason


@pytest.mark.parametrize(
    "lines",
    [
        THREE,
        (*THREE[:4], said()),
        (*THREE, *edited("e4", "tests/test_a.py"), said()),
        (*THREE, *ran("t", "pytest", "3 passed"), said()),
        (*edited("e1", "a.md"), *edited("e2", "b.md"), *edited("e3", "c.json"), said()),
        (*THREE[:4], *edited("e3", "c.py", status="error"), said()),
        (*THREE, said(), *ran("c", "ls"), push()),
    ],
)
def test_the_gap_watcher_is_silent_elsewhere(lines):
    assert not gap(*lines).fires


def test_a_failed_or_stale_test_closes_no_gap():
    assert gap(*THREE, *ran("t", "pytest | tail", "1 failed"), said()).fires
    assert gap(*ran("t", "pytest", "3 passed"), *THREE, said()).fires


def test_a_second_gap_within_the_cooldown_is_held_back():
    outcome = gap(*THREE, said(id="a"), user("go on"), said(id="b"))
    assert (fired(outcome), held(outcome)) == (["a/2"], ["b/2"])


def test_changes_on_a_rewound_branch_are_no_gap_of_the_live_path():
    lines = (user(id="u"), *THREE, said(id="a"), user("no", parent="u"), said(id="b"))
    outcome = replay_one(written(*lines), TestGapWatcher)
    assert fired(outcome, on_head=True) == []
    assert fired(outcome, on_head=False) == ["a/2"]


# --- UnvalidatedCompletionNudge


def nudge(*lines, claims=True):
    """Replay with the inference recorded about the last answer, in a node below it."""
    events = written(user(), *lines)
    if claims is not None:
        last = events[-1]
        payload = StateInferred("completion_claim", raw_of(claims), "m", "1")
        fields = {"parent_id": last.node_id, "ts_ns": last.ts_ns}
        event = make_event(len(events), Kind.STATE_INFERRED, payload, **fields)
        events.append(event)
    return replay_one(events, UnvalidatedCompletionNudge, recheck_all=True)


EDIT = edited("e", "src/a.py")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (EDIT, "nothing has checked the change"),
        ((*EDIT, *ran("t", "pytest | tail", "3 failed")), "the last check failed: pytest | tail"),
        ((*ran("t", "pytest", "3 passed"), *EDIT), "code changed after the last check"),
        (
            (*EDIT, *ran("t", "pytest", "1 failed"), *ran("l", "ruff check", "All checks passed!")),
            "the last test run failed",
        ),
    ],
)
def test_the_nudge_speaks_where_done_is_claimed_and_not_checked(lines, reason):
    outcome = nudge(*lines, said("All done.", id="end"))
    assert fired(outcome) == ["end/2"]
    assert reason in outcome.fires[0].reason
    assert outcome.fires[0].inferences == {"completion_claim": True}


@pytest.mark.parametrize(
    ("lines", "claims"),
    [
        ((*EDIT, said("All done.")), False),
        ((*EDIT, *ran("t", "pytest", "3 passed"), said("All done.")), True),
        ((*edited("e", "README.md"), said("All done.")), True),
        ((said("All done."),), True),
        ((*EDIT, said("  ")), True),
        (EDIT, True),
    ],
)
def test_the_nudge_is_silent_elsewhere(lines, claims):
    outcome = nudge(*lines, claims=claims)
    assert not outcome.fires
    assert not outcome.cannot


def test_without_a_recorded_inference_strict_mode_names_what_is_missing():
    outcome = nudge(*EDIT, said("All done.", id="end"), claims=None)
    ((reference, reason, fact),) = [(c.event_ref, c.reason, c.fact) for c in outcome.cannot]
    assert not outcome.fires
    assert reference.endswith("#end/2")
    assert (reason, fact) == (
        "strict mode, and no recorded inference completion_claim",
        "completion_claim",
    )


def test_an_inference_recorded_without_a_value_is_none():
    events = written(user(), *EDIT, said("All done.", id="end"))
    payload = StateInferred("completion_claim")
    events.append(make_event(len(events), Kind.STATE_INFERRED, payload, parent_id="end"))
    outcome = replay_one(events, UnvalidatedCompletionNudge)
    assert not outcome.fires
    assert len(outcome.cannot) == 1


# --- answers in pieces, and what the harness says


class Ending(Policy):
    on: ClassVar = ("model.response",)

    def evaluate(self, event, state):
        return Notify(f"{state.turn.decisions} {state.turn.is_over}") if event.ends_turn else None


def test_an_answer_in_pieces_ends_the_turn_once_and_counts_once():
    piece = {"group": "g"}
    events = line_of(
        [
            (Kind.USER_MESSAGE, UserMessage("u")),
            (Kind.MODEL_RESPONSE, ModelResponse("a"), piece),
            (Kind.MODEL_RESPONSE, ModelResponse("b"), piece),
            (Kind.USER_MESSAGE, UserMessage("hook says go on"), {"flags": (FLAG_META,)}),
            (Kind.MODEL_RESPONSE, ModelResponse("c"), {"group": "h"}),
            (Kind.TOOL_CALL, ToolCall("t"), {"group": "h"}),
            (Kind.MODEL_RESPONSE, ModelResponse("d"), {"group": "h"}),
            (Kind.MODEL_RESPONSE, ModelResponse("e"), {"group": "i"}),
            (Kind.MODEL_RESPONSE, ModelResponse("f"), {"group": "i"}),
        ]
    )
    outcome = replay_one(events, Ending)
    assert fired(outcome) == ["e8"]
    assert outcome.fires[0].reason == "3 True"
