import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive.importers.claude_code import IMPORTER
from redrive.importers.draft import FileTally
from tests.claude_files import SESSION, assistant, call, dump, result, text, user
from tests.helpers import drafts_from, events_from, index_of

COLUMNS = ("n_events", "n_model_calls", "n_tool_calls", "n_tool_results", "n_orphans", "n_branches")
FIELDS_OF_THE_TALLY = {"orphan_calls", "orphan_results"}


def counts_of(tally: FileTally) -> tuple[int, ...]:
    orphans = tally.orphan_calls + tally.orphan_results
    return (
        tally.records,
        tally.model_calls,
        tally.tool_calls,
        tally.tool_results,
        orphans,
        tally.branches,
    )


def oracle_rows(samples: Path) -> list[dict[str, str]]:
    with (samples / "EXPECTED.tsv").open() as file:
        rows = [r for r in csv.DictReader(file, delimiter="\t") if r["format"] == "claude_code"]
    assert len(rows) == 14
    return rows


def test_every_sample_has_the_counts_of_its_oracle(samples: Path) -> None:
    for row in oracle_rows(samples):
        _, tally = drafts_from(IMPORTER, samples / "claude_code" / row["file"])
        assert counts_of(tally) == tuple(int(row[name]) for name in COLUMNS), row["file"]
        extra = dict(item.split("=") for item in row["extra"].split("; "))
        wanted = {k: int(v) for k, v in extra.items() if k not in FIELDS_OF_THE_TALLY}
        assert {**tally.extra, **wanted} == tally.extra, row["file"]
        for name in ("orphan_calls", "orphan_results"):
            assert getattr(tally, name) == int(extra.get(name, 0)), row["file"]


def test_every_sample_gives_unique_event_ids_one_session_and_a_first_event(samples: Path) -> None:
    for row in oracle_rows(samples):
        path = samples / "claude_code" / row["file"]
        found = events_from(IMPORTER, path)
        assert len({event.id for event in found}) == len(found)
        assert len({event.session_id for event in found}) == 1
        is_main = "subagents" not in row["file"]
        assert (found[0].kind == "session.started") is is_main
        offsets = [event.source.offset for event in found[is_main:]]
        assert offsets == sorted(offsets)
        assert index_of(found).node_ids


# --- twenty mutated copies: the counts move by exactly what was changed ------------------------

Mutation = Callable[[list[bytes]], list[bytes]]


def has(data: bytes, kind: str, block: str) -> bool:
    try:
        value = json.loads(data)
    except ValueError:
        return False
    content = value.get("message", {}).get("content") if value.get("type") == kind else None
    return isinstance(content, list) and any(b.get("type") == block for b in content)


def find(lines: list[bytes], kind: str, block: str, nth: int) -> int:
    return [n for n, data in enumerate(lines) if has(data, kind, block)][nth]


def remove_call(nth: int) -> Mutation:
    """Empty the content of the nth line with a call: its answer, if it has more, stays."""

    def mutate(lines: list[bytes]) -> list[bytes]:
        place = find(lines, "assistant", "tool_use", nth)
        value = json.loads(lines[place])
        value["message"]["content"] = []
        return [*lines[:place], json.dumps(value).encode(), *lines[place + 1 :]]

    return mutate


def double_result(nth: int) -> Mutation:
    def mutate(lines: list[bytes]) -> list[bytes]:
        place = find(lines, "user", "tool_result", nth)
        value = {**json.loads(lines[place]), "uuid": f"doubled-{nth}"}
        return [*lines[: place + 1], json.dumps(value).encode(), *lines[place + 1 :]]

    return mutate


def add_branch(nth: int) -> Mutation:
    """Add two user messages beside what follows the nth line with a result."""

    def mutate(lines: list[bytes]) -> list[bytes]:
        value = json.loads(lines[find(lines, "user", "tool_result", nth)])
        leaf = {**value, "parentUuid": value["uuid"], "message": {"role": "user", "content": "x"}}
        leaf.pop("isMeta", None)
        added = [json.dumps({**leaf, "uuid": f"branch-{n}"}).encode() for n in range(2)]
        return [*lines, *added]

    return mutate


def cut_line(nth: int) -> Mutation:
    def mutate(lines: list[bytes]) -> list[bytes]:
        place = find(lines, "user", "tool_result", nth)
        return [*lines[:place], lines[place][:-20], *lines[place + 1 :]]

    return mutate


def fuse_lines(nth: int) -> Mutation:
    """Fuse the nth line with a result with a snapshot, which no other count knows."""

    def mutate(lines: list[bytes]) -> list[bytes]:
        place = find(lines, "user", "tool_result", nth)
        return [*lines[:place], lines[place] + b'{"type":"mode"}', *lines[place + 1 :]]

    return mutate


