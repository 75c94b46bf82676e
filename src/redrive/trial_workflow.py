"""Workflow versions as a file declares them, and how a declaration becomes a value.

`to_spec` reads a declaration into `WorkflowSpec`, which holds no function: that alone leaves the
process in which the user's file was imported. Tools are found by `find_tools` in the same way.

Source: DESIGN.md §6; docs/workflows.md.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from redrive.audit.workflow import (
    NO_GRANTS,
    Grants,
    McpSpec,
    StepSpec,
    SubagentSpec,
    WorkflowSpec,
)
from redrive.audit.workflow_checks import MOST_DEPTH, check_grants, check_spec
from redrive.errors import UsageError, quote
from redrive.trial_tools import Tool, freeze_grants


class WorkflowContext(Protocol):
    """What a workflow's `run(task, context)` is given beside its task.

    Everything goes through the broker outside, is metered and recorded; nothing else is reachable.
    """

    @property
    def task_id(self) -> str:
        """Names the task: 16 hex digits."""
        ...

    @property
    def attempt(self) -> int:
        """Which attempt at the task this is, from 1."""
        ...

    @property
    def seed(self) -> int:
        """Of this run, 0 to 2**31 − 1: the same for every variant of one attempt at a task."""
        ...

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool (or an alias of one) by name; its result is a JSON value.

        Raises:
            EffectDenied: it is none of the workflow's tools; the run is marked denied in any case.
            Exception: what the tool itself raised, with its message.
        """
        ...

    def complete(self, request: Mapping[str, Any], *, model: str | None = None) -> Any:
        """Ask a model of the plan by `chat/completions`; the first of the plan is the default.

        Returns:
            The answer as a JSON value.
        """
        ...

    def post(self, path: str, body: bytes, *, model: str | None = None) -> bytes:
        """Ask a model in the bytes of its API; the path is relative to its base URL."""
        ...

    def clock(self) -> float:
        """Read the clock, in seconds since 1970; recorded."""
        ...

    def random(self) -> float:
        """Draw from 0 up to 1, from a stream that the run's seed determines; recorded."""
        ...

    def derive(self, function: str, version: str, inputs: Sequence[Any], value: Any) -> Any:
        """Note that a value was computed from others, and give it back; recorded."""
        ...


class Step:
    """One declared step, which reaches one thing.

    Args:
        id: unique in the workflow.
        tool: a `Tool`, a tool's id or an alias.
        subagent: a name of the workflow's `subagents`.
        workflow: a name of the workflow's `workflows`.
    """

    def __init__(
        self,
        id: str,
        *,
        tool: Tool | str | None = None,
        subagent: str | None = None,
        workflow: str | None = None,
    ) -> None:
        self.id, self.tool, self.subagent, self.workflow = id, tool, subagent, workflow


class Subagent:
    """A sub-agent and what it may use; it inherits nothing.

    Args:
        tools: as of a workflow.
        subagents: names of further sub-agents that it may start.
    """

    def __init__(self, *, tools: Any = (), subagents: Sequence[str] = ()) -> None:
        self.tools, self.subagents = tools, subagents


class McpServer:
    """An MCP server, started in the sandbox and spoken to over standard input and output.

    Args:
        name: `mcp:NAME` among a workflow's tools stands for all that it lists; one of them is
            `mcp__NAME__TOOL`.
        command: its words; those that name a file in the workflow file's folder, which the server
            sees, are found there. Its working folder is the task's workspace.
        effects: its own name of a tool → effect; what is absent counts as undeclared, whatever
            the server says of itself.
        grants: what its process may reach.
    """

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str],
        effects: Mapping[str, str] | None = None,
        grants: Grants = NO_GRANTS,
    ) -> None:
        self.name, self.command, self.grants = name, command, grants
        self.effects = {} if effects is None else effects


class _Declared:
    """What both kinds of workflow declare."""

    def __init__(
        self,
        id: str,
        *,
        version: str,
        tools: Any = (),
        steps: Sequence[Step] = (),
        subagents: Mapping[str, Subagent] | None = None,
        workflows: Mapping[str, "_Declared"] | None = None,
        aliases: Mapping[str, Sequence[str]] | None = None,
        mcp: Sequence[McpServer] = (),
    ) -> None:
        self.id, self.version = id, version
        self.tools, self.steps, self.mcp = tools, steps, mcp
        self.subagents = {} if subagents is None else subagents
        self.workflows = {} if workflows is None else workflows
        self.aliases = {} if aliases is None else aliases


