"""The recorder: in order, in groups, durable where it says so, and never the agent's problem."""

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redrive.capture.ports import RecordingFault
from redrive.capture.recorder import Limits, Recorder
from redrive.errors import StoreError
from tests.recorders import SESSION, MemoryJournal, notes, refused, run_child
from tests.stored import opened

SLOW = Limits(max_delay_s=60)  # only what is full or wanted is committed


class Recording:
    """A recorder on a journal in memory, and what it told of."""

    def __init__(self, journal: MemoryJournal | None = None, **options: Any) -> None:
        self.faults: list[RecordingFault] = []
        self.journal = journal or MemoryJournal()
        self.recorder = Recorder(self._open, on_fault=self.faults.append, **options)

    def _open(self) -> MemoryJournal:
        self.journal.threads = {threading.get_ident()}
        return self.journal


@pytest.fixture
def recording() -> Iterator[Recording]:
    made = Recording(limits=SLOW)
    yield made
    made.journal.gate.set()
    made.recorder.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def closed(recording: Recording) -> Recording:
    recording.journal.gate.set()
    recording.recorder.close()
    return recording


def test_what_is_put_is_recorded_in_order_with_its_artefacts(recording: Recording) -> None:
    recording.recorder.put(notes(3), (b"a", b"b"))
    recording.recorder.put(notes(2, 3), (b"c",))
    closed(recording)
    assert recording.journal.events == notes(5)
    assert recording.journal.artefacts == [b"a", b"b", b"c"]
    assert recording.journal.ends == ["closed"]
    assert recording.faults == []


def test_the_journal_is_used_by_one_thread_alone(recording: Recording) -> None:
    recording.recorder.put(notes(1))
    recording.recorder.flush()
    closed(recording)
    assert len(recording.journal.threads) == 1
    assert threading.get_ident() not in recording.journal.threads


def test_a_resumed_session_says_where_it_goes_on() -> None:
    made = closed(Recording(MemoryJournal(first_seq=7)))
    assert (made.recorder.session_id, made.recorder.first_seq) == (SESSION, 7)


def test_what_fails_at_the_opening_reaches_who_starts_the_recorder() -> None:
    def fail() -> MemoryJournal:
        raise refused()

    with pytest.raises(StoreError, match="took nothing"):
        Recorder(fail, on_fault=lambda _: None)
    assert [t.name for t in threading.enumerate() if t.name == "redrive-recorder"] == []


def test_a_put_returns_while_a_commit_goes_on(recording: Recording) -> None:
    recording.journal.gate.clear()
    recording.recorder.put(notes(64))
    recording.journal.entered.wait(60)
    recording.recorder.put(notes(1, 64))
    assert recording.journal.commits == []


def test_a_full_group_is_committed_at_once_and_holds_at_most_64_events(
    recording: Recording,
) -> None:
    recording.journal.gate.clear()
    for event in notes(64):
        recording.recorder.put((event,))
    recording.journal.entered.wait(60)
    for event in notes(100, 64):
        recording.recorder.put((event,))
    closed(recording)
    assert [len(commit) for commit in recording.journal.commits] == [64, 64, 36]


def test_the_events_of_one_put_are_committed_together(recording: Recording) -> None:
    recording.journal.gate.clear()
    recording.recorder.put(notes(40))
    recording.recorder.put(notes(40, 40))
    recording.recorder.put(notes(100, 80))
    closed(recording)
    assert [len(commit) for commit in recording.journal.commits] == [40, 40, 100]


def test_an_event_waits_for_others_for_a_moment_only() -> None:
    for max_delay_s in (0.05, 0.5, 5):  # more, where the machine takes that long between the two
        made = Recording(limits=Limits(max_delay_s=max_delay_s))
        made.recorder.put(notes(1))
        time.sleep(0.01)
        made.recorder.put(notes(1, 1))
        assert made.journal.entered.wait(60)
        closed(made)
        if len(made.journal.commits) == 1:
            break
    assert [len(commit) for commit in made.journal.commits] == [2]


def test_a_flush_waits_until_all_that_was_put_is_durable(recording: Recording) -> None:
    recording.recorder.put(notes(2))
    recording.recorder.flush()
    assert recording.journal.events == notes(2)
    recording.recorder.flush()
    assert len(recording.journal.commits) == 1


def test_a_flush_waits_for_more_than_one_group(recording: Recording) -> None:
    for event in notes(150):
        recording.recorder.put((event,))
    recording.recorder.flush()
    assert recording.journal.events == notes(150)


