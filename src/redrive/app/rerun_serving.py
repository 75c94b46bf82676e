"""Runs an agent's own code again on a stored session: in this process, or a command in a sandbox.

Knows stores, models and the serving backend, and wires them. Decides nothing: what is served and
what differs is decided in the core. Who runs a command is plugged in (`CommandRunner`).

Source: issue "The recorder" §5.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.app.opening import mode_of, open_session
from redrive.app.rerun_model import LiveModel
from redrive.app.rerun_reading import SharedReader, read_artefact
from redrive.app.shadowing import open_model
from redrive.capture.serving import ServingBackend
from redrive.compare.rerun_difference import describe_miss
from redrive.compare.rerun_document import (
    AgentEnd,
    RerunDocument,
    RerunFacts,
    Variant,
    describe_rerun,
    with_proof,
)
from redrive.errors import IneligibleError, RerunStopped
from redrive.models.options import ModelOptions
from redrive.replay.rerun_exchange import RerunOptions
from redrive.replay.rerun_items import RerunRecord
from redrive.replay.rerun_record import find_seamless, read_rerun
from redrive.stores.port import Store

FORMAT = "redrive"
VARIANTS = (
    Variant(hash_seed=1, time_zone="Pacific/Kiritimati", n_cpus=1),
    Variant(hash_seed=4242, time_zone="America/St_Johns", n_cpus=2),
)
"""What `--prove` reruns under: other hash seeds, far time zones, few processors."""

Environment = Mapping[str, Any]


class CommandEnd(msgspec.Struct, frozen=True):
    """How a command ended.

    Attributes:
        exit_code: absent where it was ended by us.
        error: what went wrong, where something did.
        isolation: what held it, as the sandbox proved it.
        environment: the manifest of this run, where it is known.
        has_read: whether it asked for reads: a command of another language reads its own clock.
        notes: what it had otherwise than the recorded run.
    """

    exit_code: int | None = None
    error: str | None = None
    isolation: str | None = None
    environment: Environment | None = None
    has_read: bool = True
    notes: tuple[str, ...] = ()


class CommandRunner(Protocol):
    """Runs a command without network, whose HTTP on loopback reaches a backend."""

    def __call__(
        self,
        command: Sequence[str],
        backend: ServingBackend,
        variant: Variant,
        stop: threading.Event,
    ) -> CommandEnd:
        """Run it to its end; once `stop` is set, the rest of it is not wanted.

        Raises:
            ContainmentError: the sandbox is not proven here; nothing ran.
            UsageError: there is no such command.
        """
        ...


class RerunRequest(msgspec.Struct, frozen=True):
    """What a user asks of one rerun.

    Attributes:
        session: id or unique prefix.
        command: what is run; empty where a function is.
        model: spec of a live model, if any.
        recompute: let derived values be computed again.
        prove: rerun twice more under other hash seeds, time zones and processor counts, and write
            the basis into the session where all are identical.
        variables: where API keys of a live model are looked up.
    """

    session: str
    command: tuple[str, ...] = ()
    model: str | None = None
    recompute: bool = True
    prove: bool = False
    variables: Mapping[str, str] = {}


class RerunReport(msgspec.Struct, frozen=True):
    """What a rerun came to.

    Attributes:
        document: all of it.
        value: what the agent's function returned, where it did.
    """

    document: RerunDocument
    value: Any = None

    @property
    def identical(self) -> bool:
        """Whether the agent's code asked for the same again, byte for byte."""
        return self.document.identical


class RerunCase(msgspec.Struct, frozen=True):
    """A stored session that may be run again."""

    store: Any
    session: Any
    recorded: RerunRecord

    @property
    def environment(self) -> Environment | None:
        """The manifest that the session holds."""
        started = self.session.started
        if started is None or not isinstance(started.environment, Raw):
            return None
        value = canonical.decode_value(bytes(started.environment))
        return value if isinstance(value, dict) else None

    @property
    def is_in_process(self) -> bool:
        """Whether it was recorded inside the agent, where threads and tasks tell flows."""
        return (self.environment or {}).get("recorded_by") != "proxy"


def open_case(store: Store, name: str) -> RerunCase:
    """Open a session for a rerun.

    Raises:
        IneligibleError: it is of another format, or tools did not run at a seam; carries the tools.
        UsageError: no such session.
    """
    session = open_session(store, name)
    row = session.row
    if row.format != FORMAT:
        raise IneligibleError(
            f"{row.session_id} was imported from {row.format}, which records no seam to serve at",
            hint="record the agent with `redrive record` or `redrive.record()`",
        )
    tools = find_seamless(session.index, session.reader)
    if tools:
        raise IneligibleError(
            f"{row.session_id} cannot be run again: results of {', '.join(tools)} were not recorded"
            " where the tools run, so they would run for real",
            tool=tools[0],
            chain=tools,
            hint="record them in the agent's own code: @session.tool",
        )
    return RerunCase(store, session, read_rerun(session.index, session.reader))


