"""The public-bug cases that concern shadow replay, at the machine's level."""

import json
from pathlib import Path
from typing import Any

import pytest

from redrive.compare.document import dump_document
from redrive.importers.claude_code import IMPORTER as CLAUDE_CODE
from redrive.record.session import MemoryReader
from redrive.record.trajectory import build_trajectory
from tests.helpers import events_from, index_of
from tests.recordings import Recording, load, replay, shadow


def folder(cases: Path, number: str) -> Path:
    return next(cases.glob(f"{number}-*"))


def expected(case: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((case / "expected.json").read_text())["expect"]
    return values


def run_case(case: Path, script: str, session: str = "session.jsonl", **options: Any) -> Any:
    document = shadow(load(case / session), case / script, is_reconstruction=True, **options)
    return json.loads(dump_document(document))


SCRIPTS = [
    ("21", "shadow_empty_objects.jsonl"),
    ("21", "shadow_repaired.jsonl"),
    ("25", "shadow_same.jsonl"),
    ("25", "shadow_fourth_poll.jsonl"),
    ("25", "shadow_stops_early.jsonl"),
    ("26", "shadow_units_changed.jsonl"),
    ("26", "shadow_extra_arg.jsonl"),
    ("26", "shadow_other_tool.jsonl"),
    ("56", "shadow_same.jsonl"),
    ("69", "shadow_same.jsonl"),
]


@pytest.mark.parametrize(("number", "script"), SCRIPTS)
def test_the_case_has_its_verdict(cases, number, script):
    case = folder(cases, number)
    wanted = expected(case)[script]
    document = run_case(case, script)
    run = document["runs"][0]
    assert document["verdict"] == wanted["verdict"]
    if "at_decision" in wanted:
        place = run["first_divergence"] or run["missing_call"]
        assert place["decision"] == wanted["at_decision"]
    if isinstance(wanted.get("served"), list):
        assert [call["result"] for call in run["served_calls"]] == wanted["served"]
    elif "served" in wanted:
        assert run["served"] == wanted["served"]
    assert run["live_calls"] == wanted.get("live_calls", 0)


@pytest.mark.parametrize(("number", "script"), SCRIPTS)
def test_two_runs_of_a_case_give_the_same_bytes(cases, number, script):
    case = folder(cases, number)
    documents = [dump_document(shadow(load(case / "session.jsonl"), case / script)) for _ in "ab"]
    assert documents[0] == documents[1]


REFUSALS = [
    ("21", "shadow_repaired.jsonl", 3, "not_recorded", "probe", ["arguments"]),
    ("25", "shadow_fourth_poll.jsonl", 3, "used_up", "get_state", []),
    ("26", "shadow_units_changed.jsonl", 0, "not_recorded", "weather", ["/units"]),
    ("26", "shadow_extra_arg.jsonl", 0, "not_recorded", "weather", ["/lang"]),
    ("26", "shadow_other_tool.jsonl", 1, "not_recorded", "send_mail", ["tool"]),
]


@pytest.mark.parametrize(("number", "script", "served", "why", "nearest", "differs"), REFUSALS)
def test_a_refusal_names_the_call_and_the_nearest_one(
    cases, number, script, served, why, nearest, differs
):
    document = run_case(folder(cases, number), script)
    run = document["runs"][0]
    assert (document["verdict"], run["reason"]) == ("INSUFFICIENT_EVIDENCE", "no_recorded_answer")
    assert (run["served"], run["missing_call"]["why"]) == (served, why)
    assert run["nearest_recorded"]["tool"] == nearest
    assert run["nearest_recorded"]["differs"] == differs


@pytest.mark.parametrize("number", ["21", "25", "26"])
def test_each_refusal_has_a_twin_that_is_identical(cases, number):
    case = folder(cases, number)
    recording = load(case / "session.jsonl")
    lines = [json.loads(line) for line in (case / "session.jsonl").read_text().splitlines()]
    outputs = [line["output"] for line in lines if line["type"] == "decision"]
    twin = [
        {"text": output["text"], "tool_calls": output["tool_calls"], "final": output is outputs[-1]}
        for output in outputs
    ]
    document = shadow(recording, twin)
    assert document.verdict == "IDENTICAL_REPLAY"
    assert document.runs[0].missing_call is None
    assert document.runs[0].unused_evidence == ()


def test_case_02_a_doubled_result_answers_one_call(cases):
    case = folder(cases, "02")
    wanted = expected(case)["shadow_twice.jsonl"]
    document = run_claude(case / "identical.jsonl", case / "shadow_twice.jsonl")
    run = document["runs"][0]
    assert document["verdict"] == wanted["verdict"]
    assert run["first_divergence"]["decision"] == wanted["at_decision"]
    assert run["served"] == wanted["served"]
    assert run["missing_call"]["why"] == "used_up"


def test_case_02_conflicting_results_answer_nothing(cases):
    case = folder(cases, "02")
    line = {"tool_calls": [{"name": "Bash", "args": {"command": "date +%s"}}]}
    run = run_claude(case / "conflict.jsonl", [line])["runs"][0]
    assert (run["served"], run["missing_call"]["why"]) == (0, "conflicting_results")
    assert run["nearest_recorded"]["call_id"] == "toolu_B"


def run_claude(path: Path, script: Any) -> Any:
    events = events_from(CLAUDE_CODE, path)
    index = index_of(events)
    recording = Recording(events, index, build_trajectory(index), MemoryReader(events))
    document = shadow(recording, script, is_reconstruction=True)
    return json.loads(dump_document(document))


def test_case_30_a_preview_is_not_served_and_a_tools_own_notice_is_complete(cases):
    case = folder(cases, "30")
    document = run_case(case, "shadow_same.jsonl")
    run = document["runs"][0]
    assert document["verdict"] == "INSUFFICIENT_EVIDENCE"
    assert (run["served"], run["missing_call"]["why"]) == (0, "truncated")
    cells = load(case / "session.jsonl").run().evidence.cells
    assert [(cell.call_id, cell.gap) for cell in cells] == [("c1", "truncated"), ("c2", None)]


def test_case_54_nothing_is_executed_from_whichever_step(cases):
    case = folder(cases, "54")
    wanted = expected(case)
    document = run_case(case, "shadow_same.jsonl")
    assert document["verdict"] == wanted["from_step_1"]["verdict"]
    assert document["runs"][0]["served"] == wanted["from_step_1"]["served"]
    lines = [json.loads(line) for line in (case / "shadow_same.jsonl").read_text().splitlines()]
    run = replay(load(case / "session.jsonl"), lines[1:], from_decision=2)
    assert len(run.served) == wanted["from_step_2"]["served"]
    assert not (case / "ledger.txt").exists()


def test_case_56_half_an_emoji_is_not_the_replacement_character(cases):
    case = folder(cases, "56")
    files = ("session.jsonl", "replacement_char.jsonl")
    cells = [load(case / name).run().evidence.cells[0] for name in files]
    assert (cells[0].digest == cells[1].digest) is expected(case)["result_hash_equal_between_files"]


def test_case_69_empty_results_are_served_with_their_types(cases):
    case = folder(cases, "69")
    run = run_case(case, "shadow_same.jsonl")["runs"][0]
    types = {str: "string", list: "array", int: "number", bool: "boolean", dict: "object"}
    served = {call["call_id"]: types[type(call["result"])] for call in run["served_calls"]}
    assert served == expected(case)["session.jsonl"]["served_types"]
    assert run["missing_call"]["why"] == "no_result"