class Workflow(_Declared):
    """A workflow version whose code is a Python function.

    Args:
        id: names the workflow; every version of it has the same.
        version: a text.
        run: `run(task, context)`: the task's input, see `WorkflowContext`; what it returns is the
            episode's output, a JSON value.
        tools: a list of `Tool`s, ids, aliases and `mcp:SERVER`; empty means none. Anything else
            (`"*"`, a function) is chosen at run time, which cannot be judged and is refused.
        steps: optional; each reaches a tool, a sub-agent or a sub-workflow.
        subagents: name → what it may use.
        workflows: name → sub-workflow.
        aliases: name → what it stands for.
        mcp: MCP servers whose tools may be used.
    """

    def __init__(
        self,
        id: str,
        *,
        run: Callable[[Any, Any], Any],
        **declared: Any,
    ) -> None:
        super().__init__(id, **declared)
        self.run = run


class CommandWorkflow(_Declared):
    """A workflow version whose code is a program, run in the sandbox in the task's workspace.

    Args:
        id: names the workflow.
        version: a text.
        command: its words.
        tools: as of a `Workflow`; the program reaches them as tools of an MCP server.
    """

    def __init__(
        self,
        id: str,
        *,
        command: Sequence[str],
        **declared: Any,
    ) -> None:
        super().__init__(id, **declared)
        self.command = command


AnyWorkflow = Workflow | CommandWorkflow


def to_spec(workflow: AnyWorkflow, beside: Iterable[Tool] = ()) -> WorkflowSpec:
    """Read a declaration into a value.

    Args:
        workflow: as declared.
        beside: further tools that a text among its tools may mean: those of its module.

    Raises:
        UsageError: it is malformed, or two tools bear one id.
    """
    reader = _Reader(workflow, beside)
    spec = reader.read()
    check_spec(spec)
    return spec


def find_tools(workflow: AnyWorkflow, beside: Iterable[Tool] = ()) -> dict[str, Tool]:
    """Find every tool that a workflow and its sub-workflows name or that lies beside, by id.

    Raises:
        UsageError: two of them bear one id.
    """
    found: dict[str, Tool] = {}
    for tool in (*_named_tools(workflow), *beside):
        if found.setdefault(tool.id, tool) is not tool:
            raise UsageError(f"tool {quote(tool.id)} is declared twice", hint="another id")
    return found


def _named_tools(workflow: _Declared, depth: int = 0) -> Iterator[Tool]:
    for tools in (workflow.tools, *(_tools_of(agent) for agent in _values(workflow.subagents))):
        if isinstance(tools, list | tuple):
            yield from (tool for tool in tools if isinstance(tool, Tool))
    for step in workflow.steps if isinstance(workflow.steps, list | tuple) else ():
        if isinstance(step, Step) and isinstance(step.tool, Tool):
            yield step.tool
    for inner in _values(workflow.workflows):
        if isinstance(inner, _Declared) and depth < MOST_DEPTH:
            yield from _named_tools(inner, depth + 1)


def _values(mapping: object) -> Iterator[Any]:
    if isinstance(mapping, Mapping):
        yield from mapping.values()


def _tools_of(agent: object) -> Any:
    return agent.tools if isinstance(agent, Subagent) else ()