def orphan_result(nth: int) -> Mutation:
    def mutate(lines: list[bytes]) -> list[bytes]:
        place = find(lines, "user", "tool_result", nth)
        value = json.loads(lines[place])
        value["message"]["content"][0]["tool_use_id"] = "toolu_never_called"
        return [*lines[:place], json.dumps(value).encode(), *lines[place + 1 :]]

    return mutate


# The oracle's file has linear history and one call and result a line: each change moves one fact.
LINEAR = "entire-cli-9f-v2064-errors.jsonl"
LOST_RESULT = {"n_events": -1, "n_tool_results": -1, "n_orphans": 1}
KINDS: list[tuple[str, Callable[[int], Mutation], dict[str, int], tuple[int, ...]]] = [
    ("call removed", remove_call, {"n_tool_calls": -1, "n_orphans": 1}, (3, 20, 41, 60)),
    ("result doubled", double_result, {"n_events": 1, "n_tool_results": 1}, (0, 17, 39, 65)),
    ("line cut", cut_line, LOST_RESULT, (0, 11, 33, 52)),
    ("lines fused", fuse_lines, LOST_RESULT, (5, 30, 64)),
    ("result of no call", orphan_result, {"n_orphans": 2}, (8, 50)),
    ("branches added", add_branch, {"n_events": 2, "n_branches": 2}, (2, 25, 47)),
]
MUTATIONS = [(f"{name} {n}", kind(n), moves) for name, kind, moves, at in KINDS for n in at]


@pytest.mark.parametrize(("name", "mutate", "moves"), MUTATIONS, ids=[m[0] for m in MUTATIONS])
def test_a_mutated_copy_moves_the_counts_by_exactly_its_change(
    samples: Path, tmp_path: Path, name: str, mutate: Mutation, moves: dict[str, int]
) -> None:
    source = samples / "claude_code" / LINEAR
    before = dict(zip(COLUMNS, counts_of(drafts_from(IMPORTER, source)[1]), strict=True))
    copy = tmp_path / LINEAR
    copy.write_bytes(b"\n".join(mutate(source.read_bytes().splitlines())) + b"\n")
    drafts, tally = drafts_from(IMPORTER, copy)
    after = dict(zip(COLUMNS, counts_of(tally), strict=True))
    changed = {key: after[key] - before[key] for key in after if after[key] != before[key]}
    assert changed == moves
    assert len(tally.damage) == ("line" in name)
    results = [draft for draft in drafts if draft.kind == "tool.result"]
    recovered = 1 if "fused" in name else 0
    assert len(results) == tally.tool_results + recovered


def test_there_are_twenty_mutated_copies() -> None:
    assert len(MUTATIONS) == 20


# --- the rules, one by one ---------------------------------------------------------------------


def tally_of(*lines: dict[str, Any]) -> FileTally:
    return drafts_from(IMPORTER, f"{SESSION}.jsonl", dump(lines))[1]


def test_an_answer_in_pieces_is_one_model_call_and_no_branch() -> None:
    tally = tally_of(
        user(1, None, "Go"),
        assistant(2, 1, call("c1"), answer="m"),
        assistant(3, 2, call("c2"), answer="m"),
        user(4, 2, [result("c1")]),
    )
    assert (tally.model_calls, tally.tool_calls, tally.branches) == (1, 2, 1)
    assert tally.extra["forks"] == 1


def test_synthetic_and_error_lines_are_no_model_calls() -> None:
    tally = tally_of(
        assistant(1, None, text("No response requested."), model="<synthetic>"),
        assistant(2, 1, text("API Error: 529"), isApiErrorMessage=True),
        assistant(3, 2, text("Real")),
    )
    assert (tally.model_calls, tally.extra["synthetic"]) == (1, 1)


def test_a_line_that_is_its_own_parent_is_neither_root_nor_child() -> None:
    tally = tally_of(user(1, 1, "x"))
    assert tally.extra == {"sessions": 1, "leaves": 1, "events_tolerant": tally.records}


def test_a_call_without_an_id_counts_as_one_id() -> None:
    no_id = {"type": "tool_use", "name": "Bash", "input": {}}
    tally = tally_of(assistant(1, None, no_id, no_id), user(2, 1, [result("c1")]))
    assert (tally.tool_calls, tally.orphan_calls, tally.orphan_results) == (2, 1, 1)


def test_a_session_of_images_and_chatter_counts_as_its_generator_says(
    cases: Path, tmp_path: Path
) -> None:
    big = tmp_path / "big.jsonl"
    maker = cases / "58-huge-session" / "make_input.py"
    made = subprocess.run(
        [sys.executable, str(maker), str(big), "10"], capture_output=True, check=True
    )
    want = json.loads(made.stdout)
    drafts, tally = drafts_from(IMPORTER, big)
    assert tally.records == want["lines"]
    assert tally.extra["images"] == want["image_results"]
    assert tally.extra["sidechain"] == want["sidechain_lines"]
    nodes = {draft.node_id for draft in drafts if draft.actor == "main" and draft.node_id}
    assert len(nodes) == want["main_messages"]