def test_a_synced_recorder_makes_each_put_durable() -> None:
    made = Recording(limits=SLOW, is_synced=True)
    for seq in range(3):
        made.recorder.put(notes(1, seq))
        assert len(made.journal.commits) == seq + 1
    closed(made)


def test_many_threads_that_number_under_a_lock_are_recorded_whole_and_in_order() -> None:
    made, lock, numbers = Recording(limits=Limits(max_delay_s=0.001)), threading.Lock(), []

    def work() -> None:
        for _ in range(200):
            with lock:
                numbers.append(None)
                made.recorder.put(notes(1, len(numbers) - 1))
            if len(numbers) % 50 == 0:
                made.recorder.flush()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    closed(made)
    assert made.journal.events == notes(800)


# --- faults


@pytest.mark.parametrize(
    ("error", "message"),
    [(refused(), "the store took nothing"), (MemoryError("no room"), "MemoryError: no room")],
)
def test_a_failed_write_poisons_the_recorder_and_is_told_once(
    recording: Recording, error: Exception, message: str
) -> None:
    recording.recorder.put(notes(2))
    recording.recorder.flush()
    recording.journal.error = error
    recording.recorder.put(notes(3, 2))
    recording.recorder.flush()
    recording.journal.error = None
    recording.recorder.put(notes(4, 5))
    closed(recording)
    assert recording.journal.events == notes(2), "nothing is written after it"
    assert recording.journal.ends == ["abandoned"], "not even counts"
    (told,) = recording.faults
    assert told.message == message
    assert told.n_lost >= 3
    assert recording.recorder.fault is not None
    assert recording.recorder.fault.n_lost == 7
    assert recording.recorder.fault.at_ns == told.at_ns > 10**18


def test_what_waits_behind_a_failed_write_is_lost_and_counted(recording: Recording) -> None:
    recording.journal.gate.clear()
    recording.journal.error = refused()
    recording.recorder.put(notes(64))
    recording.journal.entered.wait(60)
    recording.recorder.put(notes(10, 64))
    closed(recording)
    assert recording.journal.events == []
    assert recording.faults[0].n_lost == 74


def test_by_default_a_fault_never_reaches_the_agent() -> None:
    def shout(_: RecordingFault) -> None:
        raise RuntimeError("the operator's own fault")

    journal = MemoryJournal()
    journal.error = refused()
    recorder = Recorder(lambda: journal, on_fault=shout, is_synced=True)
    recorder.put(notes(1))
    recorder.put(notes(1, 1))
    recorder.flush()
    recorder.close()
    assert recorder.fault is not None


def test_a_fail_closed_recorder_raises_once_it_is_poisoned() -> None:
    made = Recording(limits=SLOW, is_fail_closed=True)
    made.journal.error = refused()
    made.recorder.put(notes(1))
    for call in (made.recorder.flush, lambda: made.recorder.put(notes(1, 1)), made.recorder.close):
        with pytest.raises(StoreError, match="not recorded: the store took nothing"):
            call()
    assert len(made.faults) == 1


def test_a_synced_fail_closed_recorder_raises_from_the_put_that_failed() -> None:
    made = Recording(limits=SLOW, is_fail_closed=True, is_synced=True)
    made.journal.error = refused()
    with pytest.raises(StoreError, match="not recorded: the store took nothing"):
        made.recorder.put(notes(1))
    with pytest.raises(StoreError):
        made.recorder.close()


def test_a_recording_that_cannot_be_ended_is_told_of(recording: Recording) -> None:
    recording.journal.end_error = refused()
    recording.recorder.put(notes(1))
    closed(recording)
    (told,) = recording.faults
    assert (told.message, told.n_lost) == (
        "the recording could not be ended: the store took nothing",
        0,
    )


def test_an_event_after_the_end_is_lost_and_told_of(recording: Recording) -> None:
    recording.recorder.put(notes(1))
    closed(recording)
    closed(recording)
    assert recording.faults == []
    recording.recorder.put(notes(1, 1))
    recording.recorder.put(notes(1, 2))
    assert [fault.message for fault in recording.faults] == ["the recording is closed already"]
    assert recording.recorder.fault is not None
    assert recording.recorder.fault.n_lost == 2


