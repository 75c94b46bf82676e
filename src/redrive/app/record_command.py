"""`redrive record -- COMMAND`: an agent in any language, recorded by a proxy before its model.

Wires the proxy of `redrive.capture` to a store and starts the command beside it. Decides nothing of
what is recorded.

The session is begun with the first thing that is seen, so a command that asks no model leaves
nothing behind. An agent that records itself (`redrive.record`) has a session of its own; what it
sends through the proxy is marked, and recorded once.

Source: DESIGN.md §8; issue "The recorder".
"""

import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.app.recorder_opening import (
    NoSink,
    RecorderOptions,
    new_session_id,
    open_recorder,
    tell,
)
from redrive.app.recording import ENGINE_VARIABLE, LIST_VARIABLE, PARENT_VARIABLE
from redrive.audit.manifest import CLASSES
from redrive.capture.claude_hooks import report_hook
from redrive.capture.event_log import Sink
from redrive.capture.lazy import LazyBackend
from redrive.capture.recorder import Recorder
from redrive.capture.recording import RecordingBackend
from redrive.capture.remote_serving import serve_remote
from redrive.capture.route import (
    CONTROL,
    HOOK_ROUTE,
    PROXY_VARIABLE,
    RECORDER_VARIABLE,
    UPSTREAMS_VARIABLE,
)
from redrive.capture.targets import point_at
from redrive.capture.token_evidence import CHAT_EVIDENCE
from redrive.errors import RedriveError, StoreError, UsageError
from redrive.models.local import LocalEngine, parse_engine_options
from redrive.record.decisions import TOOL_CALLS
from redrive.record.event import SessionStarted, raw_of
from redrive.stores.locate import ENV_NAME
from redrive.stores.sqlite import open_store

if TYPE_CHECKING:
    from redrive.capture.proxy_thread import ProxyThread

NOT_SEEN = ("clock", "prng")
"""What no proxy can see; everything else that a step needs passes it."""


class RecordRequest(msgspec.Struct, frozen=True):
    """What is to be recorded, and how.

    Attributes:
        command: the agent and its arguments; neither is stored.
        agent: its name in the session's id; the program's where absent.
        task: what it was asked.
        decisions: `tool_calls` or `json_content`.
        model: `local[:OPTIONS]` starts the local engine as the model behind OpenAI's API.
        token_evidence: whether token ids and log-probabilities may be asked for.
        recorder: how events are kept.
    """

    command: tuple[str, ...]
    agent: str | None = None
    task: str | None = None
    decisions: str = TOOL_CALLS
    model: str | None = None
    token_evidence: bool = False
    recorder: RecorderOptions = RecorderOptions()


class RecordedSession(msgspec.Struct, frozen=True):
    """One session that was recorded: by our proxy, or by the agent itself (`in_process`)."""

    session_id: str
    seam: str
    exchanges: int | None = None


