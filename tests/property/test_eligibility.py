from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from redrive.audit.effects import Effect, parse_effect
from redrive.audit.eligibility import judge, load
from redrive.audit.workflow import (
    NO_GRANTS,
    Grants,
    StepSpec,
    SubagentSpec,
    ToolSpec,
    WorkflowSpec,
)
from redrive.errors import IneligibleError

TOOLS = ("t0", "t1", "t2", "T0", "mcp__s__t")
ALIASES = ("a0", "a1", "mcp:s")
AGENTS = ("g0", "g1")
EFFECTS = ("pure", "read_only", "idempotent", "unsafe", "", "PURE", "safe")
NAMES = st.lists(st.sampled_from((*TOOLS, *ALIASES, "unknown")), max_size=4).map(tuple)
GRANTS = st.sampled_from((NO_GRANTS, Grants(network=("a:1",)), Grants(read=(".",))))


def tools() -> st.SearchStrategy[tuple[ToolSpec, ...]]:
    one = st.builds(
        ToolSpec,
        st.sampled_from(TOOLS),
        st.sampled_from(EFFECTS),
        GRANTS,
        st.sampled_from((None, "function")),
    )
    return st.lists(one, unique_by=lambda tool: tool.id).map(tuple)


def steps(targets: tuple[str, ...]) -> st.SearchStrategy[tuple[StepSpec, ...]]:
    reached = st.one_of(
        st.sampled_from((*TOOLS, *ALIASES)).map(lambda name: {"tool": name}),
        st.sampled_from((*AGENTS, "nobody")).map(lambda name: {"subagent": name}),
        st.sampled_from((*targets, "nothing")).map(lambda name: {"workflow": name}),
    )
    return st.lists(reached, max_size=3).map(
        lambda found: tuple(StepSpec(f"s{n}", **target) for n, target in enumerate(found))
    )


AGENT = st.builds(SubagentSpec, NAMES, st.lists(st.sampled_from(AGENTS), max_size=2).map(tuple))
FLAT = {
    "uses": NAMES,
    "tools": tools(),
    "subagents": st.dictionaries(st.sampled_from(AGENTS), AGENT),
    "aliases": st.dictionaries(st.sampled_from(ALIASES), NAMES),
    "dynamic": st.sampled_from(((), (), ("tools: a function",))),
}
INNER = st.builds(WorkflowSpec, st.just("in"), st.just("1"), steps=steps(()), **FLAT)
SPECS = st.builds(
    WorkflowSpec,
    st.just("wf"),
    st.just("1"),
    steps=steps(("w",)),
    workflows=st.dictionaries(st.just("w"), INNER),
    **FLAT,
)


def all_tools(spec: WorkflowSpec) -> Iterator[ToolSpec]:
    yield from spec.tools
    for inner in spec.workflows.values():
        yield from all_tools(inner)


def reachable(spec: WorkflowSpec) -> set[tuple[str, str]]:
    """Give the (id, effect) that can be reached, found in another way: a flood without chains."""
    found: set[tuple[str, str]] = set()
    by_id = {tool.id: tool for tool in spec.tools}
    names = {*spec.uses, *(step.tool for step in spec.steps if step.tool is not None)}
    for agent in spec.subagents.values():
        names |= {*agent.tools}
    while True:
        more = {target for name in names for target in spec.aliases.get(name, ())}
        if more <= names:
            break
        names |= more
    for name in names - set(spec.aliases):
        found.add((name, by_id[name].effect if name in by_id else ""))
    for inner in spec.workflows.values():
        found |= reachable(inner)
    return found


def simulating(spec: WorkflowSpec, wanted: frozenset[str]) -> frozenset[str]:
    unable = {tool.id for tool in all_tools(spec) if tool.simulator is None}
    return wanted - unable


@given(SPECS, st.frozensets(st.sampled_from(TOOLS)), st.sampled_from(("bubblewrap", "landlock")))
def test_what_a_broker_holds_is_never_unsafe_whatever_the_graph(
    spec: WorkflowSpec, wanted: frozenset[str], level: str
) -> None:
    simulate = simulating(spec, wanted)
    try:
        eligible = load(spec, simulate=simulate, level=level)
    except IneligibleError:
        return
    declared = {tool.id: tool for tool in all_tools(spec)}
    for tool in eligible.tools.values():
        assert tool.id in declared
        if tool.id in eligible.simulated:
            assert tool.id in simulate
            assert tool.simulator is not None
            assert tool.grants == NO_GRANTS
        else:
            assert tool.effect
            assert parse_effect(tool.effect) is not Effect.UNSAFE
            assert level == "bubblewrap" or not tool.grants.network


@given(SPECS, st.frozensets(st.sampled_from(TOOLS)))
def test_the_verdict_and_the_door_agree_and_name_every_offender(
    spec: WorkflowSpec, wanted: frozenset[str]
) -> None:
    simulate = simulating(spec, wanted)
    found = judge(spec, simulate=simulate)
    if found.is_eligible:
        held = load(spec, simulate=simulate).tools
        assert set(found.tools) == {tool.id for tool in held.values()}
    else:
        with pytest.raises(IneligibleError) as caught:
            load(spec, simulate=simulate)
        assert caught.value.refusals == tuple(astuple(refusal) for refusal in found.refusals)
    offenders = {
        name
        for name, effect in reachable(spec)
        if name not in simulate and parse_effect(effect) is Effect.UNSAFE
    }
    declared = {tool.id for tool in all_tools(spec)}
    missing = {name for name, _ in reachable(spec) if name not in declared}
    named = {refusal.tool for refusal in found.refusals}
    assert offenders | missing <= named
    for refusal in found.refusals:
        assert refusal.chain[0] == "wf@1"
        assert refusal.chain[-1] == refusal.tool
