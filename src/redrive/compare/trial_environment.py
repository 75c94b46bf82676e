"""Says of each task in what the environment of its runs differs from the recorded one (case 61).

Knows two JSON objects by task. Must not know what a field means, nor how a run went.

All variants of a trial run in one environment, so they can be compared with each other. What is not
attributed to a workflow is a difference between its runs and the recorded session.

Source: DESIGN.md §4 "environment".
"""

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.audit.environment import FieldDifference, compare_environment
from redrive.replay.trial_plan import TrialPlan
from redrive.replay.trial_values import TrialTask

NOT_ATTRIBUTED = "no difference between these runs and the recorded session is attributed"


class TaskEnvironment(msgspec.Struct, frozen=True):
    """How a task's recorded environment stands to that of its runs.

    Attributes:
        status: `same`, `differs`, `not_compared` (the plan states none), or `not_recorded`.
        differences: each field that differs, by dotted path.
    """

    status: str
    differences: tuple[FieldDifference, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Say in lines what a report of a run adds; none where both are the same."""
        if self.status == "not_compared":
            return (f"environment: recorded, but the plan states none; {NOT_ATTRIBUTED}",)
        if not self.differences:
            return ()
        lines = (
            f"environment differs: {found.field}: recorded {found.recorded}, given {found.given}"
            for found in self.differences
        )
        return (*lines, NOT_ATTRIBUTED)


def judge_environment(plan: TrialPlan, task: TrialTask) -> TaskEnvironment:
    """Compare what a task's session recorded with what the plan gives its runs."""
    if not isinstance(task.environment, Raw):
        return TaskEnvironment("not_recorded")
    if not isinstance(plan.environment, Raw):
        return TaskEnvironment("not_compared")
    recorded, given = (
        canonical.decode_value(bytes(raw)) for raw in (task.environment, plan.environment)
    )
    found = compare_environment(recorded, given)
    return TaskEnvironment("differs" if found else "same", found)
