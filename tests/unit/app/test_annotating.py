"""A sample is drawn once for all raters, and no rater sees another's labels."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from redrive.app.annotating import (
    MAX_NOTE_CHARS,
    Annotation,
    Wish,
    begin_annotation,
    find_report,
    fires_of,
    read_document,
    report_of,
)
from redrive.compare.precision import draw_sample
from redrive.errors import StoreError, UsageError
from redrive.stores.port import PolicyTables
from tests.policy_reports import CODE, SESSION, fire, put_report, report_with
from tests.stored import opened

FIRES = [fire(number) for number in range(12)]


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[PolicyTables]:
    with opened(tmp_path / "store.db") as store:
        yield store.policies


def begin(tables: PolicyTables, rater: str = "ann", spec: str = "no-rm", **how) -> Annotation:
    clock = itertools.count(100)
    found = begin_annotation(tables, spec, rater, lambda: next(clock), Wish(**how))
    assert found is not None
    return found


# --- reports and fires


def test_the_newest_report_is_found_by_policy_or_version(tables: PolicyTables) -> None:
    old = put_report(tables, FIRES)
    new = put_report(tables, FIRES, version="2.0")
    assert find_report(tables, "no-rm") == new
    assert find_report(tables, "no-rm@1.0") == old
    assert find_report(tables, "no-rm@2.0") == new


def test_a_policy_with_an_at_in_its_name_is_found(tables: PolicyTables) -> None:
    row = put_report(tables, FIRES, policy="team@no-rm")
    assert find_report(tables, "team@no-rm") == find_report(tables, "team@no-rm@1.0") == row


def test_an_unknown_policy_is_refused_and_the_known_ones_named(tables: PolicyTables) -> None:
    with pytest.raises(UsageError, match=r"no stored report of policy 'no-rm'$"):
        find_report(tables, "no-rm")
    put_report(tables, FIRES)
    with pytest.raises(UsageError, match=r"'no-rm@3'; there are: no-rm@1\.0"):
        find_report(tables, "no-rm@3")


@pytest.mark.parametrize("document", [b"{}", b"no JSON", b'{"reports":[3],"sessions":[]}'])
def test_a_document_of_another_shape_is_refused(tables: PolicyTables, document: bytes) -> None:
    row = tables.put_report("p", "1", CODE, document, 1)
    with pytest.raises(StoreError, match="policy report 1 cannot be read"):
        read_document(tables, row)


def test_a_document_of_other_policies_is_refused(tables: PolicyTables) -> None:
    row = put_report(tables, FIRES)
    other = msgspec.structs.replace(row, version="9")
    with pytest.raises(StoreError, match="says nothing of no-rm@9"):
        report_of(read_document(tables, row), other)


def test_suppressed_matches_are_no_fires_and_dead_paths_need_all() -> None:
    fires = [fire(1), fire(2, on_head_path=False), fire(3, cooldown_suppressed=True)]
    report = report_with(fires)
    assert list(fires_of(report, "head")) == [f"{SESSION}#e1"]
    assert list(fires_of(report, "all")) == [f"{SESSION}#e1", f"{SESSION}#e2"]


# --- the sample


def test_all_raters_label_the_same_sample_in_the_same_order(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    ann = begin(tables, size=5, seed="x")
    bob = begin(tables, "bob")
    assert bob.sample == ann.sample
    assert ann.sample.event_refs == draw_sample(fires_of(report_with(FIRES), "head"), 5, "x")
    assert [item.fire.event_ref for item in bob.items] == list(ann.sample.event_refs)
    assert (ann.sample.population, ann.sample.seed) == (12, "x")


def test_another_size_or_seed_is_another_sample_and_the_newest_is_gone_on_with(
    tables: PolicyTables,
) -> None:
    put_report(tables, FIRES)
    samples = [begin(tables, size=5), begin(tables, size=6), begin(tables, size=6, seed="z")]
    assert len({annotation.sample.id for annotation in samples}) == 3
    assert begin(tables).sample.id == samples[2].sample.id
    assert begin(tables, size=5).sample.id == samples[0].sample.id


def test_the_same_fires_replayed_again_keep_their_sample(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    first = begin(tables, size=5)
    assert put_report(tables, FIRES, sessions_scanned=9).id == 2
    assert begin(tables).sample == first.sample


def test_other_fires_get_a_sample_of_their_own(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    first = begin(tables, size=5)
    put_report(tables, [*FIRES, fire(40)])
    second = begin(tables)
    assert second.sample.id != first.sample.id
    assert (second.sample.report, second.sample.population) == (2, 13)


def test_all_branches_are_a_population_of_their_own(tables: PolicyTables) -> None:
    put_report(tables, [*FIRES, fire(20, on_head_path=False)])
    assert begin(tables).sample.population == 12
    assert begin(tables, branches="all").sample.population == 13


def test_a_policy_that_fired_nowhere_has_nothing_to_label(tables: PolicyTables) -> None:
    put_report(tables, [fire(1, cooldown_suppressed=True)])
    assert begin_annotation(tables, "no-rm", "ann", lambda: 0) is None
    assert tables.samples() == []


def test_an_id_with_a_lone_surrogate_is_found_again(tables: PolicyTables) -> None:
    put_report(tables, [fire(1, event_ref="test:a#\ud800")])
    annotation = begin(tables)
    annotation.put(0, "true", "")
    assert begin(tables).label_of(0) is not None


# --- one rater


def test_a_rater_never_holds_another_rater_s_labels(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    ann = begin(tables)
    ann.put(0, "true", "clear")
    bob = begin(tables, "bob")
    assert (bob.n_labelled, bob.label_of(0), bob.find_open()) == (0, None, 0)
    assert (begin(tables).n_labelled, begin(tables).find_open()) == (1, 1)


def test_each_label_is_stored_at_once_and_the_old_ones_stay(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    ann = begin(tables)
    for said, note in (("true", ""), ("true", ""), ("false", "no"), ("false", "no, really")):
        ann.put(3, said, note)
    stored = tables.labels(ann.sample.id)
    assert [(row.label, row.note) for row in stored] == [
        ("true", ""),
        ("false", "no"),
        ("false", "no, really"),
    ]
    assert ann.label_of(3) == stored[-1]
    assert ann.n_labelled == 1


def test_the_next_open_item_is_looked_for_around_the_end(tables: PolicyTables) -> None:
    put_report(tables, FIRES[:3])
    ann = begin(tables)
    ann.put(2, "true", "")
    assert ann.find_open(2) == 0
    ann.put(0, "true", "")
    assert ann.find_open(2) == 1
    ann.put(1, "true", "")
    assert ann.find_open() is None


@pytest.mark.parametrize(
    ("place", "label", "note", "message"),
    [
        (-1, "true", "", "no item -1: expected 0 to 11"),
        (12, "true", "", "no item 12"),
        (0, "maybe", "", "label 'maybe'"),
        (0, "true", "x" * (MAX_NOTE_CHARS + 1), "a note of 2001 characters"),
    ],
)
def test_what_is_no_label_is_refused_and_nothing_stored(
    tables: PolicyTables, place: int, label: str, note: str, message: str
) -> None:
    put_report(tables, FIRES)
    ann = begin(tables)
    with pytest.raises(UsageError, match=message):
        ann.put(place, label, note)
    assert tables.labels(ann.sample.id) == []
    assert ann.n_labelled == 0


@pytest.mark.parametrize("rater", ["", "  ", "a\nb", "x" * 65, "\x1b[31m"])
def test_a_rater_needs_a_name_that_can_be_printed(tables: PolicyTables, rater: str) -> None:
    put_report(tables, FIRES)
    with pytest.raises(UsageError, match="expected a name of 1 to 64 printable"):
        begin(tables, rater)


def test_an_item_holds_the_state_it_was_judged_on(tables: PolicyTables) -> None:
    put_report(tables, [fire(1), fire(2, state_snapshot_ref="gone")])
    held = {item.fire.seq: item.state for item in begin(tables).items}
    assert held == {1: {"cwd": "project", "turn": 1}, 2: None}


def test_an_item_says_which_of_its_session_s_fires_it_is(tables: PolicyTables) -> None:
    off = [fire(2, on_head_path=False), fire(3, cooldown_suppressed=True)]
    put_report(tables, [fire(5), fire(1), *off])
    places = {item.fire.seq: (item.nth, item.n_in_session) for item in begin(tables).items}
    assert places == {1: (1, 2), 5: (2, 2)}
    every = begin(tables, branches="all").items
    assert {item.fire.seq: item.nth for item in every} == {1: 1, 2: 2, 5: 3}
    assert {item.session_id for item in every} == {SESSION}


def test_each_session_s_task_is_looked_up_once(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    asked: list[str] = []

    def task_of(session_id: str) -> str:
        asked.append(session_id)
        return "Migrate"

    found = begin_annotation(tables, "no-rm", "ann", lambda: 0, task_of=task_of)
    assert found is not None
    assert {item.task for item in found.items} == {"Migrate"}
    assert asked == [SESSION]
