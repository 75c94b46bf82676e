import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from redrive.importers.codex import IMPORTER
from redrive.importers.draft import Draft
from redrive.record.event import (
    FLAG_INHERITED,
    Kind,
    ModelResponse,
    Note,
    SessionStarted,
    ToolCall,
    ToolPermission,
    ToolResult,
    dump_payload,
    raw_value,
)
from redrive.record.pairing import pair_path
from redrive.record.session import FLAG_META, MemoryReader
from redrive.record.trajectory import build_trajectory
from tests.helpers import drafts_from, events_from, index_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "codex"
GOLDEN_NAMES = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))


def golden(name: str) -> list[Draft]:
    return drafts_from(IMPORTER, GOLDEN / f"{name}.jsonl")[0]


def of_kind(drafts: list[Draft], kind: Kind) -> list[Any]:
    return [draft.payload for draft in drafts if draft.kind is kind]


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_the_projection_of_a_golden_rollout_is_the_stored_one(name: str) -> None:
    stored = (GOLDEN / f"{name}.drafts").read_text()
    assert dump_drafts(golden(name)) == stored


def dump_drafts(drafts: list[Draft]) -> str:
    """Write drafts one per line: id, parent, group, call and flags, kind, payload."""
    lines = []
    for draft in drafts:
        place = f"{draft.id} < {draft.parent_id or '-'}" if draft.node_id else f"{draft.id} (aside)"
        names = [draft.group, draft.call_id, *draft.flags]
        marks = f" [{' '.join(name for name in names if name)}]" if any(names) else ""
        payload = bytes(dump_payload(draft.payload)).decode()
        lines.append(f"{place}{marks} {draft.kind} {payload}\n")
    return "".join(lines)


def test_calls_and_answers_between_other_items_are_one_decision() -> None:
    events = events_from(IMPORTER, GOLDEN / "turn.jsonl")
    index = index_of(events)
    path = build_trajectory(index)
    assert [len(step.calls) for step in path.steps] == [2, 1, 1]
    pairing = pair_path(index, path, MemoryReader(events))
    answered = [events[call].call_id for call in pairing.answers]
    assert answered == ["call_1", "call_2", "call_3"]


def test_a_repeated_token_count_is_no_second_usage() -> None:
    responses: list[ModelResponse] = of_kind(golden("turn"), Kind.MODEL_RESPONSE)
    totals = [r.usage.total_tokens for r in responses if r.usage is not None]
    assert totals == [100, 150, 150]


def test_an_exit_code_makes_an_error_and_a_screen_message_makes_no_second_result() -> None:
    results: list[ToolResult] = of_kind(golden("turn"), Kind.TOOL_RESULT)
    assert [(r.status, r.exit_code) for r in results] == [("ok", 0), ("error", 1), ("ok", 0)]


def test_the_argument_text_of_a_custom_call_is_kept_as_written() -> None:
    calls: list[ToolCall] = of_kind(golden("turn"), Kind.TOOL_CALL)
    assert calls[2].arguments_text == "*** Begin Patch\n*** End Patch\n"


def test_a_search_of_the_provider_is_marked_as_its_own() -> None:
    calls: list[ToolCall] = of_kind(golden("turn"), Kind.TOOL_CALL)
    assert [call.is_provider_side for call in calls] == [False, False, False, True]


def test_what_the_harness_wrote_is_no_message_of_the_user() -> None:
    said = [d for d in golden("turn") if d.kind is Kind.USER_MESSAGE]
    assert [FLAG_META in draft.flags for draft in said] == [True, True, True, False]


def test_times_are_exact_to_the_nanosecond() -> None:
    assert golden("turn")[0].ts_ns == 1_770_091_501_006_000_000


def test_a_fork_names_its_parent_its_role_and_its_own_calls() -> None:
    drafts, tally = drafts_from(IMPORTER, GOLDEN / "fork.jsonl")
    started = drafts[0].payload
    assert isinstance(started, SessionStarted)
    parent = "019c2000-0000-7000-8000-00000000000a"
    assert (started.parent_session, started.thread, started.agent) == (
        parent,
        parent,
        "codex/explorer",
    )
    own = [draft for draft in drafts if FLAG_INHERITED not in draft.flags]
    assert list(dict.fromkeys(map(_line_of, own))) == [1, *range(9, 17)]
    assert (tally.tool_calls, tally.extra["own_tool_calls"]) == (2, 1)
    assert (tally.model_calls, tally.extra["own_model_calls"]) == (3, 2)
    assert {draft.session for draft in drafts} == {"019c2222-0000-7000-8000-00000000000b"}


def _line_of(draft: Draft) -> int:
    return int(draft.id.removeprefix("line:").partition("/")[0])


