"""Says before anything runs whether a workflow may be trialled: no unsafe tool is reachable.

Knows declarations. The one door to a run: only `load` makes an `EligibleWorkflow`, and only that
is handed to a broker, whose tools are then exactly the ones that were judged.

Source: DESIGN.md §6 "`load` resolves each id and rejects at load time".
"""

from collections.abc import Iterable, Mapping, Sequence
from posixpath import normpath
from types import MappingProxyType
from typing import Final, Never

import msgspec
from msgspec.structs import replace

from redrive.audit.effects import Effect, parse_effect
from redrive.audit.workflow import NO_GRANTS, StepSpec, SubagentSpec, ToolSpec, WorkflowSpec
from redrive.audit.workflow_checks import MCP_PREFIX, check_spec
from redrive.errors import IneligibleError, UsageError, quote

UNDECLARED: Final = "undeclared"
DYNAMIC: Final = "dynamic"
# Levels of the sandbox at which a run has a network of its own, of which the broker's forwarder is
# the only other end.
NETWORK_LEVELS: Final = frozenset({"bubblewrap"})
# Chains multiply with each layer of aliases; what is more tangled than this is not judged.
MOST_VISITS: Final = 10_000
MOST_LINKS: Final = 64
_N_NAMED = 20
_ARROW = " → "


class Refusal(msgspec.Struct, frozen=True):
    """One tool that must not be reached.

    Attributes:
        tool: its id, aliases resolved.
        effect: the word that counts: `unsafe`, `undeclared` or `dynamic`; where the level of the
            sandbox is what stands against it, the tool's own effect, or `command`.
        chain: workflow → … → tool, outermost first.
        reason: one line for people.
    """

    tool: str
    effect: str
    chain: tuple[str, ...]
    reason: str


class Eligibility(msgspec.Struct, frozen=True):
    """What the check found; `refusals` is empty exactly if the workflow may run.

    Attributes:
        workflow: `ID@VERSION`.
        refusals: each tool once for each chain to it, in the order found.
        tools: ids of all tools that can be reached, sorted.
        simulated: of those, the ones whose simulator stands in, sorted.
        chains: id of each of `tools` → the first chain that was found to it.
    """

    workflow: str
    refusals: tuple[Refusal, ...] = ()
    tools: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    chains: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_eligible(self) -> bool:
        """Whether nothing was refused."""
        return not self.refusals


class EligibleWorkflow:
    """A workflow that passed the check, and the tools that it may call; only `load` makes one.

    Attributes:
        spec: the declaration.
        tools: name as called (an id or an alias of one) → the tool it stands for.
        simulated: ids of tools whose simulator is held in place of the function.
    """

    __slots__ = ("simulated", "spec", "tools")
    spec: WorkflowSpec
    tools: Mapping[str, ToolSpec]
    simulated: frozenset[str]

    def __init__(self, _: Never) -> None:
        raise TypeError("an EligibleWorkflow is made by redrive.audit.eligibility.load alone")

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError(f"an EligibleWorkflow does not change: {name}")


def judge(
    spec: WorkflowSpec, *, simulate: frozenset[str] = frozenset(), level: str = "bubblewrap"
) -> Eligibility:
    """Find every tool that a workflow can reach, and each that it must not.

    Args:
        spec: as declared.
        simulate: ids of tools whose simulator is to stand in; ids that this workflow does not
            declare are of no effect, see `check_simulate`.
        level: of the sandbox that it is to run in.

    Raises:
        UsageError: the declaration is malformed, or a tool to be simulated has no simulator.

    Cost: bounded by `MOST_VISITS`; a declaration with more chains is refused.
    """
    return _judged(spec, simulate, level).found(spec)


def load(
    spec: WorkflowSpec, *, simulate: frozenset[str] = frozenset(), level: str = "bubblewrap"
) -> EligibleWorkflow:
    """Make the one value that a broker takes, if nothing is refused; see `judge`.

    Raises:
        IneligibleError: something is refused; it names the tool and the chain, and carries all.
        UsageError: as `judge`.
    """
    walk = _judged(spec, simulate, level)
    found = walk.found(spec)
    if not found.is_eligible:
        raise _error(found)
    eligible = EligibleWorkflow.__new__(EligibleWorkflow)
    object.__setattr__(eligible, "spec", spec)
    object.__setattr__(eligible, "tools", MappingProxyType(walk.names))
    object.__setattr__(eligible, "simulated", frozenset(walk.simulated))
    return eligible


def check_simulate(specs: Iterable[WorkflowSpec], simulate: Iterable[str]) -> None:
    """Check that each tool to be simulated is declared by one of the workflows at least.

    Raises:
        UsageError: it names the tool, and those that can be simulated.
    """
    tools = [tool for spec in specs for tool in _all_tools(spec)]
    known = {tool.id for tool in tools}
    able = sorted({tool.id for tool in tools if tool.simulator is not None})
    for name in simulate:
        if name not in known:
            raise UsageError(
                f"no tool {quote(name)} to simulate",
                hint=f"with a simulator: {', '.join(able) or 'none'}",
            )


