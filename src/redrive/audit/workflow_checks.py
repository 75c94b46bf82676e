"""Holds a workflow's declaration to its form: names, versions, grants, no name used twice.

Knows declarations as values. What a declaration reaches is judged by `audit.eligibility`; here it
is only made sure that it can be read one way alone.

Source: DESIGN.md §6, §8.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from redrive.audit.workflow import Grants, McpSpec, StepSpec, ToolSpec, WorkflowSpec
from redrive.errors import UsageError, quote

MCP_PREFIX: Final = "mcp:"
KINDS: Final = ("python", "command")
MOST_DEPTH: Final = 32
SIMULATORS: Final = ("function", "fixture")
# ASCII alone: a look-alike letter cannot be declared, so it can only be an undeclared name.
_TOOL_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}")
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_SERVER: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_)){0,30}[A-Za-z0-9]|[A-Za-z0-9]")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HOST_PORT: Final = re.compile(
    r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?):([0-9]{1,5})"
)
_MOST_PORT: Final = 65535
_MOST_NAME_BYTES: Final = 255  # of a file, on Linux


def mcp_tool_id(server: str, tool: str) -> str:
    """Give the id under which an MCP server's tool is called."""
    return f"mcp__{server}__{tool}"


def is_tool_id(text: str) -> bool:
    """Say whether a tool may be declared under this id."""
    return _TOOL_ID.fullmatch(text) is not None


def check_spec(spec: WorkflowSpec, depth: int = 0) -> None:
    """Check a declaration and its sub-workflows; `depth` is how far down this one is.

    Raises:
        UsageError: a name, version, step or grant is malformed, or a name is declared twice.
    """
    where = f"workflow {quote(spec.id)}"
    _hold(depth <= MOST_DEPTH, where, "sub-workflows are nested too deeply, or in themselves")
    _check_names(spec, where)
    _hold(spec.kind in KINDS, where, f"no kind {quote(spec.kind)}", "python or command")
    is_command = spec.kind == "command"
    _hold(is_command == bool(spec.command), where, "a command workflow has a command, no other has")
    _check_words(spec.command, where)
    for tool in spec.tools:
        check_tool(tool)
    _unique((tool.id for tool in spec.tools), "tool", where)
    _unique((step.id for step in spec.steps), "step", where)
    _unique((server.name for server in spec.mcp), "MCP server", where)
    if depth == 0:
        _check_servers(spec)
    for step in spec.steps:
        _check_step(step, where)
    for server in spec.mcp:
        _check_server(server)
    _check_aliases(spec, where)
    for name, inner in spec.workflows.items():
        _check_name(name, "sub-workflow", where)
        _hold(inner.kind != "command", where, f"the command {quote(name)} is no sub-workflow")
        check_spec(inner, depth + 1)


def check_tool(tool: ToolSpec) -> None:
    """Check one tool's declaration.

    Raises:
        UsageError: its id, its grants or its simulator is malformed.
    """
    where = f"tool {quote(tool.id)}"
    _hold(
        is_tool_id(tool.id),
        where,
        "a tool's id is 1 to 128 letters, digits and . _ - / of ASCII",
        "another name; it must not begin with . - or /",
    )
    simulators = (None, *SIMULATORS)
    _hold(tool.simulator in simulators, where, f"no simulator {tool.simulator!r}")
    check_grants(tool.grants, where)


def check_grants(grants: Grants, where: str) -> None:
    """Check what is granted.

    Raises:
        UsageError: a path leaves the workspace for writing, or a host or variable is malformed.
    """
    for path in grants.read:
        _hold(_is_readable(path), where, f"cannot grant to read {quote(path)}", "a path without ..")
    for path in grants.write:
        _hold(
            _is_inside(path),
            where,
            f"cannot grant to write {quote(path)}",
            "a relative path in the task's workspace, without ..",
        )
    for place in grants.network:
        found = _HOST_PORT.fullmatch(place)
        is_place = found is not None and 0 < int(found[1]) <= _MOST_PORT
        _hold(is_place, where, f"cannot grant the network to {quote(place)}", "HOST:PORT")
    for name in grants.secrets:
        is_variable = _VARIABLE.fullmatch(name) is not None
        _hold(is_variable, where, f"no variable can be named {quote(name)}")


