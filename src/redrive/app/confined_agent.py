"""Runs an agent's command in the sandbox, with nothing but an HTTP server that we give it.

What `redrive rerun SESSION -- COMMAND` runs: no network, no file that can be changed but those in
memory, and one way out, the loopback of the sandbox, on which our own server answers. Does not know
what that server serves.

Source: DESIGN.md §6; issue 4 §5.
"""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

import redrive
from redrive.app.agent_folders import check_cwd, find_folders, find_pipes, is_of_system
from redrive.errors import ContainmentError, UsageError
from redrive.sandbox.bubblewrap import run_confined
from redrive.sandbox.confinement import (
    DEFAULT_PATH,
    MIB,
    SCRATCH_HOME,
    Bind,
    ConfinedResult,
    Confinement,
    Limits,
    lies_in,
)
from redrive.sandbox.loopback import (
    LOOPBACK_ORIGIN,
    FolderCopy,
    LoopbackReport,
    Serve,
    open_channel,
    serve_loopback,
    shim_command,
)
from redrive.sandbox.wiring import Wiring

# Software development kits refuse to start without one; none of these is worth anything.
NO_KEY = "redrive"
_KEY_OWNERS = (
    *("OPENAI", "ANTHROPIC", "AZURE_OPENAI", "GEMINI"),
    *("GOOGLE", "MISTRAL", "GROQ", "OPENROUTER"),
)
KEY_VARIABLES = tuple(f"{owner}_API_KEY" for owner in _KEY_OWNERS)
AGENT_LIMITS = Limits(
    cpu_s=900,
    # A reservation, not memory in use: JavaScript engines reserve far more than they touch.
    address_space_bytes=64 * 1024 * MIB,
    n_processes=512,
    file_bytes=256 * MIB,
    n_open_files=1024,
    scratch_bytes=256 * MIB,
    output_bytes=MIB,
    wall_s=1800.0,
)
_COPIED_FROM = "/redrive/folder"
_STORE_FOLDER = ".redrive"
_ERROR_CHARS = 500


class AgentServer(msgspec.Struct, frozen=True):
    """What answers the agent on its loopback.

    Args:
        serve: takes over one connected socket, such as `Proxy.serve_connection`; awaited on the
            loop that runs.
        paths: variable → path on the server, such as `OPENAI_BASE_URL` → `/TOKEN/openai/v1`; the
            agent finds the whole URL in that variable.
    """

    serve: Serve
    paths: Mapping[str, str] = {}


class Variation(msgspec.Struct, frozen=True):
    """What a rerun may be given otherwise than the recorded run had it.

    `None` leaves it to the machine. A run that hangs on one of these has an unrecorded input.

    Args:
        hash_seed: `PYTHONHASHSEED`.
        time_zone: `TZ`, such as `Asia/Kolkata`.
        n_cpus: processors that are shown and used.
    """

    hash_seed: int | None = None
    time_zone: str | None = None
    n_cpus: int | None = None


AS_IS = Variation()


class AgentStreams(msgspec.Struct, frozen=True):
    """What connects the run with the caller's terminal; see `redrive.sandbox.wiring.Wiring`.

    `on_stdout` and `on_stderr` are called from a thread of their own.
    """

    stdin: bytes = b""
    on_stdout: Callable[[bytes], object] | None = None
    on_stderr: Callable[[bytes], object] | None = None
    passed_bytes: int | None = None


COLLECTED = AgentStreams()


class ConfinedRun(msgspec.Struct, frozen=True):
    """How an agent's run ended.

    Args:
        result: exit code, outputs, what ended it.
        connections: what came over its loopback.
        notes: what the agent had otherwise than outside, for the report.
    """

    result: ConfinedResult
    connections: LoopbackReport
    notes: tuple[str, ...] = ()


