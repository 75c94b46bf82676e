"""Bytes that nobody meant: an importer never raises anything but `RecordError`, and never wavers.

Each importer is fed damaged copies of every recording that it claims: flipped, removed, inserted
and repeated bytes, and pieces of other recordings, several changes in one copy.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive import canonical, plugins
from redrive.errors import RecordError
from redrive.importers.draft import Draft, FileTally, Importer
from redrive.record.trajectory import build_trajectory
from redrive.testing import MemorySource
from tests.helpers import events_of, index_of

FUZZ_S = 10 if os.environ.get("REDRIVE_SOAK") == "full" else 2
LARGEST_BYTES = 64 * 1024
IMPORTERS: dict[str, Importer] = plugins.load_all(plugins.IMPORTERS)
ROOT = Path(__file__).resolve().parents[1]
TOKENS = (
    *(b"\x00", b"\xff", b"\xef\xbb\xbf", b"\n", b"\r\n", b'"', b"\\", b"{", b"}", b"[", b"]"),
    *(b"null", b"true", b"-0", b"1e999", b"NaN", b"9" * 40, b'"\\ud800"', b"{}", b"[[[[" * 64),
)
Dice = Iterator[int]


class FuzzFailure(AssertionError):  # noqa: N818 - what was found, not a fault of the fuzzer
    """An importer raised or wavered; the message holds the importer, the file and the copy."""


def corpus_of(importer: Importer, folders: list[Path]) -> dict[str, bytes]:
    """Gather the small files of some folders that an importer claims, by name."""
    found = {}
    for path in sorted(path for folder in folders for path in folder.rglob("*.json*")):
        if path.stat().st_size <= LARGEST_BYTES:
            data = path.read_bytes()
            if importer.sniff(MemorySource(path.name, data)):
                found[f"{path.parent.name}/{path.name}"] = data
    return found


def flip(data: bytearray, dice: Dice, other: bytes) -> None:
    data[next(dice) % len(data)] ^= 1 << next(dice) % 8


def remove(data: bytearray, dice: Dice, other: bytes) -> None:
    start = next(dice) % len(data)
    del data[start : start + 1 + next(dice) % 64]


def insert(data: bytearray, dice: Dice, other: bytes) -> None:
    start = next(dice) % len(data)
    data[start:start] = TOKENS[next(dice) % len(TOKENS)]


def overwrite(data: bytearray, dice: Dice, other: bytes) -> None:
    token = TOKENS[next(dice) % len(TOKENS)]
    start = next(dice) % len(data)
    data[start : start + len(token)] = token


def repeat(data: bytearray, dice: Dice, other: bytes) -> None:
    start = next(dice) % len(data)
    data[start:start] = data[start : start + 1 + next(dice) % 400]


def splice(data: bytearray, dice: Dice, other: bytes) -> None:
    start, place = next(dice) % len(data), next(dice) % len(other)
    data[start:start] = other[place : place + 1 + next(dice) % 400]


def retype(data: bytearray, dice: Dice, other: bytes) -> None:
    """Replace one JSON value, found by its colon, by a value of another type."""
    colon = data.find(b":", next(dice) % len(data))
    end = min((p for p in (data.find(b",", colon), data.find(b"}", colon)) if p > 0), default=0)
    if 0 < colon < end:
        data[colon + 1 : end] = (b"7", b"null", b"[]", b"{}", b'""', b"true")[next(dice) % 6]


CHANGES: tuple[Callable[[bytearray, Dice, bytes], None], ...] = (
    *(flip, remove, insert, overwrite, repeat, splice),
    *(retype, retype, retype),
)


def damaged_copies(corpus: dict[str, bytes], seed: str) -> Iterator[tuple[str, bytes]]:
    """Yield (name and number, bytes) without end; the same ones for the same seed."""
    dice = canonical.stream(seed, "fuzz")
    names = list(corpus)
    number = 0
    while True:
        name, other = names[next(dice) % len(names)], corpus[names[next(dice) % len(names)]]
        data = bytearray(corpus[name])
        for _ in range(1 + next(dice) % 6):
            CHANGES[next(dice) % len(CHANGES)](data or bytearray(b"{}"), dice, other)
        number += 1
        yield f"{name}, copy {number} of seed {seed!r}", bytes(data)


def project(importer: Importer, source: MemorySource) -> tuple[list[Draft], FileTally] | str:
    """Read a source as an import does, whose detection asks every importer."""
    tally = FileTally()
    try:
        for known in (importer, *IMPORTERS.values()):
            known.sniff(source)
        importer.role(source)
        return list(importer.project(source, tally)), tally
    except RecordError as error:
        return str(error)


def walk(drafts: list[Draft]) -> None:
    """Index each session and walk each of its flows, as every verb does."""
    for session in {draft.session for draft in drafts}:
        index = index_of(events_of(draft for draft in drafts if draft.session == session))
        for actor in index.actors:
            build_trajectory(index, actor=actor)


def fuzz(importer: Importer, corpus: dict[str, bytes], seconds: float) -> int:
    """Feed an importer damaged copies for some time; give how many.

    Raises:
        FuzzFailure: it raised, or the same bytes gave another result the second time.
    """
    until, count = time.monotonic() + seconds, 0
    for name, data in damaged_copies(corpus, "1"):
        source = MemorySource(name, data)
        try:
            first = project(importer, source)
            second = project(importer, source)
            if isinstance(first, tuple):
                walk(first[0])
        except Exception as error:
            raise FuzzFailure(
                f"{importer.name}: {name}: {type(error).__name__}: {error}"
            ) from error
        if first != second:
            raise FuzzFailure(f"{importer.name}: {name}: the second result is another")
        count += 1
        if time.monotonic() > until:
            break
    return count


def own_corpus(name: str) -> dict[str, bytes]:
    folders = [ROOT / "cases", ROOT / "golden"]
    named = os.environ.get("REDRIVE_SAMPLES")
    samples = Path(named) if named else ROOT.parent.parent / "shared" / "samples"
    if (samples / name).is_dir():
        folders.append(samples / name)
    return corpus_of(IMPORTERS[name], folders)


@pytest.mark.parametrize("name", sorted(IMPORTERS))
def test_an_importer_survives_any_bytes_and_reads_them_alike_twice(name: str) -> None:
    corpus = own_corpus(name)
    if not corpus:
        pytest.skip(f"no recording of {name} is ours to keep: set REDRIVE_SAMPLES")
    assert fuzz(IMPORTERS[name], corpus, FUZZ_S) > 20


class _Fragile:
    """A planted defect: raises where one line's `type` is a number."""

    name, version = "fragile", 1

    def sniff(self, source: MemorySource) -> int:
        return 1

    def role(self, source: MemorySource) -> str:
        return "main"

    def project(self, source: MemorySource, tally: FileTally) -> Iterator[Draft]:
        for line in source.data.splitlines():
            try:
                value = canonical.decode_value(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                str.lower(value.get("type", ""))
        yield from ()


class _Wavering(_Fragile):
    """A planted defect: counts how often it was asked."""

    name = "wavering"

    def __init__(self) -> None:
        self.asked = 0

    def project(self, source: MemorySource, tally: FileTally) -> Iterator[Draft]:
        self.asked += 1
        tally.records = self.asked
        yield from ()


@pytest.mark.parametrize("importer", [_Fragile(), _Wavering()])
def test_the_fuzzer_finds_an_importer_that_raises_or_wavers(importer: Importer) -> None:
    corpus = {"a": b'{"type": "user", "id": "1"}\n' * 8}
    with pytest.raises(FuzzFailure):
        fuzz(importer, corpus, FUZZ_S)
