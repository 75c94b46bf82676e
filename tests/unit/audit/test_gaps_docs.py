"""The tables of docs/audit.md are made from the tables of the code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.audit.conditions import CAPTURES, SERVING_STATE
from redrive.audit.gaps import CAUSES
from redrive.audit.redaction import MARKS, MARKS_VERSION
from redrive.audit.report import API_BOUNDARY

PAGE = Path(__file__).resolve().parents[3] / "docs" / "audit.md"


def captures() -> Iterator[str]:
    for key, (input_class, needs_basis) in CAPTURES.items():
        absent = "unknown, unless the writer vouches" if needs_basis else "read from the events"
        yield f"| `{key}` | {input_class} | {absent} |"


def marks() -> Iterator[str]:
    for mark in MARKS:
        pattern = mark.pattern.replace("|", "\\|")
        yield f"| {mark.name} | `{pattern}` |"


def gaps() -> Iterator[str]:
    for name, row in CAUSES.items():
        reason = re.sub(r"\{(\w+)(?:!r)?\}", lambda found: found[1].upper(), row.reason)
        yield f"| {row.input_class} | `{name}` | {reason} | {row.hint} |"


@pytest.mark.parametrize("table", [captures, marks, gaps])
def test_a_table_of_the_page_is_that_of_the_code(table) -> None:  # type: ignore[no-untyped-def]
    _, _, rest = PAGE.read_text().partition(f"<!-- table: {table.__name__} -->\n")
    body = rest.partition("<!-- end -->")[0]
    assert body.splitlines()[2:] == list(table())


def test_the_page_names_versions_and_sentences_as_the_code_does() -> None:
    text = PAGE.read_text()
    assert f"Version {MARKS_VERSION} of the table" in text
    assert SERVING_STATE in text
    assert API_BOUNDARY in text.replace("Closure is", "closure is")
