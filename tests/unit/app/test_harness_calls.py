import pytest

from redrive.app.effects import BY_HARNESS, EffectScan
from redrive.app.harness_calls import HarnessCalls


def called(name, tool, effect="unsafe", **arguments):
    line = {"type": "event", "id": name, "kind": "harness.call", "call": name, "tool": tool}
    return line | {"effect": effect, "arguments": arguments}


def ended(name, status, result):
    line = {"type": "event", "id": f"{name}.1", "kind": "harness.result", "call": name}
    return line | {"tool": "t", "status": status, "result": result}


@pytest.fixture
def session(surveyed):
    return surveyed(
        {"type": "event", "id": "u1", "kind": "user", "text": "be careful"},
        called("h1", "bash", command="rm -rf /srv"),
        called("h2", "lookup", "read_only", code=1),
        ended("h2", "ok", 1),
        called("h3", "box__restart", host="a"),
        ended("h1", "error", {"exit_code": 3}),
        {"type": "event", "id": "x", "kind": "harness.call", "of": "another framework"},
    )


def test_what_the_agent_s_own_code_ran_is_an_effect_that_no_text_asked_for(session):
    scan = EffectScan(session)
    entries = list(scan.entries())
    assert [(e.category, e.tool, e.what.text, e.status, e.exit_code) for e in entries] == [
        ("command", "bash", "rm -rf /srv", "error", 3),
        ("other", "box__restart", '{"host": "a"}', "no result", None),
    ]
    assert all(BY_HARNESS in e.details and e.asked_by is None for e in entries)
    totals = scan.totals()
    assert (totals.failed, totals.read_only_tools) == (1, {"lookup": 1})
    assert totals.undeclared_tools == {"box__restart": 1}


def test_each_call_has_the_result_of_its_own_name(session):
    calls = HarnessCalls(session)
    assert list(calls.answers.values()).count(-1) == 1
    found = [calls.get(seq) for seq in calls.answers]
    assert [(one.call.tool, one.effect) for one in found] == [
        ("bash", "unsafe"),
        ("lookup", "read_only"),
        ("box__restart", "unsafe"),
    ]
    assert [one.result and one.result.status for one in found] == ["error", "ok", None]
