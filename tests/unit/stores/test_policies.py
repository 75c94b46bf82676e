"""Rows about policies come back as they were put, and only grow."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from redrive import canonical
from redrive.errors import StoreError, TamperError, UsageError
from redrive.stores.database import open_database
from redrive.stores.port import HookRow, InferenceRow, LabelRow, PolicyTables, SampleRow, Store
from redrive.stores.rows import StoredReport, put_row, read_rows
from redrive.stores.sqlite import open_store
from tests.stored import opened, put_policy_rows

CODE = canonical.text_digest("code")
KEY = canonical.text_digest("key")
ANSWER = InferenceRow(KEY, "mood", "local", '{"a":1}', "0", "{}")
REFS = ("test:a#e1", "test:a#e2")
SAMPLE = SampleRow("s", "p", "1", "seed", "head", 7, 1, REFS, 3)


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


@pytest.fixture
def tables(store: Store) -> PolicyTables:
    return store.policies


def label(ref: str = REFS[0], rater: str = "ann", said: str = "true", note: str = "") -> LabelRow:
    return LabelRow("s", ref, rater, said, note, 4)


# --- reports


def test_a_report_comes_back_byte_for_byte(tables: PolicyTables) -> None:
    documents = [b"", b'{"a":"\xc3\xbc"}', os.urandom(70_000)]
    rows = [tables.put_report("p", str(n), CODE, data, n) for n, data in enumerate(documents)]
    assert [row.id for row in rows] == [1, 2, 3]
    assert [row.size for row in rows] == [0, 10, 70_000]
    assert [tables.get_report(row.id) for row in rows] == documents


def test_reports_are_listed_newest_last_of_one_policy_or_all(tables: PolicyTables) -> None:
    stored = [tables.put_report(name, "1", CODE, b"%d" % n, 9) for n, name in enumerate("pqp")]
    assert tables.reports() == stored
    assert tables.reports("p") == [stored[0], stored[2]]
    assert tables.reports("none") == []


def test_a_report_is_found_by_policy_version_and_code_and_nothing_less(
    tables: PolicyTables,
) -> None:
    tables.put_report("p", "1", CODE, b"{}", 1)
    newest = tables.put_report("p", "1", CODE, b"[]", 2)
    assert tables.find_report("p", "1", CODE) == newest
    for wrong in (("q", "1", CODE), ("p", "2", CODE), ("p", "1", "0" * 64)):
        assert tables.find_report(*wrong) is None


def test_an_equal_report_again_is_not_stored_twice_unless_another_came_between(
    tables: PolicyTables,
) -> None:
    first = tables.put_report("p", "1", CODE, b"{}", 1)
    tables.put_report("q", "1", CODE, b"{}", 2)
    assert tables.put_report("p", "1", CODE, b"{}", 3) == first
    other = tables.put_report("p", "1", "0" * 64, b"{}", 4)
    assert tables.put_report("p", "1", CODE, b"{}", 5).id > other.id
    assert len(tables.reports("p")) == 3


def test_a_report_that_is_not_there_is_refused(tables: PolicyTables) -> None:
    with pytest.raises(UsageError, match="no policy report 4"):
        tables.get_report(4)


@pytest.mark.parametrize("columns", [{"size": 3}, {"document": b"no frame"}])
def test_a_report_that_does_not_unpack_is_tampering(path: Path, columns: dict[str, object]) -> None:
    with opened(path) as store:
        store.policies.put_report("p", "1", CODE, b"{}", 1)
    database = open_database(path, create=False, read_only=False)
    (row,) = read_rows(database, StoredReport)
    put_row(database, msgspec.structs.replace(row, **columns), replaces=True)
    database.close()
    with opened(path) as store, pytest.raises(TamperError, match="policy report 1 is damaged"):
        store.policies.get_report(1)


# --- inferences


def test_answers_are_found_by_key_and_streamed_by_name(tables: PolicyTables) -> None:
    other = msgspec.structs.replace(ANSWER, key=CODE, name="risk", value="null")
    assert tables.put_inferences([ANSWER, other]) == 2
    assert tables.find_inference(KEY) == ANSWER
    assert tables.find_inference("0" * 64) is None
    assert list(tables.inferences()) == [ANSWER, other]
    assert list(tables.inferences("risk")) == [other]


def test_an_equal_answer_again_is_fine_and_the_first_fingerprint_stays(
    tables: PolicyTables,
) -> None:
    tables.put_inferences([ANSWER])
    assert tables.put_inferences([ANSWER]) == 0
    assert tables.put_inferences([msgspec.structs.replace(ANSWER, fingerprint='{"b":2}')]) == 0
    assert list(tables.inferences()) == [ANSWER]


@pytest.mark.parametrize("field", ["name", "spec", "request", "value"])
def test_another_answer_under_a_known_key_is_refused_and_nothing_is_stored(
    tables: PolicyTables, field: str
) -> None:
    tables.put_inferences([ANSWER])
    new = msgspec.structs.replace(ANSWER, key=CODE)
    wrong = msgspec.structs.replace(ANSWER, **{field: "false"})
    with pytest.raises(StoreError, match=f"inference {KEY} is stored with another {field}"):
        tables.put_inferences([new, wrong])
    assert list(tables.inferences()) == [ANSWER]


def test_missing_is_not_zero_and_not_null(tables: PolicyTables) -> None:
    tables.put_inferences([ANSWER])
    with pytest.raises(StoreError, match="another value"):
        tables.put_inferences([msgspec.structs.replace(ANSWER, value="null")])


# --- samples and labels


def test_a_sample_comes_back_and_a_second_of_its_id_changes_nothing(tables: PolicyTables) -> None:
    tables.put_report("p", "1", CODE, b"{}", 1)
    assert tables.put_sample(SAMPLE) == SAMPLE
    assert tables.put_sample(msgspec.structs.replace(SAMPLE, created_ns=99)) == SAMPLE
    other = tables.put_sample(msgspec.structs.replace(SAMPLE, id="t", policy="q"))
    assert tables.samples() == [SAMPLE, other]
    assert tables.samples("q") == [other]


def test_a_sample_of_no_report_is_refused(tables: PolicyTables) -> None:
    with pytest.raises(UsageError, match="no policy report 1"):
        tables.put_sample(SAMPLE)
    assert tables.samples() == []


def test_every_label_stays_and_raters_are_told_apart(tables: PolicyTables) -> None:
    tables.put_report("p", "1", CODE, b"{}", 1)
    tables.put_sample(SAMPLE)
    said = [label(), label(rater="bob", said="false"), label(said="unsure", note="a\nb \x1b[31m")]
    for row in said:
        tables.put_label(row)
    assert tables.labels("s") == said
    assert tables.labels("s", "ann") == [said[0], said[2]]
    assert tables.labels("t") == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (label(said="maybe"), "label 'maybe': expected one of true, false, unsure"),
        (label(ref="test:a#e9"), "sample 's' holds no 'test:a#e9'"),
        (msgspec.structs.replace(label(), sample="t"), "sample 't' holds no"),
    ],
)
def test_a_label_that_fits_nothing_is_refused(
    tables: PolicyTables, row: LabelRow, message: str
) -> None:
    tables.put_report("p", "1", CODE, b"{}", 1)
    tables.put_sample(SAMPLE)
    with pytest.raises(UsageError, match=message):
        tables.put_label(row)
    assert tables.labels("s") == []


def test_a_lone_surrogate_is_stored_as_its_escape(tables: PolicyTables) -> None:
    tables.put_report("p", "1", CODE, b"{}", 1)
    tables.put_sample(msgspec.structs.replace(SAMPLE, event_refs=("test:a#\ud800",)))
    tables.put_label(label(ref="test:a#\ud800", note="\udfff"))
    (row,) = tables.labels("s", "ann")
    assert (row.event_ref, row.note) == ("test:a#\\ud800", "\\udfff")
    assert tables.samples()[0].event_refs == (row.event_ref,)


# --- the live hook


def test_decisions_are_appended_and_listed_in_order(tables: PolicyTables) -> None:
    first = HookRow(1, "p", "1", CODE, "s", "toolu_1", "PreToolUse", "deny", "why", KEY, False)
    second = HookRow(2, "q", "1", CODE, "s", None, "PreToolUse", "allow", "", KEY, True)
    for row in (first, second, first):
        tables.add_hook_decision(row)
    assert list(tables.hook_decisions()) == [first, second, first]
    assert list(tables.hook_decisions("q")) == [second]


# --- all tables


def test_a_store_opened_for_reading_answers_and_refuses_to_write(path: Path) -> None:
    with opened(path) as store:
        put_policy_rows(store, "test:a")
    store = open_store(path, create=False, read_only=True)
    tables = store.policies
    (first, second), answers = tables.reports("no-rm"), list(tables.inferences("mood"))
    assert tables.find_report("no-rm", "1.2", second.digest) == second
    assert tables.get_report(first.id)
    assert [len(answers), len(tables.samples()), len(tables.labels("s1"))] == [2, 2, 3]
    assert len(list(tables.hook_decisions())) == 2
    with pytest.raises(StoreError, match="is read-only"):
        tables.put_inferences([ANSWER])
    store.close()


def test_a_transaction_that_fails_takes_its_policy_rows_with_it(store: Store) -> None:
    def write_and_give_up() -> None:
        with store.transaction():
            put_policy_rows(store, "test:a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_give_up()
    assert store.policies.reports() == []
    assert store.verify().is_ok
    put_policy_rows(store, "test:a")
    assert store.verify().is_ok


def test_two_processes_append_in_turns(path: Path) -> None:
    with opened(path) as one, opened(path) as two:
        for number in range(6):
            (one, two)[number % 2].policies.put_report("p", str(number), CODE, b"{}", 1)
        assert [row.version for row in one.policies.reports()] == list("012345")
        assert two.verify().is_ok
