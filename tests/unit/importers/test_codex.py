import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive.importers.codex import IMPORTER
from redrive.importers.draft import FileTally
from redrive.record.event import FLAG_INHERITED, Kind, payload_of
from redrive.record.session import MemoryReader
from redrive.record.summary import summarize
from tests.helpers import drafts_from, events_from, index_of, source_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "codex"
GOLDEN_NAMES = sorted(path.stem for path in GOLDEN.glob("*.jsonl"))
COLUMNS = ("records", "model_calls", "tool_calls", "tool_results", "orphans", "branches")


def _counts(tally: FileTally) -> dict[str, int]:
    return {
        "records": tally.records,
        "model_calls": tally.model_calls,
        "tool_calls": tally.tool_calls,
        "tool_results": tally.tool_results,
        "orphans": tally.orphan_calls + tally.orphan_results,
        "branches": tally.branches,
    }


def _expected(samples: Path) -> Iterator[tuple[Path, dict[str, int], dict[str, str]]]:
    for row in (samples / "EXPECTED.tsv").read_text().splitlines()[1:]:
        name, form, *numbers, extra = row.split("\t")
        if form == "codex":
            pairs = dict(part.strip().split("=") for part in extra.split(";"))
            counts = dict(zip(COLUMNS, map(int, numbers), strict=True))
            yield samples / "codex" / name, counts, pairs


# --- the counts of real rollouts


def test_every_sample_has_the_counts_of_its_oracle(samples: Path) -> None:
    rows = list(_expected(samples))
    assert len(rows) == 11
    for path, counts, extra in rows:
        _, tally = drafts_from(IMPORTER, path)
        assert _counts(tally) == counts, path.name
        assert tally.orphan_calls == int(extra.pop("orphan_calls", 0)), path.name
        assert {name: str(n) for name, n in tally.extra.items()} == extra, path.name


def test_every_sample_gives_a_session_with_the_own_counts_of_its_file(samples: Path) -> None:
    for path, counts, extra in _expected(samples):
        events = events_from(IMPORTER, path)
        summary = summarize(index_of(events), MemoryReader(events), None)
        calls = (summary.model_calls, summary.tool_calls, summary.tool_results)
        columns = COLUMNS[1:4]
        wanted = tuple(int(extra.get(f"own_{name}", counts[name])) for name in columns)
        assert calls == wanted, path.name
        assert (summary.branches, summary.roots) == (1, 1), path.name


def test_the_copied_history_of_a_real_fork_is_inherited_up_to_its_first_own_turn(
    samples: Path,
) -> None:
    drafts, tally = drafts_from(IMPORTER, samples / "codex/entire-gitsync-28-compacted-fork.jsonl")
    own = [draft for draft in drafts if FLAG_INHERITED not in draft.flags]
    assert own[0].kind is Kind.SESSION_STARTED
    assert {draft.id for draft in own if "/" not in draft.id} == {
        "line:1",
        *(f"line:{line}" for line in range(812, 993)),
    }
    assert tally.extra["own_events"] == 181


Lines = list[bytes]


def _find(lines: Lines, needle: bytes, number: int = 0) -> int:
    return [n for n, line in enumerate(lines) if needle in line][number]


def _cut_line(lines: Lines, needle: bytes) -> Lines:
    at = _find(lines, needle)
    return lines[:at] + lines[at + 1 :]


def _double_line(lines: Lines, needle: bytes) -> Lines:
    at = _find(lines, needle)
    return [*lines[: at + 1], *lines[at:]]


