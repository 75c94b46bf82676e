"""Measures a piece of work against its floor, in paired rounds of CPU time.

Machines are shared and noisy, so only the ratio counts: the median over the rounds.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured ratio: its name, its median, both median CPU times in seconds, the goal."""

    name: str
    ratio: float
    work_s: float
    floor_s: float
    goal: float


def cpu_seconds(work: Callable[[], object], inner: int = 1) -> float:
    """Run something `inner` times with the garbage collector off; give CPU seconds per run."""
    gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        for _ in range(inner):
            work()
        return (time.process_time() - started) / inner
    finally:
        gc.enable()


def measure(
    name: str,
    work: Callable[[], object],
    floor: Callable[[], object],
    *,
    goal: float,
    rounds: int = ROUNDS,
    inner: int = 1,
) -> Figure:
    """Measure work and floor alternately; the ratio is the median of the paired ratios."""
    works, floors = [], []
    for _ in range(rounds):
        floors.append(cpu_seconds(floor, inner))
        works.append(cpu_seconds(work, inner))
    ratio = statistics.median(w / f for w, f in zip(works, floors, strict=True))
    return Figure(name, ratio, statistics.median(works), statistics.median(floors), goal)


def report(figure: Figure) -> None:
    """Print one line."""
    word = "ok" if figure.ratio <= figure.goal else "MISSED"
    print(
        f"{figure.name}: {figure.ratio:.2f}x (goal {figure.goal:.2f}x, {word}); "
        f"{figure.work_s * 1e3:.2f} ms against {figure.floor_s * 1e3:.2f} ms"
    )