def _check_names(spec: WorkflowSpec, where: str) -> None:
    _check_name(spec.id, "workflow", where)
    _hold(
        _NAME.fullmatch(spec.version) is not None,
        where,
        f"no version {quote(spec.version)}",
        "1 to 64 letters, digits and . _ - of ASCII",
    )
    for name in spec.subagents:
        _check_name(name, "sub-agent", where)


def _check_step(step: StepSpec, where: str) -> None:
    targets = [name for name in (step.tool, step.subagent, step.workflow) if name is not None]
    _check_name(step.id, "step", where)
    _hold(
        len(targets) == 1,
        where,
        f"step {quote(step.id)} reaches {len(targets)} things",
        "a step names one of tool, subagent and workflow",
    )


def servers_of(spec: WorkflowSpec) -> Iterator[McpSpec]:
    """Yield the MCP servers of a workflow, then those of its sub-workflows."""
    yield from spec.mcp
    for inner in spec.workflows.values():
        yield from servers_of(inner)


def _check_servers(spec: WorkflowSpec) -> None:
    """Hold that a server's name means one server, wherever it is declared."""
    found: dict[str, McpSpec] = {}
    for server in servers_of(spec):
        is_same = found.setdefault(server.name, server) == server
        where = f"MCP server {quote(server.name)}"
        _hold(is_same, where, "declared in two ways", "another name for the other one")


def _check_server(server: McpSpec) -> None:
    where = f"MCP server {quote(server.name)}"
    _hold(
        _SERVER.fullmatch(server.name) is not None,
        where,
        "a server's name is 1 to 32 letters, digits, - and single _ of ASCII",
    )
    _hold(bool(server.command), where, "a server has a command")
    _check_words(server.command, where)
    check_grants(server.grants, where)


def _check_aliases(spec: WorkflowSpec, where: str) -> None:
    tools = {tool.id for tool in spec.tools}
    for name in spec.aliases:
        bare = name.removeprefix(MCP_PREFIX)
        is_server = name != bare and _SERVER.fullmatch(bare) is not None
        _hold(is_server or is_tool_id(name), where, f"no alias can be named {quote(name)}")
        _hold(name not in tools, where, f"{quote(name)} is a tool and an alias as well")


def _check_name(name: str, what: str, where: str) -> None:
    _hold(
        _NAME.fullmatch(name) is not None,
        where,
        f"no {what} can be named {quote(name)}",
        "1 to 64 letters, digits and . _ - of ASCII",
    )


def _check_words(words: Iterable[str], where: str) -> None:
    is_whole = all(word and "\0" not in word for word in words)
    _hold(is_whole, where, "a word of the command is empty or holds a NUL character")


def _unique(names: Iterable[str], what: str, where: str) -> None:
    for name in _repeated(names):
        _hold(False, where, f"{what} {quote(name)} is declared twice", "declare each once")  # noqa: FBT003 - it never holds


def _repeated(names: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield name
        seen.add(name)


def _is_readable(path: str) -> bool:
    names = path.split("/")
    is_short = all(len(name.encode(errors="surrogatepass")) <= _MOST_NAME_BYTES for name in names)
    return bool(path) and "\0" not in path and ".." not in names and is_short


def _is_inside(path: str) -> bool:
    return _is_readable(path) and not path.startswith(("/", "~"))


def _hold(claim: bool, where: str, message: str, hint: str = "") -> None:  # noqa: FBT001 - what is held
    if not claim:
        raise UsageError(f"{where}: {message}", hint=hint)
