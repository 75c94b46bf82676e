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
        yield from time_figures(folder, N_LINES // 5 if is_quick else N_LINES)
        yield from memory_figures(folder, HUGE_MB // 5 if is_quick else HUGE_MB)


def time_figures(folder: Path, n_lines: int) -> Iterator[Figure]:
    """Measure the import of one long session of short lines."""
    path = folder / "session.jsonl"
    with path.open("wb") as file:
        file.writelines(claude_lines(n_lines))
    size = path.stat().st_size
    shape = f"{n_lines} lines of about {size // n_lines} bytes"
    yield measure(
        "P10",
        f"projection of a file / (untyped decode + sha256), {shape}",
        lambda: project(path),
        lambda: decode_and_hash(path),
        goal=1.5,
        floor_bytes=size,
    )
    yield compare(
        "P10",
        "redrive import, with compression and store / (untyped decode + sha256), same file",
        lambda: import_file(path, folder).cpu_s,
        lambda: cpu_seconds(lambda: decode_and_hash(path)),
        goal=4,
        floor_bytes=size,
    )


def import_file(path: Path, folder: Path) -> Cost:
    """Import into a new store, as a process."""
    for old in folder.glob("store.db*"):
        old.unlink()
    cost = run((*REDRIVE, "--store", str(folder / "store.db"), "import", path, "--json"))
    assert cost.code == 0
    return cost


def memory_figures(folder: Path, megabytes: int) -> Iterator[Figure]:
    """Measure the peak memory of every verb that meets a huge session."""
    path = folder / "huge.jsonl"
    maker = ROOT / "tests" / "cases" / "58-huge-session" / "make_input.py"
    subprocess.run([sys.executable, maker, path, str(megabytes)], check=True, capture_output=True)
    with path.open("rb") as file:
        sizes = [len(line) for line in file]
    n_events = len(sizes) + 1
    bound_mb = BASE_MB + (LINES_HELD * max(sizes) + EVENT_BYTES * n_events) / 1e6
    basis = f"{megabytes} MB, {n_events} events, longest line {max(sizes) / 1e6:.1f} MB"
    cost = import_file(path, folder)
    yield Figure("P10", "peak memory of redrive import", cost.peak_mb, bound_mb, basis, " MB")
    for verb in ("audit", "cat", "show"):
        command = (*REDRIVE, "--store", str(folder / "store.db"), verb, HUGE_ID)
        cost = run(command)
        assert cost.code in (0, 3)
        yield Figure("P10", f"peak memory of redrive {verb}", cost.peak_mb, bound_mb, basis, " MB")
