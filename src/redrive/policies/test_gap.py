"""Watches for code that changes while no test does, and none is run."""

from typing import ClassVar

from redrive.policy import Action, Policy, PolicyEvent, Prepare, State, is_source_file

MIN_FILES = 3


class TestGapWatcher(Policy):
    """Prepares a review where a turn ends with several changed code files and no test at all.

    A gap is: at least three code files changed on this path, no test file among them, and no test
    passed after the last change. It speaks only through a reviewer, hence `Prepare`.
    """

    __test__ = False  # its name begins as a test class's does

    name = "TestGapWatcher"
    version = "1"
    on = ("model.response",)
    lane = "observer"
    cooldown_s = 900.0
    notes: ClassVar[tuple[str, ...]] = ("Notify precision: online-only",)

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        """Judge the answer that ends a turn."""
        changes = state.changes
        if not event.ends_turn or not changes.source_at:
            return None
        if changes.test_at or state.verification.test_passed_at > changes.source_at:
            return None
        sources = [path for path in state.changed_files if is_source_file(path)]
        if len(sources) < MIN_FILES:
            return None
        shown = ", ".join(sources[:3])
        return Prepare(
            f"{len(sources)} code files changed ({shown}, …), no test changed and none passed",
            task="review the change for behaviour that no test covers",
        )
