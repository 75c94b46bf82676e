"""The tables of docs/rerun.md say what the code does."""

from pathlib import Path

from redrive.compare.rerun_verdict import EXIT_CODES, MEANINGS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rerun.md").read_text(encoding="utf-8")


def rows(name: str) -> list[list[str]]:
    """Give the cells of a marked table, without its head."""
    block = PAGE.split(f"<!-- table: {name} -->\n")[1].split("<!-- end -->")[0]
    lines = block.strip().splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def test_every_difference_and_its_meaning_is_the_codes_table():
    table = {what.value: [one.value, other.value] for what, (one, other) in MEANINGS.items()}
    assert {row[0]: row[2:] for row in rows("differences")} == table


def test_every_finding_has_its_exit_code():
    found = {row[0]: int(row[1]) for row in rows("findings")}
    assert found == {finding.value: code for finding, code in EXIT_CODES.items()}
