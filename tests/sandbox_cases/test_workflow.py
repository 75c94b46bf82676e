"""Whatever code reaches of its unsafe tool, nothing happens outside, and each denial is told."""

import pytest

from tests.sandbox_cases.matrix import OFF
from tests.sandbox_cases.running import ORDINARY, ROOT, run_workflows_as, users

# Asked of the broker by name, and so recorded, although the code swallowed every denial.
ASKED = {"send", "mail", "SEND", "ｓｅｎｄ", "planted", "late", "mcp__mail__send"}


@pytest.mark.parametrize("user", [ROOT, ORDINARY])
def test_no_trick_of_a_workflow_has_an_effect_outside(user):
    if user not in users():
        pytest.skip(f"the cases cannot be run as {user} here")
    found = run_workflows_as(user)
    levels = {level: one for level, one in found.items() if level != OFF}
    if not levels:
        pytest.skip("no level is proven here")
    control = found[OFF]
    assert [name for name, seen in control["seen"].items() if not seen] == [], control["said"]
    for level, one in levels.items():
        assert one["isolation"] == level
        assert [name for name, seen in one["seen"].items() if seen] == [], one["said"]
        assert one["outcome"] == "denied"
        assert set(one["denied"]) >= ASKED
        # The workflow went on to its end, past every denial.
        assert one["said"].keys() == control["said"].keys()
