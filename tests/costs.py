"""What holds of a cost whatever machine it is paid on: how it grows with the size of the work."""

import time
from collections.abc import Callable

GROWTH = 8
"""How many times larger the large work is."""

_MOST = 4 * GROWTH
_TRIES = 5
_LEAST_S = 0.001


def grows_linearly(work: Callable[[int], object], size: int) -> bool:
    """Say whether work of eight times the size costs about eight times as much, and not 64 times.

    A machine that is busy elsewhere makes one measurement useless, hence a few tries, of which
    the first that is good counts. How long the work takes is no claim: benchmarks measure it.

    Args:
        work: takes a size; called with `size` and with `GROWTH` times as much.
        size: at which the work takes some milliseconds.
    """
    smallest_s = float("inf")
    for _ in range(_TRIES):
        smallest_s = min(smallest_s, _spent_s(work, size))
        if _spent_s(work, GROWTH * size) <= _MOST * max(smallest_s, _LEAST_S):
            return True
    return False


def _spent_s(work: Callable[[int], object], size: int) -> float:
    begun_s = time.process_time()
    work(size)
    return time.process_time() - begun_s
