"""Hands events to a journal in groups, from one thread of its own, and never fails the agent.

Knows threads, time and the journal's promise. Must not know stores, nor what the events mean.

A put returns at once; one thread takes what waits and commits it: at most 64 events together, and
none waits longer than 200 ms. Whoever must know that something is durable flushes. The first write
that fails poisons the recorder: nothing is written after it, `fault` says why and how much is lost,
and whoever started the recorder is told once. By default the agent goes on (`put` never raises);
with `is_fail_closed` it does not.

A forked child is not recorded: connection and lock are its parent's, and two writers would mix two
histories. Its puts are dropped and counted, and it is told once, as of any other fault.

Source: DESIGN.md §3 "Store"; `docs/reliability.md` "Store and recorder".
"""

import atexit
import contextlib
import threading
from collections.abc import Callable, Sequence
from itertools import chain
from os import getpid
from time import monotonic, time_ns  # bound here: the recorder's own clock is never intercepted

import msgspec

from redrive.capture.ports import Journal, RecordingFault
from redrive.errors import RedriveError, StoreError
from redrive.record.event import Event

MAX_EVENTS = 64
MAX_DELAY_S = 0.2
MAX_PENDING_BYTES = 64 * 1024 * 1024
MAX_WAIT_S = 5.0
_EVENT_BYTES = 400  # an envelope, about
_IN_CHILD = "this process was forked from the one that is recorded, and is not recorded itself"
_CLOSED = "the recording is closed already"


class Limits(msgspec.Struct, frozen=True):
    """How much a recorder groups and holds.

    Attributes:
        max_events: how many events one commit takes; the events of one put stay together.
        max_delay_s: how long an event waits for others.
        max_pending_bytes: how much may wait in memory. A put beyond it waits for room, at most
            `max_wait_s`; then the recorder is poisoned. One put alone may be larger.
        max_wait_s: see there.
    """

    max_events: int = MAX_EVENTS
    max_delay_s: float = MAX_DELAY_S
    max_pending_bytes: int = MAX_PENDING_BYTES
    max_wait_s: float = MAX_WAIT_S


# What one call of `put` brought: its events, their artefacts, and the size of both in bytes.
_Put = tuple[Sequence[Event], Sequence[bytes], int]


