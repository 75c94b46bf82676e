"""The case suite, run as a user runs it; every value is read from `expected.json`."""

import hashlib
import json

import pytest


def expected(cases, case):
    return json.loads((cases / case / "expected.json").read_text())["expect"]


def session_of(file):
    (session,) = file["sessions"]
    return session


def shadow(redrive, session, script, code, *extra):
    return redrive.json("shadow", session, "--model", f"script:{script}", *extra, code=code)


CODES = {
    "IDENTICAL_REPLAY": 0,
    "DETERMINISTIC_CORROBORATION": 0,
    "STOCHASTIC_MODEL_DIVERGENCE": 1,
    "INSUFFICIENT_EVIDENCE": 3,
}


def place(run):
    """The decision at which a run parted, as the cases name it."""
    divergence = run["first_divergence"] or run["missing_call"]
    return divergence["decision"]


def test_01_calls_and_results_without_their_other_half(redrive, cases, tmp_path):
    case = "01-orphan-tool-use"
    for name, wanted in expected(cases, case).items():
        file = redrive.imported(cases / case / name)
        session = session_of(file)
        assert session["tool_calls"] == wanted["tool_calls"]
        assert session["tool_results"] == wanted["tool_results"]
        assert session["orphan_call_ids"] == wanted["calls_without_result"]
        assert session["orphan_result_ids"] == wanted["orphan_results"]
        if "model_decisions" in wanted:
            assert session["model_calls"] == wanted["model_decisions"]
            audit = redrive.json("audit", session["session_id"], code=3)
            missing = json.dumps(audit["sessions"][0]["steps"])
            assert all(word in missing for word in wanted["audit_missing_mentions"])
            calls = [
                event
                for event in redrive.json("cat", session["session_id"])["events"]
                if event.get("call_id") == "toolu_C" and event["kind"] == "tool.call"
            ]
            script = tmp_path / "asks_c.jsonl"
            payload = calls[0]["payload"]
            call = {"name": payload["tool"], "args": payload.get("arguments", {})}
            script.write_text(json.dumps({"tool_calls": [call]}) + "\n")
            document = shadow(redrive, session["session_id"], script, 3, "--reconstruct")
            assert document["verdict"] == wanted["shadow_if_model_calls_toolu_C_args_again"]
            assert document["runs"][0]["served"] == 0
            assert document["runs"][0]["missing_call"]["tool"] == payload["tool"]


def test_02_two_results_of_one_call(redrive, cases):
    case = "02-duplicate-tool-results"
    values = expected(cases, case)
    for name in ("identical.jsonl", "conflict.jsonl"):
        session = session_of(redrive.imported(cases / case / name))
        assert session["tool_calls"] == values[name]["tool_calls"]
        assert session["duplicate_result_ids"] == values[name]["identical_duplicate_result_ids"]
        assert session["conflicting_call_ids"] == values[name]["conflicting_result_ids"]
        audit = json.dumps(redrive.json("audit", session["session_id"], code=3))
        assert all(word in audit for word in values[name].get("audit_mentions", ()))
        if name == "identical.jsonl":
            twice = values["shadow_twice.jsonl"]
            script = cases / case / "shadow_twice.jsonl"
            assert shadow(redrive, session["session_id"], script, 3)["runs"] == []
            document = shadow(redrive, session["session_id"], script, 3, "--reconstruct")
            assert document["mode"] == "reconstruction"
            assert document["verdict"] == twice["verdict"]
            assert document["runs"][0]["served"] == twice["served"]
            assert document["runs"][0]["missing_call"]["decision"] == twice["at_decision"]


def test_04_a_torn_tail(redrive, cases):
    path = cases / "04-torn-tail/session.jsonl"
    wanted = expected(cases, "04-torn-tail")["session.jsonl"]
    file = redrive.imported(path)
    assert file["records"] == wanted["events_loaded"]
    assert [entry["line"] for entry in file["damage"]] == wanted["damaged_lines"]
    assert session_of(file)["complete"] == wanted["record_is_complete"]
    assert hashlib.sha256(path.read_bytes()).hexdigest() == wanted["source_sha256_after"]


