"""Hostile code has no effect outside at any level, and each attempt has one without a sandbox."""

import pytest

from tests.sandbox_cases.matrix import OFF
from tests.sandbox_cases.payloads import CASES
from tests.sandbox_cases.running import ORDINARY, ROOT, missing_control, run_as, users


@pytest.mark.parametrize("user", [ROOT, ORDINARY])
def test_what_happens_without_a_sandbox_does_not_happen_in_one(user):
    if user not in users():
        pytest.skip(f"the cases cannot be run as {user} here")
    found = run_as(user)
    levels = {level: seen for level, seen in found.items() if level != OFF}
    if not levels:
        pytest.skip("no level is proven here")
    assert len(found[OFF]) >= len(CASES) - 1
    # The canary first: what was never tried is not contained.
    for level, seen in found.items():
        assert [name for name, one in seen.items() if not one["tried"]] == [], level
    # The control: an attempt that would do nothing anyway shows nothing.
    expected = {name: not missing_control(name, user) for name in found[OFF]}
    without = {name: one["seen"] for name, one in found[OFF].items()}
    assert {name: one for name, one in without.items() if one != expected[name]} == {}, found[OFF]
    for level, seen in levels.items():
        escaped = {name: one["said"] for name, one in seen.items() if one["seen"]}
        assert escaped == {}, level