def _tear_line(lines: Lines, needle: bytes) -> Lines:
    at = _find(lines, needle)
    return [*lines[:at], lines[at][: len(lines[at]) // 2], *lines[at + 1 :]]


def _fuse_with_next(lines: Lines, needle: bytes) -> Lines:
    at = _find(lines, needle)
    return [*lines[:at], lines[at] + lines[at + 1], *lines[at + 2 :]]


def _insert_before(lines: Lines, needle: bytes, line: bytes) -> Lines:
    at = _find(lines, needle)
    return [*lines[:at], line, *lines[at:]]


CALL, RESULT = b'"type":"function_call"', b'"type":"function_call_output"'
CUSTOM, CUSTOM_RESULT = b'"type":"custom_tool_call"', b'"type":"custom_tool_call_output"'
END = b'"type":"exec_command_end"'
USER = b'{"type":"response_item","payload":{"type":"message","role":"user","content":[]}}'
NUL_BLOCK = b"\x00" * 512

# name, change, how the counts move, damaged lines
MUTATIONS: list[tuple[str, Callable[[Lines], Lines], dict[str, int], int]] = [
    (
        "a call removed",
        lambda ls: _cut_line(ls, CALL),
        {"records": -1, "tool_calls": -1, "orphans": 1},
        0,
    ),
    (
        "a result removed",
        lambda ls: _cut_line(ls, RESULT),
        {"records": -1, "tool_results": -1, "orphans": 1},
        0,
    ),
    (
        "a result doubled",
        lambda ls: _double_line(ls, RESULT),
        {"records": 1, "tool_results": 1},
        0,
    ),
    ("a call doubled", lambda ls: _double_line(ls, CALL), {"records": 1, "tool_calls": 1}, 0),
    (
        "a custom call removed",
        lambda ls: _cut_line(ls, CUSTOM),
        {"records": -1, "tool_calls": -1, "orphans": 1},
        0,
    ),
    (
        "a custom result doubled",
        lambda ls: _double_line(ls, CUSTOM_RESULT),
        {"records": 1, "tool_results": 1},
        0,
    ),
    ("an end message doubled", lambda ls: _double_line(ls, END), {"records": 1}, 0),
    ("an end message removed", lambda ls: _cut_line(ls, END), {"records": -1}, 0),
    (
        "a result torn",
        lambda ls: _tear_line(ls, RESULT),
        {"records": -1, "tool_results": -1, "orphans": 1},
        1,
    ),
    (
        "a call torn",
        lambda ls: _tear_line(ls, CALL),
        {"records": -1, "tool_calls": -1, "orphans": 1},
        1,
    ),
    (
        "an end message and the result after it fused",
        lambda ls: _fuse_with_next(ls, END),
        {"records": -2, "tool_results": -1, "orphans": 1},
        1,
    ),
    ("a message after the result", lambda ls: _insert_before(ls, RESULT, USER), {"records": 1}, 0),
    (
        "a message between a thought and its call",
        lambda ls: _insert_before(ls, CALL, USER),
        {"records": 1, "model_calls": 1},
        0,
    ),
    (
        "an unknown call",
        lambda ls: _insert_before(ls, RESULT, USER.replace(b'"message"', b'"odd_call"')),
        {"records": 1},
        0,
    ),
    ("a block of NUL", lambda ls: _insert_before(ls, RESULT, NUL_BLOCK), {}, 1),
    ("a bare string", lambda ls: _insert_before(ls, RESULT, b'"text"'), {}, 1),
    ("an empty line", lambda ls: _insert_before(ls, RESULT, b""), {}, 0),
]


@pytest.mark.parametrize(
    ("change", "moved", "n_damaged"),
    [mutation[1:] for mutation in MUTATIONS],
    ids=[mutation[0] for mutation in MUTATIONS],
)
def test_a_mutated_sample_moves_the_counts_by_exactly_that(
    samples: Path,
    tmp_path: Path,
    change: Callable[[Lines], Lines],
    moved: dict[str, int],
    n_damaged: int,
) -> None:
    original = samples / "codex/entire-ext-fc-v0123.jsonl"
    _, before = drafts_from(IMPORTER, original)
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(b"\n".join(change(original.read_bytes().split(b"\n"))))
    _, after = drafts_from(IMPORTER, copy)
    wanted = {name: count + moved.get(name, 0) for name, count in _counts(before).items()}
    assert _counts(after) == wanted
    assert len(after.damage) == n_damaged


# --- how a rollout is told and named


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_rollout_is_told_by_its_content(name: str) -> None:
    assert IMPORTER.sniff(source_of(GOLDEN / f"{name}.jsonl")) >= 70


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[1]",
        b'"text"',
        b'{"type":"session","id":"a","task":"t"}',
        b'{"type":"user","uuid":"u","sessionId":"s","message":{"role":"user","content":"hi"}}',
        b'{"type":"message","id":"1"}',
        b'{"resourceSpans":[]}',
    ],
)
def test_other_formats_are_left_alone_whatever_their_name(line: bytes) -> None:
    data = line + b"\n"
    assert IMPORTER.sniff(source_of(GOLDEN / "turn.jsonl", data)) == 0
    renamed = msgspec.structs.replace(
        source_of(GOLDEN / "turn.jsonl", data), path="rollout-1.jsonl"
    )
    assert IMPORTER.sniff(renamed) == 0