class RecordOutcome(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        exit_code: the command's; 128 + n where signal n ended it.
        sessions: what was recorded.
        left: variables that name a server in a form that is not understood: not seen.
        faults: what could not be recorded.
    """

    exit_code: int
    sessions: tuple[RecordedSession, ...]
    left: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def record_command(
    request: RecordRequest, store: Path, environment: Mapping[str, str], *, stdout: int | None
) -> RecordOutcome:
    """Run a command with a recording proxy before its model.

    Args:
        request: what and how.
        store: where sessions go.
        environment: the agent's, as it would be without us.
        stdout: descriptor that the command's stdout goes to; ours if absent.

    Raises:
        UsageError: the command does not exist, or an option is wrong.
        StoreError: the store cannot be used.
    """
    open_store(store, create=True).close()  # what is wrong with it is said before anything runs
    faults: list[str] = []
    with ExitStack() as stack:
        engine = _start_engine(request.model, stack)
        recording = _ProxyRecording(request, store, engine, stack, faults)
        backend = LazyBackend(recording.begin)
        from redrive.capture.proxy import Proxy  # late: both need an optional library
        from redrive.capture.proxy_thread import ProxyThread

        proxy = Proxy(
            backend,
            control={**serve_remote(backend), HOOK_ROUTE: _hook_route(backend)},
            token_evidence=CHAT_EVIDENCE if request.token_evidence else (),
            on_fault=recording.tell,
        )
        thread = stack.enter_context(ProxyThread(proxy))
        agents, left = _agents_environment(environment, thread, engine)
        listed = Path(stack.enter_context(TemporaryDirectory(prefix="redrive-"))) / "sessions"
        own = {
            RECORDER_VARIABLE: thread.url_for(CONTROL),
            LIST_VARIABLE: str(listed),
            PARENT_VARIABLE: recording.session_id,
            ENV_NAME: str(store),
        }
        for variable in left:
            tell(f"{variable} names a server in a form that is not understood: it is not recorded")
        code = _run(request.command, agents | own, stdout)
        thread.close()  # exchanges that are still open have their end told
        backend.end("failure" if code else None)
        begun = backend.begun if recording.is_kept else None
        sessions = _sessions(begun, recording.session_id, listed)
    return RecordOutcome(code, sessions, left, tuple(faults))


class _ProxyRecording:
    """Begins the proxy's session when it is needed."""

    def __init__(
        self,
        request: RecordRequest,
        store: Path,
        engine: LocalEngine | None,
        stack: ExitStack,
        faults: list[str],
    ) -> None:
        self.session_id = new_session_id(request.agent or Path(request.command[0]).stem)
        self.is_kept = True
        self._request = request
        self._store = store
        self._engine = engine
        self._stack = stack
        self._faults = faults

    def tell(self, line: str) -> None:
        """Keep a fault for the report, and tell the operator now."""
        self._faults.append(line)
        tell(f"{self.session_id}: {line}")

    def begin(self) -> RecordingBackend:
        """Open the recorder, and say what the session is."""
        return RecordingBackend(
            self._open(),
            self.session_id,
            self._describe(),
            now_ns=time.time_ns,
            by_context=False,
            engine=None if self._engine is None else self._engine.fingerprint,
            on_fault=self.tell,
        )

    def _open(self) -> Sink:
        """Open the recorder; where that fails the agent runs on, unless it is fail-closed."""
        options = self._request.recorder
        try:
            recorder = open_recorder(self._store, self.session_id, options, self.tell)
        except RedriveError as error:
            if options.is_fail_closed:
                raise
            self.is_kept = False
            self.tell(f"NOTHING IS RECORDED: {error.message}")
            return NoSink()
        self._stack.callback(self._close, recorder)
        return recorder

    def _close(self, recorder: Recorder) -> None:
        try:
            recorder.close()
        except StoreError as error:
            self.tell(f"the recording's end is not stored: {error.message}")

    def _describe(self) -> SessionStarted:
        request, engine = self._request, self._engine
        captures = dict.fromkeys(CLASSES, "captured") | dict.fromkeys(NOT_SEEN, "not_captured")
        facts = {} if engine is None else {"engine": _facts_of(engine)}
        return SessionStarted(
            task=request.task,
            format_id=self.session_id.partition(":")[2],
            agent=request.agent or Path(request.command[0]).stem,
            basis="intercepted",
            captures=captures,
            decisions=request.decisions,
            environment=raw_of({"recorded_by": "proxy", **facts}),
        )


def _hook_route(backend: LazyBackend) -> Callable[[bytes], Awaitable[bytes]]:
    """Take what hooks of Claude Code are told, as `docs/record-claude-code.md` sets them up."""

    async def take(body: bytes) -> bytes:
        report_hook(body, backend)
        return b"{}"

    return take


def _start_engine(spec: str | None, stack: ExitStack) -> LocalEngine | None:
    if spec is None:
        return None
    kind, _, options = spec.partition(":")
    if kind != "local":
        raise UsageError(
            f"--model is {spec!r}: only the local engine can be started here",
            hint="name another server in the agent's own variable, such as OPENAI_BASE_URL",
        )
    return stack.enter_context(LocalEngine(parse_engine_options(options)))


def _facts_of(engine: LocalEngine) -> dict[str, Any]:
    return {**engine.details, "fingerprint": engine.fingerprint}


def _agents_environment(
    environment: Mapping[str, str], thread: "ProxyThread", engine: LocalEngine | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Give the agent's environment, pointed at the proxy, and the variables that were left."""
    base = dict(environment)
    if engine is not None:
        base |= {"OPENAI_BASE_URL": f"{engine.url}/v1", ENGINE_VARIABLE: _dump(_facts_of(engine))}
        base.setdefault("OPENAI_API_KEY", "local")
    pointing = point_at(base, thread.url_for)
    thread.add_upstreams(pointing.upstreams)
    own = {
        PROXY_VARIABLE: thread.url_for(CONTROL).rpartition("/")[0],
        UPSTREAMS_VARIABLE: _dump(
            {thread.url_for(n): url for n, url in pointing.upstreams.items()}
        ),
    }
    return {**base, **pointing.changes, **own}, pointing.left


def _dump(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _run(command: Sequence[str], environment: Mapping[str, str], stdout: int | None) -> int:
    """Run the agent to its end; an interrupt or a request to end is passed on to it."""
    try:
        process = subprocess.Popen(command, env=environment, stdout=stdout)
    except FileNotFoundError as error:
        raise UsageError(f"no such command: {command[0]}") from error
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from error
    with _passing_on(process):
        code = process.wait()
    return code if code >= 0 else 128 - code


@contextmanager
def _passing_on(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Leave interrupts to the agent (a terminal sends it its own), and hand on SIGTERM."""

    def hand_on(number: int, _: object) -> None:
        process.send_signal(number)

    known = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, hand_on),
    }
    try:
        yield
    finally:
        for number, handler in known.items():
            signal.signal(number, handler)


def _sessions(
    begun: RecordingBackend | None, session_id: str, listed: Path
) -> tuple[RecordedSession, ...]:
    found = [] if begun is None else [RecordedSession(session_id, "proxy", begun.n_exchanges)]
    if listed.exists():
        names = listed.read_text(encoding="utf-8").splitlines()
        found += [RecordedSession(name, "in_process") for name in dict.fromkeys(names)]
    return tuple(found)
