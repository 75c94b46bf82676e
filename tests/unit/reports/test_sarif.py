import json

import msgspec
import pytest

from redrive import __version__
from redrive.compare.policy_diff import diff_reports
from redrive.reports.sarif import Result, Rule, policy_diff_sarif, sarif_log
from tests.policy_documents import HOSTILE_TEXTS, fire, report, session, small_diff


def results(log):
    (run,) = log["runs"]
    return run["results"]


def test_a_rule_per_policy_and_a_result_per_new_fire_or_unjudged_place():
    log = policy_diff_sarif(small_diff())
    assert log["version"] == "2.1.0"
    driver = log["runs"][0]["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("redrive", __version__)
    assert [rule["id"] for rule in driver["rules"]] == ["no-force-push"]
    new, unjudged = results(log)
    assert (new["ruleId"], new["ruleIndex"], new["level"]) == ("no-force-push", 0, "error")
    assert new["locations"] == [
        {
            "logicalLocations": [
                {"fullyQualifiedName": "claude_code:5b1f2c8e-41aa#e4", "kind": "event"}
            ]
        }
    ]
    assert "action: no match → deny" in new["message"]["text"]
    assert unjudged["level"] == "note"
    assert unjudged["message"]["text"] == "cannot be evaluated in the new version: no ts"


@pytest.mark.parametrize(
    ("before", "after", "levels"),
    [
        (None, "deny", ["error"]),
        (None, "ask", ["warning"]),
        (None, "Notify", ["note"]),
        ("ask", "deny", ["error"]),
        ("deny", "ask", []),
        ("deny", None, []),
    ],
)
def test_the_level_follows_the_action(before, after, levels):
    old, new = (
        report((session("s", [fire("s", 1, action=action, tool=None)]),) if action else ())
        for action in (before, after)
    )
    found = results(policy_diff_sarif(diff_reports(old, new, ("s",))))
    assert [result["level"] for result in found] == levels
    assert all("tool" not in result["properties"] for result in found)


def test_a_place_keeps_its_fingerprint_when_its_words_change():
    def fingerprint(message):
        (result,) = results(sarif_log([Rule("r", "")], [Result("r", "note", message, "s#1")]))
        return result["partialFingerprints"]

    assert fingerprint("a") == fingerprint("b")


@pytest.mark.parametrize("text", [*HOSTILE_TEXTS, "x" * 9999])
def test_any_text_is_escaped_and_cut(text):
    made = msgspec.structs.replace(small_diff(), policy=text)
    log = policy_diff_sarif(made)
    written = json.dumps(log, ensure_ascii=False)
    assert written.isprintable()
    assert len(written) < 10_000