def _judged(spec: WorkflowSpec, simulate: frozenset[str], level: str) -> "_Walk":
    check_spec(spec)
    for tool in _all_tools(spec):
        if tool.id in simulate and tool.simulator is None:
            raise UsageError(
                f"tool {quote(tool.id)} has no simulator",
                hint="declare one: @tool(…, simulate=…), a function or a Fixture",
            )
    walk = _Walk(simulate, has_network=level in NETWORK_LEVELS, level=level)
    walk.enter(spec, (spec.label,))
    return walk


def _all_tools(spec: WorkflowSpec) -> list[ToolSpec]:
    inner = [tool for below in spec.workflows.values() for tool in _all_tools(below)]
    return [*spec.tools, *inner]


def _error(found: Eligibility) -> IneligibleError:
    first, *others = found.refusals
    shown = [_line(refusal) for refusal in others[:_N_NAMED]]
    left = len(others) - len(shown)
    more = f"{'; '.join(shown)}{f'; and {left} more' if left else ''}"
    return IneligibleError(
        f"workflow {found.workflow} is not eligible: {_line(first)}",
        tool=first.tool,
        chain=first.chain,
        refusals=[(r.tool, r.effect, r.chain, r.reason) for r in found.refusals],
        hint=f"refused as well: {more}" if others else "redrive eligible shows every tool",
    )


def _line(refusal: Refusal) -> str:
    return f"{refusal.tool}: {refusal.reason} ({_ARROW.join(refusal.chain)})"


class _Walk:
    """Walks a declaration from its workflow to every tool, and notes what it meets."""

    def __init__(self, simulate: frozenset[str], *, has_network: bool, level: str) -> None:
        self._simulate = simulate
        self._has_network = has_network
        self._level = level
        self._refusals: dict[Refusal, None] = {}
        self._visits = 0
        self._reached: dict[str, tuple[str, ...]] = {}
        self.names: dict[str, ToolSpec] = {}
        self.simulated: set[str] = set()
        self.is_command = False

    def found(self, spec: WorkflowSpec) -> Eligibility:
        """Sum up what was met."""
        return Eligibility(
            spec.label,
            tuple(self._refusals),
            tuple(sorted(self._reached)),
            tuple(sorted(self.simulated)),
            self._reached,
        )

    def enter(self, spec: WorkflowSpec, chain: tuple[str, ...]) -> None:
        """Walk one workflow: its own tools, its steps, then what no step reaches."""
        self.is_command = self.is_command or spec.kind == "command"
        if spec.kind == "command" and not self._has_network:
            why = f"a command needs a network inside, which the level {self._level} has not"
            self._refuse(spec.command[0], "command", chain, why)
        for what in spec.dynamic:
            self._refuse(what, DYNAMIC, chain, "chosen at run time; only what is declared runs")
        scope = _Scope(self, spec)
        for name in dict.fromkeys(spec.uses):
            scope.use(name, chain)
        for step in spec.steps:
            scope.step(step, (*chain, step.id))
        scope.rest(chain)

    def may_visit(self, name: str, chain: tuple[str, ...]) -> bool:
        """Say whether to go on; what is too tangled is refused, once."""
        self._visits += 1
        if len(chain) > MOST_LINKS:
            self._refuse(name, DYNAMIC, chain, f"more than {MOST_LINKS} links lead to it")
            return False
        if self._visits == MOST_VISITS + 1:
            self._refuse(name, DYNAMIC, chain, f"more than {MOST_VISITS} chains: too tangled")
        return self._visits <= MOST_VISITS

    def miss(self, name: str, chain: tuple[str, ...], reason: str) -> None:
        """Note a name that nothing declares."""
        self._refuse(name, UNDECLARED, chain, reason)

    def cycle(self, name: str, chain: tuple[str, ...], what: str) -> None:
        """Note a name that leads back to itself."""
        self._refuse(name, DYNAMIC, chain, f"the {what} leads back to itself")

    def reach(self, tool: ToolSpec, called: Sequence[str], chain: tuple[str, ...]) -> None:
        """Note a declared tool, and the names under which it can be called here."""
        self._reached.setdefault(tool.id, chain)
        held = self._held(tool, chain)
        if held is None:
            return
        for name in called:
            if self.names.setdefault(name, held) != held:
                why = f"{quote(name)} means another tool elsewhere in this workflow"
                self._refuse(tool.id, DYNAMIC, chain, why)

    def _held(self, tool: ToolSpec, chain: tuple[str, ...]) -> ToolSpec | None:
        """Give what the broker may hold for it: the tool, its simulator, or nothing."""
        if tool.id in self._simulate:
            self.simulated.add(tool.id)
            # A simulator stands in for what it must not reach: it is granted nothing.
            return replace(tool, grants=NO_GRANTS)
        effect = parse_effect(tool.effect)
        if not tool.effect:
            self._refuse(tool.id, UNDECLARED, chain, _no_effect(tool))
        elif effect is Effect.UNSAFE:
            self._refuse(tool.id, effect.value, chain, _unsafe(tool))
        elif tool.grants.network and not self._has_network:
            places = ", ".join(tool.grants.network)
            why = f"it needs the network ({places}), which the level {self._level} has not"
            self._refuse(tool.id, effect.value, chain, why)
        elif self.is_command and (parts := _parts_of_workspace(tool)):
            why = f"the command could swap what it is granted ({', '.join(parts)}): grant all, `.`"
            self._refuse(tool.id, effect.value, chain, why)
        else:
            return tool
        return None

    def _refuse(self, tool: str, effect: str, chain: tuple[str, ...], reason: str) -> None:
        whole = chain if chain[-1] == tool else (*chain, tool)
        self._refusals.setdefault(Refusal(tool, effect, whole, reason))