def test_a_put_beyond_the_memory_bound_waits_for_room() -> None:
    limits = Limits(max_delay_s=60, max_pending_bytes=10_000, max_wait_s=30)
    made = Recording(limits=limits)
    made.journal.gate.clear()
    made.recorder.put(notes(1, size=8_000))
    timer = threading.Timer(0.1, made.journal.gate.set)
    timer.start()
    made.recorder.put(notes(1, 1, size=8_000))
    assert made.journal.gate.is_set(), "it waited until there was room"
    timer.join()
    closed(made)
    assert made.journal.events == [*notes(1, size=8_000), *notes(1, 1, size=8_000)]
    assert made.faults == []


def test_a_store_that_is_too_slow_poisons_and_memory_stays_bounded() -> None:
    made = Recording(limits=Limits(max_pending_bytes=10_000, max_wait_s=0.05))
    made.journal.gate.clear()
    made.recorder.put(notes(1), (b"x" * 20_000,))  # one alone may be larger than the bound
    made.recorder.put(notes(1, 1))
    assert made.recorder.fault is not None
    assert "the store is too slow: 20" in made.recorder.fault.message
    made.recorder.put(notes(1, 2))
    closed(made)
    assert made.journal.events == notes(1), "what was on its way is durable"
    assert made.faults[0].n_lost == 2


def test_a_finaliser_that_puts_while_its_thread_is_in_a_put_does_not_block() -> None:
    made = Recording(limits=Limits(max_delay_s=0.001))
    seqs = iter(range(10_000))

    class Noisy:
        def __init__(self) -> None:
            self.itself = self  # only the garbage collector frees it

        def __del__(self) -> None:
            made.recorder.put(notes(1, next(seqs)))

    gc_was = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for _ in range(300):
            Noisy()
            made.recorder.put(notes(1, next(seqs)))
    finally:
        gc.set_threshold(*gc_was)
    gc.collect()
    closed(made)
    assert len(made.journal.events) == next(seqs)


# --- whole processes

_CHILD = """
    import os, sys
    from pathlib import Path
    from redrive.capture.recorder import Limits, Recorder
    from redrive.stores.recording import open_journal
    from tests.recorders import SESSION, notes

    store = Path(sys.argv[1])
    faults = []
    recorder = Recorder(
        lambda: open_journal(store, SESSION, "redrive", 1),
        on_fault=faults.append, limits=Limits(max_delay_s=60),
    )
"""


def stored(path: Path) -> tuple[list[str], bool]:
    """Give the ids of what is stored, and whether it was counted at the end."""
    with opened(path) as store:
        assert store.verify().is_ok
        row = store.get_session(SESSION)
        return [event.id for event in store.events(SESSION)], bool(row.summary)


def ids(count: int) -> list[str]:
    return [event.id for event in notes(count)]


def test_what_waits_at_the_end_of_the_process_is_written(path: Path) -> None:
    run_child(f"{_CHILD}\n    recorder.put(notes(3))", str(path))
    assert stored(path) == (ids(3), True)


def test_a_forked_child_is_not_recorded_and_the_parent_goes_on(path: Path) -> None:
    program = f"""{_CHILD}
    recorder.put(notes(2))
    recorder.flush()
    recorder._lock.acquire()  # as if another thread were in a put
    child = os.fork()
    if not child:
        recorder.put(notes(5, 2))
        recorder.put(notes(1, 7))
        recorder.flush()
        recorder.close()
        (fault,) = faults
        assert "forked" in fault.message, fault
        assert recorder.fault.n_lost == 6
        sys.exit(7)  # the whole end of an interpreter
    recorder._lock.release()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert faults == []
    recorder.put(notes(2, 2))
    """
    run_child(program, str(path))
    assert stored(path) == (ids(4), True)


def test_a_forked_child_of_a_fail_closed_recorder_is_refused(path: Path) -> None:
    program = f"""{_CHILD}
    from redrive.errors import StoreError
    recorder.is_fail_closed = True
    child = os.fork()
    if not child:
        for call in (lambda: recorder.put(notes(1)), recorder.flush):
            try:
                call()
            except StoreError as error:
                assert "forked" in error.message
            else:
                os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    """
    run_child(program, str(path))


def test_a_child_that_outlives_its_parent_does_not_hold_the_session(path: Path) -> None:
    program = f"""{_CHILD}
    import signal, time
    recorder.put(notes(2))
    recorder.flush()
    if not os.fork():
        os.close(1); os.close(2)
        time.sleep(5)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    with pytest.raises(AssertionError):
        run_child(program, str(path))
    with opened(path) as store:
        assert store.find_recorder(SESSION) is None
    assert stored(path) == (ids(2), False)