@pytest.mark.parametrize(
    "own_id", ["019c1111-0000-7000-8000-00000000000b", "5973b6c0-94b8-487b-a530-2aeb6098ae0e", "x"]
)
def test_nothing_is_inherited_where_no_id_dates_the_copy_or_all_turns_are_own(
    own_id: str,
) -> None:
    data = (GOLDEN / "fork.jsonl").read_bytes()
    data = data.replace(b"019c2222-0000-7000-8000-00000000000b", own_id.encode())
    drafts, _ = drafts_from(IMPORTER, GOLDEN / "fork.jsonl", data)
    inherited = {draft.kind for draft in drafts if FLAG_INHERITED in draft.flags}
    assert inherited <= {Kind.NOTE}


def test_compaction_keeps_the_history_or_the_summary_that_replaced_the_context() -> None:
    replaced = of_kind(golden("compaction"), Kind.CONTEXT_REPLACED)
    assert len(raw_value(replaced[0].after)) == 2
    assert raw_value(replaced[1].after) == "all done so far"


def test_an_aborted_turn_leaves_its_call_unanswered_and_says_why() -> None:
    drafts, tally = drafts_from(IMPORTER, GOLDEN / "aborted.jsonl")
    assert tally.orphan_calls == 1
    assert ("turn_aborted", "interrupted") in [
        (note.label, note.text) for note in of_kind(drafts, Kind.NOTE)
    ]
    assert of_kind(drafts, Kind.MODEL_ERROR)[0].status == 503


def test_approvals_are_permissions_on_their_call() -> None:
    drafts = golden("approvals")
    asked: list[ToolPermission] = of_kind(drafts, Kind.TOOL_PERMISSION)
    assert [(p.decision, p.by) for p in asked] == [
        ("asked", None),
        ("asked", "guardian"),
        ("denied", "guardian"),
    ]
    ids = {d.call_id for d in drafts if d.kind is Kind.TOOL_PERMISSION}
    assert ids == {"call_1"}
    assert of_kind(drafts, Kind.TOOL_RESULT)[0].status == "error"


def test_two_records_on_a_line_are_damage_and_both_recovered() -> None:
    drafts, tally = drafts_from(IMPORTER, GOLDEN / "fused.jsonl")
    assert (tally.records, tally.tool_results, len(tally.damage)) == (4, 0, 1)
    assert [draft.id for draft in drafts[-2:]] == ["line:5", "line:5.2"]
    kinds = [draft.kind for draft in drafts[-3:]]
    assert kinds == [Kind.DAMAGE, Kind.TOOL_RESULT, Kind.MODEL_RESPONSE]


def test_items_without_a_payload_are_read_as_todays_lines() -> None:
    drafts, tally = drafts_from(IMPORTER, GOLDEN / "legacy.jsonl")
    assert (tally.records, tally.model_calls, tally.tool_calls, tally.tool_results) == (7, 2, 1, 1)
    assert raw_value(of_kind(drafts, Kind.TOOL_CALL)[0].arguments) == {
        "type": "exec",
        "command": ["ls"],
    }
    assert drafts[0].session == "5973b6c0-94b8-487b-a530-2aeb6098ae0e"


def _one(line: dict[str, Any]) -> list[Draft]:
    """Project one rollout line behind a session's first one."""
    meta = (GOLDEN / "aborted.jsonl").read_bytes().splitlines()[0]
    data = meta + b"\n" + json.dumps(line).encode()
    return drafts_from(IMPORTER, "one.jsonl", data)[0][1:]


