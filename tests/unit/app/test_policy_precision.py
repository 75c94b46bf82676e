"""Which labels speak of which code, and what a set of places must look like."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from redrive import canonical
from redrive.app.annotating import Annotation, Wish, begin_annotation
from redrive.app.policy_precision import Measured, measure_precision, read_refs
from redrive.compare.policy_report import CannotEvaluate
from redrive.errors import RecordError, UsageError
from redrive.stores.port import PolicyTables
from tests.policy_reports import SESSION, fire, put_report, report_with
from tests.stored import opened

FIRES = [fire(number) for number in range(8)]
OTHER_CODE = canonical.text_digest("other code")


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[PolicyTables]:
    with opened(tmp_path / "store.db") as store:
        yield store.policies


def label(tables: PolicyTables, said: str, rater: str = "ann", **how) -> Annotation:
    """Label a sample's first items; t, f, u."""
    words = {"t": "true", "f": "false", "u": "unsure"}
    annotation = begin_annotation(tables, "no-rm", rater, itertools.count().__next__, Wish(**how))
    assert annotation is not None
    for place, letter in enumerate(said):
        annotation.put(place, words[letter], "")
    return annotation


def measure(tables: PolicyTables, spec: str = "no-rm", **how) -> Measured:
    return measure_precision(tables, spec, **how)


def test_labels_give_precision_agreement_and_verdict(tables: PolicyTables) -> None:
    row = put_report(tables, FIRES)
    label(tables, "tttttttf")
    label(tables, "tttttttf", "bob")
    found = measure(tables, min_precision=0.3)
    assert (found.precision.n_true, found.precision.n_false) == (7, 1)
    assert found.precision.agreement_raw == 1.0
    assert (found.verdict, found.labels_needed) == ("met", 4)
    assert (found.report, found.digest) == (row.id, row.digest)
    assert measure(tables, min_precision=0.9).verdict == "inconclusive"
    assert measure(tables, min_precision=0.5, confidence=0.9999).verdict == "inconclusive"


