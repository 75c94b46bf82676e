"""`with redrive.record(AGENT) as session`: an agent that records itself, in its own process.

Wires the seams of `redrive.capture` to a store. Decides nothing of what is recorded.

Fail open: where the store cannot be opened or written, the agent runs on, and its operator is told
on stderr, once. `fail_closed` turns that round. Below `redrive rerun` the same line of code serves
the recorded session instead: the agent's code does not know.

Source: DESIGN.md §3 "Provenance manifest"; issue "The recorder".
"""

import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from redrive.app.recorder_opening import RecorderOptions, new_session_id, open_recorder, tell
from redrive.capture.agent_code import find_roots
from redrive.capture.event_log import Sink
from redrive.capture.interception import ALL_SOURCES, captured_by, intercept
from redrive.capture.lazy import LazyBackend
from redrive.capture.manifest import build_manifest
from redrive.capture.recorder import Recorder
from redrive.capture.recording import RecordingBackend
from redrive.capture.remote import RemoteBackend
from redrive.capture.session import AgentSession
from redrive.errors import RedriveError, StoreError, UsageError
from redrive.record.decisions import JSON_CONTENT, TOOL_CALLS
from redrive.record.event import Event, SessionStarted, raw_of
from redrive.stores.locate import find_cwd, find_home, locate_store

RERUN_VARIABLE = "REDRIVE_RERUN"
LIST_VARIABLE = "REDRIVE_RECORDED"
PARENT_VARIABLE = "REDRIVE_PARENT_SESSION"
ENGINE_VARIABLE = "REDRIVE_ENGINE"
VOUCHABLE = ("clock", "prng", "environment")


class _NoSink:
    """Keeps nothing: the store could not be opened, and the agent runs all the same."""

    def put(self, events: Sequence[Event], artefacts: Sequence[bytes] = ()) -> None:
        """Drop what happened."""

    def flush(self) -> None:
        """There is nothing to wait for."""


class RecordOptions(msgspec.Struct, frozen=True):
    """What `record` was asked for; see there."""

    task: str | None
    store: str | None
    intercepted: tuple[str, ...]
    vouched: tuple[str, ...]
    decisions: str
    engine: Mapping[str, Any]
    environment: Mapping[str, Any]
    roots: tuple[Path, ...]
    recorder: RecorderOptions


class Recording:
    """One recording as a context manager; made by `record`."""

    def __init__(self, agent: str, options: RecordOptions) -> None:
        self._agent = agent
        self._options = options
        self._stack = ExitStack()
        self._backend: RecordingBackend | None = None
        self._status: str | None = None

    def __enter__(self) -> AgentSession:
        with self._stack:
            session = self._serve() if os.environ.get(RERUN_VARIABLE) else self._record()
            self._stack = self._stack.pop_all()
        return session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._backend is not None:
            failed = kind is not None and not issubclass(kind, (KeyboardInterrupt, SystemExit))
            self._backend.end("failure" if failed and self._status is None else self._status)
        self._stack.close()

    def _serve(self) -> AgentSession:
        """Serve what was recorded, by whoever started this process for a rerun."""
        backend = RemoteBackend(os.environ[RERUN_VARIABLE])
        self._stack.enter_context(intercept(backend, ALL_SOURCES, roots=self._options.roots))
        return AgentSession(backend)

    def _record(self) -> AgentSession:
        options, session_id = self._options, new_session_id(self._agent)
        # What is intercepted is known only once it is, and stands in the session's first event.
        made: list[RecordingBackend] = []
        names: frozenset[str] = frozenset()
        if options.intercepted:
            seams = LazyBackend(lambda: made[0])
            held = intercept(seams, options.intercepted, roots=options.roots)
            names = self._stack.enter_context(held).names
        for name in sorted(set(options.intercepted) - names):
            tell(f"{session_id}: reads of {name} cannot be intercepted in this interpreter")
        started = self._describe(session_id, names)
        fingerprint = {**_engine_of_proxy(), **options.engine}.get("fingerprint")
        backend = RecordingBackend(
            self._open(session_id),
            session_id,
            started,
            now_ns=time.time_ns,
            by_context=True,
            engine=fingerprint if isinstance(fingerprint, str) else None,
            on_fault=lambda line: tell(f"{session_id}: {line}"),
        )
        made.append(backend)
        self._backend = backend
        return AgentSession(backend, session_id=session_id, on_end=self._set_status)

    def _set_status(self, status: str) -> None:
        self._status = status

    def _open(self, session_id: str) -> Sink:
        options = self._options
        try:
            path = locate_store(options.store, os.environ, find_cwd, find_home)
            recorder = open_recorder(
                path, session_id, options.recorder, lambda line: tell(f"{session_id}: {line}")
            )
        except RedriveError as error:
            if options.recorder.is_fail_closed:
                raise
            tell(f"NOTHING IS RECORDED: {error.message}")
            return _NoSink()
        self._stack.callback(_close, recorder, session_id)
        _list(session_id)
        return recorder

    def _describe(self, session_id: str, names: Iterable[str]) -> SessionStarted:
        """Say what is known of the whole session, and on what it rests."""
        options = self._options
        seen = captured_by(names)
        captures = dict.fromkeys(("context", "tool_results", "sampling", "environment"), "captured")
        for name in ("clock", "prng"):
            is_known = seen[name] == "captured" or name in options.vouched
            captures[name] = "captured" if is_known else "unknown"
        is_vouched = any(seen.get(name) != "captured" for name in options.vouched)
        engine = {**_engine_of_proxy(), **options.engine}
        manifest = _manifest(options.roots, engine)
        return SessionStarted(
            task=options.task,
            format_id=session_id.partition(":")[2],
            agent=self._agent,
            basis="vouched" if is_vouched else "intercepted",
            captures=captures,
            decisions=options.decisions,
            environment=raw_of({**manifest, **options.environment}),
            thread=os.environ.get(PARENT_VARIABLE) or None,
        )