def _item(**payload: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": payload}


def _message(**payload: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": payload}


@pytest.mark.parametrize(
    ("message", "status", "exit_code"),
    [
        ({"type": "exec_command_end", "exit_code": 3}, "error", 3),
        ({"type": "exec_command_end", "exit_code": "3"}, "ok", None),
        ({"type": "patch_apply_end", "success": False}, "error", None),
        ({"type": "dynamic_tool_call_response", "success": True}, "ok", None),
        ({"type": "mcp_tool_call_end", "result": {"Err": "no"}}, "error", None),
        ({"type": "mcp_tool_call_end", "result": {"Ok": {"isError": True}}}, "error", None),
        ({"type": "mcp_tool_call_end", "result": {"Ok": {"isError": False}}}, "ok", None),
        ({"type": "mcp_tool_call_end", "result": 1}, "ok", None),
    ],
)
def test_a_screen_message_says_how_its_call_ended(
    message: dict[str, Any], status: str, exit_code: int | None
) -> None:
    ended = json.dumps(_message(call_id="c", **message))
    output = json.dumps(_item(type="function_call_output", call_id="c", output=None))
    other = json.dumps(_item(type="function_call_output", call_id="d", output=None))
    data = "\n".join([ended, output, other]).encode()
    results: list[ToolResult] = of_kind(
        drafts_from(IMPORTER, "ends.jsonl", data)[0], Kind.TOOL_RESULT
    )
    assert [(r.status, r.exit_code) for r in results] == [(status, exit_code), ("ok", None)]
    assert raw_value(results[0].result) is None


@pytest.mark.parametrize(
    ("output", "exit_code"),
    [
        ("Exit code: 2\nWall time: 1 seconds\nOutput:\n", 2),
        ("Command: a\nb\nChunk ID: 1\nWall time: 1.5 seconds\nProcess exited with code -9\n", -9),
        ("see: Process exited with code 1\n", None),
        ('{"output":"x","metadata":{"exit_code":4}}', 4),
        ('{"output":"x","metadata":["exit_code"]}', None),
        ('["exit_code"]', None),
        ('{"exit_code"', None),
    ],
)
def test_an_exit_code_is_read_from_the_harness_own_words_alone(
    output: str, exit_code: int | None
) -> None:
    drafts = _one(_item(type="function_call_output", call_id="c", output=output))
    assert of_kind(drafts, Kind.TOOL_RESULT)[0].exit_code == exit_code


def test_how_calls_ended_is_remembered_for_the_newest_1024_alone() -> None:
    ends = [
        json.dumps(_message(type="exec_command_end", call_id=f"c{n}", exit_code=1))
        for n in range(1025)
    ]
    outputs = [
        json.dumps(_item(type="function_call_output", call_id=name, output=""))
        for name in ("c0", "c1")
    ]
    drafts, _ = drafts_from(IMPORTER, "many.jsonl", "\n".join(ends + outputs).encode())
    assert [r.exit_code for r in of_kind(drafts, Kind.TOOL_RESULT)] == [None, 1]


def test_an_absent_output_is_not_recorded() -> None:
    result = of_kind(_one(_item(type="function_call_output", call_id="c")), Kind.TOOL_RESULT)[0]
    assert raw_value(result.result) is UNSET


def test_a_call_in_a_namespace_keeps_it_in_its_name() -> None:
    call = _item(
        type="function_call", call_id="c", namespace="mcp__web__", name="get", arguments=""
    )
    assert of_kind(_one(call), Kind.TOOL_CALL)[0].tool == "mcp__web__get"


def test_a_search_whose_query_is_not_recorded_says_so() -> None:
    call = of_kind(_one(_item(type="web_search_call", id="ws_1")), Kind.TOOL_CALL)[0]
    assert (call.is_not_recorded, call.is_provider_side) == (True, True)


def test_another_agents_message_is_no_message_of_the_user() -> None:
    sent = _item(type="agent_message", author="Ida", content=["a", {"text": "b"}])
    draft = _one(sent)[0]
    assert (draft.payload.role, draft.payload.text, draft.flags) == ("Ida", "a\nb", (FLAG_META,))


@pytest.mark.parametrize("kind", ["ghost_snapshot", "tool_search_output", "tool_result"])
def test_an_item_that_no_rule_knows_is_a_note_on_the_chain(kind: str) -> None:
    draft = _one(_item(type=kind, call_id="c"))[0]
    assert (draft.kind, draft.node_id) == (Kind.NOTE, "line:2")
    assert draft.payload == Note(label=f"response_item:{kind}")


def test_an_approval_with_an_unknown_word_is_a_note() -> None:
    draft = _one(_message(type="exec_approval", call_id="c", decision="perhaps"))[0]
    assert draft.kind is Kind.NOTE


def test_an_answer_to_an_approval_is_a_permission() -> None:
    draft = _one(_message(type="exec_approval", call_id="c", decision="approved_for_session"))[0]
    assert draft.payload == ToolPermission(decision="allowed")


def test_the_model_changes_with_the_threads_settings() -> None:
    settings = json.dumps(
        _message(type="thread_settings_applied", thread_settings={"model": "model-c"})
    )
    said = json.dumps(_item(type="message", role="assistant", content="hi"))
    drafts, _ = drafts_from(IMPORTER, "model.jsonl", f"{settings}\n{said}".encode())
    assert of_kind(drafts, Kind.MODEL_RESPONSE) == [ModelResponse(text="hi", model="model-c")]


@pytest.mark.parametrize(
    ("source", "agent"),
    [
        ("cli", "codex"),
        ({"subagent": "review"}, "codex/review"),
        ({"subagent": {"other": "memory"}}, "codex/memory"),
        ({"subagent": {"thread_spawn": {"agent_role": "scout"}}}, "codex/scout"),
        ({"subagent": {"thread_spawn": {}}}, "codex/thread_spawn"),
        ({"subagent": 1}, "codex"),
    ],
)
def test_a_sub_agent_is_named_by_its_role(source: object, agent: str) -> None:
    data = json.dumps({"type": "session_meta", "payload": {"id": "a", "source": source}}).encode()
    started = drafts_from(IMPORTER, "meta.jsonl", data)[0][0].payload
    assert isinstance(started, SessionStarted)
    assert started.agent == agent
