from typing import Any

from msgspec import Raw

from redrive.capture.mcp_calls import Call, Calls
from redrive.capture.mcp_messages import Id, id_of

ONE, TWO = id_of(1), id_of(2)


def call(tool: str = "a", token: Id | None = None) -> Call:
    observer: Any = None
    return Call(tool, observer, token)


def test_a_call_is_in_one_place_at_a_time():
    calls, one = Calls(), call()
    calls.begin(one, ONE)
    assert calls.take(ONE) is one
    assert calls.take(ONE) is None
    calls.defer(one, "T")
    calls.await_task("T", TWO)
    assert calls.take(TWO) is one
    calls.pause(one, "s")
    assert not calls.resume("b", "s", ONE)
    assert not calls.resume("a", None, ONE)
    assert calls.resume("a", "s", ONE)
    assert len(calls) == 1
    assert calls.drain() == [one]
    assert len(calls) == 0


def test_a_task_that_is_not_known_stands_for_nothing():
    calls = Calls()
    calls.await_task(None, ONE)
    calls.await_task("T", ONE)
    assert calls.take(ONE) is None


def test_progress_counts_until_the_call_ends():
    calls, one = Calls(), call(token=id_of("t"))
    calls.begin(one, ONE)
    calls.progressed(id_of("t"), Raw(b"1"))
    calls.progressed(None, Raw(b"2"))
    calls.end(one)
    calls.progressed(id_of("t"), Raw(b"3"))
    assert (one.n_progress, bytes(one.last_progress or b"")) == (1, b"1")
