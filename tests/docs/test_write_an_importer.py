"""The importer of the guide works as it stands there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from redrive.record.session import MemoryReader
from redrive.record.summary import summarize
from redrive.testing import check_importer
from tests.helpers import events_from, index_of

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "write-an-importer.md"
LINES: list[dict[str, Any]] = [
    {"run": "r1", "at": "2026-02-03T04:05:06Z", "who": "user", "text": "read a"},
    {"who": "model", "at": "2026-02-03T04:05:07Z", "calls": [{"id": "c", "tool": "cat"}]},
    {"who": "tool", "at": "2026-02-03T04:05:08Z", "answers": "c", "text": "hello"},
    {"who": "model", "at": "2026-02-03T04:05:09Z", "text": "a says hello"},
]


@pytest.fixture(scope="module")
def importer() -> Any:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(blocks[0], names)  # noqa: S102 - our own page
    return names["IMPORTER"]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "session.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    return path


def test_the_importer_of_the_guide_keeps_every_promise(importer: Any, recording: Path) -> None:
    check_importer(importer, recording, records_are_lines=True)


def test_the_importer_of_the_guide_gives_a_complete_session(importer: Any, recording: Path) -> None:
    events = events_from(importer, recording)
    summary = summarize(index_of(events), MemoryReader(events), None)
    counts = (summary.model_calls, summary.tool_calls, summary.tool_results)
    assert (events[0].session_id, counts, summary.complete) == ("r1", (2, 1, 1), True)
