import json
from pathlib import Path
from typing import Any

import pytest

from redrive.importers.claude_code import IMPORTER
from redrive.importers.draft import Draft, FileTally, Importer
from redrive.record.branches import count_branches
from redrive.record.event import Event, Kind, payload_of, raw_value
from redrive.record.pairing import pair_path
from redrive.record.places import build_places
from redrive.record.session import MemoryReader, SessionIndex
from redrive.record.trajectory import Trajectory, build_trajectory
from tests.claude_files import SESSION, assistant, call, dump, line, result, text, user, uuid
from tests.helpers import drafts_from, events_from, events_of, index_of

NAME = f"{SESSION}.jsonl"


def project(*lines: dict[str, Any]) -> tuple[list[Draft], FileTally]:
    return drafts_from(IMPORTER, NAME, dump(lines))


def events(*lines: dict[str, Any]) -> list[Event]:
    return events_from(IMPORTER, NAME, dump(lines))


def case_events(cases: Path, name: str) -> list[Event]:
    return events_from(IMPORTER, cases / name)


def expected(cases: Path, case: str, file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cases / case / "expected.json").read_bytes())
    return found["expect"][file]  # type: ignore[no-any-return]


def path_of(found: list[Event], actor: str = "main") -> tuple[SessionIndex, Trajectory]:
    index = index_of(found)
    return index, build_trajectory(index, actor=actor)


def tools_on(found: list[Event], path: Trajectory) -> list[str]:
    return [payload_of(found[seq]).tool for step in path.steps for seq in step.calls]


def kinds(drafts: list[Draft]) -> list[Kind]:
    return [draft.kind for draft in drafts]


def test_the_importer_satisfies_its_protocol() -> None:
    importer: Importer = IMPORTER
    assert (importer.name, importer.version) == ("claude_code", 1)


# --- the case suite ---------------------------------------------------------------------------


def test_case_01_an_interrupted_call_stays_unanswered_and_an_api_error_is_no_decision(
    cases: Path,
) -> None:
    case = "01-orphan-tool-use"
    want = expected(cases, case, "interrupted.jsonl")
    found = case_events(cases, f"{case}/interrupted.jsonl")
    index, path = path_of(found)
    pairing = pair_path(index, path, MemoryReader(found))
    assert [found[seq].call_id for seq in pairing.unanswered] == want["calls_without_result"]
    assert [found[seq].call_id for seq in pairing.orphans] == want["orphan_results"]
    assert len(path.steps) == want["model_decisions"]
    assert len(index.seqs_of(Kind.TOOL_CALL)) == want["tool_calls"]
    assert len(index.seqs_of(Kind.TOOL_RESULT)) == want["tool_results"]
    interruption = found[index.seqs_of(Kind.TOOL_RESULT)[1]]
    assert payload_of(interruption).status == "error"
    error = payload_of(found[index.seqs_of(Kind.MODEL_ERROR)[0]])
    assert error.status == 400


def test_case_01_a_result_without_its_call_is_an_orphan_and_pairs_with_nothing(
    cases: Path,
) -> None:
    case = "01-orphan-tool-use"
    want = expected(cases, case, "compacted.jsonl")
    found = case_events(cases, f"{case}/compacted.jsonl")
    index, path = path_of(found)
    pairing = pair_path(index, path, MemoryReader(found))
    assert [found[seq].call_id for seq in pairing.orphans] == want["orphan_results"]
    assert [found[seq].call_id for seq in pairing.unanswered] == want["calls_without_result"]
    assert [found[seq].call_id for seq in pairing.answers] == ["toolu_D"]
    assert found[1].kind is Kind.CONTEXT_REPLACED
    assert payload_of(found[0]).task is None


@pytest.mark.parametrize("file", ["identical.jsonl", "conflict.jsonl"])
def test_case_02_a_doubled_result_is_kept_and_told_apart_by_its_value(
    cases: Path, file: str
) -> None:
    case = "02-duplicate-tool-results"
    want = expected(cases, case, file)
    found = case_events(cases, f"{case}/{file}")
    index, path = path_of(found)
    pairing = pair_path(index, path, MemoryReader(found))
    assert len(index.seqs_of(Kind.TOOL_CALL)) == want["tool_calls"]
    assert [found[s].call_id for s in pairing.duplicates] == want["identical_duplicate_result_ids"]
    assert [found[s].call_id for s in pairing.conflicts] == want["conflicting_result_ids"]


