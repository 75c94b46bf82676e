"""A backend that begins its session with the first thing it is told.

A proxy that nobody asks anything, and a command that asks no model, leave nothing behind.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Raw

from redrive.capture.ports import CallObserver, ExchangeObserver, SentRequest
from redrive.capture.recording import RecordingBackend
from redrive.capture.tool_recording import ReportedResult
from redrive.record.event import Kind, Payload

_T = TypeVar("_T")


class LazyBackend:
    """Records to a backend that is made when it is first needed.

    Args:
        begin: makes it; called at most once.
    """

    is_serving = False

    def __init__(self, begin: Callable[[], RecordingBackend]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._backend: RecordingBackend | None = None

    @property
    def begun(self) -> RecordingBackend | None:
        """The backend, if anything was recorded."""
        return self._backend

    def _get(self) -> RecordingBackend:
        with self._lock:
            if self._backend is None:
                self._backend = self._begin()
            return self._backend

    def sent(self, request: SentRequest) -> ExchangeObserver:
        """Record that a request was sent."""
        return self._get().sent(request)

    def read(self, kind: Kind, name: str, take: Callable[[], _T]) -> _T:
        """Take a read and record its value."""
        return self._get().read(kind, name, take)

    def derive(
        self,
        name: str,
        function: str,
        version: str | None,
        inputs: Raw,
        compute: Callable[[], _T],
    ) -> _T:
        """Compute a value and record it."""
        return self._get().derive(name, function, version, inputs, compute)

    def begin_call(
        self, tool: str, effect: str, arguments: Raw, *, is_unsafe: bool, seam: str = "tool"
    ) -> CallObserver:
        """Record that a tool is about to run."""
        return self._get().begin_call(tool, effect, arguments, is_unsafe=is_unsafe, seam=seam)

    def declare_tool(self, tool: str, effect: str) -> None:
        """Take the effect class of a tool."""
        self._get().declare_tool(tool, effect)

    def enter_flow(self, name: str) -> object:
        """Begin or resume a named flow."""
        return self._get().enter_flow(name)

    def leave_flow(self, token: object) -> None:
        """Go back to the flow before."""
        self._get().leave_flow(token)

    def note(
        self,
        name: str,
        fields: Mapping[str, Any],
        call_id: str | None = None,
        *,
        is_durable: bool = False,
    ) -> None:
        """Record something of another framework's own kind."""
        self._get().note(name, fields, call_id, is_durable=is_durable)

    def report_result(self, reported: ReportedResult, seam: str) -> None:
        """Record the result of a call that someone else saw run."""
        self._get().report_result(reported, seam)

    def add_event(self, kind: Kind, payload: Payload, call_id: str | None = None) -> None:
        """Record an event that a hook or another seam has made."""
        self._get().add_event(kind, payload, call_id)

    def end(self, status: str | None) -> None:
        """Record how the run ended, if it began."""
        if self._backend is not None:
            self._backend.end(status)
