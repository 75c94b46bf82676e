import xml.etree.ElementTree as ElementTree

import msgspec
import pytest

from redrive.reports.junit import Case, Finding, Suite, junit_xml, policy_junit
from tests.policy_documents import HOSTILE_TEXTS, big, document, hostile, report, small


def read(data):
    return ElementTree.fromstring(data)  # noqa: S314 - made above, and of no entity


def cases(root, policy):
    (suite,) = (entry for entry in root if entry.get("name") == policy)
    return {case.get("name"): case for case in suite.iter("testcase")}


def test_a_suite_per_policy_and_a_case_per_session():
    root = read(policy_junit(small()))
    assert dict(root.attrib) == {
        "name": "redrive policy replay",
        "tests": "6",
        "failures": "3",
        "errors": "3",
    }
    gate = cases(root, "no-force-push")
    assert list(gate) == ["claude_code:5b1f2c8e-41aa", "codex:019a-77"]
    failure = gate["codex:019a-77"].find("failure")
    assert failure.get("message") == "1 fire: deny 1"
    assert "#e9" in failure.text
    assert "#e8" not in failure.text
    assert all(suite.get("skipped") == "0" for suite in root)


def test_all_branches_count_when_asked_for():
    failure = cases(read(policy_junit(small(), "all")), "no-force-push")["codex:019a-77"][0]
    assert failure.get("message") == "2 fires: deny 2"


def test_what_makes_an_answer_unknown_is_an_error():
    observer = cases(read(policy_junit(small())), "unverified-claims")
    whole = observer["(all sessions)"].find("error")
    assert whole.get("message") == "fault (scan): imports socket (and 1 more)"
    assert "invariant loop_free violated" in whole.text
    session = observer["claude_code:5b1f2c8e-41aa"]
    assert [entry.tag for entry in session] == ["error", "failure"]
    assert "cannot evaluate 2 events: no ts, topic" in session[0].text
    assert "unreplayable" in observer["codex:broken"][0].get("message")
    assert len(observer["codex:019a-77"]) == 0


def test_a_session_that_an_interrupt_left_out_is_an_error():
    made = document(report(), is_partial=True, sessions_left=("later",))
    case = cases(read(policy_junit(made)), "no-force-push")["later"]
    assert case[0].get("message") == "interrupted before this session"


def test_fires_up_to_the_limit_are_output_of_a_passed_case():
    at_limit, beyond = (
        cases(read(policy_junit(small(), "head", limit)), "no-force-push") for limit in (4, 3)
    )
    assert [entry.tag for case in at_limit.values() for entry in case] == ["system-out"] * 2
    assert {entry.tag for case in beyond.values() for entry in case} == {"failure"}


def test_many_fires_are_cut_with_their_count():
    made = big(500, 1)
    data = policy_junit(made)
    fired = made.reports[0].fired_on_head_path
    assert len(data) < 40_000
    assert f"… {fired - 100} more of {fired}".encode() in data


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_any_text_gives_xml_that_parses_and_holds_no_control_character(text):
    finding = Finding(text, f"{text}\nsecond line", text)
    case = Case(text, text, finding, finding, text)
    data = junit_xml(text, [Suite(text, (case,), ((text, text),))])
    root = read(data)
    found = root[0][1]
    assert [entry.tag for entry in found] == ["error", "failure", "system-out"]
    assert "\n" in found[0].text
    assert data.decode().replace("\n", "").isprintable()


def test_hostile_documents_parse():
    assert len(read(policy_junit(hostile()))) == 1
    assert len(read(policy_junit(msgspec.structs.replace(hostile(), reports=())))) == 0


def test_a_suite_may_have_no_properties_and_no_cases():
    suite = read(junit_xml("n", [Suite("s", ())]))[0]
    assert (suite.get("tests"), list(suite)) == ("0", [])
