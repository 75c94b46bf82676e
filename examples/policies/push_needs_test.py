"""A first policy: no push before a test run has passed since the last change of code."""

from redrive.policy import Action, Deny, Policy, PolicyEvent, State


class PushNeedsTest(Policy):
    """Denies `git push` while code has changed and no test has passed since."""

    version = "1"
    on = ("tool.call",)
    lane = "gate"

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        """Judge one tool call on everything that came before it on its own path."""
        if "git push" not in (event.command or ""):
            return None
        changed_at = state.changes.source_at
        if changed_at and state.verification.test_passed_at < changed_at:
            return Deny("code changed, and no test has passed since")
        return None