def record(
    agent: str,
    *,
    task: str | None = None,
    store: str | os.PathLike[str] | None = None,
    intercept: bool | Sequence[str] = False,
    vouch: Sequence[str] = (),
    decisions: str = TOOL_CALLS,
    engine: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    code: str | os.PathLike[str] | None = None,
    sync: bool = False,
    fail_closed: bool = False,
    redact_at_write: bool = False,
) -> Recording:
    """Record an agent that runs in this process.

    Args:
        agent: its name; part of the session's id.
        task: what it was asked.
        store: the store's file; else $REDRIVE_STORE, the nearest `.redrive/store.db` upwards, or
            the user's data folder.
        intercept: also record clock and dice that the agent's code reads by itself: `True` for all
            of `time`, `datetime`, `random`, `uuid`, `secrets`, `os`, or a list of them.
        vouch: of `clock`, `prng`, `environment`: what you vouch for that no seam intercepts.
        decisions: `tool_calls`, or `json_content` where the model writes a decision as a JSON
            text {tool, arguments} in its answer.
        engine: what serves the model, where you started it and know; its `fingerprint` is that of
            each answer.
        environment: further facts that could change the run.
        code: the folder of the agent's own code; the caller's if absent.
        sync: each event is durable before the agent goes on.
        fail_closed: what cannot be recorded stops the agent with a `StoreError`.
        redact_at_write: secrets are masked before anything is stored; each step with one is open.

    Returns:
        A context manager that gives the `AgentSession`.

    Raises:
        UsageError: an option is none that is known.
    """
    if decisions not in (TOOL_CALLS, JSON_CONTENT):
        raise UsageError(f"decisions is {decisions!r}: expected {TOOL_CALLS} or {JSON_CONTENT}")
    unknown = sorted(set(vouch) - set(VOUCHABLE))
    if unknown:
        raise UsageError(f"vouch names {unknown[0]!r}", hint=f"one of {', '.join(VOUCHABLE)}")
    # The stand-in of `redrive.record` and this function are of redrive, and so is no caller.
    roots = find_roots(sys._getframe(1)) if code is None else (Path(code).resolve(),)
    options = RecordOptions(
        task=task,
        store=None if store is None else os.fspath(store),
        intercepted=_intercepted_names(intercept),
        vouched=tuple(vouch),
        decisions=decisions,
        engine=engine or {},
        environment=environment or {},
        roots=roots,
        recorder=RecorderOptions(sync, fail_closed, redact_at_write),
    )
    return Recording(agent, options)


def _intercepted_names(wanted: bool | Sequence[str]) -> tuple[str, ...]:  # noqa: FBT001 - an option
    if isinstance(wanted, bool):
        return ALL_SOURCES if wanted else ()
    unknown = sorted(set(wanted) - set(ALL_SOURCES))
    if unknown:
        hint = f"one of {', '.join(ALL_SOURCES)}"
        raise UsageError(f"intercept names {unknown[0]!r}", hint=hint)
    return tuple(wanted)


def _manifest(roots: Sequence[Path], engine: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the environment; where that fails the agent runs all the same."""
    try:
        return build_manifest(roots[0] if roots else Path.cwd(), engine=engine or None)
    except (RedriveError, OSError) as error:
        tell(f"the environment is not recorded: {error}")
        return {}


def _engine_of_proxy() -> dict[str, Any]:
    """Read what `redrive record --model local` says of the engine that it started."""
    try:
        found = msgspec.json.decode(os.environ.get(ENGINE_VARIABLE, "{}"))
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _close(recorder: Recorder, session_id: str) -> None:
    try:
        recorder.close()
    except StoreError as error:
        tell(f"{session_id}: the recording's end is not stored: {error.message}")


def _list(session_id: str) -> None:
    """Tell `redrive record`, if it started this process, that a session is being recorded here."""
    path = os.environ.get(LIST_VARIABLE)
    if path:
        try:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{session_id}\n")
        except OSError:
            return