def test_a_first_line_longer_than_the_sniffed_head_is_still_told() -> None:
    text = "x" * 100_000
    payload = f'{{"id":"a","base_instructions":{{"text":"{text}"}}}}'
    line = f'{{"timestamp":"2026-02-03T04:05:06Z","type":"session_meta","payload":{payload}}}\n'
    assert IMPORTER.sniff(source_of(GOLDEN / "turn.jsonl", line.encode())) == 95
    longer = line.replace(text, text * 20)
    assert IMPORTER.sniff(source_of(GOLDEN / "turn.jsonl", longer.encode())) == 85
    other = line.replace("session_meta", "session")
    assert IMPORTER.sniff(source_of(GOLDEN / "turn.jsonl", other.encode())) == 0


def test_a_rollout_without_an_id_is_named_by_its_first_record() -> None:
    lines = (GOLDEN / "turn.jsonl").read_bytes().splitlines()[1:]
    drafts, _ = drafts_from(IMPORTER, GOLDEN / "turn.jsonl", b"\n".join(lines))
    assert drafts[0].session == hashlib.sha256(lines[0]).hexdigest()[:16]


def test_an_id_that_comes_late_names_what_stands_before_it() -> None:
    lines = (GOLDEN / "turn.jsonl").read_bytes().splitlines()
    late = b"\n".join([*lines[1:3], lines[0], *lines[3:]])
    drafts, _ = drafts_from(IMPORTER, GOLDEN / "turn.jsonl", late)
    assert {draft.session for draft in drafts} == {"019c2000-0000-7000-8000-00000000000a"}


def test_a_file_of_damage_alone_is_named_by_its_bytes() -> None:
    data = b"\x00\x00\n{\n"
    drafts, tally = drafts_from(IMPORTER, GOLDEN / "turn.jsonl", data)
    assert {draft.session for draft in drafts} == {hashlib.sha256(data).hexdigest()[:16]}
    assert (len(tally.damage), tally.records) == (2, 0)


def test_a_rollout_is_the_main_source_of_its_session() -> None:
    assert IMPORTER.role(source_of(GOLDEN / "fork.jsonl")) == "main"


def test_the_folders_of_an_installed_agent_are_found(tmp_path: Path) -> None:
    (tmp_path / ".codex/sessions/2026").mkdir(parents=True)
    assert IMPORTER.discover_roots(tmp_path) == (tmp_path / ".codex/sessions",)
    assert IMPORTER.discover_roots(tmp_path / "nobody") == ()


# --- hostile input

ODD_VALUES: list[Any] = [None, True, -1, 2**70, "", "\ud83d", [[]], {"type": []}]


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield from _paths(inner, (*path, key))


def _with(value: Any, path: tuple[str, ...], new: Any) -> Any:
    return {**value, path[0]: _with(value[path[0]], path[1:], new)} if path else new


@pytest.mark.parametrize("name", ["turn", "fork", "approvals", "legacy"])
def test_a_field_of_any_other_type_never_stops_a_file(name: str) -> None:
    lines = (GOLDEN / f"{name}.jsonl").read_text().splitlines()
    for line in lines:
        value = json.loads(line)
        for path in _paths(value):
            changed = [json.dumps(_with(value, path, odd)) for odd in ODD_VALUES]
            data = "\n".join([lines[0], *changed, *lines[-2:]]).encode()
            events = events_from(IMPORTER, GOLDEN / f"{name}.jsonl", data)
            assert [e for e in events if payload_of(e) is None] == []
            assert events[-1].source.offset > data.rindex(b"\n") - 1


def test_mutated_bytes_never_stop_a_file_and_give_the_same_drafts_twice() -> None:
    dice = random.Random(20260203)
    originals = [(GOLDEN / f"{name}.jsonl").read_bytes() for name in GOLDEN_NAMES]
    for number in range(300):
        data = bytearray(originals[number % len(originals)])
        for _ in range(dice.randrange(1, 12)):
            data[dice.randrange(len(data))] = dice.choice(b'\x00\n"{}[]:,\\\xff0aZ')
        first, tally = drafts_from(IMPORTER, "fuzz.jsonl", bytes(data))
        again, _ = drafts_from(IMPORTER, "fuzz.jsonl", bytes(data))
        assert first == again
        assert len({draft.id for draft in first}) == len(first)
        assert tally.records <= len(first)