def test_case_04_a_torn_tail_loses_no_whole_line(cases: Path) -> None:
    want = expected(cases, "04-torn-tail", "session.jsonl")
    drafts, tally = drafts_from(IMPORTER, cases / "04-torn-tail/session.jsonl")
    assert tally.records == want["events_loaded"]
    assert [damage.line for damage in tally.damage] == want["damaged_lines"]
    assert kinds(drafts).count(Kind.DAMAGE) == 1


def test_case_06_lines_behind_a_bad_one_are_read(cases: Path) -> None:
    want = expected(cases, "06-nul-block-mid-file", "session.jsonl")
    path = cases / "06-nul-block-mid-file/session.jsonl"
    _, tally = drafts_from(IMPORTER, path)
    found = events_from(IMPORTER, path)
    index = index_of(found)
    assert tally.records == want["events_loaded"]
    assert [damage.line for damage in tally.damage] == want["damaged_lines"]
    assert index.node_ids[-1] == want["last_event_uuid"]
    assert len(index.dangling) == want["broken_parent_references"]


def test_case_08_of_copies_the_one_with_a_parent_wins(cases: Path) -> None:
    want = expected(cases, "08-branch-duplicate-uuids", "session.jsonl")
    path = cases / "08-branch-duplicate-uuids/session.jsonl"
    drafts, tally = drafts_from(IMPORTER, path)
    found = events_from(IMPORTER, path)
    index, walked = path_of(found)
    assert tally.records == want["lines"]
    assert len(index.node_ids) == want["unique_events"]
    assert tally.extra["duplicates"] == want["duplicate_uuids"]
    assert list(index.node_parent).count(-1) == want["roots"]
    assert len(walked.node_path) == want["active_path_length"]
    assert len(tools_on(found, walked)) == want["tool_calls_on_path"]
    assert [draft.flags for draft in drafts if draft.node_id == uuid(1)] == [("inherited",)]
    started = payload_of(found[0])
    assert started.parent_session == "0ld5e550-0000-4000-8000-000000000009"


def test_case_08_the_order_of_the_copies_does_not_matter(cases: Path) -> None:
    lines = (cases / "08-branch-duplicate-uuids/session.jsonl").read_bytes().splitlines(True)
    turned = b"".join([*lines[6:10], *lines[:6], lines[10]])
    found = events_from(IMPORTER, NAME, turned)
    index, walked = path_of(found)
    assert len(walked.node_path) == 7
    assert len(index.seqs_of(Kind.TOOL_CALL)) == 2
    assert list(index.node_parent).count(-1) == 1
    replaced = [(event.id, event.supersedes) for event in found if event.supersedes]
    assert (f"{uuid(2)}~2", uuid(2)) in replaced
    assert (f"{uuid(2)}~2/2", f"{uuid(2)}/2") in replaced


def test_case_09_a_rewind_leaves_the_abandoned_branch_off_the_path(cases: Path) -> None:
    want = expected(cases, "09-rewind-dead-branch", "session.jsonl")
    found = case_events(cases, "09-rewind-dead-branch/session.jsonl")
    index, walked = path_of(found)
    assert list(walked.node_path) == want["active_path"]
    assert sorted(set(index.node_ids) - set(walked.node_path)) == want["discarded"]
    assert tools_on(found, walked).count("Edit") == want["edits_on_active_path"]
    assert len(walked.steps) == want["decisions_on_active_path"]


def test_case_13_each_sub_agent_is_a_flow_of_its_own(cases: Path) -> None:
    want = expected(cases, "13-sidechain-interleaved", "session.jsonl")
    found = case_events(cases, "13-sidechain-interleaved/session.jsonl")
    _, main = path_of(found)
    assert tools_on(found, main) == want["main_tool_calls"]
    assert len(main.node_path) == want["main_path_length"]
    agents = {name: tools_on(found, path_of(found, name)[1]) for name in want["agents"]}
    assert agents == want["agents"]


