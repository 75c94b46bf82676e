"""Policy replay as a sealed worker does it: from stored segments to the answer that it sends.

Floor: decompress the same segments to lines, and decode each line untyped. Both run in turns in one
process that is sealed as a worker is; what takes the CPU time is taken hold of before the seal. The
third figure holds a session of 100,000 events against many of 200: each event may cost the same.
"""

import gc
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import zstandard

from benchmarks.data import event_lines
from benchmarks.paired import ROUNDS, Figure
from benchmarks.process import ROOT
from redrive.app.policy_loading import find_policy
from redrive.app.policy_messages import Load, Run, frame
from redrive.app.policy_worker import Channel, Worker
from redrive.record.event import Event
from redrive.stores.sqlite import open_store

N_SESSIONS, N_EVENTS, N_LONG = 500, 200, 100_000
LONG = "bench:long"
PASS_THROUGH, STREAKS = "PassThrough", "ErrorStreaks"
POLICIES = Path(__file__).with_name("policy_samples.py")
_cpu_s = time.process_time  # the seal replaces it


def fill(path: Path, sessions: dict[str, int]) -> None:
    """Store sessions of so many events each."""
    decode = msgspec.json.Decoder(Event).decode
    with closing(open_store(path, create=True)) as store, store.transaction():
        for seed, (session_id, n_events) in enumerate(sessions.items()):
            writer = store.create(session_id, "bench", 1)
            for line in event_lines(session_id, n_events, seed):
                writer.append(decode(line))
            writer.close()


def figures(*, is_quick: bool) -> Iterator[Figure]:
    """Measure a policy that looks at everything, one that works, and one long session."""
    n_sessions = N_SESSIONS // 10 if is_quick else N_SESSIONS
    n_long = N_LONG // 10 if is_quick else N_LONG
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        sessions = {f"bench:{number:04d}": N_EVENTS for number in range(n_sessions)}
        fill(path, sessions | {LONG: n_long})
        for row, policy, goal in (("P1", PASS_THROUGH, 1.0), ("P2", STREAKS, 1.1)):
            found = _run(path, policy, "floor")
            n_events = n_sessions * N_EVENTS
            name = f"{policy} over {n_sessions} sessions of {N_EVENTS} / decompress, untyped decode"
            yield _figure(row, name, found, goal, n_events)
        found = _run(path, STREAKS, "long")
        name = f"{STREAKS}, per event of one session of {n_long} / of {N_EVENTS}"
        yield _figure("P4", name, found, 1.25, n_sessions * N_EVENTS)


def _figure(row: str, name: str, found: dict[str, list[float]], goal: float, n: int) -> Figure:
    works, floors, fires = found["work"], found["floor"], found["fires"]
    ratios = [work / floor for work, floor in zip(works, floors, strict=True)]
    work_us, floor_us = statistics.median(works) * 1e6, statistics.median(floors) * 1e6
    basis = f"floor {floor_us:.2f}, work {work_us:.2f} µs CPU an event; {n} events"
    basis += f", {fires[0]:.0f} fires; {min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)}"
    return Figure(row, name, statistics.median(ratios), goal, f"{basis} rounds")


def _run(path: Path, policy: str, against: str) -> dict[str, list[float]]:
    settings = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = (sys.executable, "-m", "benchmarks.policies", path, policy, against)
    found = subprocess.run(
        command, env={**os.environ, **settings}, check=True, stdout=subprocess.PIPE
    )
    return dict(json.loads(found.stdout))


def _measure(path: Path, policy: str, against: str) -> dict[str, list[float]]:
    """Measure in a sealed process; seconds an event, one number a round."""
    names, segments = _read_floor(path)
    worker = Worker(
        Channel(0, 1), Load((find_policy(f"{POLICIES}:{policy}"),), str(path), memory_bytes=0)
    )
    loaded = worker.prepare()
    assert loaded.specs[0] is not None, loaded
    n_fires = 0

    def replay(chosen: Sequence[str]) -> Callable[[], int]:
        def work() -> int:
            nonlocal n_fires
            n_fires = n_events = 0
            for number, name in enumerate(chosen):
                finished = worker.replay(Run(name, number))
                assert finished.error is None, finished.error
                n_fires += len(finished.outcomes[0].fires)
                n_events += finished.events
                frame(finished)
            return n_events

        return work

    many = [name for name in names if name != LONG]
    decompress = _floor([data for name in many for data in segments[name]])
    work, floor = (
        (replay([LONG]), replay(many)) if against == "long" else (replay(many), decompress)
    )
    found: dict[str, list[float]] = {"work": [], "floor": [], "fires": []}
    for _ in range(ROUNDS):
        found["floor"].append(_time(floor))
        found["work"].append(_time(work))
        found["fires"].append(n_fires)
    return found


def _read_floor(path: Path) -> tuple[list[str], dict[str, list[bytes]]]:
    """Give the sessions' names, and each one's compressed segments."""
    segments: dict[str, list[bytes]] = {}
    with closing(sqlite3.connect(path)) as connection:
        for name, data in connection.execute(
            "SELECT session_id, data FROM segments s JOIN projections p ON p.id = s.projection "
            "ORDER BY p.id, first_seq"
        ):
            segments.setdefault(name, []).append(data)
    return list(segments), segments


def _floor(segments: Sequence[bytes]) -> Callable[[], int]:
    """Make the floor program: it keeps nothing that it decodes."""
    decode = msgspec.json.Decoder().decode

    def floor() -> int:
        n_events = 0
        for data in segments:
            for line in zstandard.ZstdDecompressor().decompress(data).split(b"\n")[:-1]:
                decode(line)
                n_events += 1
        return n_events

    return floor


def _time(work: Callable[[], int]) -> float:
    """Give CPU seconds an event, with the garbage collector off."""
    gc.collect()
    gc.disable()
    started = _cpu_s()
    n_events = work()
    spent = _cpu_s() - started
    gc.enable()
    return spent / n_events


if __name__ == "__main__":
    write = os.write  # the seal replaces it, and standard output
    write(1, json.dumps(_measure(Path(sys.argv[1]), *sys.argv[2:])).encode())