def test_06_nul_bytes_in_the_middle(redrive, cases):
    path = cases / "06-nul-block-mid-file/session.jsonl"
    wanted = expected(cases, "06-nul-block-mid-file")["session.jsonl"]
    file = redrive.imported(path)
    assert file["records"] == wanted["events_loaded"]
    assert [entry["line"] for entry in file["damage"]] == wanted["damaged_lines"]
    session = session_of(file)
    assert session["head_node"] == wanted["last_event_uuid"]
    assert session["broken"] is None
    assert wanted["broken_parent_references"] == 0


def test_08_one_event_per_uuid(redrive, cases):
    wanted = expected(cases, "08-branch-duplicate-uuids")["session.jsonl"]
    session = session_of(redrive.imported(cases / "08-branch-duplicate-uuids/session.jsonl"))
    assert session["roots"] == wanted["roots"]
    assert len(session["active_path"]) == wanted["active_path_length"]
    assert session["tool_calls"] + session["inherited"] >= wanted["tool_calls_on_path"]
    shown = redrive.json("show", session["session_id"])
    calls = [call for step in shown["steps"] for call in step.get("calls", ())]
    assert len(calls) == wanted["tool_calls_on_path"]


def test_09_a_rewind_leaves_the_live_path_clean(redrive, cases):
    wanted = expected(cases, "09-rewind-dead-branch")["session.jsonl"]
    session = session_of(redrive.imported(cases / "09-rewind-dead-branch/session.jsonl"))
    for name in ("active_path", "discarded"):
        assert session[name] == wanted[name]
    assert session["leaves"] == wanted["leaf_count"]
    shown = redrive.json("show", session["session_id"])
    assert len(shown["steps"]) == wanted["decisions_on_active_path"]
    calls = [call["tool"] for step in shown["steps"] for call in step.get("calls", ())]
    assert calls.count("Edit") == wanted["edits_on_active_path"]
    effects = redrive.json("show", session["session_id"], "--effects")
    edits = [effect for effect in effects["effects"] if effect["tool"] == "Edit"]
    assert len(edits) == 4, "the discarded branch stays in the audit trail"


def test_13_subagents_are_flows_of_their_own(redrive, cases):
    wanted = expected(cases, "13-sidechain-interleaved")["session.jsonl"]
    session = session_of(redrive.imported(cases / "13-sidechain-interleaved/session.jsonl"))
    assert len(session["active_path"]) == wanted["main_path_length"]

    def tools(*actor):
        shown = redrive.json("show", session["session_id"], *actor)
        return [call["tool"] for step in shown["steps"] for call in step.get("calls", ())]

    assert tools() == wanted["main_tool_calls"]
    for agent, calls in wanted["agents"].items():
        assert tools("--actor", agent) == calls


def test_14_one_answer_in_several_lines(redrive, cases):
    wanted = expected(cases, "14-split-content-blocks")["session.jsonl"]
    session = session_of(redrive.imported(cases / "14-split-content-blocks/session.jsonl"))
    assert session["model_calls"] == wanted["model_decisions"]
    assert session["orphan_call_ids"] == wanted["calls_without_result"]
    assert session["usage"]["output_tokens"] == wanted["output_tokens"]
    assert session["usage"]["cache_read_tokens"] == wanted["cache_read_input_tokens"]
    shown = redrive.json("show", session["session_id"])
    calls = [call["call_id"] for step in shown["steps"] for call in step.get("calls", ())]
    assert calls == wanted["tool_calls"]
    assert shown["steps"][0]["text"]["text"] == wanted["decision_1_text"]


def test_17_a_cut_prompt_opens_its_own_step_alone(redrive, cases):
    wanted = expected(cases, "17-otlp-truncated-messages")["trace.json"]
    session = session_of(redrive.imported(cases / "17-otlp-truncated-messages/trace.json"))
    assert session["model_calls"] == wanted["model_decisions"]
    audit = redrive.json("audit", session["session_id"], code=3)["sessions"][0]
    steps = {step["node_id"]: step for step in audit["steps"]}
    for span, status in wanted["input_closure"].items():
        assert steps[span]["status"] == status
        gap = next(g for g in steps[span]["missing"] if g["class"] == "input")
        assert "truncated" in gap["what"] + gap["reason"] + gap["cause"]
    for span in wanted["not_reported_as_truncated"]:
        assert not [g for g in steps[span]["missing"] if "truncated" in g["cause"]]