def test_case_14_the_lines_of_one_answer_are_one_decision(cases: Path) -> None:
    want = expected(cases, "14-split-content-blocks", "session.jsonl")
    found = case_events(cases, "14-split-content-blocks/session.jsonl")
    index, walked = path_of(found)
    pairing = pair_path(index, walked, MemoryReader(found))
    assert len(walked.steps) == want["model_decisions"]
    called = [found[seq].call_id for step in walked.steps for seq in step.calls]
    assert called == want["tool_calls"]
    assert [found[seq].call_id for seq in pairing.unanswered] == want["calls_without_result"]
    answers = [[payload_of(found[s]) for s in step.responses] for step in walked.steps]
    usages = [[answer.usage for answer in step] for step in answers]
    outputs = [max(usage.output_tokens for usage in step) for step in usages]
    assert sum(outputs) == want["output_tokens"]
    assert sum(step[-1].cache_read_tokens for step in usages) == want["cache_read_input_tokens"]
    assert "".join(answer.text for answer in answers[0]) == want["decision_1_text"]
    assert answers[0][0].reasoning == "plan"


def test_case_56_a_lone_surrogate_is_not_the_replacement_character() -> None:
    data = dump(
        [user(1, None, "Go"), assistant(2, 1, call("c1")), user(3, 2, [result("c1", "@@")])]
    )
    values = []
    for escape in (b"cut \\ud83d", b"cut \\ufffd"):
        drafts, tally = drafts_from(IMPORTER, NAME, data.replace(b"@@", escape))
        assert (tally.records, tally.tool_results, tally.damage) == (3, 1, [])
        values.append(raw_value(payload_of(events_of(drafts)[-1]).result))
    assert values == ["cut \ud83d", "cut \ufffd"]


# --- what needs more than one line ------------------------------------------------------------


def test_the_session_comes_first_with_its_task_although_the_task_comes_later() -> None:
    mode = {"type": "permission-mode", "permissionMode": "default", "sessionId": SESSION}
    found = events(
        mode,
        user(1, None, "<command-name>/clear</command-name>"),
        user(2, 1, "Injected by the program", isMeta=True),
        user(3, 2, "Fix the build"),
    )
    started = payload_of(found[0])
    assert [event.kind for event in found].count(Kind.SESSION_STARTED) == 1
    assert (started.task, started.agent, started.agent_version) == (
        "Fix the build",
        "claude-code",
        "2.1.0",
    )
    assert (started.cwd, started.git, started.captures, started.basis) == (
        "/srv/demo",
        "main",
        {},
        "unknown",
    )
    assert {event.session_id for event in found} == {SESSION}
    assert found[1].node_id == ""


def test_a_model_call_on_an_abandoned_branch_is_kept_and_off_the_path() -> None:
    found = events(
        user(1, None, "Start"),
        assistant(2, 1, text("No"), call("c1", command="rm")),
        user(3, 2, [result("c1")]),
        assistant(4, 3, text("Done")),
        user(5, 1, "Start again"),
        assistant(6, 5, text("Yes")),
    )
    index, walked = path_of(found)
    assert list(walked.node_path) == [uuid(1), uuid(5), uuid(6)]
    assert len(index.seqs_of(Kind.MODEL_RESPONSE)) == 3
    assert tools_on(found, walked) == []


def test_an_interrupt_between_call_and_result_mid_file_opens_that_call_alone() -> None:
    found = events(
        user(1, None, "Go"),
        assistant(2, 1, call("c1"), call("c2")),
        user(3, 2, [result("c1")]),
        user(4, 3, [text("[Request interrupted by user for tool use]")]),
        user(5, 4, "Go on"),
        assistant(6, 5, call("c3")),
        user(7, 6, [result("c3")]),
    )
    index, walked = path_of(found)
    pairing = pair_path(index, walked, MemoryReader(found))
    assert [found[seq].call_id for seq in pairing.unanswered] == ["c2"]
    assert len(pairing.answers) == 2