class Recorder:
    """Records events durably, in the order in which they are put; safe to call from any thread.

    Args:
        open_journal: opens the journal; called once, in the recorder's thread.
        on_fault: told once why nothing is recorded any more, from any thread. It must not take a
            lock that is held around `put`; what it raises is dropped.
        limits: how much is grouped and held.
        is_synced: make each put durable before it returns.
        is_fail_closed: raise where recording fails.

    Raises:
        RedriveError: what `open_journal` raised.
    """

    def __init__(
        self,
        open_journal: Callable[[], Journal],
        *,
        on_fault: Callable[[RecordingFault], None],
        limits: Limits = Limits(),  # noqa: B008 - frozen
        is_synced: bool = False,
        is_fail_closed: bool = False,
    ) -> None:
        self.is_fail_closed = is_fail_closed
        self._is_synced = is_synced
        self._limits = limits
        self._on_fault = on_fault
        self._pid = getpid()
        # A finaliser or a signal handler of the agent may put, in a thread that is in a put.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._queue: list[_Put] = []
        self._n_queued = self._n_put = self._n_durable = self._n_lost = 0
        self._began_s = 0.0  # when the queue was last begun
        self._held_bytes = 0  # of what is queued and of what is being committed
        self._is_hurried = self._is_closing = self._is_drained = False
        self._fault: tuple[str, int] | None = None
        self._is_told = False
        self._session: tuple[str, int] = ("", 0)
        self._opening: BaseException | None = None
        self._is_open = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(open_journal,), name="redrive-recorder", daemon=True
        )
        self._start()

    def _start(self) -> None:
        self._thread.start()
        self._is_open.wait()
        if self._opening is not None:
            self._thread.join()
            raise self._opening
        atexit.register(self._close_at_exit)

    @property
    def session_id(self) -> str:
        """The id that the session has in the store."""
        return self._session[0]

    @property
    def first_seq(self) -> int:
        """The seq that the first event put must have: 0, or more in a session that is resumed."""
        return self._session[1]

    @property
    def fault(self) -> RecordingFault | None:
        """Why nothing is recorded any more, with how many events are lost by now."""
        if self._fault is None:
            return None
        message, at_ns = self._fault
        return RecordingFault(message, at_ns, self._n_lost)

    def put(self, events: Sequence[Event], artefacts: Sequence[bytes] = ()) -> None:
        """Take events, and the bytes that they point at; they are committed together.

        The caller holds a lock of its own over numbering the events and putting them, so that they
        come in the order of their seq.

        Raises:
            StoreError: with `is_fail_closed`, once nothing is recorded any more.
        """
        if getpid() == self._pid:
            count = len(events)
            size = _EVENT_BYTES * count + (sum(map(len, artefacts)) if artefacts else 0)
            for event in events:
                size += len(bytes(event.payload))
            with self._lock:
                if self._held_bytes + size > self._limits.max_pending_bytes and self._held_bytes:
                    self._wait_for_room(size)
                if self._is_drained and self._fault is None:
                    self._poison(_CLOSED)
                self._n_put += count
                if self._fault is None:
                    self._queue_up((events, artefacts, size))
                else:
                    self._n_lost += count
                if self._is_synced:
                    self._wait_until_durable()
        else:
            self._drop_in_child(len(events))
        if self._fault is not None:
            self._after_fault()

    def flush(self) -> None:
        """Wait until all that was put so far is durable, or `fault` says why it never will be.

        Raises:
            StoreError: with `is_fail_closed`, once nothing is recorded any more.
        """
        if getpid() == self._pid:
            with self._changed:
                self._wait_until_durable()
        else:
            self._drop_in_child(0)
        if self._fault is not None:
            self._after_fault()

    def close(self) -> None:
        """Write what waits, end the recording and its thread; idempotent, nothing in a child.

        Raises:
            StoreError: with `is_fail_closed`, where not all was recorded.
        """
        if getpid() != self._pid:
            return
        atexit.unregister(self._close_at_exit)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._fault is not None:
            self._after_fault()

    def _close_at_exit(self) -> None:
        with contextlib.suppress(StoreError):  # it was told of
            self.close()

    # --- with the condition held

    def _queue_up(self, put: _Put) -> None:
        count = len(put[0])
        self._queue.append(put)
        self._n_queued += count
        self._held_bytes += put[2]
        if len(self._queue) == 1:
            self._began_s = monotonic()
            self._changed.notify_all()
        elif self._n_queued - count < self._limits.max_events <= self._n_queued:
            self._changed.notify_all()

    def _wait_for_room(self, size: int) -> None:
        """Let the recorder's thread catch up; poison where it cannot."""
        most = max(0, self._limits.max_pending_bytes - size)
        self._hurry()
        has_room = self._changed.wait_for(
            lambda: self._fault is not None or self._held_bytes <= most, self._limits.max_wait_s
        )
        if not has_room:
            self._poison(
                f"the store is too slow: {self._held_bytes} bytes still waited to be written after "
                f"{self._limits.max_wait_s:g} s"
            )

    def _wait_until_durable(self) -> None:
        """Wait until all that was put by now is durable, or never will be."""
        wanted = self._n_put
        if self._n_durable < wanted and self._fault is None:
            self._hurry()
            self._changed.wait_for(lambda: self._n_durable >= wanted or self._fault is not None)

    def _hurry(self) -> None:
        self._is_hurried = True
        self._changed.notify_all()

    def _poison(self, message: str, n_in_commit: int = 0) -> None:
        """Give up: all that is not durable is lost. The first fault stays."""
        if self._fault is None:
            self._fault = message, time_ns()
        self._n_lost += self._n_queued + n_in_commit
        self._queue.clear()
        self._n_queued = 0
        self._changed.notify_all()

    # --- what follows a fault, without the condition: `on_fault` may take its time

    def _drop_in_child(self, n_events: int) -> None:
        """Count what a forked child put; the condition may be held for ever in it."""
        if self._fault is None or self._fault[0] != _IN_CHILD:
            self._fault, self._n_lost, self._is_told = (_IN_CHILD, time_ns()), 0, False
        self._n_lost += n_events

    def _after_fault(self) -> None:
        fault = self.fault
        if fault is None:
            return
        if not self._is_told and not (self._thread.is_alive() and getpid() == self._pid):
            self._tell(fault)  # else the recorder's thread tells, when it knows what is lost
        if self.is_fail_closed:
            raise StoreError(f"not recorded: {fault.message}")

    def _tell(self, fault: RecordingFault) -> None:
        self._is_told = True
        with contextlib.suppress(Exception):  # nobody is left to tell
            self._on_fault(fault)

    # --- the recorder's own thread

    def _run(self, open_journal: Callable[[], Journal]) -> None:
        try:
            journal = open_journal()
            self._session = journal.session_id, journal.next_seq
        except BaseException as error:  # noqa: BLE001 - raised again in the constructor
            self._opening = error
            return
        finally:
            self._is_open.set()
        self._commit_all(journal)
        self._end(journal)
        fault = self.fault
        if fault is not None:
            self._tell(fault)

    def _commit_all(self, journal: Journal) -> None:
        while group := self._next_group():
            events = list(chain.from_iterable([put[0] for put in group]))
            try:
                journal.commit(events, [data for put in group for data in put[1]])
            except BaseException as error:  # noqa: BLE001 - the agent must not fail with us
                with self._changed:
                    self._poison(_words(error), len(events))
                return
            with self._changed:
                self._n_durable += len(events)
                self._held_bytes -= sum([put[2] for put in group])
                self._changed.notify_all()

    def _next_group(self) -> list[_Put]:
        """Wait for a group that is full, or old enough, or wanted; empty: there is no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._must_stop)
            if not self._is_ready():
                left_s = self._began_s + self._limits.max_delay_s - monotonic()
                self._changed.wait_for(self._is_ready, max(0.0, left_s))
            group: list[_Put] = []
            count = 0
            for put in self._queue:
                n_with = count + len(put[0])
                if n_with > self._limits.max_events and group:
                    break
                group.append(put)
                count = n_with
            del self._queue[: len(group)]
            self._n_queued -= count
            self._is_hurried = self._is_hurried and bool(self._queue)
            self._began_s = monotonic()  # what is left came while the last commit went on
            self._is_drained = not group
            return group

    def _is_ready(self) -> bool:
        is_full = self._n_queued >= self._limits.max_events
        return is_full or self._is_hurried or self._must_stop

    @property
    def _must_stop(self) -> bool:
        return self._is_closing or self._fault is not None

    def _end(self, journal: Journal) -> None:
        """Close the journal; after a fault nothing more is written to it."""
        try:
            if self._fault is None:
                journal.close()
            else:
                journal.abandon()
        except BaseException as error:  # noqa: BLE001 - the agent must not fail with us
            with self._changed:
                self._poison(f"the recording could not be ended: {_words(error)}")


def _words(error: BaseException) -> str:
    """Say what failed; an error of ours speaks for itself."""
    return error.message if isinstance(error, RedriveError) else f"{type(error).__name__}: {error}"