class _Reader:
    """Reads one workflow; its sub-workflows each have one of their own."""

    def __init__(self, workflow: AnyWorkflow, beside: Iterable[Tool]) -> None:
        if not isinstance(workflow, Workflow | CommandWorkflow):
            raise UsageError(
                f"this is no workflow, but {type(workflow).__name__}",
                hint="redrive.trial.Workflow, or CommandWorkflow",
            )
        self._workflow = workflow
        self._where = f"workflow {quote(str(workflow.id))}"
        self._beside = tuple(beside)
        self._dynamic: list[str] = []

    def read(self, depth: int = 0) -> WorkflowSpec:
        """Read it whole; a workflow below itself is refused."""
        workflow = self._workflow
        if depth > MOST_DEPTH:
            raise UsageError(
                f"{self._where}: sub-workflows are nested too deeply, or in themselves"
            )
        tools = find_tools(workflow, self._beside)
        command: tuple[str, ...] = ()
        if isinstance(workflow, CommandWorkflow):
            command = self._texts(workflow.command, "command")
        else:
            self._check_run(workflow.run)
        return WorkflowSpec(
            id=self._text(workflow.id, "an id"),
            version=self._text(workflow.version, "a version"),
            kind="command" if isinstance(workflow, CommandWorkflow) else "python",
            uses=self._uses(workflow.tools, "tools"),
            tools=tuple(tool.spec for tool in tools.values()),
            steps=tuple(self._steps(workflow.steps)),
            subagents={
                self._text(name, "a sub-agent's name"): self._subagent(name, agent)
                for name, agent in self._mapping(workflow.subagents, "subagents")
            },
            workflows={
                self._text(name, "a sub-workflow's name"): _Reader(inner, self._beside).read(
                    depth + 1
                )
                for name, inner in self._mapping(workflow.workflows, "workflows")
            },
            aliases={
                self._text(name, "an alias"): self._texts(targets, f"the alias {quote(str(name))}")
                for name, targets in self._mapping(workflow.aliases, "aliases")
            },
            dynamic=tuple(self._dynamic),
            command=command,
            mcp=tuple(self._server(server) for server in self._list(workflow.mcp, "mcp")),
        )

    def _uses(self, tools: object, what: str) -> tuple[str, ...]:
        """Read a list of tools; what is chosen at run time is noted, and judged as that."""
        if not isinstance(tools, list | tuple):
            shown = quote(tools) if isinstance(tools, str) else f"a {type(tools).__name__}"
            self._dynamic.append(f"{what}: {shown} in the place of a list")
            return ()
        names: list[str] = []
        for item in tools:
            if isinstance(item, Tool):
                names.append(item.id)
            elif isinstance(item, str) and item and "*" not in item:
                names.append(item)
            else:
                shown = quote(item) if isinstance(item, str) else f"a {type(item).__name__}"
                self._dynamic.append(f"{what}: {shown} is no tool, id or alias")
        return tuple(names)

    def _steps(self, steps: object) -> Iterator[StepSpec]:
        """Read the steps; what one reaches that is no literal is noted, and judged as that."""
        for step in self._list(steps, "steps"):
            if not isinstance(step, Step):
                raise UsageError(f"{self._where}: a step is a Step, not {type(step).__name__}")
            name = self._text(step.id, "a step's id")
            tool = step.tool.id if isinstance(step.tool, Tool) else step.tool
            targets: dict[str, Any] = {
                "tool": tool,
                "subagent": step.subagent,
                "workflow": step.workflow,
            }
            odd = [(k, v) for k, v in targets.items() if not isinstance(v, str | None)]
            for kind, target in odd:
                self._dynamic.append(f"step {name}: its {kind} is a {type(target).__name__}")
            if not odd:
                yield StepSpec(name, **targets)

    def _subagent(self, name: object, agent: object) -> SubagentSpec:
        what = f"sub-agent {name}"
        if not isinstance(agent, Subagent):
            raise UsageError(f"{self._where}: {what} is a Subagent, not {type(agent).__name__}")
        further = self._texts(agent.subagents, f"{what}: subagents")
        return SubagentSpec(self._uses(agent.tools, f"{what}: tools"), further)

    def _server(self, server: object) -> McpSpec:
        if not isinstance(server, McpServer):
            raise UsageError(f"{self._where}: mcp holds McpServers, not {type(server).__name__}")
        name = self._text(server.name, "an MCP server's name")
        where = f"MCP server {quote(name)}"
        if not isinstance(server.grants, Grants):
            raise UsageError(f"{where}: grants are a Grants, not {type(server.grants).__name__}")
        grants = freeze_grants(server.grants, where)
        check_grants(grants, where)
        effects = {
            self._text(tool, f"{where}: a tool's name"): self._text(effect, f"{where}: an effect")
            for tool, effect in self._mapping(server.effects, f"{where}: effects")
        }
        return McpSpec(name, self._texts(server.command, f"{where}: command"), effects, grants)

    def _check_run(self, run: object) -> None:
        is_async = inspect.iscoroutinefunction(run) or inspect.isgeneratorfunction(run)
        if not callable(run) or is_async or isinstance(run, Tool):
            raise UsageError(f"{self._where}: run is a plain function run(task, context)")
        try:
            inspect.signature(run).bind(None, None)
        except TypeError as error:
            raise UsageError(f"{self._where}: run takes (task, context): {error}") from error
        except ValueError:  # a built-in that does not tell
            return

    def _text(self, value: object, what: str) -> str:
        if not isinstance(value, str):
            raise UsageError(f"{self._where}: {what} is a text, not {type(value).__name__}")
        return str(value)

    def _texts(self, value: object, what: str) -> tuple[str, ...]:
        return tuple(self._text(item, what) for item in self._list(value, what))

    def _list(self, value: object, what: str) -> Sequence[Any]:
        if not isinstance(value, list | tuple):
            raise UsageError(f"{self._where}: {what} is a list, not {type(value).__name__}")
        return value

    def _mapping(self, value: object, what: str) -> Iterable[tuple[Any, Any]]:
        if not isinstance(value, Mapping):
            raise UsageError(f"{self._where}: {what} is a dict, not {type(value).__name__}")
        return value.items()
