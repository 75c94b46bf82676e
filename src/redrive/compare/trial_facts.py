"""Reads the report of a trial out of its ledger.

Knows the folded ledger and the plan. Must not know where either is kept.
"""

from collections.abc import Iterable, Iterator

from redrive.compare.gate import parse_gate
from redrive.compare.trial_document import GradingReport, GroupGrade, parse_grade
from redrive.compare.trial_grading import GradedTrial, sum_up
from redrive.compare.trial_report import (
    RunFacts,
    SpendFacts,
    StopFacts,
    TrialFacts,
    TrialReport,
    report_trial,
)
from redrive.errors import RecordError
from redrive.replay.ledger import Budget, ChargeState, Ledger
from redrive.replay.trial_plan import TrialPlan
from redrive.replay.trial_values import Purpose


def report_ledger(plan: TrialPlan, ledger: Ledger) -> TrialReport:
    """Report a trial as far as its ledger goes.

    Raises:
        RecordError: it holds a grade that is none, or is the ledger of another plan.

    Cost: O(runs + charges), and the resampling of the ranking.
    """
    opened = ledger.opened
    if opened is not None and opened.plan_digest != plan.digest:
        raise RecordError(f"the ledger of {opened.trial_id} belongs to another plan")
    return report_trial(plan, read_facts(ledger), sum_up_grades(plan, ledger))


def read_facts(ledger: Ledger) -> TrialFacts:
    """Read what was run and spent."""
    charges = ledger.charges.merged().values()
    fingerprints = _fingerprints(charges)
    runs = []
    for key, run in ledger.runs.merged().items():
        subject = str(key)
        budget = ledger.subjects.find(subject) or Budget()
        runs.append(
            RunFacts(
                key=key,
                execution=run.execution,
                end=run.end,
                spent_usd=budget.spent,
                reserved_usd=budget.reserved,
                fingerprints=fingerprints.get(subject, ()),
            )
        )
    return TrialFacts(
        trial_id="" if ledger.opened is None else ledger.opened.trial_id,
        runs=tuple(runs),
        spend={
            purpose: _spend(purpose, budget, charges) for purpose, budget in ledger.budgets.items()
        },
        stops=tuple(
            StopFacts(stop.reason, None if stop.purpose is None else str(stop.purpose))
            for stop in ledger.stops.values()
        ),
        overrun_usd=ledger.overrun_usd,
    )


def _fingerprints(charges: Iterable[ChargeState]) -> dict[str, tuple[str, ...]]:
    """Give the models that answered each subject, each once, in order of appearance."""
    found: dict[str, dict[str, None]] = {}
    for charge in charges:
        settled = charge.settled
        if settled is not None and settled.fingerprint is not None:
            found.setdefault(charge.reserved.subject, {})[settled.fingerprint] = None
    return {subject: tuple(names) for subject, names in found.items()}


def _spend(purpose: Purpose, budget: Budget, charges: Iterable[ChargeState]) -> SpendFacts:
    own = [charge for charge in charges if charge.reserved.purpose is purpose]
    return SpendFacts(
        ceiling_usd=budget.ceiling,
        reserved_usd=budget.reserved,
        spent_usd=budget.spent,
        calls=len(own),
        unsettled=sum(
            charge.settled is None or charge.settled.basis == "reservation" for charge in own
        ),
    )


def sum_up_grades(plan: TrialPlan, ledger: Ledger) -> GradingReport | None:
    """Sum up what graders said; absent as long as they said nothing.

    Raises:
        RecordError: the ledger holds a grade that is none.
    """
    grades = tuple(_grades(ledger))
    if not grades:
        return None
    runs = ledger.runs.merged()
    return sum_up(
        GradedTrial(
            variants=tuple((entry.label, entry.role) for entry in plan.workflows),
            tasks=tuple((task.task_id, task.name) for task in plan.tasks),
            attempts=plan.attempts,
            graders=tuple((grader.name, grader.kind) for grader in plan.graders),
            grades=grades,
            finished={key for key, run in runs.items() if run.is_finished},
            gate=parse_gate(plan.gate) if plan.gate else None,
            seed=plan.seed,
        )
    )


def _grades(ledger: Ledger) -> Iterator[GroupGrade]:
    for (task_id, grader), graded in ledger.grades.merged().items():
        try:
            yield parse_grade(bytes(graded.result))
        except ValueError as error:
            raise RecordError(f"the grade of task {task_id} by {grader}: {error}") from error
