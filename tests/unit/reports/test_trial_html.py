"""The page shows every figure in words, loads nothing, and takes any text as text."""

import re
from html.parser import HTMLParser

import pytest
from msgspec import Raw
from msgspec.structs import replace

from redrive.compare.trial_report import TrialFacts, report_trial
from redrive.reports.trial_html import MAX_LISTED, trial_page
from tests.policy_documents import HOSTILE_TEXTS
from tests.trial_reports import ENDS, plan_of_size, report_of_size


class Parsed(HTMLParser):
    """The tags of a page, the rows of its tables as text, and its whole text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[str] = []
        self.text = ""
        self.links: list[str] = []
        self._row: list[str] | None = None
        self._raw = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        self._raw = tag == "style"
        if tag == "tr":
            self._row = []

    def handle_endtag(self, tag):
        self._raw = False
        if tag == "tr" and self._row is not None:
            self.rows.append(" ".join(self._row))
            self._row = None

    def handle_data(self, data):
        if not self._raw:
            self.text += data
            if self._row is not None:
                self._row.append(data.strip())


def test_the_matrix_has_a_row_a_task_and_a_cell_a_variant() -> None:
    rows = Parsed(trial_page(report_of_size())).rows
    assert "task triage@1 triage@2 triage@3" in rows
    assert "task 1 ok ✗ $0.00102 · 2.5s ok ✓ $0.00102 · 3.2s ~ ok ✓ $0.00102 · 0.5s" in rows
    assert (
        "task 2 failed ✗ $0.00102 · 1.0s denied ✗ $0.00102 · 4.0s !2 timeout ✗ $0.00102 · 2m00s"
        in rows
    )
    assert "all tasks 8 of 8 $0.00816 · 1.8s 8 of 8 $0.00816 · 3.6s 8 of 8 $0.00816 · 60s" in rows


def test_gate_ranking_and_cost_are_said_in_words() -> None:
    text = Parsed(trial_page(report_of_size())).text
    assert "Gate: inconclusive" in text
    assert "8 tasks can show a margin of 0.312 at best" in text
    assert "Ranking by correct" in text
    assert "53% [26%, 71%]" in text
    assert "USD 0.1234 of a ceiling of USD 1.00, USD 0.05 still held back" in text
    assert "most expensive rung" in text
    assert "0 of 24 pairs depend on the order" in text


def test_what_did_not_run_is_named() -> None:
    report = report_of_size(2, 3, n_ended=3)
    text = Parsed(trial_page(report)).text
    assert "Stopped at the ceiling of replay" in text
    for name in report.not_run:
        assert name in text
    assert "cut off" in text
    assert "not run" in text


def test_attempts_stand_in_one_cell_by_number() -> None:
    rows = Parsed(trial_page(report_of_size(2, 2, 2))).rows
    assert any("#1 ok" in row and "#2" in row for row in rows)


def test_a_trial_without_grades_or_spend_or_runs_has_a_page() -> None:
    text = Parsed(trial_page(report_trial(plan_of_size(2, 2), TrialFacts("")))).text
    assert "nothing ran" in text
    assert "Nothing was spent." in text
    assert "Gate" not in text


def test_an_environment_that_differs_is_named_field_by_field() -> None:
    plan = plan_of_size(1, 1)
    task = replace(plan.tasks[0], environment=Raw(b'{"name":"a"}'))
    plan = replace(plan, tasks=(task,), environment=Raw(b'{"name":"b"}'))
    text = Parsed(trial_page(report_trial(plan, TrialFacts("t")))).text
    assert 'environment differs: name: recorded "a", given "b"' in text
    assert "1 task ran in another environment" in text


@pytest.mark.parametrize("gate", ["triage@1 within 1 of triage@2", "triage@3 beats triage@1"])
def test_every_gate_and_every_ranking_has_its_words(gate: str) -> None:
    report = report_of_size(3, 12, gate=gate)
    assert report.grading is not None
    assert f"Gate: {report.grading.gate.status}" in Parsed(trial_page(report)).text


def test_a_gate_without_a_task_says_so() -> None:
    report = report_of_size(3, 4, n_ended=1)
    text = Parsed(trial_page(report)).text
    assert "No task has both scores." in text
    assert "Not ranked: no game that counts" in text


def test_groups_that_never_met_stand_apart() -> None:
    report = report_of_size(4, 2)
    assert report.grading is not None
    grader = report.grading.graders[0]
    (group,) = grader.ranking.groups
    halves = (replace(group, ratings=group.ratings[:2]), replace(group, ratings=group.ratings[2:]))
    ranking = replace(
        grader.ranking,
        groups=halves,
        no_data=(("triage@1", "triage@3"),),
        n_inconclusive=1,
        n_position_dependent=2,
    )
    grading = replace(
        report.grading, graders=(replace(grader, ranking=ranking, notes=("a note",)),)
    )
    text = Parsed(trial_page(replace(report, grading=grading))).text
    assert "Group 2: never met the others" in text
    assert "no data: triage@1 and triage@3 never met" in text
    assert "1 game inconclusive" in text
    assert "2 ties since the judge contradicted itself" in text
    assert "a note" in text


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_adds_no_tag_and_stays_text(text: str) -> None:
    plain = Parsed(trial_page(report_of_size(n_ended=20))).tags
    made = trial_page(report_of_size(n_ended=20, text=text))
    assert made.encode()
    found = Parsed(made).tags
    assert [tag for tag in found if tag != "li"] == [tag for tag in plain if tag != "li"]
    assert "script" not in found


def test_nothing_is_loaded_and_nothing_runs() -> None:
    made = trial_page(report_of_size())
    parsed = Parsed(made)
    assert parsed.links == ["data:,"]
    assert not {"script", "iframe", "object", "embed", "form", "base"} & set(parsed.tags)
    assert not re.search(r"url\(|@import|@font-face|\son\w+=|\sstyle=", made)


def test_long_lists_are_cut_with_their_count() -> None:
    made = trial_page(report_of_size(10, 200, ends=ENDS[3:], is_graded=False, gate=""))
    parsed = Parsed(made)
    assert parsed.tags.count("details") == MAX_LISTED + 1
    assert f"… {2000 - MAX_LISTED} more of 2000" in parsed.text
    unrun = Parsed(trial_page(report_of_size(10, 200, n_ended=1, is_graded=False, gate="")))
    assert f"… {1999 - MAX_LISTED} more of 1999" in unrun.text
    assert len(made) < 3_000_000


def test_the_same_report_gives_the_same_page() -> None:
    assert trial_page(report_of_size()) == trial_page(report_of_size())