def test_a_compaction_hangs_off_what_it_follows_and_holds_its_summary() -> None:
    boundary = line(
        3,
        None,
        "system",
        subtype="compact_boundary",
        logicalParentUuid=uuid(2),
        compactMetadata={"trigger": "auto", "preTokens": 5},
    )
    found = events(
        user(1, None, "Go"),
        assistant(2, 1, text("Half done")),
        boundary,
        user(4, 3, "So far: half done.", isCompactSummary=True),
        assistant(5, 4, text("Done")),
    )
    _, walked = path_of(found)
    assert list(walked.node_path) == [uuid(n) for n in (1, 2, 3, 4, 5)]
    replaced = next(event for event in found if event.kind is Kind.CONTEXT_REPLACED)
    payload = payload_of(replaced)
    assert (payload.trigger, raw_value(payload.after)) == ("auto", "So far: half done.")
    summary = next(event for event in found if event.node_id == uuid(4))
    assert (summary.kind, "meta" in summary.flags) == (Kind.USER_MESSAGE, True)
    assert [event.seq for event in found] == sorted(event.seq for event in found)


@pytest.mark.parametrize("tail", [b"", b"{torn", dump([user(4, 3, "Next")])])
def test_a_compaction_without_summary_is_a_compaction_still(tail: bytes) -> None:
    boundary = line(3, None, "system", subtype="compact_boundary", logicalParentUuid=uuid(2))
    data = dump([user(1, None, "Go"), boundary]) + tail
    found = events_from(IMPORTER, NAME, data)
    replaced = [event for event in found if event.kind is Kind.CONTEXT_REPLACED]
    assert [event.node_id for event in replaced] == [uuid(3)]
    assert [event.source.offset for event in found[1:]] == sorted(
        event.source.offset for event in found[1:]
    )


def test_parallel_results_off_different_block_lines_answer_their_own_calls() -> None:
    found = events(
        user(1, None, "Go"),
        assistant(2, 1, text("Both"), answer="m"),
        assistant(3, 2, call("c1"), answer="m"),
        assistant(4, 3, call("c2"), answer="m"),
        user(5, 3, [result("c1", "one")]),
        user(6, 4, [result("c2", "two")]),
        assistant(7, 6, text("Done")),
    )
    index, walked = path_of(found)
    pairing = pair_path(index, walked, MemoryReader(found))
    assert len(walked.steps) == 2
    given = {
        found[c].call_id: raw_value(payload_of(found[r]).result) for c, r in pairing.answers.items()
    }
    assert given == {"c1": "one", "c2": "two"}
    assert count_branches(build_places(index)) == 1


def progress(number: int, parent: int, inner: dict[str, Any], **data: Any) -> dict[str, Any]:
    body = {"type": "agent_progress", "message": inner, **data}
    return line(number, parent, "progress", data=body, parentToolUseID="toolu_task")


def test_messages_inside_progress_lines_are_a_flow_of_their_own_and_not_counted() -> None:
    lines = [
        user(1, None, "Go"),
        assistant(2, 1, call("toolu_task", "Task")),
        progress(3, 2, user(103, None, "Look"), agentId="ag1"),
        progress(4, 3, assistant(104, None, call("n1", "Grep")), agentId="ag1"),
        progress(5, 4, user(105, None, [result("n1", "hit")]), agentId="ag1"),
        user(6, 2, [result("toolu_task", "found")]),
    ]
    drafts, tally = project(*lines)
    assert (tally.model_calls, tally.tool_calls, tally.tool_results) == (1, 1, 1)
    assert tally.extra["nested_progress_tool_use"] == 1
    found = events_of(drafts)
    _, walked = path_of(found, "ag1")
    assert list(walked.node_path) == [uuid(103), uuid(104), uuid(105)]
    assert tools_on(found, walked) == ["Grep"]
    _, main = path_of(found)
    assert tools_on(found, main) == ["Task"]


