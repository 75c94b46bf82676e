"""The session of the page on the interchange format is valid, complete, and closed by the audit."""

import re
from pathlib import Path

import pytest

from redrive.importers.interchange import IMPORTER
from redrive.record.session import MemoryReader
from redrive.record.summary import summarize
from redrive.testing import check_interchange
from tests.helpers import events_from, index_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "interchange.md"


@pytest.fixture
def session(tmp_path: Path) -> Path:
    found = re.search(r"```jsonl\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "session.jsonl"
    path.write_text(found[1])
    return path


def test_the_session_of_the_page_is_valid(session: Path) -> None:
    check_interchange(session)


def test_the_session_of_the_page_is_complete(session: Path) -> None:
    events = events_from(IMPORTER, session)
    summary = summarize(index_of(events), MemoryReader(events), None)
    assert (summary.model_calls, summary.tool_calls, summary.complete) == (2, 1, True)
