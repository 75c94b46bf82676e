"""Speaks up where work is called done that nothing has checked."""

from redrive.policy import Action, Notify, Policy, PolicyEvent, State


class UnvalidatedCompletionNudge(Policy):
    """Notifies where an answer ends a turn and claims completion, and no check passed since.

    A check is a test, type, lint or build run whose recorded result says that it passed; a failed
    run is none. Whether the answer claims completion is inferred, and only asked where code changed
    and is not verified.
    """

    name = "UnvalidatedCompletionNudge"
    version = "1"
    on = ("model.response",)
    lane = "observer"
    cooldown_s = 900.0
    needs = ("completion_claim",)

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        """Judge the answer that ends a turn."""
        changes, checks = state.changes, state.verification
        if not event.ends_turn or not (changes.source_at or changes.test_at):
            return None
        if state.is_verified or not (event.text or state.last_text).strip():
            return None
        if not state.infer("completion_claim"):
            return None
        if checks.passed is False:
            return Notify(f"called done, and the last check failed: {checks.command}")
        if checks.is_test_failing:
            return Notify("called done, and the last test run failed")
        if checks.passed_at:
            return Notify("called done, and code changed after the last check that passed")
        return Notify("called done, and nothing has checked the change")
