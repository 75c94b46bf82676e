from pathlib import Path

from msgspec.structs import replace

from redrive import canonical
from redrive.importers.claude_code import IMPORTER
from redrive.record.event import Source
from tests.helpers import events_from

FOLDER = Path(__file__).parent / "claude_code"


def test_the_golden_session_gives_its_stored_events_byte_for_byte() -> None:
    # A changed projection needs a new version, and its events beside these.
    assert IMPORTER.version == 1
    written = b""
    for event in events_from(IMPORTER, FOLDER / "session.jsonl"):
        source = Source("", event.source.offset, event.source.length)
        written += canonical.encode(replace(event, source=source)) + b"\n"
    assert written == (FOLDER / "events-v1.jsonl").read_bytes()
