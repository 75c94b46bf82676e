from msgspec import Raw

from redrive.capture.mcp_notes import MAX_DAMAGE_NOTES, Notes, Side
from tests.mcp_reporter import Reporter


def test_what_is_known_of_a_server_is_noted_when_it_is_news():
    reporter = Reporter()
    notes = Notes("files", reporter)
    result = Raw(b'{"serverInfo": {"name": "disk"}, "protocolVersion": "2025-06-18"}')
    notes.learn_server(Raw(b"{}"), result)
    notes.learn_server(Raw(b"{}"), result)
    notes.learn_meta({})
    assert reporter.notes("server") == [
        {"server": "files", "info": {"name": "disk"}, "protocol": "2025-06-18"}
    ]


def test_what_was_understood_and_is_out_of_place_leaves_no_answer_in_doubt():
    reporter = Reporter()
    notes = Notes("files", reporter)
    notes.damage(Side.SERVER, 0, "out of place", b"")
    notes.damage(Side.CLIENT, 9, "garbage", b"")
    assert notes.n_unreadable == 0
    for _ in range(2 * MAX_DAMAGE_NOTES):
        notes.damage(Side.SERVER, 9, "garbage", b"noise")
    assert notes.n_unreadable == 2 * MAX_DAMAGE_NOTES
    assert len(reporter.notes("damage")) == MAX_DAMAGE_NOTES
