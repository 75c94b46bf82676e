"""Decides where what an MCP proxy sees is kept: with the agent's own session, or by itself.

Knows the three ways: a recorder that runs (`redrive record`), a rerun that serves, a session of its
own. Must not know the protocol, nor how messages travel. Recording never changes what the agent
sees: where nothing can be kept, the proxy passes on, and its operator is told.

Source: issue 4 §3, §7.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from redrive.app.recorder_opening import RecorderOptions, new_session_id, open_recorder
from redrive.capture.mcp import Reporter, name_tool
from redrive.capture.ports import CallObserver
from redrive.capture.recorder import Recorder
from redrive.capture.recording import RecordingBackend
from redrive.capture.remote import RemoteBackend
from redrive.capture.route import RECORDER_VARIABLE
from redrive.errors import RedriveError, StoreError
from redrive.record.event import SessionStarted, raw_of

RERUN_VARIABLE = "REDRIVE_RERUN"
REMOTE_TIMEOUT_S = 10.0
"""How long the recorder may take to answer before the agent goes on without it."""
_NO_NAME_CHARS = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_CAPTURED = ("context", "sampling", "clock", "prng", "environment")


class McpRecording(msgspec.Struct, frozen=True):
    """What an MCP proxy records, and how.

    Attributes:
        server: the name that the user gave the server.
        effects: tool → effect class, as declared.
        recorder: how a session of its own is kept; fail-closed holds for every way.
    """

    server: str
    effects: Mapping[str, str] = {}
    recorder: RecorderOptions = RecorderOptions()


class Recorded:
    """A place where observations go.

    Attributes:
        reporter: who is told.
        session_id: of a session of its own; else empty.
    """

    def __init__(self, reporter: Reporter, session_id: str = "") -> None:
        self.reporter = reporter
        self.session_id = session_id

    def end(self, status: str) -> None:
        """Say how the server ended; the agent's session does not end with it."""

    def close(self) -> None:
        """Close the place."""


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
        environment: where a running recorder, or a rerun, is named.
        find_store: says where the store lies; asked only where there is neither.
        say: tells the operator one line.

    Raises:
        RedriveError: nothing can be kept, and the recording is fail-closed.
    """
    is_fail_closed = recording.recorder.is_fail_closed
    try:
        place = _open_place(recording, environment, find_store, say)
    except RedriveError as error:
        if is_fail_closed:
            raise
        say(f"not recorded: {error.message}")
        place = Recorded(_Nobody())
    try:
        yield place
    finally:
        try:
            place.close()
        except StoreError as error:  # with fail-closed; the server has ended already
            say(f"the recording's end is not stored: {error.message}")


def _open_place(
    recording: McpRecording,
    environment: Mapping[str, str],
    find_store: Callable[[], Path],
    say: Callable[[str], None],
) -> Recorded:
    rerun, recorder = environment.get(RERUN_VARIABLE), environment.get(RECORDER_VARIABLE)
    if rerun:
        return Recorded(RemoteBackend(rerun))
    if recorder:
        fails_open = not recording.recorder.is_fail_closed
        remote = RemoteBackend(
            recorder,
            fails_open=fails_open,
            lost=StoreError,
            timeout_s=REMOTE_TIMEOUT_S,
            on_fault=say,
        )
        return Recorded(remote)
    return _OwnSession(recording, find_store(), environment, say)


class _OwnSession(Recorded):
    """A session that holds nothing but what passed the proxy."""

    def __init__(
        self,
        recording: McpRecording,
        path: Path,
        environment: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        name = _NO_NAME_CHARS.sub("-", f"mcp-{recording.server}").strip("-")
        self._recorder: Recorder = open_recorder(
            path, new_session_id(name), recording.recorder, say, environment
        )
        self._backend = RecordingBackend(
            self._recorder,
            self._recorder.session_id,
            _describe(recording),
            now_ns=time.time_ns,
            by_context=False,
            on_fault=say,
        )
        super().__init__(self._backend, self._recorder.session_id)

    def end(self, status: str) -> None:
        """Say how the server ended."""
        self._backend.end(status)

    def close(self) -> None:
        """Write what waits."""
        self._recorder.close()


def _describe(recording: McpRecording) -> SessionStarted:
    return SessionStarted(
        agent=f"mcp:{recording.server}",
        tools={name_tool(recording.server, tool): e for tool, e in recording.effects.items()},
        captures={"tool_results": "captured"} | dict.fromkeys(_NOT_CAPTURED, "not_captured"),
        basis="intercepted",
        environment=raw_of({"recorded_by": "mcp"}),
    )


class _Nobody:
    """Is told, and keeps nothing; see `Reporter`."""

    is_serving = False

    def begin_call(
        self,
        tool: str,  # noqa: ARG002 - the port's
        effect: str,  # noqa: ARG002
        arguments: Raw,  # noqa: ARG002
        *,
        is_unsafe: bool,  # noqa: ARG002
        seam: str = "tool",  # noqa: ARG002
    ) -> CallObserver:
        """Take a call, and keep nothing of it."""
        return _NobodysCall()

    def note(self, name: str, fields: Mapping[str, Any], call_id: str | None = None) -> None:
        """Take a note, and keep nothing of it."""


class _NobodysCall:
    def returned(self, result: Raw, *, is_error: bool = False) -> None:
        """Take a result."""

    def returned_unknown(self, type_name: str) -> None:
        """Take a result without a form."""

    def raised(self, type_name: str, message: str) -> None:
        """Take an error."""
