"""Reports a stored trial, named by its id or by its plan.

Knows the store. Nothing is started, and no code of the plan is loaded: what a trial was is stored
beside its ledger, whatever has become of its files since.
"""

import re
from pathlib import Path

from redrive.app.plan_table import Table, read_toml
from redrive.compare.trial_facts import report_ledger
from redrive.compare.trial_report import TrialReport
from redrive.errors import UsageError, quote
from redrive.replay.ledger import fold
from redrive.replay.plan_document import parse_plan
from redrive.stores.port import Store, TrialRow

_DIGITS = re.compile(r"[0-9a-f]{8}(?:@[0-9]+)?")


def report_stored(store: Store, row: TrialRow) -> TrialReport:
    """Report a trial as far as it came.

    Raises:
        RecordError, TamperError: its plan or its ledger is damaged.
    """
    plan = parse_plan(store.trials.get_plan(row.trial_id))
    return report_ledger(plan, fold(store.trials.entries(row.trial_id)))


def find_trial(store: Store, name: str) -> TrialRow:
    """Find a trial by its id, a unique prefix of it, or its plan's file: then the newest.

    Raises:
        UsageError: there is none, or several begin so.
    """
    path = Path(name)
    if path.suffix != ".toml" and not path.is_file():
        return store.trials.get_trial(name)
    plan = Table(read_toml(path, what="plan"), path.name).name("name")
    rows = [row for row in store.trials.list_trials() if _is_of(row.trial_id, plan)]
    if not rows:
        hint = f"redrive trial run {name} begins one"
        raise UsageError(f"no trial of the plan {quote(plan)} is stored", where=name, hint=hint)
    return rows[-1]


def _is_of(trial_id: str, plan: str) -> bool:
    head, _, digits = trial_id.rpartition("-")
    return head == plan and _DIGITS.fullmatch(digits) is not None
