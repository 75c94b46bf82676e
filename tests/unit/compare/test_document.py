import json

import pytest
from msgspec.structs import replace

from redrive.compare.document import dump_document
from redrive.replay.ports import ModelFingerprint
from tests.recordings import call, decide, end, record, result, script, shadow

T = {"tool_calls": [{"name": "t", "args": {"x": 1}}]}
DONE = {"text": "done", "final": True}


@pytest.fixture
def session():
    return record(
        decide(call("t", {"x": 1}, "c1")),
        result("c1", {"n": None}),
        decide(call("t", {"x": 1}, "c2")),
        result("c2", "b", status="error"),
        decide(text="done"),
        end(),
    )


def dumped(*args, **options):
    return json.loads(dump_document(shadow(*args, **options)))


def test_the_document_keeps_the_contract(session):
    document = dumped(session, [T, T, DONE])
    assert {
        *("session_id", "mode", "model", "model_fingerprint", "overrides", "closure", "verdict"),
        *("attribution", "counts", "match_rate", "runs", "steps", "schema", "schema_version"),
    } <= document.keys()
    (run,) = document["runs"]
    assert {
        *("verdict", "reason", "decisions", "served", "served_calls", "live_calls"),
        *("first_divergence", "decision_divergence", "missing_call", "nearest_recorded"),
        *("unused_evidence", "tool_sequence_edits", "tool_sequence_distance", "ignored"),
        *("text_only", "differences"),
    } <= run.keys()
    assert document["counts"] == {"IDENTICAL_REPLAY": 1}
    assert document["closure"]["status"] == "closed"
    assert document["evidence"] == {
        "calls": 2,
        "calls_without_result": 0,
        "results_without_call": 0,
        "conflicting": 0,
    }
    assert (run["served"], run["live_calls"], run["decisions"]) == (2, 0, 3)
    assert [(c["call_id"], c["tool"], c["result"], c["status"]) for c in run["served_calls"]] == [
        ("c1", "t", {"n": None}, "ok"),
        ("c2", "t", "b", "error"),
    ]


def test_a_missing_call_stands_with_the_nearest_and_what_was_not_used(session):
    changed = {"tool_calls": [{"name": "t", "args": {"x": 2}}]}
    (run,) = dumped(session, [T, changed])["runs"]
    assert run["missing_call"] == {
        "decision": 2,
        "tool": "t",
        "arguments": {"x": 2},
        "why": "not_recorded",
        "recorded": 0,
    }
    assert run["nearest_recorded"] == {
        "decision": 1,
        "call_id": "c1",
        "tool": "t",
        "arguments": {"x": 1},
        "differs": ["/x"],
    }
    assert [(u["decision"], u["call_id"], u["tool"]) for u in run["unused_evidence"]] == [
        (2, "c2", "t")
    ]
    assert run["first_divergence"]["decision"] == run["missing_call"]["decision"]


def test_two_runs_give_the_same_bytes(session):
    lines = [{**T, "text": "hm"}, T, DONE]
    assert dump_document(shadow(session, lines)) == dump_document(shadow(session, lines))


def test_an_open_trajectory_has_no_run():
    document = dumped(record(decide(call("t", {}, "c1")), decide(text="x")), [])
    assert (document["runs"], document["verdict"]) == ([], "INSUFFICIENT_EVIDENCE")
    assert (document["attribution"], document["counts"]) == ("provenance_gap", {})
    assert document["evidence"] is None
    (opened,) = document["closure"]["open_steps"]
    assert (opened["step"], opened["missing"][0]["class"]) == (1, "environment")
    assert document["closure"]["n_open"] == 1
    assert shadow(record(decide(call("t", {}, "c1"))), []).exit_code == 3


def test_a_reconstruction_is_labelled_and_stays_insufficient():
    recording = record(decide(call("t", {"x": 1}, "c1")), decide(text="x"))
    document = dumped(recording, [T], is_reconstruction=True)
    assert document["mode"] == "reconstruction"
    assert document["runs"][0]["missing_call"]["why"] == "no_result"
    assert document["verdict"] == document["runs"][0]["verdict"] == "INSUFFICIENT_EVIDENCE"


def test_the_first_stated_identity_is_the_documents(session):
    assert dumped(session, [T, T, DONE])["model_fingerprint"] is None
    first, *rest = script([T, T, DONE])
    stated = [replace(first, model=ModelFingerprint(served="m-1")), *rest]
    assert dumped(session, stated)["model_fingerprint"] == {"served": "m-1"}


def test_half_an_emoji_leaves_the_document_valid_utf_8():
    recording = record(
        decide(call("t", {"x": "\ud83d"}, "c1"), text="\ud83d"), result("c1", "cut \ud83d")
    )
    line = {"text": "no \ud83d", "tool_calls": [{"name": "t", "args": {"x": "\ud83d"}}]}
    data = dump_document(shadow(recording, [line]))
    (run,) = json.loads(data.decode("utf-8"))["runs"]
    assert run["served_calls"][0]["result"] == "cut \ud83d"
    assert run["first_divergence"]["found"]["text"] == "no \ud83d"
