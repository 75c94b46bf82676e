"""Where the runs of a trial are made: threads of this process, each with its sandboxed processes.

An executor starts a run once and never again by itself: what is started twice is paid twice, so the
ledger alone decides. Knows jobs and futures. Must not know plans, money or order.

Source: DESIGN.md §6 "`Executor` protocol".
"""

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from redrive.app.trial_ports import Account, EpisodeJob, RunEpisode
from redrive.replay.trial_values import EpisodeEnd


class Executor(Protocol):
    """Makes runs, as many at the same time as it has room for."""

    @property
    def n_parallel(self) -> int:
        """How many runs it makes at the same time; at least 1."""
        ...

    def start(
        self, job: EpisodeJob, account: Account, stop: threading.Event
    ) -> "Future[EpisodeEnd]":
        """Start a run, once; what it raises reaches who asks the future for its result."""
        ...

    def close(self) -> None:
        """Wait for what runs, and release what is held. Idempotent."""
        ...


class LocalExecutor:
    """Runs on this machine.

    Args:
        episode: makes one run.
        n_parallel: runs at the same time; 0 for as many as this process may use processors.
    """

    def __init__(self, episode: RunEpisode, n_parallel: int = 0) -> None:
        self._episode = episode
        self._n_parallel = n_parallel or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self._n_parallel, thread_name_prefix="trial-run")

    @property
    def n_parallel(self) -> int:
        """How many runs are made at the same time."""
        return self._n_parallel

    def start(
        self, job: EpisodeJob, account: Account, stop: threading.Event
    ) -> "Future[EpisodeEnd]":
        """Start a run in a thread that is free."""
        return self._pool.submit(self._episode, job, account, stop)

    def close(self) -> None:
        """Wait for what runs."""
        self._pool.shutdown()
