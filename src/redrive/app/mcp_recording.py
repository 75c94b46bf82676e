"""Decides where what an MCP proxy sees is kept: with the agent's own session, or by itself.

Knows both ways. Must not know the protocol, nor how messages travel. Recording never changes what
the agent sees: where nothing can be kept, the proxy passes on, and its operator is told.

Source: issue 4 §3, §7.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from redrive.capture.mcp import Reporter
from redrive.capture.ports import CallObserver, RecordingFault
from redrive.capture.recorder import Recorder
from redrive.capture.recording import FORMAT, VERSION, RecordingBackend
from redrive.errors import RedriveError, StoreError
from redrive.record.event import SessionStarted
from redrive.stores.recording import open_journal

RECORDER_VARIABLE = "REDRIVE_RECORDER"
_ID_CHARS = re.compile(r"[^A-Za-z0-9._-]+")
_CLASSES = ("context", "sampling", "clock", "prng", "environment")


class McpRecording(msgspec.Struct, frozen=True):
    """What an MCP proxy records, and how.

    Attributes:
        server: the name that the user gave the server.
        effects: tool → effect class, as declared.
        is_fail_closed: whether the agent must not go on unrecorded.
    """

    server: str
    effects: Mapping[str, str] = {}
    is_fail_closed: bool = False


class Recorded(Protocol):
    """Where observations go; `session_id` is empty where that is not known here."""

    session_id: str
    reporter: Reporter

    def end(self, status: str) -> None:
        """Say how the server ended."""
        ...


@contextmanager
def recorded_mcp(
    recording: McpRecording,
    environment: Mapping[str, str],
    find_store: Callable[[], Path],
    say: Callable[[str], None],
) -> Iterator[Recorded]:
    """Open the place where observations are kept, and close it whatever happens.

    Args:
        recording: what is recorded.
        environment: where a running recorder is named.
        find_store: says where the store lies; asked only where there is no recorder.
        say: tells the operator one line.

    Raises:
        RedriveError: nothing can be kept, and the recording is fail-closed.
    """
    url = environment.get(RECORDER_VARIABLE)
    try:
        opened = _open_remote(url, recording, say) if url else _open_own(recording, find_store, say)
    except RedriveError as error:
        if recording.is_fail_closed:
            raise
        say(f"not recorded: {error.message}")
        opened = _Unrecorded()
    try:
        yield opened
    finally:
        opened.close()


class _Opened:
    """A place that is open."""

    session_id = ""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter

    def end(self, status: str) -> None:
        """Say how the server ended; a session of the agent's own does not end with it."""

    def close(self) -> None:
        """Close the place."""


class _Own(_Opened):
    """A session that holds nothing but what passed the proxy."""

    def __init__(self, recorder: Recorder, backend: RecordingBackend) -> None:
        super().__init__(backend)
        self.session_id = recorder.session_id
        self._recorder = recorder
        self._backend = backend

    def end(self, status: str) -> None:
        """Say how the server ended."""
        self._backend.end(status)

    def close(self) -> None:
        """Write what waits."""
        self._recorder.close()


def _open_own(
    recording: McpRecording, find_store: Callable[[], Path], say: Callable[[str], None]
) -> _Own:
    agent = f"mcp:{recording.server}"
    path = find_store()

    def on_fault(fault: RecordingFault) -> None:
        say(f"nothing is recorded any more: {fault.message}; {fault.n_lost} events are lost")

    recorder = Recorder(
        lambda: open_journal(path, new_session_id(agent), FORMAT, VERSION),
        on_fault=on_fault,
        is_fail_closed=recording.is_fail_closed,
    )
    started = SessionStarted(
        agent=agent,
        format_id=FORMAT,
        tools=dict(recording.effects),
        captures={"tool_results": "captured"} | dict.fromkeys(_CLASSES, "not_captured"),
        basis="intercepted",
    )
    backend = RecordingBackend(
        recorder,
        recorder.session_id,
        started,
        now_ns=time.time_ns,
        by_context=False,
        on_fault=say,
    )
    return _Own(recorder, backend)


def _open_remote(url: str, recording: McpRecording, say: Callable[[str], None]) -> _Opened:
    raise StoreError("no recorder in another process yet")


def new_session_id(agent: str) -> str:
    """Make an id for a new session of an agent: its name, the time in UTC, six random digits."""
    name = _ID_CHARS.sub("-", agent).strip("-") or "agent"
    now = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    return f"{FORMAT}:{name}-{now}-{secrets.token_hex(3)}"


class _Unrecorded(_Opened):
    """Keeps nothing; see `Reporter`."""

    def __init__(self) -> None:
        super().__init__(self)

    def begin_call(
        self,
        tool: str,  # noqa: ARG002 - port
        effect: str,  # noqa: ARG002
        arguments: Raw,  # noqa: ARG002
        *,
        is_unsafe: bool,  # noqa: ARG002
        seam: str = "tool",  # noqa: ARG002
    ) -> CallObserver:
        """Take a call, and keep nothing of it."""
        return _UnrecordedCall()

    def note(self, name: str, fields: Mapping[str, Any], call_id: str | None = None) -> None:
        """Take a note, and keep nothing of it."""


class _UnrecordedCall:
    def returned(self, result: Raw, *, is_error: bool = False) -> None:
        """Take a result."""

    def returned_unknown(self, type_name: str) -> None:
        """Take a result without a form."""

    def raised(self, type_name: str, message: str) -> None:
        """Take an error."""
