"""A stored trial is reported from the store alone."""

from pathlib import Path

import pytest

from redrive.app.trial_ledger import TrialLedger
from redrive.app.trial_reporting import find_trial, report_stored
from redrive.errors import RecordError, UsageError
from redrive.replay.plan_document import dump_plan
from redrive.replay.trial_plan import plan_runs
from redrive.replay.trial_values import EpisodeEnd, Outcome
from redrive.stores.sqlite import open_store
from tests.trial_plans import WHOLE, plan_of


def begin(folder: Path, text: str = WHOLE, document: bytes | None = None):
    plan = plan_of(folder, text)
    made = dump_plan(plan) if document is None else document
    with TrialLedger.begin(folder / "store.db", plan, made) as ledger:
        key = next(plan_runs(plan)).key
        ledger.start_run(key)
        ledger.finish_run(key, EpisodeEnd(Outcome.COMPLETE, isolation="bubblewrap"))
    return plan


def test_a_trial_is_found_by_id_prefix_and_plan_and_reported(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    store = open_store(tmp_path / "store.db", create=False)
    row = find_trial(store, f"triage-{plan.digest[:8]}")
    assert find_trial(store, "tri") == row
    (tmp_path / "workflows.py").unlink(missing_ok=True)
    assert find_trial(store, str(tmp_path / "plan.toml")) == row
    report = report_stored(store, row)
    assert (report.planned, report.finished, len(report.not_run)) == (4, 1, 3)
    assert report.plan_digest == plan.digest
    store.close()


def test_the_newest_trial_of_a_plan_is_taken_and_no_other_plan_s(tmp_path: Path) -> None:
    begin(tmp_path)
    begin(tmp_path, WHOLE.replace('"triage"', '"triage-two"'))
    plan = begin(tmp_path, "seed = 2\n" + WHOLE)
    begin(tmp_path, WHOLE.replace('"triage"', '"tri"'))
    path = tmp_path / "plan.toml"
    path.write_text(WHOLE)
    store = open_store(tmp_path / "store.db", create=False)
    assert find_trial(store, str(path)).plan_digest == plan.digest
    path.write_text(WHOLE.replace('"triage"', '"other"'))
    with pytest.raises(UsageError, match="no trial of the plan 'other' is stored"):
        find_trial(store, str(path))
    with pytest.raises(UsageError, match="no such plan"):
        find_trial(store, str(tmp_path / "absent.toml"))
    with pytest.raises(UsageError, match="no trial"):
        find_trial(store, "nothing")
    store.close()


def test_a_trial_whose_plan_cannot_be_read_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, document=b"{}")
    store = open_store(tmp_path / "store.db", create=False)
    with pytest.raises(RecordError, match="a stored plan cannot be read"):
        report_stored(store, find_trial(store, "triage"))
    store.close()
