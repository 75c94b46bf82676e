"""Writes what MCP servers list into a workflow's declaration: tools, and an alias for each server.

Pure. An effect is what the workflow declares of a server's tool; what the server says of itself is
kept as a hint. What is not declared stays undeclared, and is refused where it is reached.

Source: DESIGN.md §6 "MCP listings walked"; docs/workflows.md "MCP servers".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from redrive.app.trial_mcp_client import ListedTool
from redrive.audit.workflow import McpSpec, ToolSpec, WorkflowSpec
from redrive.audit.workflow_checks import MCP_PREFIX, is_tool_id, mcp_tool_id, servers_of
from redrive.errors import PluginError, UsageError, quote

MOST_DESCRIPTION_CHARS = 20_000


def expand_listings(
    spec: WorkflowSpec, list_server: Callable[[McpSpec], Sequence[ListedTool]]
) -> WorkflowSpec:
    """Read the listing of every server, once each, into a declaration and its sub-workflows.

    Raises:
        UsageError: a declared tool or alias has the name of a listed one.
        PluginError: a listing cannot be used.
    """
    servers = {server.name: server for server in servers_of(spec)}
    tools = {name: tuple(_specs(server, list_server(server))) for name, server in servers.items()}
    return _expand(spec, tools)


def _expand(spec: WorkflowSpec, listed: Mapping[str, tuple[ToolSpec, ...]]) -> WorkflowSpec:
    tools, aliases = list(spec.tools), dict(spec.aliases)
    taken = {tool.id for tool in tools} | aliases.keys()
    for server in spec.mcp:
        name = MCP_PREFIX + server.name
        for found in (name, *(tool.id for tool in listed[server.name])):
            if found in taken:
                raise UsageError(
                    f"workflow {quote(spec.id)}: {quote(found)} is declared, and the name of what "
                    f"the MCP server {server.name} lists",
                    hint="another name",
                )
        tools += listed[server.name]
        aliases[name] = tuple(tool.id for tool in listed[server.name])
    inner = {name: _expand(below, listed) for name, below in spec.workflows.items()}
    return replace(spec, tools=tuple(tools), aliases=aliases, workflows=inner)


def _specs(server: McpSpec, listed: Sequence[ListedTool]) -> Iterator[ToolSpec]:
    seen: set[str] = set()
    for tool in listed:
        name = mcp_tool_id(server.name, tool.name)
        if not is_tool_id(name) or name in seen:
            why = "twice" if name in seen else "under a name that cannot be called"
            raise PluginError(f"MCP server {server.name}: it lists {quote(tool.name)} {why}")
        seen.add(name)
        yield ToolSpec(
            name,
            server.effects.get(tool.name, ""),
            server.grants,
            origin=MCP_PREFIX + server.name,
            hints=tool.hints,
            description=tool.description[:MOST_DESCRIPTION_CHARS],
            parameters=tool.parameters,
        )
