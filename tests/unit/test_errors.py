import pytest

from redrive import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.UsageError, 2),
        (errors.ReplayClosureError, 3),
        (errors.IneligibleError, 4),
        (errors.CeilingError, 5),
        (errors.RecordError, 6),
        (errors.StoreError, 6),
        (errors.ModelError, 6),
        (errors.PluginError, 6),
        (errors.ContainmentError, 7),
        (errors.TamperError, 7),
    ],
)
def test_each_branch_has_its_exit_code_and_a_hint(kind, code):
    error = kind("what was found", hint="what to do")
    assert (error.exit_code, error.message, error.hint) == (code, "what was found", "what to do")
    assert isinstance(error, errors.RedriveError)


def test_closure_and_eligibility_errors_name_what_is_missing():
    closure = errors.ReplayClosureError("open", gaps=[(1, "prng", "jitter")])
    assert closure.gaps == ((1, "prng", "jitter"),)
    ineligible = errors.IneligibleError("unsafe", tool="push", chain=["w", "push"])
    assert (ineligible.tool, ineligible.chain) == ("push", ("w", "push"))


def test_a_denied_effect_is_not_swallowed_by_an_agent():
    def agent():
        try:
            raise errors.EffectDenied("push")
        except Exception:  # noqa: BLE001 - what agents do
            return "swallowed"

    with pytest.raises(errors.EffectDenied):
        agent()


def test_a_long_name_is_quoted_in_part():
    assert errors.quote("it's") == '"it\'s"'
    assert errors.quote("x" * 101) == f"'{'x' * 100}'… (101 characters)"
