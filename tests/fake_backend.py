"""A `Backend` in memory: it keeps what the seams tell it, or serves what a test lays down."""

import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw

from redrive.capture.ports import (
    CallObserver,
    ExchangeObserver,
    Headers,
    Outcome,
    SentRequest,
    ServedAnswer,
    ServedResult,
)
from redrive.record.event import Kind


@dataclass
class SeenExchange:
    """One exchange as an observer was told it."""

    request: SentRequest
    flow: str
    status: int | None = None
    headers: Headers = ()
    chunks: list[bytes] = field(default_factory=list)
    ends: list[tuple[Outcome, str]] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def outcome(self) -> Outcome:
        (end,) = self.ends
        return end[0]

    @property
    def message(self) -> str:
        (end,) = self.ends
        return end[1]

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:
        assert self.status is None
        assert at_ns >= self.request.at_ns
        self.status, self.headers = status, headers

    def received(self, data: bytes) -> None:
        assert not self.ends, "bytes after the end"
        self.chunks.append(data)

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:
        assert at_ns >= self.request.at_ns
        self.ends.append((outcome, message))


@dataclass
class SeenCall:
    """One tool call as an observer was told it."""

    tool: str
    effect: str
    arguments: bytes
    is_unsafe: bool
    flow: str
    ends: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def end(self) -> tuple[str, Any]:
        (end,) = self.ends
        return end

    def returned(self, result: Raw, *, is_error: bool = False) -> None:
        assert not is_error
        self.ends.append(("returned", bytes(result)))

    def returned_unknown(self, type_name: str) -> None:
        self.ends.append(("unknown", type_name))

    def raised(self, type_name: str, message: str) -> None:
        self.ends.append(("raised", (type_name, message)))


@dataclass(frozen=True)
class SeenDerived:
    """One derived value."""

    name: str
    function: str
    version: str | None
    inputs: bytes
    value: Any


class FakeBackend:
    """Records into lists; serves from `answers`, `results` and `values` while `is_serving`."""

    def __init__(self) -> None:
        self.exchanges: list[SeenExchange] = []
        self.calls: list[SeenCall] = []
        self.derived: list[SeenDerived] = []
        self.reads: list[tuple[Kind, str, Any]] = []
        self.is_serving = False
        self.answers: list[ServedAnswer] = []
        self.results: list[ServedResult] = []
        self.values: list[Any] = []
        self.asked: list[SentRequest] = []
        self._flow = contextvars.ContextVar("flow", default="main")

    def sent(self, request: SentRequest) -> ExchangeObserver | ServedAnswer:
        if self.is_serving:
            self.asked.append(request)
            return self.answers.pop(0)
        self.exchanges.append(SeenExchange(request, self._flow.get()))
        return self.exchanges[-1]

    def read(self, kind: Kind, name: str, take: Callable[[], Any]) -> Any:
        value = self.values.pop(0) if self.is_serving else take()
        self.reads.append((kind, name, value))
        return value

    def begin_call(
        self, tool: str, effect: str, arguments: Raw, *, is_unsafe: bool, seam: str = "tool"
    ) -> CallObserver | ServedResult:
        assert seam == "tool"
        call = SeenCall(tool, effect, bytes(arguments), is_unsafe, self._flow.get())
        self.calls.append(call)
        return self.results.pop(0) if self.is_serving else call

    def derive(
        self, name: str, function: str, version: str | None, inputs: Raw, compute: Callable[[], Any]
    ) -> Any:
        value = self.values.pop(0) if self.is_serving else compute()
        self.derived.append(SeenDerived(name, function, version, bytes(inputs), value))
        return value

    def declare_tool(self, tool: str, effect: str) -> None:
        self.declared = {**getattr(self, "declared", {}), tool: effect}

    def enter_flow(self, name: str) -> object:
        return self._flow.set(name)

    def leave_flow(self, token: Any) -> None:
        self._flow.reset(token)

    @property
    def flow(self) -> str:
        return self._flow.get()
