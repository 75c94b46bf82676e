"""Loads a workflow's declaration: its file is imported in the sandbox alone, never here.

Wires the confined import, the listings of its MCP servers and the digest of its code. Decides
nothing: `audit.eligibility` judges what comes of it.

Source: DESIGN.md §6, §8.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from redrive.app.agent_folders import check_cwd, is_of_system
from redrive.app.confined_agent import find_shown
from redrive.app.trial_code_digest import WORKFLOW_HINT, digest_code, find_place
from redrive.app.trial_confinement import cover, find_hidden, python_command
from redrive.app.trial_describing import Described, Fault
from redrive.app.trial_listing import expand_listings
from redrive.app.trial_mcp import McpCommand, McpWorker
from redrive.app.trial_mcp_client import ListedTool
from redrive.app.trial_messages import CodePlace
from redrive.audit.workflow import McpSpec, WorkflowSpec
from redrive.audit.workflow_checks import check_spec, servers_of
from redrive.audit.workflow_json import parse_workflow
from redrive.errors import ContainmentError, PluginError, UsageError
from redrive.replay.trial_plan import PlannedWorkflow
from redrive.sandbox.confinement import (
    DEFAULT_PATH,
    MIB,
    SCRATCH_HOME,
    Bind,
    ConfinedResult,
    Confinement,
    Limits,
)
from redrive.sandbox.door import BUBBLEWRAP, NO_LEVEL_HINT, NONE, find_level, run_at

# Software development kits and servers refuse to start without a key; this one is worth nothing.
NO_SECRET = "redrive"  # noqa: S105  # nosec B105 - the value that is none
_IMPORT_LIMITS = Limits(cpu_s=30, n_processes=64, output_bytes=4 * MIB, wall_s=60.0)
_LISTING_LIMITS = Limits(cpu_s=30, n_processes=64, output_bytes=MIB, wall_s=90.0)
_CHILD = "redrive.app.trial_describing"
_JSON_SOURCE = re.compile(r".+\.json")
_MOST_CHARS = 500
_NOTHING = "nothing"


class LoadedWorkflow(msgspec.Struct, frozen=True):
    """A workflow as planned, and where its code lies, for the processes that run it.

    Attributes:
        planned: its source, declaration and digest; the role is empty.
        place: what a confined process imports, and the folder that it must see for that.
    """

    planned: PlannedWorkflow
    place: CodePlace

    @property
    def spec(self) -> WorkflowSpec:
        """What it declares, MCP listings read."""
        return self.planned.spec


def load_workflow(
    source: str, base: Path, level: str = "", *, caller: Mapping[str, str] | None = None
) -> LoadedWorkflow:
    """Load what a workflow's code declares, importing it in the sandbox.

    Args:
        source: `PATH.py:NAME`, relative to `base`, or an entry point of `redrive.workflows`.
        base: a folder.
        level: of the sandbox; empty for what is proven here.
        caller: the caller's environment, of which `PATH`, `HOME` and `LANG` are looked at; absent
            for that of this process.

    Raises:
        UsageError: no such file, entry point or name; the declaration is malformed.
        PluginError: the code fails to be imported (file:line), or an MCP server to be listed.
        ContainmentError: there is no sandbox here; nothing was imported.
    """
    place = find_place(source, base)
    level = level or find_level().name
    if level == NONE:
        raise ContainmentError(
            "a workflow's code is imported in a sandbox alone, and none is proven here",
            hint=NO_LEVEL_HINT,
        )
    environment = os.environ if caller is None else caller
    digest = digest_code(place)
    spec = _describe(place, source, level, environment)
    if any(servers_of(spec)):
        spec = expand_listings(
            spec, lambda server: list_server(server, place, level, caller=environment)
        )
        check_spec(spec)
    where = f"{place.file}:{place.name}" if place.file else source
    return LoadedWorkflow(PlannedWorkflow(source, spec, digest, place=where), place)


def is_json(source: str) -> bool:
    """Say whether a source is a declaration as JSON, which is judged and never run."""
    return _JSON_SOURCE.fullmatch(source) is not None


def load_json(source: str, registry: str | None) -> WorkflowSpec:
    """Read a declaration from JSON files; nothing is imported, so this needs no sandbox.

    Raises:
        UsageError: no such file, or the declaration is not understood.
    """
    text = _read_text(source)
    return parse_workflow(text, None if registry is None else _read_text(registry))


def list_server(
    server: McpSpec, place: CodePlace, level: str, *, caller: Mapping[str, str]
) -> Sequence[ListedTool]:
    """Start an MCP server confined, without network or secrets, and read what it lists.

    Its working folder is an empty one in the place of a task's workspace.

    Raises:
        PluginError: it does not start, or does not answer in time.
    """
    command = place_command(server.command, place)
    with _empty_folder() as empty:
        confinement = _confine(
            place,
            level,
            program=command[0],
            empty=empty,
            limits=_LISTING_LIMITS,
            caller=caller,
            readable=[Bind(path) for path in server.grants.read if os.path.isabs(path)],
            environment=dict.fromkeys(server.grants.secrets, NO_SECRET),
        )
        with McpWorker(McpCommand(server.name, command, confinement, level)) as worker:
            return worker.list_tools()


def place_command(command: Sequence[str], place: CodePlace) -> tuple[str, ...]:
    """Write a server's command so that it starts in any folder.

    A word that names a file in the workflow's folder becomes its absolute path; the first one only
    where it holds a slash, as it is looked up on `PATH` otherwise.
    """
    program, *words = command
    beside = [os.path.join(place.folder, word) for word in words]
    if os.sep in program:
        program = os.path.join(place.folder, program)
    found = [
        path if os.path.isfile(path) else word for path, word in zip(beside, words, strict=True)
    ]
    return (program, *found)


def _confine(
    place: CodePlace,
    level: str,
    *,
    program: str,
    empty: str,
    limits: Limits,
    caller: Mapping[str, str],
    readable: Sequence[Bind] = (),
    environment: Mapping[str, str] | None = None,
) -> Confinement:
    """Confine a process that reads a workflow's code, and can change and reach nothing.

    Args:
        place: whose folder is shown, without what holds secrets where the level can cover it.
        level: of the sandbox.
        program: that is started.
        empty: an empty folder, see `_empty_folder`: its working folder, and what covers others.
        limits: what it may spend.
        caller: the caller's environment.
        readable: what it sees beside.
        environment: variables beside those that every process has.

    Raises:
        UsageError: the code lies in the home folder itself, or in one that holds it.
    """
    home = caller.get("HOME") or os.path.expanduser("~")
    path = caller.get("PATH") or DEFAULT_PATH
    folder = check_cwd(place.folder, home)
    hidden = find_hidden(folder) if level == BUBBLEWRAP else ()
    nothing = os.path.join(os.path.dirname(empty), _NOTHING)
    covers = (cover(name, empty, nothing) for name in hidden)
    return Confinement(
        readable=(
            *find_shown(program, path, home, [folder]),
            *(Bind(bind.source) for bind in readable if not is_of_system(bind.source)),
            *covers,
            Bind(empty),
        ),
        cwd=empty,
        environment={
            "PATH": path,
            "LANG": caller.get("LANG") or "C.UTF-8",
            "HOME": SCRATCH_HOME,
            **(environment or {}),
        },
        limits=limits,
    )


def _describe(place: CodePlace, source: str, level: str, caller: Mapping[str, str]) -> WorkflowSpec:
    with _empty_folder() as empty:
        confinement = _confine(
            place, level, program=sys.executable, empty=empty, limits=_IMPORT_LIMITS, caller=caller
        )
        ended = run_at(level, python_command(_CHILD), confinement, msgspec.json.encode(place))
    file = source.rpartition(":")[0] or source
    try:
        told = msgspec.json.decode(ended.stdout, type=Described)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise PluginError(_why(ended), where=file) from None
    if told.fault is not None:
        raise _error_of(told.fault, file)
    if told.spec is None or ended.exit_code != 0:
        raise PluginError(_why(ended), where=file)
    # Whoever wrote this may not be who is meant to: it is held to its form here as well.
    check_spec(told.spec)
    return told.spec


@contextmanager
def _empty_folder() -> Iterator[str]:
    """Make an empty folder, with an empty file beside it."""
    with tempfile.TemporaryDirectory(prefix="redrive-empty-") as folder:
        Path(folder, _NOTHING).touch()
        empty = Path(folder, "empty")
        empty.mkdir()
        yield str(empty)


def _error_of(fault: Fault, file: str) -> UsageError | PluginError:
    message, where, hint = (text[:_MOST_CHARS] for text in (fault.message, fault.where, fault.hint))
    if fault.kind == "failed":
        return PluginError(f"raised while it was imported: {message}", where=where or file)
    return UsageError(message, where=where or file, hint=hint or WORKFLOW_HINT)


def _why(ended: ConfinedResult) -> str:
    """Say why there is no declaration, in one line."""
    if ended.is_timeout:
        return f"its import took longer than {_IMPORT_LIMITS.wall_s:g} s, and was ended"
    if ended.is_process_flood:
        return "its import started too many processes, and was ended"
    lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
    words = f": {lines[-1][:_MOST_CHARS]}" if lines else ""
    return f"its import ended without a declaration (exit {ended.exit_code}){words}"


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"no such file: {path}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {error}", where=path) from error