class _Scope:
    """Names as one workflow declares them."""

    def __init__(self, walk: _Walk, spec: WorkflowSpec) -> None:
        self._walk = walk
        self._spec = spec
        self._tools = {tool.id: tool for tool in spec.tools}
        self._subagents: set[str] = set()
        self._workflows: set[str] = set()

    def step(self, step: StepSpec, chain: tuple[str, ...]) -> None:
        """Follow a step to the one thing it reaches."""
        if step.tool is not None:
            self.use(step.tool, chain)
        elif step.subagent is not None:
            self._subagent(step.subagent, chain, ())
        else:
            self._workflow(step.workflow or "", chain)

    def rest(self, chain: tuple[str, ...]) -> None:
        """Follow what no step names: code may start it all the same."""
        for name in self._spec.subagents:
            if name not in self._subagents:
                self._subagent(name, chain, ())
        for name in self._spec.workflows:
            if name not in self._workflows:
                self._workflow(name, chain)

    def use(self, name: str, chain: tuple[str, ...], aliases: tuple[str, ...] = ()) -> None:
        """Resolve a name to tools, over aliases; a name that is nothing is no tool."""
        if not self._walk.may_visit(name, chain):
            return
        targets = self._spec.aliases.get(name)
        if targets is None:
            self._tool(name, (*chain, name), aliases)
        elif name in aliases:
            self._walk.cycle(name, (*chain, name), "alias")
        else:
            # A group is no name that can be called; an alias of one is.
            single = len(set(targets)) == 1 and not name.startswith(MCP_PREFIX)
            inner = (*aliases, name) if single else (*aliases, name, _GROUP)
            for target in dict.fromkeys(targets):
                self.use(target, (*chain, name), inner)

    def _tool(self, name: str, chain: tuple[str, ...], aliases: tuple[str, ...]) -> None:
        tool = self._tools.get(name)
        if tool is None:
            self._walk.miss(name, chain, self._no_such(name))
            return
        start = len(aliases) - aliases[::-1].index(_GROUP) if _GROUP in aliases else 0
        self._walk.reach(tool, (name, *aliases[start:]), chain)

    def _subagent(self, name: str, chain: tuple[str, ...], above: tuple[str, ...]) -> None:
        if not self._walk.may_visit(name, chain):
            return
        self._subagents.add(name)
        agent: SubagentSpec | None = self._spec.subagents.get(name)
        chain = (*chain, name)
        if agent is None:
            self._walk.miss(name, chain, "no sub-agent of this name is declared")
        elif name in above:
            self._walk.cycle(name, chain, "sub-agent")
        else:
            for used in dict.fromkeys(agent.tools):
                self.use(used, chain)
            for further in dict.fromkeys(agent.subagents):
                self._subagent(further, chain, (*above, name))

    def _workflow(self, name: str, chain: tuple[str, ...]) -> None:
        self._workflows.add(name)
        inner = self._spec.workflows.get(name)
        if inner is None:
            self._walk.miss(name, (*chain, name), "no sub-workflow of this name is declared")
        else:
            self._walk.enter(inner, (*chain, name))

    def _no_such(self, name: str) -> str:
        if name.startswith(MCP_PREFIX):
            return "no MCP server of this name is declared, or its listing was not read"
        near = [known for known in self._tools if known.casefold() == name.casefold()]
        also = f"; {', '.join(near)} is another name" if near else ""
        return f"no tool of this name is declared{also}"


# Stands among the aliases of a name where a group begins; nothing can be declared under it.
_GROUP = ""


def _parts_of_workspace(tool: ToolSpec) -> list[str]:
    """List what a tool is granted of the workspace, where that is not all of it."""
    paths = (*tool.grants.read, *tool.grants.write)
    return [path for path in paths if normpath(path) != "." and not path.startswith("/")]


def _no_effect(tool: ToolSpec) -> str:
    if not tool.hints:
        return "it declares no effect"
    return "no effect is declared for it, and its server's hints are not believed"


def _unsafe(tool: ToolSpec) -> str:
    if tool.effect != Effect.UNSAFE.value:
        words = ", ".join(effect.value for effect in Effect)
        return f"its effect {quote(tool.effect)} is none of {words}, so it counts as unsafe"
    able = f"; it has a simulator: --simulate {tool.id}" if tool.simulator is not None else ""
    return f"declared unsafe{able}"