def test_19_a_trace_without_content_proves_nothing(redrive, cases, tmp_path):
    wanted = expected(cases, "19-otlp-content-capture-off")["trace.json"]
    session = session_of(redrive.imported(cases / "19-otlp-content-capture-off/trace.json"))
    assert session["model_calls"] == wanted["model_decisions"]
    assert session["tool_calls"] == wanted["tool_calls"]
    assert session["orphan_call_ids"] == wanted["tool_calls_without_result"]
    audit = redrive.json("audit", session["session_id"], code=3)["sessions"][0]
    assert sum(step["status"] == "open" for step in audit["steps"]) == wanted["open_decisions"]
    assert all({"input", "sampling"} <= {g["class"] for g in s["missing"]} for s in audit["steps"])
    script = tmp_path / "s.jsonl"
    script.write_text('{"text":"","final":true}\n')
    document = shadow(redrive, session["session_id"], script, 3)
    assert document["verdict"] == wanted["shadow_verdict"]
    assert document["attribution"] == "provenance_gap"


SHADOWED = {
    "21-empty-arguments": "session.jsonl",
    "25-polled-identical-calls": "session.jsonl",
    "26-changed-arguments-no-fallback": "session.jsonl",
    "56-lone-surrogate": "session.jsonl",
    "69-empty-result-is-evidence": "session.jsonl",
}


@pytest.mark.parametrize("case", SHADOWED)
def test_scripts_get_the_verdict_of_the_case(redrive, cases, case):
    session = session_of(redrive.imported(cases / case / SHADOWED[case]))
    scripts = {n: v for n, v in expected(cases, case).items() if n.startswith("shadow")}
    assert scripts
    for name, wanted in scripts.items():
        extra = () if session["complete"] else ("--reconstruct",)
        code = CODES[wanted["verdict"]]
        document = shadow(redrive, session["session_id"], cases / case / name, code, *extra)
        (run,) = document["runs"]
        assert document["verdict"] == wanted["verdict"]
        assert run["live_calls"] == wanted.get("live_calls", 0)
        if "at_decision" in wanted:
            assert place(run) == wanted["at_decision"]
        match wanted.get("served"):
            case int(count):
                assert run["served"] == count
            case list(results):
                assert [call["result"] for call in run["served_calls"]] == results
        if wanted["verdict"] == "INSUFFICIENT_EVIDENCE":
            assert run["missing_call"]["decision"] == wanted["at_decision"]
            assert run["nearest_recorded"]["tool"]


@pytest.mark.parametrize(
    "case", ["25-polled-identical-calls", "26-changed-arguments-no-fallback", "21-empty-arguments"]
)
def test_each_refusal_has_a_twin_that_is_identical(redrive, cases, case, tmp_path):
    session = session_of(redrive.imported(cases / case / "session.jsonl"))
    script = tmp_path / "twin.jsonl"
    lines = []
    for event in redrive.json("cat", session["session_id"])["events"]:
        payload = event["payload"]
        if event["kind"] == "model.response":
            lines.append({"text": payload.get("text", ""), "tool_calls": []})
        if event["kind"] == "tool.call":
            call = {"name": payload["tool"]}
            if "arguments" in payload:
                call["args"] = payload["arguments"]
            if "arguments_text" in payload:
                call["args_json"] = payload["arguments_text"]
            lines[-1]["tool_calls"].append(call)
    lines[-1]["final"] = True
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    document = shadow(redrive, session["session_id"], script, 0)
    (run,) = document["runs"]
    assert document["verdict"] in ("IDENTICAL_REPLAY", "DETERMINISTIC_CORROBORATION")
    assert run["reason"] in ("equal", "equal_and_failed")
    assert run["served"] == session["tool_results"]
    assert (run["missing_call"], run["nearest_recorded"]) == (None, None)