class AgentCommand(msgspec.Struct, frozen=True):
    """What is run, and what it has.

    Args:
        command: the command and its arguments; looked up on the caller's `PATH`.
        cwd: the agent's folder; shown read-only, or as a copy.
        caller: variables of the caller, of which `PATH`, `LANG` and `HOME` are looked at.
        environment: variables that the agent gets beside those that every run has.
        readable: further files and folders that it sees, read-only.
        variation: see `Variation`.
        limits: what it may spend.
        is_cwd_copied: whether it works in a private copy of `cwd` in memory, of at most
            `scratch_bytes`, without `.redrive`, and gone afterwards.
    """

    command: tuple[str, ...]
    cwd: str
    caller: Mapping[str, str]
    environment: Mapping[str, str] = {}
    readable: tuple[str, ...] = ()
    variation: Variation = AS_IS
    limits: Limits = AGENT_LIMITS
    is_cwd_copied: bool = False


def run_agent(
    agent: AgentCommand,
    *,
    server: AgentServer,
    streams: AgentStreams = COLLECTED,
    stop: threading.Event | None = None,
) -> ConfinedRun:
    """Run an agent to its end; an interrupt ends it and everything it started.

    Args:
        agent: what is run.
        server: answers on the agent's loopback, the only network there is.
        streams: its input, and where its outputs go as they come.
        stop: the run is ended as soon as it is set; it is set when this returns.

    Raises:
        ContainmentError: the sandbox is not proven here, or failed; nothing ran outside it.
        UsageError: a folder or file cannot be shown; the copy would be too large.
    """
    return asyncio.run(run_agent_async(agent, server=server, streams=streams, stop=stop))


async def run_agent_async(
    agent: AgentCommand,
    *,
    server: AgentServer,
    streams: AgentStreams = COLLECTED,
    stop: threading.Event | None = None,
) -> ConfinedRun:
    """Run an agent as `run_agent` does, on the loop that runs; a cancellation ends it."""
    plan = _plan(agent, server)
    stop = stop or threading.Event()
    with open_channel() as (ours, theirs):
        argv = shim_command(_python(), theirs, plan.command, copy=plan.copy)
        wiring = Wiring(
            channel=theirs,
            on_stdout=streams.on_stdout,
            on_stderr=streams.on_stderr,
            passed_bytes=streams.passed_bytes,
            stop=stop,
        )
        serving = asyncio.create_task(serve_loopback(ours, server.serve))
        running = asyncio.create_task(
            asyncio.to_thread(run_confined, argv, plan.confinement, streams.stdin, wiring)
        )
        try:
            result = await asyncio.shield(running)
        finally:
            stop.set()
            await asyncio.gather(running, return_exceptions=True)
            # It was taken over, but for a sandbox that is not proven and runs nothing.
            theirs.close()
            connections = await serving
    _check_start(result, connections)
    return ConfinedRun(result, connections, plan.notes)


class _Plan(msgspec.Struct, frozen=True):
    command: tuple[str, ...]
    confinement: Confinement
    copy: FolderCopy | None
    notes: tuple[str, ...]


def _check_start(result: ConfinedResult, connections: LoopbackReport) -> None:
    if connections.is_started or result.exit_code is None:
        return
    words = " ".join(result.stderr.decode("utf-8", "replace").split())
    why = connections.fault or words[-_ERROR_CHARS:] or f"exit {result.exit_code}"
    raise ContainmentError(
        f"the command did not start in the sandbox: {why}",
        hint="redrive doctor shows what the sandbox can do here",
    )


def _python() -> str:
    return os.path.realpath(sys.executable)


def _plan(agent: AgentCommand, server: AgentServer) -> _Plan:
    if not agent.command:
        raise UsageError("there is no command to run")
    home = agent.caller.get("HOME") or os.path.expanduser("~")
    path = agent.caller.get("PATH") or DEFAULT_PATH
    folder = check_cwd(agent.cwd, home)
    shown = find_shown(agent.command[0], path, home, agent.readable)
    copy = _copy_of(folder, shown, agent.limits) if agent.is_cwd_copied else None
    confinement = Confinement(
        readable=(*shown, *_working_folder(folder, copy), *_covers(agent.readable)),
        cwd=folder,
        environment=_environment(agent, server, path),
        limits=agent.limits,
        scratch=() if copy is None else (folder,),
        n_cpus=agent.variation.n_cpus,
    )
    how = "read-only" if copy is None else "a private copy that is gone afterwards"
    return _Plan(agent.command, confinement, copy, (f"the working folder is {how}",))


