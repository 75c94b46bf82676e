"""P10: importing a large file, in time and in memory.

Floor: each line decoded without a type, and the whole hashed. Measured are the projection alone
(the same hash, and the drafts of every line), and whole processes: `redrive import` with its
compression and store, and the verbs that read what it stored.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.data import claude_lines
from benchmarks.paired import Figure, compare, cpu_seconds, measure
from benchmarks.process import REDRIVE, ROOT, Cost, run
from redrive.app.sources import FileSource
from redrive.importers.claude_code import IMPORTER
from redrive.importers.draft import FileTally

N_LINES = 100_000
HUGE_MB = 150
BASE_MB, EVENT_BYTES, LINES_HELD = 64, 300, 4
HUGE_ID = "claude_code:5e55a000-0000-4000-8000-000000000058"
_decode_any = msgspec.json.Decoder().decode


def decode_and_hash(path: Path) -> None:
    """Decode every line and hash the file; keep nothing."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for line in file:
            digest.update(line)
            _decode_any(line)
    digest.hexdigest()


def project(path: Path) -> None:
    """Hash the file and project it; keep nothing."""
    source = FileSource(path)
    source.hash_prefixes(())
    for _ in IMPORTER.project(source, FileTally()):
        pass


def figures(*, is_quick: bool) -> Iterator[Figure]:
    """Measure P10."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = make_long(folder, N_LINES // 5 if is_quick else N_LINES)
        yield from time_figures(path, "short lines")
        path = make_huge(folder, HUGE_MB // 5 if is_quick else HUGE_MB)
        yield from time_figures(path, "case 58")
        yield from memory_figures(path)


def make_long(folder: Path, n_lines: int) -> Path:
    """Write a long session of short lines."""
    path = folder / "long.jsonl"
    with path.open("wb") as file:
        file.writelines(claude_lines(n_lines))
    return path


def make_huge(folder: Path, megabytes: int) -> Path:
    """Write case 58's session: sub-agent lines, and images inside tool results."""
    path = folder / "huge.jsonl"
    maker = ROOT / "tests" / "cases" / "58-huge-session" / "make_input.py"
    subprocess.run([sys.executable, maker, path, str(megabytes)], check=True, capture_output=True)
    return path


def time_figures(path: Path, shape: str) -> Iterator[Figure]:
    """Measure the import of one file, its projection alone and as a whole."""
    size = path.stat().st_size
    name = f"(untyped decode + sha256), {shape}, {size / 1e6:.0f} MB"
    yield measure(
        "P10",
        f"projection of a file / {name}",
        lambda: project(path),
        lambda: decode_and_hash(path),
        goal=1.5,
        floor_bytes=size,
    )
    yield compare(
        "P10",
        f"redrive import, with compression and store / {name}",
        lambda: import_file(path).cpu_s,
        lambda: cpu_seconds(lambda: decode_and_hash(path)),
        goal=4,
        floor_bytes=size,
    )


def import_file(path: Path) -> Cost:
    """Import into a new store beside the file, as a process."""
    for old in path.parent.glob("store.db*"):
        old.unlink()
    cost = run((*REDRIVE, "--store", path.parent / "store.db", "import", path, "--json"))
    assert cost.code == 0
    return cost


def memory_figures(path: Path) -> Iterator[Figure]:
    """Measure the peak memory of every verb that meets a huge session."""
    with path.open("rb") as file:
        sizes = [len(line) for line in file]
    n_events = len(sizes) + 1
    bound_mb = BASE_MB + (LINES_HELD * max(sizes) + EVENT_BYTES * n_events) / 1e6
    longest = f"longest line {max(sizes) / 1e6:.1f} MB"
    basis = f"{sum(sizes) / 1e6:.0f} MB, {n_events} events, {longest}"
    cost = import_file(path)
    yield Figure("P10", "peak memory of redrive import", cost.peak_mb, bound_mb, basis, " MB")
    for verb in ("audit", "cat", "show"):
        cost = run((*REDRIVE, "--store", path.parent / "store.db", verb, HUGE_ID))
        assert cost.code in (0, 3)
        yield Figure("P10", f"peak memory of redrive {verb}", cost.peak_mb, bound_mb, basis, " MB")