class _Served(msgspec.Struct, frozen=True):
    """A case that is being served once."""

    case: RerunCase
    backend: ServingBackend
    live: LiveModel | None

    def describe(self, facts: RerunFacts) -> RerunDocument:
        """Write what came of it.

        Raises:
            RedriveError: what made it impossible to go on.
        """
        miss = self.backend.finish()
        if self.backend.error is not None:
            raise self.backend.error
        state, reader = self.backend.state, self.case.session.reader
        divergence = (
            None if miss is None else describe_miss(state, miss, reader, self.case_artefact)
        )
        decisions = () if self.live is None else tuple(self.live.decisions)
        return describe_rerun(state, divergence, facts, decisions)

    def case_artefact(self, digest: str) -> bytes:
        """Read a verbatim artefact."""
        return read_artefact(self.case.store, digest)


def _serve(
    stack: ExitStack, case: RerunCase, request: RerunRequest, stop: threading.Event
) -> _Served:
    reading = stack.enter_context(SharedReader(case.store.path, case.session.row.session_id))
    live = _open_live(stack, case, request, reading)
    backend = ServingBackend(
        case.recorded,
        read_event=reading.read_event,
        read_artefact=reading.read_artefact,
        options=RerunOptions(
            recompute=request.recompute, is_live=live is not None, can_read=case.is_in_process
        ),
        by_context=case.is_in_process,
        ask_model=None if live is None else live.answer,
        on_stop=stop.set,
    )
    return _Served(case, backend, live)


def _open_live(
    stack: ExitStack, case: RerunCase, request: RerunRequest, reading: SharedReader
) -> LiveModel | None:
    if request.model is None:
        return None
    mode = mode_of(case.session)
    options = ModelOptions(decisions=mode, environment=request.variables)
    model = stack.enter_context(closing(open_model(request.model, options)))
    return LiveModel(model, case.session.index, reading.read_event, mode)


def rerun_function(
    store: Store,
    request: RerunRequest,
    fn: Callable[[ServingBackend], Any],
    environment: Environment | None = None,
) -> RerunReport:
    """Run an agent's function again in this process, everything from outside served.

    Args:
        store: where the session lies.
        request: what is asked; `command` and `prove` mean nothing here.
        fn: the agent's code, given the backend that serves.
        environment: the manifest of this process, where it is known.

    Raises:
        IneligibleError, UsageError: see `open_case`.
        TamperError, ModelError: the record was altered, or the live model failed.
    """
    case = open_case(store, request.session)
    with ExitStack() as stack:
        served = _serve(stack, case, request, threading.Event())
        value, end = _call(fn, served.backend)
        facts = RerunFacts(
            head=case.session.row.head,
            agent=end,
            recorded_environment=case.environment,
            environment=environment,
            model=request.model,
        )
        return RerunReport(served.describe(facts), value)


def _call(fn: Callable[[ServingBackend], Any], backend: ServingBackend) -> tuple[Any, AgentEnd]:
    """Run the agent; how it ends is a fact of the report."""
    try:
        return fn(backend), AgentEnd("returned")
    except RerunStopped:
        return None, AgentEnd("stopped")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        return None, AgentEnd("exited", exit_code=code)
    except Exception as error:  # noqa: BLE001 - see above
        return None, AgentEnd("raised", f"{type(error).__name__}: {error}")


def rerun_command(
    store: Store, request: RerunRequest, runner: CommandRunner, prove: Callable[[RerunCase], str]
) -> RerunReport:
    """Run a command again in the sandbox, everything from outside served.

    Args:
        store: where the session lies.
        request: what is asked.
        runner: runs the command.
        prove: writes the basis into the session and gives its new head; called where reruns under
            every variant were identical.

    Raises:
        IneligibleError, UsageError: see `open_case`.
        ContainmentError: the sandbox is not proven here; nothing ran.
        TamperError, ModelError: the record was altered, or the live model failed.
    """
    case = open_case(store, request.session)
    document = _run_once(case, request, runner, Variant())
    if request.prove and document.identical:
        runs = [_run_once(case, request, runner, variant) for variant in VARIANTS]
        document = with_proof(document, runs)
        if document.proof is not None and document.proof.basis is not None:
            note = f"the basis is written into the session; its head is now {prove(case)}"
            document = msgspec.structs.replace(document, notes=(*document.notes, note))
    return RerunReport(document)


def _run_once(
    case: RerunCase, request: RerunRequest, runner: CommandRunner, variant: Variant
) -> RerunDocument:
    stop = threading.Event()
    with ExitStack() as stack:
        served = _serve(stack, case, request, stop)
        end = runner(request.command, served.backend, variant, stop)
        facts = RerunFacts(
            head=case.session.row.head,
            agent=AgentEnd("exited", end.error, end.exit_code),
            recorded_environment=case.environment,
            environment=end.environment,
            model=request.model,
            is_reading=case.is_in_process and end.has_read,
            variant=variant,
            isolation=end.isolation,
            notes=end.notes,
        )
        return served.describe(facts)
