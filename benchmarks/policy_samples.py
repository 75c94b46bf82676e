"""Two policies to measure with: one that looks at everything, and one that does a day's work."""

from typing import Any, ClassVar

from redrive.policy import Action, Notify, Policy, PolicyEvent, Reducer, State


class PassThrough(Policy):
    """Judges every kind of event, and never acts."""

    on = (
        "session.started",
        "session.ended",
        "user.message",
        "model.request",
        "model.response",
        "model.error",
        "tool.call",
        "tool.permission",
        "tool.result",
        "context.replaced",
        "clock.read",
        "prng.read",
        "value.derived",
        "state.inferred",
        "policy.action",
    )
    uses_standard_state = False

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        """Say nothing."""


class Streak(Reducer):
    """Counts the results in a row that were errors, on the event's own path."""

    on = ("user.message", "tool.result")
    initial = 0

    def fold(self, value: Any, event: PolicyEvent) -> Any:
        """A message of the user begins anew; a good result too."""
        return value + 1 if event.status == "error" else 0


class ErrorStreaks(Policy):
    """Notifies where a call follows four errors in a row: once in fifteen minutes."""

    on = ("tool.call", "tool.result")
    cooldown_s = 900.0
    reducers: ClassVar[dict[str, Reducer]] = {"errors": Streak()}
    uses_standard_state = False

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        """Judge a call on the results before it."""
        if state["errors"] < 4:
            return None
        return Notify(f"{state['errors']} errors in a row, and again {event.command or 'a call'}")
