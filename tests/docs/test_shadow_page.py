"""The tables of docs/shadow.md say what the code does."""

from pathlib import Path

import pytest

from redrive.compare.divergence import FIELDS
from redrive.compare.verdict import FAILURES, TABLE
from redrive.record.evidence import UNFAITHFUL, Gap
from redrive.record.signature import RULES, RULES_VERSION

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "shadow.md").read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """Give the cells of a marked table, without its head."""
    block = PAGE.split(f"<!-- table: {name} -->\n")[1].split("<!-- end -->")[0]
    lines = block.strip().splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_the_verdict_table_is_the_codes_table_in_its_order():
    table = [[r.reason, r.condition, r.verdict, r.attribution or "none"] for r in TABLE]
    assert rows("verdicts") == table


def test_every_field_is_explained_in_its_order():
    assert [row[0] for row in rows("fields")] == list(FIELDS)


def test_every_gap_is_explained_with_what_it_leads_to():
    reasons = {True: "evidence_not_faithful", False: "no_recorded_answer"}
    assert [(row[0], row[2]) for row in rows("gaps")] == [
        (gap.value, reasons[gap in UNFAITHFUL]) for gap in Gap
    ]


def test_every_normalisation_rule_is_listed():
    assert rows("rules") == [[name, ignores] for name, ignores in RULES.items()]
    assert f"Version {RULES_VERSION} of the rules" in PAGE


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.reason)
def test_every_verdict_is_explained(row):
    assert f"- **`{row.verdict}`**:" in PAGE


def test_the_words_that_mean_failure_are_listed():
    sentence = PAGE.split("failed if its outcome is ")[1].split(".")[0]
    assert {word for word in FAILURES if f"`{word}`" in sentence} == FAILURES