def test_30_a_preview_is_no_evidence_and_a_notice_of_the_tool_is(redrive, cases):
    case = "30-truncated-tool-result"
    wanted = expected(cases, case)["session.jsonl"]
    session = session_of(redrive.imported(cases / case / "session.jsonl"))
    audit = redrive.json("audit", session["session_id"], code=3)["sessions"][0]
    missing = {gap["what"] for step in audit["steps"] for gap in step["missing"]}
    assert missing == {f"tool_result:{name}" for name in wanted["incomplete_results"]}
    assert not missing & {f"tool_result:{name}" for name in wanted["complete_results"]}
    first = next(step["step"] for step in audit["steps"] if step["status"] == "open")
    assert first in wanted["audit_first_open_step"]["one_of"]
    script = cases / case / "shadow_same.jsonl"
    for extra in ((), ("--reconstruct",)):
        document = shadow(redrive, session["session_id"], script, 3, *extra)
        assert document["verdict"] in wanted["shadow_same.jsonl"]["one_of"]


def test_31_zero_is_a_recorded_value(redrive, cases):
    wanted = expected(cases, "31-zero-is-a-recorded-value")["session.jsonl"]
    session = session_of(redrive.imported(cases / "31-zero-is-a-recorded-value/session.jsonl"))
    audit = redrive.json("audit", session["session_id"], code=3)["sessions"][0]
    assert {str(step["step"]): step["status"] for step in audit["steps"]} == wanted["steps"]
    found = {str(step["step"]): gap["class"] for step in audit["steps"] for gap in step["missing"]}
    assert found == wanted["missing_class"]


def test_54_a_replay_has_no_side_effects(redrive, cases, tmp_path):
    case = "54-replay-has-no-side-effects"
    wanted = expected(cases, case)
    session = session_of(redrive.imported(cases / case / "session.jsonl"))
    script = cases / case / "shadow_same.jsonl"
    whole = shadow(redrive, session["session_id"], script, 0)
    assert whole["verdict"] == wanted["from_step_1"]["verdict"]
    assert whole["runs"][0]["served"] == wanted["from_step_1"]["served"]
    later = tmp_path / "later.jsonl"
    later.write_text("".join(script.read_text().splitlines(keepends=True)[1:]))
    part = shadow(redrive, session["session_id"], later, 0, "--from", "2")
    assert part["runs"][0]["served"] == wanted["from_step_2"]["served"]
    assert not (cases / case / "ledger.txt").exists()


def test_56_a_lone_surrogate_is_loaded_hashed_and_shown(redrive, cases):
    case = "56-lone-surrogate"
    wanted = expected(cases, case)
    hashes = set()
    for name in ("session.jsonl", "replacement_char.jsonl"):
        file = redrive.imported(cases / case / name)
        assert file["records"] == wanted["session.jsonl"]["events_loaded"]
        session_id = session_of(file)["session_id"]
        for verb in ("show", "cat", "audit"):
            assert redrive(verb, session_id).code == 0, verb
        (result,) = [
            event["payload"]["result"]
            for event in redrive.json("cat", session_id)["events"]
            if event["kind"] == "tool.result"
        ]
        hashes.add(hashlib.sha256(result.encode("utf-8", "surrogatepass")).hexdigest())
    assert (len(hashes) == 1) == wanted["result_hash_equal_between_files"]


def test_69_an_empty_result_is_evidence(redrive, cases):
    case = "69-empty-result-is-evidence"
    wanted = expected(cases, case)["session.jsonl"]
    session = session_of(redrive.imported(cases / case / "session.jsonl"))
    assert session["orphan_call_ids"] == wanted["calls_without_result"]
    audit = redrive.json("audit", session["session_id"], code=3)["sessions"][0]
    closed = [step["step"] for step in audit["steps"] if step["status"] == "closed"]
    assert closed == wanted["steps_closed"]
    assert all(word in json.dumps(audit) for word in wanted["audit_missing_mentions"])
    script = cases / case / "shadow_same.jsonl"
    run = shadow(redrive, session["session_id"], script, 3, "--reconstruct")["runs"][0]
    names = {"string": str, "array": list, "number": int, "boolean": bool, "object": dict}
    for call in run["served_calls"]:
        assert type(call["result"]) is names[wanted["served_types"][call["call_id"]]]
