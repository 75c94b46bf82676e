"""A store of each schema version ever released still opens, checks and answers."""

import json
import shutil
from pathlib import Path

import pytest

from redrive.record.event import Kind, payload_of
from redrive.replay.ledger import fold
from redrive.replay.trial_values import Purpose
from redrive.stores.sqlite import open_store
from redrive.stores.trials import artefacts_of

FOLDER = Path(__file__).parent / "store"
HEADS = json.loads((FOLDER / "heads.json").read_text())


@pytest.mark.parametrize("name", sorted(HEADS))
def test_a_store_of_an_older_schema_answers_as_it_did(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    shutil.copy(FOLDER / name, path)
    store = open_store(path, create=False)
    checked = store.verify()
    assert checked.is_ok
    assert checked.heads == HEADS[name]
    texts = [
        payload_of(event).text
        for event in store.events("interchange:s25")
        if event.kind is Kind.MODEL_RESPONSE
    ]
    assert texts == ["", "", "", "Running."]
    (result,) = [e for e in store.events("interchange:s56") if e.kind is Kind.TOOL_RESULT]
    assert bytes(payload_of(result).result) == b'"cut emoji: \\ud83d"'
    assert [row.policy for row in store.policies.reports()] == (
        [] if name == "v1.sqlite" else ["p"]
    )
    store.close()


def test_the_rows_about_policies_answer_as_they_did(tmp_path: Path) -> None:
    path = tmp_path / "v2.sqlite"
    shutil.copy(FOLDER / path.name, path)
    store = open_store(path, create=False)
    (report,) = store.policies.reports("p")
    assert store.policies.get_report(report.id) == b'{"reports":[],"sessions":["interchange:s25"]}'
    assert store.policies.find_report("p", "1", "c" * 64) == report
    (sample,) = store.policies.samples("p")
    assert sample.event_refs == ("interchange:s25#r2", "interchange:s56#r\\ud83d")
    labels = [(row.rater, row.label, row.note) for row in store.policies.labels(sample.id)]
    assert labels == [("ann", "true", ""), ("ann", "unsure", "on second thoughts")]
    found = store.policies.find_inference("d" * 64)
    assert found is not None
    assert (found.name, found.request, found.value) == ("mood", '{"text":"x"}', "null")
    (decision,) = store.policies.hook_decisions()
    assert (decision.action, decision.tool_use_id, decision.is_unreplayed) == ("deny", None, True)
    store.close()


def test_a_trial_answers_as_it_did(tmp_path: Path) -> None:
    path = tmp_path / "v3.sqlite"
    shutil.copy(FOLDER / path.name, path)
    store = open_store(path, create=False, read_only=True)
    (trial,) = store.trials.list_trials()
    assert store.trials.get_plan(trial.trial_id) == b"[tasks]" * 9
    entries = list(store.trials.entries(trial.trial_id))
    kinds = [type(entry.fact).__name__.lower() for entry in entries]
    assert " ".join(kinds) == "opened started reserved settled finished reserved graded"
    budget = fold(entries).budgets[Purpose.REPLAY]
    assert f"{budget.ceiling} {budget.reserved} {budget.spent}" == "1 0.10 0.02"
    (name,) = [name for entry in entries for name in artefacts_of(entry)]
    assert store.trials.get_answer(name).endswith(b"\n{}")
    store.close()


def test_every_schema_version_has_its_store() -> None:
    from redrive.stores.schema import SCHEMA_VERSION

    assert set(HEADS) == {f"v{number}.sqlite" for number in range(1, SCHEMA_VERSION + 1)}
    assert set(HEADS) == {path.name for path in FOLDER.glob("*.sqlite")}
