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
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, time_ns  # bound here: the recorder's own clock is never intercepted
from typing import NamedTuple

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


class _Put(NamedTuple):
    """What one call of `put` brought, and when."""

    events: Sequence[Event]
    artefacts: Sequence[bytes]
    size: int
    at_s: float


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
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[_Put] = deque()
        self._n_queued = self._n_put = self._n_durable = self._n_lost = 0
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
        if os.getpid() == self._pid:
            size = sum(map(len, artefacts))
            for event in events:
                size += len(bytes(event.payload)) + _EVENT_BYTES
            with self._changed:
                self._take(_Put(events, artefacts, size, monotonic()))
                if self._is_synced:
                    self._wait_until_durable()
        else:
            self._drop_in_child(len(events))
        if self._fault is not None:
            self._after_fault(is_raised=self.is_fail_closed)

    def flush(self) -> None:
        """Wait until all that was put so far is durable.

        Raises:
            StoreError: nothing is recorded any more; also without `is_fail_closed`, since who asks
                must not take it for durable.
        """
        if os.getpid() == self._pid:
            with self._changed:
                self._wait_until_durable()
        else:
            self._drop_in_child(0)
        if self._fault is not None:
            self._after_fault(is_raised=True)

    def close(self) -> None:
        """Write what waits, end the recording and its thread; idempotent, nothing in a child.

        Raises:
            StoreError: with `is_fail_closed`, where not all was recorded.
        """
        if os.getpid() != self._pid:
            return
        atexit.unregister(self._close_at_exit)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._fault is not None:
            self._after_fault(is_raised=self.is_fail_closed)

    def _close_at_exit(self) -> None:
        with contextlib.suppress(StoreError):  # it was told of
            self.close()

    # --- with the condition held

    def _take(self, put: _Put) -> None:
        """Queue what was put, or count it as lost."""
        if self._held_bytes and self._is_too_much(put):
            self._wait_for_room(put)
        if self._is_drained:
            self._poison(_CLOSED)
        self._n_put += len(put.events)
        if self._fault is not None:
            self._n_lost += len(put.events)
            return
        self._queue.append(put)
        self._n_queued += len(put.events)
        self._held_bytes += put.size
        if len(self._queue) == 1 or self._n_queued >= self._limits.max_events:
            self._changed.notify_all()

    def _is_too_much(self, put: _Put) -> bool:
        return self._held_bytes + put.size > self._limits.max_pending_bytes

    def _wait_for_room(self, put: _Put) -> None:
        """Let the recorder's thread catch up; poison where it cannot."""
        self._hurry()
        has_room = self._changed.wait_for(
            lambda: self._fault is not None or not self._held_bytes or not self._is_too_much(put),
            self._limits.max_wait_s,
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

    def _after_fault(self, *, is_raised: bool) -> None:
        fault = self.fault
        if fault is None:
            return
        if not self._is_told and not (self._thread.is_alive() and os.getpid() == self._pid):
            self._tell(fault)  # else the recorder's thread tells, when it knows what is lost
        if is_raised:
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
            events = [event for put in group for event in put.events]
            try:
                journal.commit(events, [data for put in group for data in put.artefacts])
            except BaseException as error:  # noqa: BLE001 - the agent must not fail with us
                with self._changed:
                    self._poison(_words(error), len(events))
                return
            with self._changed:
                self._n_durable += len(events)
                self._held_bytes -= sum(put.size for put in group)
                self._changed.notify_all()

    def _next_group(self) -> list[_Put]:
        """Wait for a group that is full, or old enough, or wanted; empty: there is no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._must_stop)
            if self._queue:
                ends_s = self._queue[0].at_s + self._limits.max_delay_s
                self._changed.wait_for(
                    lambda: self._is_hurried
                    or self._must_stop
                    or self._n_queued >= self._limits.max_events,
                    max(0.0, ends_s - monotonic()),
                )
            group: list[_Put] = []
            count = 0
            while self._queue:
                count += len(self._queue[0].events)
                if group and count > self._limits.max_events:
                    break
                group.append(self._queue.popleft())
                self._n_queued -= len(group[-1].events)
            self._is_hurried = self._is_hurried and bool(self._queue)
            self._is_drained = not group
            return group

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
