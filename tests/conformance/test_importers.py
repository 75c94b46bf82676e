"""Runs the checks that every importer must pass on every importer that is registered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive import plugins
from redrive.importers.draft import Importer
from redrive.testing import MemorySource, check_importer

ROOT = Path(__file__).resolve().parents[1]
LINE_FORMATS = frozenset({"claude_code", "codex", "interchange"})
IMPORTERS: dict[str, Importer] = plugins.load_all(plugins.IMPORTERS)
LARGEST_BYTES = 1024 * 1024


def _find_importer(path: Path) -> Importer | None:
    source = MemorySource(str(path), path.read_bytes())
    rated = sorted((importer.sniff(source), name) for name, importer in IMPORTERS.items())
    return IMPORTERS[rated[-1][1]] if rated and rated[-1][0] > 0 else None


def _own_files() -> Iterator[tuple[str, Path]]:
    """List the recordings of the suite that an importer claims."""
    folders = (ROOT / "cases", ROOT / "golden")
    for path in sorted(path for folder in folders for path in folder.rglob("*.json*")):
        if path.stat().st_size > LARGEST_BYTES or path.name.startswith(("expected", "shadow")):
            continue
        importer = _find_importer(path)
        if importer is not None:
            yield importer.name, path


OWN_FILES = list(_own_files())


@pytest.mark.parametrize(
    ("name", "path"), OWN_FILES, ids=[f"{n}-{p.parent.name}-{p.name}" for n, p in OWN_FILES]
)
def test_an_importer_keeps_its_promises_on_a_file_and_on_damaged_copies(
    name: str, path: Path
) -> None:
    check_importer(IMPORTERS[name], path, records_are_lines=name in LINE_FORMATS, n_mutations=24)


def test_every_importer_that_is_registered_loads_and_has_a_file_here() -> None:
    assert set(IMPORTERS) == set(plugins.names(plugins.IMPORTERS))
    without_files = {"openinference"}  # no recording of it is ours to keep in this repository
    assert {name for name, _ in OWN_FILES} >= set(IMPORTERS) - without_files


@pytest.mark.parametrize("name", sorted(IMPORTERS))
def test_an_importer_keeps_its_promises_on_third_party_recordings(samples: Path, name: str) -> None:
    files = [
        path
        for path in sorted((samples / name).rglob("*.json*"))
        if path.stat().st_size <= LARGEST_BYTES
    ]
    for path in files:
        if IMPORTERS[name].sniff(MemorySource(str(path), path.read_bytes())):
            is_lines = name in LINE_FORMATS
            check_importer(IMPORTERS[name], path, records_are_lines=is_lines, n_mutations=4)


@pytest.mark.parametrize("name", sorted(IMPORTERS))
@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\n", b"\x00", b"{", b"[]", b"null", b"\xff\xfe", b"{}"),
        b'{"type": {}, "id": "1"}',
        b'{"type": [], "payload": {}, "timestamp": "2026-03-02T09:00:00Z"}',
    ],
)
def test_no_importer_claims_a_file_without_content(name: str, data: bytes) -> None:
    assert IMPORTERS[name].sniff(MemorySource("empty.jsonl", data)) == 0