def test_without_labels_it_is_inconclusive(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    found = measure(tables)
    assert (found.verdict, found.precision.sample) == ("inconclusive", None)
    assert found.precision.population == 8
    assert found.precision.notes == ("no sample was drawn yet: redrive policy annotate draws one",)
    drawn = label(tables, "")
    found = measure(tables)
    assert (found.verdict, found.precision.sample) == ("inconclusive", drawn.sample.id)


def test_labels_of_other_code_say_nothing(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    label(tables, "tttt")
    put_report(tables, FIRES, digest=OTHER_CODE)
    assert measure(tables).precision.n_labelled == 0
    label(tables, "ff")
    assert measure(tables).precision.n_false == 2
    put_report(tables, FIRES)
    assert measure(tables).precision.n_labelled == 4


def test_labels_of_another_version_say_nothing(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    label(tables, "tttt")
    put_report(tables, FIRES, version="2.0")
    assert measure(tables).precision.n_labelled == 0
    assert measure(tables, "no-rm@1.0").precision.n_labelled == 4


def test_an_earlier_report_of_the_same_code_still_counts_and_it_is_said(
    tables: PolicyTables,
) -> None:
    put_report(tables, FIRES)
    label(tables, "tttt")
    put_report(tables, [*FIRES, fire(20)])
    found = measure(tables)
    assert (found.precision.n_labelled, found.report) == (4, 2)
    assert any("the newest report has 9 fires" in note for note in found.precision.notes)


def test_samples_are_never_pooled(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    label(tables, "ffff", size=4)
    label(tables, "ttt", size=3)
    label(tables, "", size=2)
    found = measure(tables).precision
    assert (found.n_true, found.n_false, found.drawn) == (3, 0, 3)
    assert "2 samples have labels; the newest of them counts alone" in found.notes


def test_the_branches_of_the_sample_are_said(tables: PolicyTables) -> None:
    put_report(tables, [*FIRES, fire(30, on_head_path=False)])
    label(tables, "t", branches="all")
    notes = measure(tables).precision.notes
    assert "sample drawn from the fires on all branches, seed 1" in notes


def test_fires_that_repeat_another_one_s_command_are_said(tables: PolicyTables) -> None:
    same = {"reason": "r", "context": "rm"}
    fires = [fire(n, **same) for n in range(3)] + [fire(7, reason="r", context="mv"), fire(8)]
    put_report(tables, fires)
    annotation = label(tables, "")
    for place, item in enumerate(annotation.items):
        if item.fire.seq in (0, 1, 7, 8):
            annotation.put(place, "true", "")
    notes = measure(tables).precision.notes
    assert notes[-1] == (
        "1 of 4 labelled fires repeats another one's command in the same session: the interval"
        " treats them as independent"
    )
    label(tables, "ttttt", "bob")
    put_report(tables, fires[:1])
    notes = measure(tables).precision.notes
    assert notes[-1].startswith("2 of 5 labelled fires repeat another one's command")


def test_the_same_command_for_another_reason_or_in_another_session_is_independent(
    tables: PolicyTables,
) -> None:
    here = [fire(n, reason=f"r{n}", context="rm") for n in range(2)]
    there = fire(0, event_ref="test:b#e0", reason="r0", context="rm")
    report = report_with(here)
    sessions = (
        *report.per_session,
        msgspec.structs.replace(report.per_session[0], session_id="test:b", fires=(there,)),
    )
    put_report(tables, here, per_session=sessions)
    label(tables, "ttt")
    assert not any("repeat" in note for note in measure(tables).precision.notes)


# --- recall


def places(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "places.jsonl"
    path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    return path


def test_recall_is_named_for_its_file_and_says_why_places_were_missed(
    tables: PolicyTables, tmp_path: Path
) -> None:
    missing = CannotEvaluate(f"{SESSION}#e40", "no ts", "ts")
    put_report(
        tables,
        [*FIRES, fire(20, cooldown_suppressed=True), fire(21, on_head_path=False)],
        cannot_evaluate=(missing,),
    )
    refs = [f"{SESSION}#e{n}" for n in (1, 2, 20, 21, 40, 41)]
    found = measure(tables, should_have_fired=places(tmp_path, *refs, "test:z#e1")).recall
    assert found is not None
    assert (found.name, found.k, found.n) == ("places.jsonl", 3, 7)
    assert found.missed == (f"{SESSION}#e20", f"{SESSION}#e40", f"{SESSION}#e41", "test:z#e1")
    assert found.notes == (
        "of the places missed, 1 were held back by a cooldown or a budget",
        "of the places missed, 1 could not be evaluated",
        "of the places missed, 1 lie in sessions that were not replayed",
    )


def test_without_a_set_there_is_no_recall(tables: PolicyTables) -> None:
    put_report(tables, FIRES)
    assert measure(tables).recall is None


def test_refs_are_read_as_objects_texts_or_as_they_are(tmp_path: Path) -> None:
    path = places(
        tmp_path,
        '{"event_ref":"a#1","why":"x"}',
        '  "a#2"\r',
        "",
        "a b#3",
        '{"event_ref":"a#\\ud800"}',
    )
    assert read_refs(path) == ["a#1", "a#2", "a b#3", "a#\\ud800"]


@pytest.mark.parametrize(
    "line", ["{", '{"event":"a#1"}', '{"event_ref":3}', "no ref", '"a', "\udcff#1", "[1]"]
)
def test_a_line_that_is_no_ref_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(RecordError, match=r"places\.jsonl:2: no event ref"):
        read_refs(places(tmp_path, "a#1", line))


def test_a_file_that_is_not_there_empty_or_a_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_refs(tmp_path / "none")
    with pytest.raises(RecordError, match="holds no event ref"):
        read_refs(places(tmp_path, "", " "))
    with pytest.raises(RecordError, match="cannot be read"):
        read_refs(tmp_path)


def test_a_file_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.app.policy_precision._MAX_BYTES", 4)
    with pytest.raises(RecordError, match="larger than 4 bytes"):
        read_refs(places(tmp_path, "a#1", "a#2"))