def test_an_embedded_message_without_ids_is_named_by_its_place_and_its_call() -> None:
    inner = {"type": "user", "message": {"role": "user", "content": "Look"}}
    found = events(user(1, None, "Go"), progress(2, 1, inner), progress(3, 2, {"type": "?"}))
    embedded = [event for event in found if event.actor == "agent:toolu_task"]
    assert [(e.kind, e.parent_id, e.node_id.startswith("agent:")) for e in embedded] == [
        (Kind.USER_MESSAGE, uuid(1), True)
    ]
    assert embedded[0].ts_ns is not None


def test_a_message_without_uuid_is_a_node_named_by_its_place() -> None:
    bare = {k: v for k, v in user(2, 1, "No id").items() if k != "uuid"}
    found = events(user(1, None, "Go"), bare)
    assert (found[-1].node_id, found[-1].parent_id) == (found[-1].id, uuid(1))
    assert found[-1].id.startswith("line:")


def test_a_uuid_that_looks_like_one_of_our_event_ids_cannot_collide() -> None:
    crafted = {**user(2, 1, "x"), "uuid": f"{uuid(1)}/2"}
    drafts, _ = project(user(1, None, [result("c1"), result("c2")]), crafted)
    ids = [draft.id for draft in drafts]
    assert len(set(ids)) == len(ids)
    assert drafts[-1].node_id == f"{uuid(1)}/2"


def test_a_copy_that_can_be_read_replaces_one_that_could_not() -> None:
    broken = {**user(1, None, "x"), "message": "error"}
    drafts, tally = project(broken, user(1, None, "Readable"), user(1, None, "Spare"))
    assert kinds(drafts)[1:] == [Kind.NOTE, Kind.USER_MESSAGE]
    assert drafts[-1].supersedes == drafts[1].id
    assert tally.extra["duplicates"] == 1


def test_a_shorter_copy_supersedes_every_event_of_the_longer_one() -> None:
    drafts, _ = project(
        user(9, None, "root"),
        user(1, None, [result("c1"), result("c2"), text("x")]),
        user(1, 9, [result("c1")]),
        {**user(1, 9, [result("c1")]), "forkedFrom": {"sessionId": "older"}},
    )
    copies = [draft for draft in drafts if draft.supersedes]
    assert [draft.supersedes for draft in copies] == [uuid(1), f"{uuid(1)}/2", f"{uuid(1)}/3"]
    assert kinds(copies) == [Kind.TOOL_RESULT, Kind.NOTE, Kind.NOTE]
    index = index_of(events_of(drafts))
    assert len(index.seqs_of(Kind.TOOL_RESULT)) == 1


def test_a_file_of_damage_alone_gives_damage_alone() -> None:
    drafts, tally = drafts_from(IMPORTER, NAME, b"\x00\x00\n{torn\n")
    assert kinds(drafts) == [Kind.DAMAGE, Kind.DAMAGE]
    assert (tally.records, len(tally.damage)) == (0, 2)
    assert drafts_from(IMPORTER, NAME, b"")[0] == []


def test_a_companion_file_belongs_to_its_parents_session_whatever_its_lines_say() -> None:
    side: dict[str, Any] = {"isSidechain": True, "agentId": "a1"}
    lines = dump([user(1, None, "Look", **side), assistant(2, 1, call("n1"), **side)])
    sidecar = dump([{"type": "mode", "mode": "normal"}])
    path = f"projects/demo/{SESSION}/subagents/agent-a1.jsonl"
    for data in (lines, lines.replace(SESSION.encode(), b"agent-a1")):
        drafts, _ = drafts_from(IMPORTER, path, data + sidecar)
        assert {draft.session for draft in drafts} == {SESSION}
        assert {draft.actor for draft in drafts} == {"a1"}
        assert Kind.SESSION_STARTED not in kinds(drafts)
        assert drafts[-1].id.startswith("agent-a1:line:")


def test_sessions_are_looked_for_in_the_agents_own_folders(tmp_path: Path) -> None:
    assert IMPORTER.discover_roots(tmp_path) == ()
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    assert IMPORTER.discover_roots(tmp_path) == (tmp_path / ".claude" / "projects",)
