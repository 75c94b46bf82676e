"""Measures a piece of work against its floor, in paired rounds of CPU time.

Machines are shared and noisy, so only the ratio counts: the median over the rounds. A floor keeps
nothing that it decodes.
"""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured row.

    Attributes:
        row: the goal it belongs to, such as `P5`.
        name: work / floor.
        value: the median ratio, or megabytes.
        goal: what `value` may be at most.
        basis: what stands beside it: the floor's own speed, CPU times, rounds.
        unit: `x` or ` MB`.
    """

    row: str
    name: str
    value: float
    goal: float
    basis: str
    unit: str = "x"

    @property
    def is_met(self) -> bool:
        """Whether the goal is met."""
        return self.value <= self.goal


def line_of(figure: Figure) -> str:
    """Write a figure as its one line."""
    value, goal = f"{figure.value:.2f}{figure.unit}", f"{figure.goal:.2f}{figure.unit}"
    word = "pass" if figure.is_met else "MISS"
    return f"{figure.row:<7} {word} {value:>10}  goal {goal:>10}  {figure.name}  [{figure.basis}]"


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
    row: str,
    name: str,
    work: Callable[[], object],
    floor: Callable[[], object],
    *,
    goal: float,
    floor_bytes: int = 0,
    inner: int = 1,
) -> Figure:
    """Measure work and floor alternately.

    Args:
        row: the goal's number.
        name: what is compared with what.
        work: what is measured.
        floor: what it is measured against.
        goal: the ratio it may have at most.
        floor_bytes: what the floor reads, to state its speed; 0 where that says nothing.
        inner: runs per round, for what takes less than about 10 ms.
    """
    return compare(
        row,
        name,
        lambda: cpu_seconds(work, inner),
        lambda: cpu_seconds(floor, inner),
        goal=goal,
        floor_bytes=floor_bytes,
    )


def compare(
    row: str,
    name: str,
    work: Callable[[], float],
    floor: Callable[[], float],
    *,
    goal: float,
    floor_bytes: int = 0,
    clock: str = "CPU",
) -> Figure:
    """Compare two measurements of seconds; the value is the median of the paired ratios.

    Args:
        row: the goal's number.
        name: what is compared with what.
        work: measures once what is measured.
        floor: measures once what it is measured against.
        goal: the ratio it may have at most.
        floor_bytes: what the floor reads, to state its speed; 0 where that says nothing.
        clock: whose seconds these are.
    """
    works, floors = [], []
    for _ in range(ROUNDS):
        floors.append(floor())
        works.append(work())
    ratio = statistics.median(w / f for w, f in zip(works, floors, strict=True))
    work_s, floor_s = statistics.median(works), statistics.median(floors)
    speed = f" at {floor_bytes / floor_s / 1e6:.0f} MB/s" if floor_bytes else ""
    basis = f"floor {_time(floor_s)}{speed}; work {_time(work_s)} {clock}; median of {ROUNDS}"
    return Figure(row, name, ratio, goal, basis)


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} µs"
    return f"{seconds * 1e3:.1f} ms"
