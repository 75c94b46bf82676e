"""Each check is shown to fail: an importer that breaks one promise is refused by name."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive.importers.draft import Draft, FileTally, SourceFile
from redrive.importers.interchange import IMPORTER
from redrive.record.event import Damage, Kind, Note
from redrive.testing import ConformanceError, MemorySource, check_importer
from redrive.testing.importers import count_strict_lines, mutations

Change = Callable[[list[Draft], FileTally], list[Draft]]


class Changed:
    """The interchange importer, with something done to what it gives."""

    name = "changed"
    version = 1

    def __init__(self, change: Change, **answers: Any) -> None:
        self.change = change
        self.answers = answers

    def sniff(self, source: SourceFile) -> int:
        return self.answers.get("sniff", IMPORTER.sniff(source))

    def role(self, source: SourceFile) -> str:
        return self.answers.get("role", "main")

    def project(self, source: SourceFile, tally: FileTally) -> Iterator[Draft]:
        yield from self.change(list(IMPORTER.project(source, tally)), tally)


def _edit(**fields: Any) -> Change:
    """Edit the last draft."""

    def change(drafts: list[Draft], _: FileTally) -> list[Draft]:
        return [*drafts[:-1], msgspec.structs.replace(drafts[-1], **fields)] if drafts else drafts

    return change


def _same(drafts: list[Draft], _: FileTally) -> list[Draft]:
    return drafts


def _drop_damage(drafts: list[Draft], _: FileTally) -> list[Draft]:
    return [draft for draft in drafts if draft.kind is not Kind.DAMAGE]


def _count_one_more(drafts: list[Draft], tally: FileTally) -> list[Draft]:
    tally.records += 1
    return drafts


def _twice(drafts: list[Draft], _: FileTally) -> list[Draft]:
    return [*drafts, *drafts[-1:]]


def _refuse_damage(drafts: list[Draft], tally: FileTally) -> list[Draft]:
    if tally.damage:
        raise ValueError("bad line")
    return drafts


class _EachTime:
    """Gives other values at each call."""

    def __init__(self) -> None:
        self.calls = 0

    def drafts(self, drafts: list[Draft], _: FileTally) -> list[Draft]:
        self.calls += 1
        return _edit(ts_ns=self.calls)(drafts, _)

    def tally(self, drafts: list[Draft], tally: FileTally) -> list[Draft]:
        self.calls += 1
        tally.model_calls = self.calls
        return drafts


@pytest.fixture
def session(cases: Path) -> Path:
    return cases / "25-polled-identical-calls" / "session.jsonl"


def test_an_importer_that_keeps_every_promise_passes(session: Path) -> None:
    check_importer(Changed(_same), session, records_are_lines=True)


@pytest.mark.parametrize(
    ("change", "promise"),
    [
        (_drop_damage, "damage drafts and tally.damage differ"),
        (_count_one_more, "strict lines"),
        (_twice, "two drafts have the id"),
        (_refuse_damage, "raised ValueError: bad line"),
        (_EachTime().drafts, "other drafts the second time"),
        (_EachTime().tally, "another tally the second time"),
        (_edit(offset=10**9), "lie outside"),
        (_edit(length=-1), "lie outside"),
        (_edit(session=""), "must not be empty"),
        (_edit(id=""), "must not be empty"),
        (_edit(actor="\ud83d"), "actor holds a lone surrogate"),
        (_edit(ts_ns=2**63), "ts_ns is beyond 64 bits"),
        (_edit(node_id="", parent_id="p"), "a parent_id without a node_id"),
        (_edit(node_id="n", parent_id="n"), "its own parent"),
        (_edit(kind=Kind.NOTE), "payload is no Note"),
        (_edit(kind=Kind.NOTE, payload=Note("n"), call_id="c"), "a call_id on note"),
        (_edit(kind=Kind.NOTE, payload=Note("n"), group="g"), "a group on note"),
        (_edit(supersedes="nobody"), "supersedes 'nobody', never given"),
        (
            _edit(kind=Kind.NOTE, payload=Note("n", data=msgspec.Raw(b"{")), call_id=None),
            "payload",
        ),
    ],
)
def test_an_importer_that_breaks_a_promise_is_refused(
    session: Path, change: Change, promise: str
) -> None:
    with pytest.raises(ConformanceError, match="changed on ") as raised:
        check_importer(Changed(change), session, records_are_lines=True)
    assert promise in str(raised.value)


@pytest.mark.parametrize(
    ("answers", "promise"),
    [
        ({"sniff": 0}, "does not claim"),
        ({"sniff": 101}, "does not claim"),
        ({"role": ""}, "role() gives an empty text"),
    ],
)
def test_sniff_and_role_are_checked(session: Path, answers: dict[str, Any], promise: str) -> None:
    with pytest.raises(ConformanceError) as raised:
        check_importer(Changed(_same, **answers), session)
    assert promise in str(raised.value)


def test_a_companion_may_replace_what_another_source_gave(session: Path) -> None:
    check_importer(Changed(_edit(supersedes="elsewhere"), role="logs"), session, n_mutations=0)


def test_a_file_of_damage_alone_needs_no_drafts(session: Path) -> None:
    def drop_all(_: list[Draft], __: FileTally) -> list[Draft]:
        return []

    check_importer(Changed(drop_all), session)


def test_damaged_copies_differ_from_the_file_and_are_the_same_each_time(session: Path) -> None:
    data = session.read_bytes()
    copies = list(mutations(data, 40))
    assert copies == list(mutations(data, 40))
    assert len(set(copies) - {data}) > 30
    assert list(mutations(b"", 8)) is not None


def test_strict_lines_are_those_of_exactly_one_object() -> None:
    data = b'{"a":1}\n\n{"a":1}{"b":2}\n[1]\n{"c"\n{"d":4}'
    assert count_strict_lines(MemorySource("x", data)) == 2


def test_damage_that_only_the_drafts_name_is_refused(session: Path) -> None:
    damage = Damage(1, 0, 1, "odd")

    def add(drafts: list[Draft], _: FileTally) -> list[Draft]:
        return [*drafts, Draft("s", "damage", Kind.DAMAGE, damage, 0, 1)]

    with pytest.raises(ConformanceError, match="damage drafts and tally"):
        check_importer(Changed(add), session, n_mutations=0)
