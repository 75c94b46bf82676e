"""Trials come back as they were put; their ledgers only grow, and damage to them is found."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from redrive import canonical
from redrive.errors import StoreError, TamperError, UsageError
from redrive.replay.ledger import Entry, Finished, Graded, Started, fold
from redrive.replay.trial_values import EpisodeEnd, Outcome, OutputFile
from redrive.stores.database import open_database
from redrive.stores.growing import longer_tail
from redrive.stores.port import Store, TrialTables
from redrive.stores.rows import (
    StoredEntry,
    StoredTrial,
    TailRow,
    find_row,
    put_row,
    read_rows,
    seal_of,
)
from redrive.stores.trials import artefacts_of
from tests.stored import NS, opened, put_trial, raw_database
from tests.trials import entries, key, ledger_of, reserved, settled
from tests.trials import opened as opened_trial

DIGEST = canonical.text_digest("plan")


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


@pytest.fixture
def tables(store: Store) -> TrialTables:
    return store.trials


def faults(path: Path) -> str:
    with opened(path, read_only=True) as store:
        return "\n".join(fault.fault for fault in store.verify().faults)


def test_a_plan_comes_back_byte_for_byte(tables: TrialTables) -> None:
    for number, document in enumerate((b"", b"name = 1", os.urandom(70_000))):
        row = tables.create(f"t-{number}", DIGEST, document, number)
        assert (row.size, row.n_entries, row.created_ns) == (len(document), 0, number)
        assert tables.get_plan(row.trial_id) == document


def test_further_trials_of_one_plan_are_numbered(tables: TrialTables) -> None:
    names = [tables.create("triage-1f2e", DIGEST, b"", n).trial_id for n in range(3)]
    assert names == ["triage-1f2e", "triage-1f2e@2", "triage-1f2e@3"]
    assert [row.trial_id for row in tables.list_trials()] == names


def test_a_trial_is_found_by_its_id_or_a_unique_prefix(tables: TrialTables) -> None:
    for name in ("triage-1", "triage-1", "other-2"):
        tables.create(name, DIGEST, b"", 0)
    assert tables.get_trial("triage-1").trial_id == "triage-1"
    assert tables.get_trial("oth").trial_id == "other-2"
    with pytest.raises(UsageError, match="begins the id of 2 trials") as caught:
        tables.get_trial("tri")
    assert caught.value.hint == "triage-1, triage-1@2"
    with pytest.raises(UsageError, match="no trial 'x'"):
        tables.get_trial("x")


def test_entries_come_back_as_they_were_put(store: Store) -> None:
    trial_id = put_trial(store)
    found = list(store.trials.entries(trial_id))
    assert [entry.number for entry in found] == list(range(len(found)))
    assert fold(found).n_entries == store.trials.get_trial(trial_id).n_entries == len(found)
    (name,) = [name for entry in found for name in artefacts_of(entry)]
    assert store.trials.get_answer(name).endswith(b"\n{}")


HALF = b'{"said":"\\ud800","\\udfff":[1,2.50]}'


def test_an_output_or_a_judgement_with_half_a_surrogate_pair_comes_back(path: Path) -> None:
    facts = (
        Finished(key(), EpisodeEnd(Outcome.COMPLETE, output=Raw(HALF), error="é")),
        Graded("t", "judge", Raw(HALF)),
    )
    with opened(path) as store:
        trial = store.trials.create("t", DIGEST, b"", NS).trial_id
        store.trials.append(trial, [Entry(n, NS, fact) for n, fact in enumerate(facts)])
        finished, graded = (entry.fact for entry in store.trials.entries(trial))
    assert isinstance(finished, Finished)
    assert isinstance(graded, Graded)
    assert isinstance(finished.end.output, Raw)
    assert bytes(finished.end.output) == bytes(graded.result) == HALF
    assert (finished.end.error, graded.grader) == ("é", "judge")
    assert faults(path) == ""


def test_an_entry_with_a_lone_surrogate_comes_back_as_it_was_put(store: Store) -> None:
    file = OutputFile("name-\udcff", "file", 3, DIGEST)
    output = Raw(b'{"text": "\\ud800", "number": 1.0}')
    for number, end in enumerate(
        (
            EpisodeEnd(Outcome.COMPLETE, Raw(b'"\\udcff"'), files=(file,)),
            EpisodeEnd(Outcome.COMPLETE, output),
        )
    ):
        trial_id = f"t-{number}"
        facts = (opened_trial(), Started(key(), 1), reserved("c1"), settled("c1"))
        put = entries(*facts, Finished(key(), end))
        store.trials.create(trial_id, DIGEST, b"", 0)
        store.trials.append(trial_id, put)
        assert list(store.trials.entries(trial_id)) == put
    assert not store.verify().faults


def test_ledgers_of_two_trials_do_not_mix(tables: TrialTables) -> None:
    for name in ("a", "b"):
        tables.create(name, DIGEST, b"", 0)
        tables.append(name, entries(opened_trial()))
    tables.append("a", entries(Started(key(), 1), start=1))
    tables.append("b", entries(Started(key(2), 1), start=1))
    assert [e.fact for e in tables.entries("a")][1:] == [Started(key(), 1)]
    assert [e.fact for e in tables.entries("b")][1:] == [Started(key(2), 1)]


def test_entries_that_do_not_follow_are_refused_and_none_of_them_is_stored(
    tables: TrialTables,
) -> None:
    tables.create("t", DIGEST, b"", 0)
    first, second, third = entries(opened_trial(), reserved("a"), settled("a"))
    tables.append("t", [first])
    for wrong in ([third], [first], [second, second]):
        with pytest.raises(StoreError, match="cannot follow: expected entry"):
            tables.append("t", wrong, [b"answer"])
    assert list(tables.entries("t"))[1:] == []
    tables.append("t", [second, third])


def test_a_trial_that_is_not_there_is_refused(tables: TrialTables) -> None:
    with pytest.raises(UsageError, match="no trial 'x'"):
        tables.append("x", [])
    with pytest.raises(UsageError, match="no trial 'x'"):
        next(tables.entries("x"))
    with pytest.raises(UsageError, match="no trial 'x'"):
        tables.get_plan("x")


def test_an_answer_that_is_not_there_is_refused(tables: TrialTables) -> None:
    with pytest.raises(StoreError, match="is not in the store"):
        tables.get_answer("0" * 64)


def test_several_writes_are_whole_in_an_open_transaction(store: Store) -> None:
    with pytest.raises(UsageError), store.transaction():
        store.trials.get_plan(put_trial(store) + "-none")
    assert store.trials.list_trials() == []


def test_an_artefact_of_an_episode_is_one_that_its_entry_rests_on() -> None:
    end = EpisodeEnd(Outcome.COMPLETE, files_artefact="ab")
    assert artefacts_of(Entry(0, 0, Finished(key(), end))) == ("ab",)
    assert artefacts_of(Entry(0, 0, Finished(key(), EpisodeEnd(Outcome.FAILED)))) == ()
    assert artefacts_of(Entry(0, 0, settled("a"))) == ()


# --- damage


def test_a_dropped_entry_is_named(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM trial_entries WHERE number = 2")
    assert "entry 2 of trial triage-1 is missing" in faults(filled)
    with opened(filled) as store, pytest.raises(TamperError, match="entry 2 of trial triage-1"):
        list(store.trials.entries("triage-1"))


def test_a_cut_tail_is_named(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM trial_entries WHERE number = 6")
    assert "table trial_entries does not end as it was left" in faults(filled)


def test_entries_that_change_places_are_found_even_with_seals_that_match(filled: Path) -> None:
    database = open_database(filled, create=False, read_only=False)
    first, second, *_ = read_rows(database, StoredEntry, "ORDER BY id")
    with database.transaction():
        database.execute("DELETE FROM trial_entries WHERE id IN (1, 2)")
        for row, other in ((first, second), (second, first)):
            put_row(database, msgspec.structs.replace(row, id=other.id, number=other.number))
    database.close()
    assert "entry 0 of trial triage-1 calls itself 1" in faults(filled)
    with opened(filled) as store, pytest.raises(TamperError, match="calls itself 1"):
        list(store.trials.entries("triage-1"))


def test_a_lost_answer_is_named_with_the_entry_that_rests_on_it(filled: Path) -> None:
    with opened(filled) as store:
        facts = [(e.number, artefacts_of(e)) for e in store.trials.entries("triage-1")]
        ((number, (name,)),) = [fact for fact in facts if fact[1]]
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM artefacts WHERE sha256 = ?", (bytes.fromhex(name),))
    wanted = f"entry {number} of trial triage-1: artefact {name} is not in the store"
    assert wanted in faults(filled)


def test_an_entry_that_names_no_digest_is_found(filled: Path) -> None:
    with opened(filled) as store:
        paid = msgspec.structs.replace(settled("c2"), answer_sha256="nonsense")
        store.trials.append("triage-1", entries(paid, start=7))
    assert "entry 7 of trial triage-1: artefact" in faults(filled)


def test_entries_of_no_trial_are_found(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("DELETE FROM trials")
    assert "ledger entries that belong to no trial: 7" in faults(filled)


def reseal(path: Path, row: StoredEntry | StoredTrial) -> None:
    """Put a row with a seal and a tail that match, as a patient forger does."""
    database = open_database(path, create=False, read_only=False)
    with database.transaction():
        tail = find_row(database, TailRow, "WHERE name = ?", (row.table,))
        assert tail is not None
        put_row(database, row)
        put_row(database, longer_tail(tail, seal_of(row)), replaces=True)
    database.close()


@pytest.mark.parametrize("data", [b"{", b"{}", b"\xff"])
def test_an_entry_that_is_none_is_found(filled: Path, data: bytes) -> None:
    reseal(filled, StoredEntry(8, "triage-1", 7, data))
    assert "entry 7 of trial triage-1 is damaged" in faults(filled)
    with opened(filled) as store, pytest.raises(TamperError, match="is damaged"):
        list(store.trials.entries("triage-1"))


@pytest.mark.parametrize("data", [b"", b"\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00", b"abc"])
def test_a_plan_that_cannot_be_unpacked_is_found(filled: Path, data: bytes) -> None:
    reseal(filled, StoredTrial(2, "other", DIGEST, NS, 5, data))
    assert "the plan of trial other is damaged" in faults(filled)
    with opened(filled) as store, pytest.raises(TamperError, match="plan of trial other"):
        store.trials.get_plan("other")


def test_a_ledger_is_what_its_stored_entries_fold_to(tables: TrialTables) -> None:
    facts = (reserved("a", "0.30"), settled("a", "0.12"), Started(key(), 1))
    tables.create("t", DIGEST, b"", 0)
    for entry in entries(opened_trial(), *facts):
        tables.append("t", [entry])
    found, expected = fold(tables.entries("t")), ledger_of(*facts)
    assert (found.budgets, found.runs.merged()) == (expected.budgets, expected.runs.merged())
