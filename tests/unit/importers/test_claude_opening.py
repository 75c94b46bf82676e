from typing import Any

import pytest

from redrive.importers.claude_code import IMPORTER
from redrive.importers.claude_opening import read_opening
from redrive.testing import MemorySource
from tests.claude_files import SESSION, dump, user

OTHER = "5e55a000-0000-4000-8000-0000000000bb"


def source(path: str, *lines: dict[str, Any]) -> MemorySource:
    return MemorySource(path, dump(lines))


def session_of(opened: MemorySource) -> str | None:
    opening = read_opening(opened)
    return None if opening is None else opening.session


@pytest.mark.parametrize(
    ("data", "confidence"),
    [
        (dump([user(1, None, "x")]), 95),
        (b"{torn\n\n" + dump([user(1, None, "x")]), 95),
        (dump([{"type": "summary", "summary": "x", "leafUuid": "y"}]), 60),
        (dump([{"type": "permission-mode", "permissionMode": "plan", "sessionId": "s"}]), 60),
        (dump([user(1, None, "x" * 70_000)])[:65536], 80),
        (b'{"sessionId":"s","parentUuid":null,"payload":{"x":' + b"1" * 70_000, 0),
        (b'{"type":"session","id":"s1","task":"x"}\n', 0),
        (b'{"timestamp":"t","type":"response_item","payload":{"type":"message"}}\n', 0),
        (b'{"type":"user","message":{"role":"user","content":"x"}}\n', 0),
        (b'{"type":["user"]}\n[1]\n"user"\n', 0),
        (b'{\n  "sessionId": "s",\n  "messages": []\n}\n', 0),
        (b"", 0),
    ],
)
def test_the_envelope_of_the_lines_tells_the_format(data: bytes, confidence: int) -> None:
    assert IMPORTER.sniff(MemorySource("any.txt", data)) == confidence


@pytest.mark.parametrize(
    ("path", "is_sidechain", "role"),
    [
        (f"p/{SESSION}.jsonl", False, "main"),
        (f"p/{SESSION}/subagents/agent-a1.jsonl", True, "agent:a1"),
        (f"p/{SESSION}/subagents/agent-a1.jsonl", False, "agent:a1"),
        ("p/agent-a1.jsonl", True, "agent:a1"),
        ("p/agent-notes.jsonl", False, "main"),
    ],
)
def test_a_sub_agents_file_is_told_by_name_and_lines(
    path: str, is_sidechain: bool, role: str
) -> None:
    assert IMPORTER.role(source(path, user(1, None, "x", isSidechain=is_sidechain))) == role


def test_the_first_session_id_is_the_sessions() -> None:
    lines = [{"type": "mode"}, user(1, None, "x"), user(2, 1, "y", sessionId=OTHER)]
    assert session_of(source("renamed.jsonl", *lines)) == SESSION
    assert session_of(source(f"{SESSION}.jsonl", *lines)) == SESSION


def test_a_resumed_file_is_named_by_itself_and_not_by_the_lines_it_copied() -> None:
    lines = [user(1, None, "x"), user(2, 1, "y", sessionId=OTHER)]
    assert session_of(source(f"{OTHER}.jsonl", *lines)) == OTHER
    absent = OTHER.replace("bb", "cc")
    assert session_of(source(f"{absent}.jsonl", *lines)) == SESSION


def test_a_sub_agents_file_names_its_parent_by_its_lines_or_by_its_folder() -> None:
    path = f"p/{OTHER}/subagents/agent-a1.jsonl"
    assert session_of(source(path, user(1, None, "x"))) == SESSION
    assert session_of(source(path, user(1, None, "x", sessionId="agent-a1"))) == OTHER


def test_a_session_without_an_id_is_named_by_its_first_record() -> None:
    first = {"type": "mode", "mode": "normal"}
    one = session_of(source("a.jsonl", first))
    assert one == session_of(source("b.jsonl", first, {"type": "mode"}))
    assert one is not None
    assert len(one) == 16
    assert session_of(MemorySource("c.jsonl", b"{torn")) is None


def test_a_task_is_looked_for_in_the_first_lines_alone() -> None:
    filler = [user(n, None, "x", isMeta=True) for n in range(1, 100)]
    opening = read_opening(source("a.jsonl", *filler, user(100, 99, "Late")))
    assert opening is not None
    assert opening.started.task is None
