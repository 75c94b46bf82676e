import pytest

from redrive.app.auditing import audit_session
from redrive.app.listing import list_sessions
from redrive.app.seeing import actors_of, branches_of, closure_marks, steps_of, view_survey
from redrive.errors import UsageError


def shown(survey, **where):
    return list(steps_of(survey, survey.opened.trajectory(**where), {}))


def test_case_14_one_answer_in_pieces_is_one_step_with_its_final_tokens(surveyed, cases):
    steps = shown(surveyed(path=cases / "14-split-content-blocks/session.jsonl"))
    assert steps[0].text.text == "I will update both."
    assert [step.usage.output_tokens for step in steps] == [211, 90, 12]
    assert sum(step.usage.cache_read_tokens for step in steps) == 185708
    assert all(step.usage.cost_usd is None for step in steps)


def test_case_13_each_actor_has_its_own_steps(surveyed, cases):
    survey = surveyed(path=cases / "13-sidechain-interleaved/session.jsonl")
    tools = {
        actor.actor: [c.tool for s in shown(survey, actor=actor.actor) for c in s.calls]
        for actor in actors_of(survey)
    }
    assert tools == {"main": ["Task", "Task", "Edit"], "ag1": ["Grep", "Read"], "ag2": ["Bash"]}


def test_case_09_the_discarded_branch_is_listed(surveyed, cases):
    survey = surveyed(path=cases / "09-rewind-dead-branch/session.jsonl")
    live, discarded = branches_of(survey)
    assert (live.state, live.fork, live.steps) == ("live", None, 2)
    assert (discarded.state, discarded.steps, discarded.own_steps) == ("discarded", 3, 3)
    assert live.leaf.endswith("11")
    assert discarded.leaf.endswith("7")
    assert discarded.fork.endswith("1")
    elsewhere = shown(survey, path=discarded.leaf)
    assert len(elsewhere) == 3


def test_a_call_shows_arguments_and_how_it_ended(surveyed, decision, result):
    (step,) = shown(
        surveyed(
            decision(
                "d1", ("a", {"k": "v" * 3000}), ("b", None), ("c", "{x"), ("d", {}), ("e", {})
            ),
            result("d1.1", [1, 2]),
            result("d1.3", 1),
            result("d1.3", 2, id="again"),
            {"type": "permission", "id": "p", "call_id": "d1.4", "decision": "denied"},
            {"type": "permission", "id": "q", "call_id": "d1.5", "decision": "allowed"},
        )
    )
    calls = {call.tool: call for call in step.calls}
    assert calls["a"].arguments.chars == 3009
    assert len(calls["a"].arguments.text) == 2000
    assert len(calls["a"].arguments.sha256) == 64
    assert (calls["a"].status, calls["a"].result_bytes) == ("ok", 6)
    assert calls["b"].arguments is None
    assert calls["c"].arguments.text == "{x"
    assert [call.status for call in step.calls] == [
        "ok",
        "no result",
        "conflicting",
        "denied",
        "no result",
    ]


def test_cost_is_shown_only_where_it_was_recorded(surveyed, decision):
    steps = shown(
        surveyed(
            decision("d1", usage={"input_tokens": 0, "cost_usd": "0.10"}), decision("d2", text="t")
        )
    )
    assert steps[0].usage.input_tokens == 0
    assert steps[1].usage is None


def test_each_step_has_the_mark_of_the_audit(surveyed, decision):
    survey = surveyed(decision("d1", text="x"))
    trajectory = survey.opened.trajectory()
    report, _ = audit_session(survey.opened, trajectory)
    (step,) = steps_of(survey, trajectory, closure_marks(report))
    assert step.closure.status == "open"
    assert "input" in {missing.input_class for missing in step.closure.missing}


def test_an_unknown_actor_or_node_is_the_callers_mistake(surveyed, decision):
    survey = surveyed(decision("d1"))
    with pytest.raises(UsageError, match="no actor"):
        shown(survey, actor="nobody")
    with pytest.raises(UsageError, match="no node"):
        shown(survey, path="nowhere")


def test_the_header_counts_the_branches_that_are_listed(recorded, surveyed, decision):
    lines = (
        {"type": "event", "id": "u", "kind": "user", "text": "q"},
        decision("d1", parent="u"),
        decision("d2", parent="u"),
        {"type": "end", "id": "z", "parent": "d2", "status": "success"},
    )
    store, _ = recorded(*lines)
    view = view_survey(surveyed(*lines), list_sessions(store).sessions[0])
    assert (view.branches, view.outcome) == (2, "success")


def test_a_subagent_says_what_it_hangs_off(surveyed, decision):
    survey = surveyed(decision("d1", parent="x"), decision("a1", parent="d1", actor="sub"))
    main, sub = actors_of(survey)
    assert (main.started_at, sub.started_at) == (None, "d1")
    assert (main.head_node, sub.head_node) == ("d1", "a1")
    assert (sub.decisions, sub.tool_calls, sub.nodes) == (1, 0, 1)
