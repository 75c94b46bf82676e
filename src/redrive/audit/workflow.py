"""What a workflow version declares of itself: tools, effects, grants, steps, names.

Knows declarations as values, as they were read from the workflow's own file. Holds no function of
any tool: whoever has only this can run nothing.

Source: DESIGN.md §6.
"""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw, UnsetType


class Grants(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one tool may reach; whatever is not named does not exist for it.

    Attributes:
        read: paths it may read: relative ones lie in the task's workspace (`.` is all of it),
            absolute ones are files or folders of this machine.
        write: paths in the workspace that it may change; always relative, never outside.
        network: `host:port` that it may connect to, through the broker's forwarder alone.
        secrets: names of the caller's environment variables whose values it is given.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


NO_GRANTS = Grants()


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One tool as declared.

    Attributes:
        id: the name under which it is called.
        effect: the word as declared; empty where none is. Only the four words of
            `audit.effects.Effect` count, anything else is `UNSAFE`.
        grants: see `Grants`.
        simulator: how an unsafe tool may be simulated: `function`, `fixture`, or absent.
        origin: `python`, or `mcp:SERVER` for a tool of an MCP server.
        hints: what an MCP server says of the tool's effect; shown, never believed.
        description: for the model.
        parameters: JSON Schema of its arguments, for the model.
    """

    id: str
    effect: str = ""
    grants: Grants = NO_GRANTS
    simulator: str | None = None
    origin: str = "python"
    hints: Mapping[str, object] = {}
    description: str = ""
    parameters: Raw | UnsetType = UNSET


class StepSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One declared step: it reaches one tool (or alias), one sub-agent, or one sub-workflow."""

    id: str
    tool: str | None = None
    subagent: str | None = None
    workflow: str | None = None


class SubagentSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sub-agent and the tool ids, aliases or sub-agents that it may use; it inherits nothing."""

    tools: tuple[str, ...] = ()
    subagents: tuple[str, ...] = ()


class McpSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One MCP server, started in the sandbox and spoken to over its standard input and output.

    Attributes:
        name: its tools are called `mcp__NAME__TOOL`; `mcp:NAME` stands for all that it lists.
        command: its words.
        effects: the server's own name of a tool → effect word; a tool that is absent is undeclared.
        grants: what the server's process may reach, and so each of its tools.
    """

    name: str
    command: tuple[str, ...]
    effects: Mapping[str, str] = {}
    grants: Grants = NO_GRANTS


class WorkflowSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One workflow version as declared.

    Attributes:
        id: the workflow's name.
        version: the version under test or in use.
        kind: `python` (a function) or `command` (a program in the sandbox).
        uses: tool ids and aliases that the workflow itself may call, in the order declared.
        tools: every declared tool, unique by id. A tool that nothing reaches does not matter.
        steps: declared steps.
        subagents: name → what it may use.
        workflows: name → sub-workflow, which is walked as well.
        aliases: name → tool ids or further aliases that it stands for.
        dynamic: what could not be resolved to declared tools, such as tools chosen at run time.
        command: the words of a command workflow.
        mcp: servers; of one whose listing was read the tools stand in `tools`, with it as their
            origin, and `mcp:NAME` is an alias of them.
    """

    id: str
    version: str
    kind: str = "python"
    uses: tuple[str, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    steps: tuple[StepSpec, ...] = ()
    subagents: Mapping[str, SubagentSpec] = {}
    workflows: Mapping[str, "WorkflowSpec"] = {}
    aliases: Mapping[str, tuple[str, ...]] = {}
    dynamic: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    mcp: tuple[McpSpec, ...] = ()

    @property
    def label(self) -> str:
        """`ID@VERSION`, unique within a trial."""
        return f"{self.id}@{self.version}"
