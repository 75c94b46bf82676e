"""What one policy does to its process reaches no other policy."""

import pytest

CASE = "44-rm-rf-spellings/commands.jsonl"
VANDALS = {
    "an event's property, while loading": "PolicyEvent.command = property(lambda self: 'ls')",
    "a module of the library, while loading": "import re\nre.search = lambda *a, **k: None",
    "an action": "from redrive.policy import Deny\nDeny.word = 'allow'",
}
VANDAL = """
from redrive.policy import Notify, Policy, PolicyEvent
{deed}


class Vandal(Policy):
    on = ("tool.call",)

    def evaluate(self, event, state):
        {more}
        return None
"""
LATE = "type(event).command = property(lambda self: 'ls')"


@pytest.mark.parametrize(
    ("deed", "more"), [*((deed, "pass") for deed in VANDALS.values()), ("", LATE)]
)
def test_a_policy_that_patches_what_is_shared_changes_no_other(
    redrive, cases, tmp_path, deed, more
):
    redrive.imported(cases / CASE)
    (tmp_path / "vandal.py").write_text(VANDAL.format(deed=deed, more=more))
    named = ("--policy", "vandal.py:Vandal", "--policy", "DangerousCommandGuard")
    done = redrive("policy", "replay", *named, "--json")
    guard = done.document["reports"][1]
    assert (guard["fired"], guard["faults"]) == (24, [])


def test_a_critical_gate_is_tested_by_the_faults_of_others(redrive, cases, tmp_path):
    redrive.imported(cases / CASE)
    (tmp_path / "bad.py").write_text(
        "from redrive.policy import Policy\n"
        "class Bad(Policy):\n"
        "    on = ('tool.call',)\n"
        "    def evaluate(self, event, state):\n"
        "        raise ValueError('no')\n"
    )
    named = ("--policy", "bad.py:Bad", "--policy", "DangerousCommandGuard")
    document = redrive.json("policy", "replay", *named, code=6)
    check = document["reports"][1]["invariant_checks"]["critical_always_runs"]
    assert (check["status"], check["count"]) == ("pass", 24)


def test_an_inference_that_nobody_makes_is_a_wrong_declaration(redrive, cases, tmp_path):
    redrive.imported(cases / CASE)
    (tmp_path / "typo.py").write_text(
        "from redrive.policy import Policy\n"
        "class Typo(Policy):\n"
        "    on = ('tool.call',)\n"
        "    needs = ('completion_clam',)\n"
        "    def evaluate(self, event, state):\n"
        "        return None\n"
    )
    done = redrive("policy", "replay", "--policy", "typo.py:Typo")
    assert done.code == 6
    assert "no inference 'completion_clam'" in done.err
    assert "completion_claim" in done.err
