"""The serving backend: whose ask is whose, what is handed out, and how it stops."""

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from redrive.capture.ports import SentRequest
from redrive.capture.serving import ServingBackend
from redrive.errors import ModelError, RerunStopped, TamperError
from redrive.record.event import Kind
from redrive.replay.rerun_exchange import RerunOptions
from tests.recorded import CHAT_URL, asks, chat_answer, chat_body, said
from tests.rerun_agents import Seams, Session, record_agent

BODY = chat_body(said("user", "x"))


def agent(seams: Seams) -> None:
    seams.clock("time.time()", [1])
    seams.ask(BODY, chat_answer("", asks("c1", "lookup", "{}")))
    seams.call("lookup", {}, lambda: {"a": 1})


@pytest.fixture
def session() -> Session:
    return record_agent(agent)


def serve(session: Session, **changes: Any) -> ServingBackend:
    fields: dict[str, Any] = {
        "read_event": session.sink.events.__getitem__,
        "read_artefact": session.artefacts.__getitem__,
    }
    return ServingBackend(session.recorded, **fields | changes)


def test_neither_clock_nor_tool_is_asked_and_a_value_is_made_anew(session):
    backend = serve(session)

    def refuse() -> Any:
        raise AssertionError("the real clock was asked")

    value = backend.read(Kind.CLOCK_READ, "time.time()", refuse)
    value.append(2)
    again = serve(session).read(Kind.CLOCK_READ, "time.time()", refuse)
    assert (value, again) == ([1, 2], [1])
    assert backend.is_serving
    assert (backend.n_exchanges, backend.miss, backend.fault) == (0, None, None)


def test_what_a_recorder_would_write_down_is_taken_and_left_out(session):
    backend = serve(session)
    backend.note("x", {}, is_durable=True)
    backend.add_event(Kind.NOTE, None)
    backend.end("success")
    Seams(backend).clock("time.time()")
    Seams(backend).ask(BODY)
    Seams(backend).call("lookup", {})
    assert backend.finish() is None
    assert backend.n_exchanges == 1


def test_the_first_difference_is_told_once_and_stops_every_flow(session):
    told: list[int] = []
    backend = serve(session, on_stop=lambda: told.append(1))
    token = backend.enter_flow("other")
    with pytest.raises(RerunStopped, match="stopped at step 1 of other: prng read"):
        Seams(backend).draw()
    backend.leave_flow(token)
    with pytest.raises(RerunStopped, match="step 1 of other"):
        Seams(backend).clock("time.time()")
    assert told == [1]


@pytest.mark.parametrize("what", ["artefact", "event"])
def test_altered_evidence_is_an_error_that_an_agent_cannot_swallow(session, what):
    events = session.sink.events
    forged: dict[str, Any] = {"read_artefact": lambda _: b"forged"}
    if what == "event":
        forged = {"read_event": lambda seq: events[0] if seq == len(events) - 2 else events[seq]}
    backend = serve(session, **forged)
    with pytest.raises(RerunStopped, match="not those that were recorded"):
        agent(Seams(backend))
    with pytest.raises(RerunStopped, match="not those that were recorded"):
        Seams(backend).clock("time.time()")
    assert isinstance(backend.error, TamperError)


def test_a_live_model_that_fails_stops_the_agent(session):
    def down(request: SentRequest, live: Any) -> Any:
        raise ModelError("the model is down")

    backend = serve(session, options=RerunOptions(is_live=True), ask_model=down)
    with pytest.raises(RerunStopped, match="the model is down"):
        Seams(backend).ask(BODY)
    assert isinstance(backend.error, ModelError)


def test_a_body_that_is_no_text_goes_to_no_model(session):
    backend = serve(session)
    with pytest.raises(RerunStopped, match="request differs"):
        backend.sent(SentRequest("POST", CHAT_URL, (), b"\xff", 1))


def test_what_a_computation_must_take_first_leaves_no_trace():
    class MustTake(BaseException):
        pass

    session = record_agent(lambda seams: seams.derive("sum", len, [1]))
    backend = serve(session)

    def take() -> Any:
        raise MustTake

    with pytest.raises(MustTake):
        backend.derive("sum", "len", None, Raw(b"[[1]]"), take)
    assert backend.derive("sum", "len", None, Raw(b"[[1]]"), lambda: 1) == 1
    assert backend.finish() is None


def test_two_threads_may_derive_the_same_at_once():
    def twice(seams: Seams) -> Any:
        return [seams.derive("sum", len, [1]), seams.derive("sum", len, [1])]

    session = record_agent(twice)
    backend = serve(session)

    def compute() -> int:
        if not inside:
            inside.append(backend.derive("sum", "len", None, Raw(b"[[1]]"), lambda: 1))
        return 1

    inside: list[int] = []
    assert backend.derive("sum", "len", None, Raw(b"[[1]]"), compute) == 1
    assert inside == [1]
    assert backend.finish() is None


def test_a_task_that_reads_before_it_asks_gets_its_own_flows_value():
    def tasks(seams: Seams) -> list[Any]:
        seen: list[Any] = []

        async def work(name: str) -> None:
            seen.append(seams.clock("time.time()", name))
            seams.derive("d", len, [name])
            await asyncio.sleep(0)
            seams.ask(chat_body(said("user", name)), chat_answer("done"))

        async def main() -> None:
            seams.ask(BODY, chat_answer("plan"))
            await asyncio.gather(*map(work, "abc"))

        asyncio.run(main())
        return seen

    session = record_agent(tasks)
    again = session.rerun(tasks)
    assert (again.line, again.value) == ("identical", ["a", "b", "c"])


def test_a_task_that_derives_before_it_reads_is_told_by_its_derivation():
    def tasks(seams: Seams) -> None:
        async def work(name: str) -> None:
            seams.derive(name, len, [name])
            seams.ask(chat_body(said("user", name)), chat_answer("done"))

        async def main() -> None:
            seams.ask(BODY, chat_answer("plan"))
            await asyncio.gather(*map(work, "ab"))

        asyncio.run(main())

    session = record_agent(tasks)
    assert session.rerun(tasks).line == "identical"
    assert len(session.recorded.flows) == 3


def test_a_helper_task_without_requests_reads_from_the_flow_it_was_started_in():
    def helping(seams: Seams) -> None:
        async def helper() -> None:
            seams.clock("time.monotonic()", 3)

        async def main() -> None:
            seams.ask(BODY, chat_answer("plan"))
            await asyncio.gather(helper(), helper())
            seams.ask(chat_body(said("user", "x"), said("user", "y")), chat_answer("done"))

        asyncio.run(main())

    session = record_agent(helping)
    assert [read.segment for read in session.recorded.flows["main"].reads] == [1, 1]
    assert session.rerun(helping).line == "identical"


def test_an_error_of_an_unusual_shape_is_served_as_the_result_that_it_is():
    def odd(seams: Seams) -> Any:
        seams.ask(BODY, chat_answer("", asks("c1", "lookup", "{}")))
        observer = seams.backend.begin_call("lookup", "pure", Raw(b"{}"), is_unsafe=False)
        if hasattr(observer, "returned"):
            observer.returned(Raw(b'"broken"'), is_error=True)
            return None
        return bytes(observer.result)

    session = record_agent(odd)
    assert session.rerun(odd).value == b'"broken"'
