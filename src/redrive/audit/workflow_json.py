"""Reads a workflow's declaration from JSON, with the registry that says what each tool is.

For workflows of another framework, which are judged and not run: steps, sub-agents, aliases and
tools with their effects. What is not understood is refused: a misread key would be a step unseen.

Source: DESIGN.md §6; docs/workflows.md "From JSON".
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar

import msgspec

from redrive.audit.workflow import (
    Grants,
    StepSpec,
    SubagentSpec,
    ToolSpec,
    WorkflowSpec,
)
from redrive.audit.workflow_checks import MOST_DEPTH, check_spec
from redrive.errors import UsageError, quote

MOST_CHARS: Final = 4 * 1024 * 1024
_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class _Grants(Grants, frozen=True, forbid_unknown_fields=True):
    """As `Grants`."""


class _Tool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effect: str = ""
    grants: _Grants = _Grants()
    simulator: Literal["function", "fixture"] | None = None
    description: str = ""


class _Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tools: Mapping[str, _Tool] = {}
    aliases: Mapping[str, tuple[str, ...]] = {}


class _Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    tool: Any = None
    subagent: str | None = None
    workflow: str | None = None


class _Subagent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tools: Any = ()
    subagents: tuple[str, ...] = ()


class _Workflow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    version: str
    tools: Any = ()
    steps: tuple[_Step, ...] = ()
    subagents: Mapping[str, _Subagent] = {}
    workflows: Mapping[str, Any] = {}
    aliases: Mapping[str, tuple[str, ...]] = {}
    command: tuple[str, ...] = ()


_NO_REGISTRY: Final = _Registry()


def parse_workflow(text: str, registry: str | None = None) -> WorkflowSpec:
    """Read a declaration.

    Args:
        text: a JSON object with `id`, `version`, and of `tools`, `steps`, `subagents`,
            `workflows`, `aliases` and `command` what there is.
        registry: a JSON object with `tools` (id → `effect`, `grants`, …) and `aliases`, which hold
            for each sub-workflow as well.

    Raises:
        UsageError: it is no such object, a key is unknown or stands there twice, or the
            declaration is malformed as `check_spec` says.
    """
    known = _NO_REGISTRY if registry is None else _convert(_parse(registry), _Registry, "registry")
    spec = _spec(_parse(text), known, 0)
    check_spec(spec)
    return spec


def _parse(text: str) -> Any:
    if len(text) > MOST_CHARS:
        raise UsageError(f"a declaration of {len(text)} characters; at most {MOST_CHARS}")
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = [key for key, _ in pairs]
        twice = next(key for key in found if seen.count(key) > 1)
        raise ValueError(f"{quote(twice)} stands twice in one object")
    return found


def _convert(value: Any, kind: type[_Kind], what: str) -> _Kind:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"a {what} as JSON: {error}", hint="docs/workflows.md, From JSON"
        ) from error


def _spec(value: Any, registry: _Registry, depth: int) -> WorkflowSpec:
    read = _convert(value, _Workflow, "workflow")
    if depth > MOST_DEPTH:
        raise UsageError(f"workflow {quote(read.id)}: sub-workflows are nested too deeply")
    dynamic: list[str] = []
    return WorkflowSpec(
        id=read.id,
        version=read.version,
        kind="command" if read.command else "python",
        uses=_names(read.tools, "tools", dynamic),
        tools=tuple(_tool(name, tool) for name, tool in registry.tools.items()),
        steps=tuple(_steps(read.steps, dynamic)),
        subagents={
            name: SubagentSpec(
                _names(agent.tools, f"sub-agent {name}: tools", dynamic), agent.subagents
            )
            for name, agent in read.subagents.items()
        },
        workflows={
            name: _spec(inner, registry, depth + 1) for name, inner in read.workflows.items()
        },
        aliases=_aliases(read, registry),
        dynamic=tuple(dynamic),
        command=read.command,
    )


def _tool(name: str, tool: _Tool) -> ToolSpec:
    grants = msgspec.convert(tool.grants, Grants, from_attributes=True)
    return ToolSpec(name, tool.effect, grants, tool.simulator, description=tool.description)


def _names(tools: Any, what: str, dynamic: list[str]) -> tuple[str, ...]:
    """Read a list of names; what is chosen at run time is noted, and judged as that."""
    if not isinstance(tools, list | tuple):
        dynamic.append(f"{what}: {_shown(tools)} in the place of a list")
        return ()
    dynamic += [f"{what}: {_shown(item)} is no name" for item in tools if not _is_name(item)]
    return tuple(item for item in tools if _is_name(item))


def _steps(steps: Iterable[_Step], dynamic: list[str]) -> Iterator[StepSpec]:
    for step in steps:
        if step.tool is None or _is_name(step.tool):
            yield StepSpec(step.id, step.tool, step.subagent, step.workflow)
        else:
            dynamic.append(f"step {step.id}: its tool is {_shown(step.tool)}")


def _aliases(read: _Workflow, registry: _Registry) -> Mapping[str, tuple[str, ...]]:
    for name in read.aliases:
        if name in registry.aliases:
            raise UsageError(f"workflow {quote(read.id)}: alias {quote(name)} is declared twice")
    return {**registry.aliases, **read.aliases}


def _is_name(item: Any) -> bool:
    return isinstance(item, str) and item != "" and "*" not in item


def _shown(item: Any) -> str:
    return quote(item) if isinstance(item, str) else f"a {type(item).__name__}"