def _working_folder(folder: str, copy: FolderCopy | None) -> tuple[Bind, ...]:
    """Show the working folder, where it is or where its copy is made from."""
    if copy is None and is_of_system(folder):
        return ()
    inside = folder if copy is None else copy.source
    pipes = (inside + pipe.removeprefix(folder) for pipe in find_pipes(folder))
    return (Bind(folder, inside), *(Bind(os.devnull, pipe) for pipe in pipes))


def _covers(named: Sequence[str]) -> tuple[Bind, ...]:
    """Cover the pipes in the folders that a user names."""
    return tuple(Bind(os.devnull, pipe) for name in named for pipe in find_pipes(name))


def _environment(agent: AgentCommand, server: AgentServer, path: str) -> Mapping[str, str]:
    return {
        **dict.fromkeys(KEY_VARIABLES, NO_KEY),
        "PATH": path,
        "LANG": agent.caller.get("LANG") or "C.UTF-8",
        "HOME": SCRATCH_HOME,
        **agent.environment,
        **{name: LOOPBACK_ORIGIN + place for name, place in server.paths.items()},
        **_varied(agent.variation),
    }


def find_shown(command: str, path: str, home: str, readable: Sequence[str]) -> tuple[Bind, ...]:
    """List what is shown read-only: what programs need, redrive itself, and what is named."""
    prefixes = {sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(_python()))}
    folders = [*find_folders(command, path, sorted(prefixes), home)]
    own = os.path.dirname(os.path.abspath(redrive.__file__))
    folders += [own, *(os.path.abspath(name) for name in readable)]
    kept = dict.fromkeys(f for f in folders if not is_of_system(f))
    return tuple(Bind(f) for f in kept if not any(lies_in(f, o) for o in kept if o != f))


def _varied(variation: Variation) -> Mapping[str, str]:
    """Give the variables of a variation.

    Raises:
        UsageError: a hash seed that Python would refuse.
    """
    varied = {}
    if variation.hash_seed is not None:
        if not 0 <= variation.hash_seed < 2**32:
            raise UsageError(f"a hash seed is 0 to 4294967295, not {variation.hash_seed}")
        varied["PYTHONHASHSEED"] = str(variation.hash_seed)
    if variation.time_zone is not None:
        varied["TZ"] = variation.time_zone
    return varied


def _copy_of(folder: str, shown: Sequence[Bind], limits: Limits) -> FolderCopy:
    """Plan a copy of the working folder; what is shown below it anyway is not copied.

    Raises:
        UsageError: it is larger than a folder in memory may be.
    """
    below = [bind.source for bind in shown if lies_in(bind.source, folder)]
    skipped = {*below, os.path.join(folder, _STORE_FOLDER)} - {folder}
    size_bytes = 0
    for root, names, files in os.walk(folder):
        names[:] = [name for name in names if os.path.join(root, name) not in skipped]
        size_bytes += sum(_size_bytes(Path(root, name)) for name in files)
        if size_bytes > limits.scratch_bytes:
            raise UsageError(
                f"the folder {folder!r} is larger than a copy in memory may be: "
                f"{limits.scratch_bytes // MIB} MiB",
                hint="run the agent on the folder itself, read-only",
            )
    inside = sorted(_COPIED_FROM + path.removeprefix(folder) for path in skipped)
    return FolderCopy(_COPIED_FROM, folder, tuple(inside))


def _size_bytes(file: Path) -> int:
    try:
        status = file.lstat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
