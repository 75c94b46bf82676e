"""Agents without a network, recorded in memory and run again from what was recorded.

An agent is a function of `Seams`; while it records, each exchange is told how the world answers.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from redrive.capture.ports import Outcome, SentRequest, ServedAnswer, ServedResult
from redrive.capture.serving import AskModel, ServingBackend
from redrive.compare.rerun_difference import RerunDivergence, describe_miss
from redrive.errors import RerunStopped
from redrive.record.event import Kind, raw_of
from redrive.record.session import MemoryReader
from redrive.replay.rerun_exchange import RerunOptions
from redrive.replay.rerun_items import RerunRecord
from redrive.replay.rerun_record import read_rerun
from tests.recorded import CHAT_URL, MemorySink, Recorded

JSON = (("content-type", "application/json"),)


class BrokenError(Exception):
    """What an HTTP client raises where a connection breaks; it carries what came before."""

    def __init__(self, outcome: Outcome, body: bytes) -> None:
        super().__init__(outcome.value)
        self.body = body


class Seams:
    """An agent's side of a backend that records or serves."""

    def __init__(self, backend: Any, now_ns: Callable[[], int] = lambda: 1) -> None:
        self.backend = backend
        self.now_ns = now_ns

    def ask(
        self,
        body: bytes,
        answer: bytes = b"",
        status: int = 200,
        outcome: Outcome = Outcome.COMPLETE,
        url: str = CHAT_URL,
        method: str = "POST",
        **fields: Any,
    ) -> tuple[int, bytes]:
        """Send a request; `answer`, `status` and `outcome` are how the world answers."""
        observer = self.backend.sent(SentRequest(method, url, (), body, self.now_ns(), **fields))
        if not isinstance(observer, ServedAnswer):
            if outcome is not Outcome.FAILED:
                observer.responded(status, JSON, self.now_ns())
                observer.received(answer)
            message = "no route" if outcome is Outcome.FAILED else ""
            observer.finished(outcome, self.now_ns(), message)
            observer = ServedAnswer(status, JSON, answer, outcome)
        if observer.outcome is not Outcome.COMPLETE:
            raise BrokenError(observer.outcome, observer.body)
        return observer.status, observer.body

    def clock(self, name: str = "time.time()", value: Any = 1.5) -> Any:
        return self.backend.read(Kind.CLOCK_READ, name, lambda: value)

    def draw(self, name: str = "random.random()", value: Any = 0.25) -> Any:
        return self.backend.read(Kind.PRNG_READ, name, lambda: value)

    def call(self, tool: str, arguments: Any, run: Callable[[], Any] = lambda: "done") -> Any:
        """Run a tool; it runs only while the agent is recorded."""
        observer = self.backend.begin_call(tool, "read_only", raw_of(arguments), is_unsafe=False)
        if isinstance(observer, ServedResult):
            if observer.error is not None:
                raise RuntimeError(": ".join(observer.error))
            assert isinstance(observer.result, Raw)
            return json.loads(bytes(observer.result))
        try:
            result = run()
        except RuntimeError as error:
            observer.raised("Denied", str(error))
            raise RuntimeError(f"Denied: {error}") from error
        observer.returned(raw_of(result))
        return result

    def derive(
        self, name: str, function: Callable[..., Any], *inputs: Any, version: str | None = None
    ) -> Any:
        given = raw_of(list(inputs))
        return self.backend.derive(
            name, function.__name__, version, given, lambda: function(*inputs)
        )


Agent = Callable[[Seams], Any]


class Session:
    """One recorded session in memory."""

    def __init__(self, sink: MemorySink) -> None:
        self.sink = sink
        self.reader = MemoryReader(sink.events)
        self.artefacts = {hashlib.sha256(data).hexdigest(): data for data in sink.artefacts}
        self.recorded: RerunRecord = read_rerun(sink.index(), self.reader)

    def serve(self, *, by_context: bool = True, **fields: Any) -> ServingBackend:
        model: dict[str, AskModel] = {k: fields.pop(k) for k in ("ask_model",) if k in fields}
        return ServingBackend(
            self.recorded,
            read_event=self.sink.events.__getitem__,
            read_artefact=self.artefacts.__getitem__,
            options=RerunOptions(**fields),
            by_context=by_context,
            **model,
        )

    def rerun(self, agent: Agent, **fields: Any) -> "Again":
        return run_again(self, self.serve(**fields), agent)


class Again:
    """What came of a rerun."""

    def __init__(self, session: Session, backend: ServingBackend, value: Any) -> None:
        self.backend = backend
        self.value = value
        self.miss = backend.finish()
        self.found: RerunDivergence | None = None
        if self.miss is not None:
            self.found = describe_miss(
                backend.state, self.miss, session.reader, session.artefacts.__getitem__
            )

    @property
    def line(self) -> str:
        """Say in one line what differs."""
        found = self.found
        if found is None:
            return "identical"
        where = f" at {found.where}" if found.where else ""
        place = f"{found.flow} {found.step}: {found.what.value}{where}"
        return f"{place}: {found.expected} → {found.found}"


def run_again(session: Session, backend: ServingBackend, agent: Agent) -> Again:
    """Run an agent on what was recorded."""
    try:
        value = agent(Seams(backend))
    except RerunStopped:
        value = None
    return Again(session, backend, value)


def record_agent(agent: Agent, *, is_ended: bool = True, by_context: bool = True) -> Session:
    """Record an agent."""
    recorded = Recorded(by_context=by_context)
    agent(Seams(recorded.backend, recorded.backend._log.now_ns))
    if is_ended:
        recorded.backend.end("success")
    assert not recorded.faults
    return Session(recorded.sink)
