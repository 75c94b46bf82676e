"""The documents of every verb have the shape of the schema that ships with redrive."""

import json
from importlib.resources import files

from redrive.stores.recording import open_journal
from tests.schemas import check
from tests.stored import messages, steps_of

CASE = "25-polled-identical-calls"


def test_an_import_and_what_it_refused(redrive, cases, tmp_path):
    (tmp_path / "empty.jsonl").touch()
    check(redrive.json("import", cases / CASE / "session.jsonl"), "import")
    check(redrive.json("import", cases / "04-torn-tail/session.jsonl"), "import")
    again = redrive.json("import", cases / CASE / "session.jsonl", tmp_path / "empty.jsonl", code=6)
    assert check(again, "import")["error"]["type"] == "RecordError"


def test_an_audit_open_and_closed(redrive, cases):
    redrive.imported(cases / CASE / "session.jsonl")
    redrive.imported(cases / "09-rewind-dead-branch/session.jsonl")
    document = check(redrive.json("audit", "all", code=3), "audit")
    assert {session["status"] for session in document["sessions"]} == {"open", "closed"}


def test_shadow_runs_of_every_verdict(redrive, cases):
    redrive.imported(cases / CASE / "session.jsonl")
    redrive.imported(cases / "09-rewind-dead-branch/session.jsonl")
    codes = {"shadow_same": 0, "shadow_stops_early": 1, "shadow_fourth_poll": 3}
    for name, code in codes.items():
        model = ("--model", f"script:{cases / CASE / name}.jsonl")
        check(redrive.json("shadow", "s25", *model, code=code), "shadow")
        investigated = redrive.json("investigate", "s25", *model, code=code)
        check(check(investigated, "investigation")["shadow"], "shadow")
    check(redrive.json("shadow", "5e55", "--model", "script:x", code=3), "shadow")


def test_a_diff_equal_and_unequal(redrive, cases, tmp_path):
    text = (cases / CASE / "session.jsonl").read_text()
    redrive.imported(cases / CASE / "session.jsonl")
    for name, changed in (("same", text), ("other", text.replace("RUNNING", "BROKEN"))):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(changed.replace('"id":"s25"', f'"id":"{name}"'))
        redrive.imported(path)
    check(redrive.json("diff", "s25", "same"), "diff")
    check(redrive.json("diff", "s25", "other", code=1), "diff")


def test_the_store_and_the_installation(redrive, cases):
    redrive.imported(cases / CASE / "session.jsonl")
    check(redrive.json("verify"), "verify")
    check(redrive.json("verify", "--head", "0" * 64, code=7), "verify")
    check(redrive.json("doctor"), "doctor")


def test_policies_listed_replayed_and_compared(redrive, cases, tmp_path):
    redrive.imported(cases / "42-nudge-without-repeat-suppression/session_rewound.jsonl")
    redrive.imported(cases / "66-destructive-sql-and-freeze/freeze.jsonl")
    (tmp_path / "own.py").write_text(
        "from redrive.policy import Notify, Policy\n"
        "class Stop(Policy):\n"
        "    on = ('custom:stop',)\n"
        "    cooldown_s = 900\n"
        "    def evaluate(self, event, state):\n"
        "        return Notify('x') if event.data.get('unvalidated') else None\n"
    )
    own = f"{tmp_path / 'own.py'}:Stop"
    listed = check(redrive.json("policy", "list"), "policy_list")
    assert "DangerousCommandGuard" in {entry["name"] for entry in listed["policies"]}
    named = ("--policy", own, "--policy", "DangerousCommandGuard")
    replayed = check(redrive.json("policy", "replay", *named), "policy")
    assert [report["fired"] for report in replayed["reports"]] == [2, 3]
    check(redrive.json("policy", "diff", "DangerousCommandGuard", own), "policy_diff")


def test_an_error(redrive):
    check(redrive.json("audit", "nobody", code=2), "error")


def test_every_schema_is_named_for_its_document():
    folder = files("redrive.reports").joinpath("schemas")
    for entry in folder.iterdir():
        schema = json.loads(entry.read_text())
        name = entry.name.removesuffix(".json")
        assert schema["$id"] == f"redrive.{name}/1"
        assert schema["properties"]["schema"] == {"const": f"redrive.{name}"}


def test_a_session_that_is_recorded_and_one_whose_recorder_was_killed(redrive):
    journals = [open_journal(redrive.store, f"redrive:{name}", "redrive", 1) for name in "ab"]
    for journal in journals:
        journal.commit(list(steps_of(journal.session_id, messages(2))))
    journals[0].abandon()
    listed = check(redrive.json("sessions"), "sessions")["sessions"]
    states = {session["session_id"]: session["recorder"] for session in listed}
    assert states == {"redrive:a": "ended early", "redrive:b": "recording"}
    for name, state in states.items():
        shown = check(redrive.json("show", name), "show")["session"]
        assert (shown["recorder"], shown["model_calls"], shown["events"]) == (state, 2, 6)
        assert check(redrive.json("audit", name, code=3), "audit")["sessions"][0]["steps"]
        assert redrive.json("verify", name)["ok"]
    assert "recording now" in redrive("show", "b").out
    journals[1].close()
    listed = check(redrive.json("sessions"), "sessions")["sessions"]
    assert [session.get("recorder") for session in listed] == ["ended early", None]
