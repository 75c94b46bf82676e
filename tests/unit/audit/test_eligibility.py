import pytest
from msgspec.structs import replace

from redrive.audit.eligibility import (
    MOST_VISITS,
    EligibleWorkflow,
    Refusal,
    check_simulate,
    judge,
    load,
)
from redrive.audit.workflow import (
    NO_GRANTS,
    Grants,
    StepSpec,
    SubagentSpec,
    ToolSpec,
    WorkflowSpec,
)
from redrive.errors import IneligibleError, UsageError

READ = ToolSpec("read", "read_only", Grants(read=(".",)))
SEARCH = ToolSpec("search", "pure")
SEND = ToolSpec("send", "unsafe", Grants(network=("mail.example:25",)), "function")
BASH = ToolSpec("bash", "unsafe")
WF = WorkflowSpec("wf", "2", uses=("read",), tools=(READ, SEARCH, SEND, BASH))


def chains(spec: WorkflowSpec, **more: object) -> list[tuple[str, str, str]]:
    found = judge(spec, **more)  # type: ignore[arg-type]
    assert found.is_eligible == (not found.refusals)
    return [(r.tool, r.effect, " → ".join(r.chain)) for r in found.refusals]


def reason(spec: WorkflowSpec, **more: object) -> str:
    (refusal,) = judge(spec, **more).refusals  # type: ignore[arg-type]
    return refusal.reason


def test_a_workflow_of_safe_tools_is_eligible_whatever_else_is_declared() -> None:
    found = judge(WF)
    assert found.is_eligible
    assert (found.workflow, found.tools, found.simulated) == ("wf@2", ("read",), ())
    assert found.chains == {"read": ("wf@2", "read")}
    assert dict(load(WF).tools) == {"read": READ}


def test_no_tools_means_none() -> None:
    assert dict(load(replace(WF, uses=())).tools) == {}


@pytest.mark.parametrize("effect", ["pure", "read_only", "idempotent"])
def test_the_three_safe_effects_pass(effect: str) -> None:
    assert judge(replace(WF, tools=(replace(READ, effect=effect),))).is_eligible


def test_an_unsafe_tool_is_refused_by_name_with_its_chain() -> None:
    assert chains(replace(WF, uses=("read", "bash"))) == [("bash", "unsafe", "wf@2 → bash")]


@pytest.mark.parametrize("effect", ["Read_Only", "safe", "pure ", "\uff50ure"])
def test_another_word_counts_as_unsafe_and_says_so(effect: str) -> None:
    spec = replace(WF, tools=(replace(READ, effect=effect),))
    assert chains(spec) == [("read", "unsafe", "wf@2 → read")]
    assert repr(effect) in reason(spec)


def test_no_effect_counts_as_undeclared() -> None:
    spec = replace(WF, tools=(ToolSpec("read"),))
    assert chains(spec) == [("read", "undeclared", "wf@2 → read")]
    assert reason(spec) == "it declares no effect"


def test_a_hint_of_an_mcp_server_is_no_effect() -> None:
    hinted = ToolSpec("read", origin="mcp:f", hints={"readOnlyHint": True})
    assert "hints are not believed" in reason(replace(WF, tools=(hinted,)))


@pytest.mark.parametrize("name", ["Read", "r\u0435ad", "read ", "\uff52ead", "mcp__new__thing", ""])
def test_a_look_alike_is_another_name_and_undeclared(name: str) -> None:
    ((tool, effect, _),) = chains(replace(WF, uses=(name,)))
    assert (tool, effect) == (name, "undeclared")


def test_another_case_names_the_tool_that_is_declared() -> None:
    assert "read is another name" in reason(replace(WF, uses=("READ",)))


def test_what_is_chosen_at_run_time_is_refused() -> None:
    spec = replace(WF, dynamic=("tools: '*' in the place of a list",))
    assert [r.effect for r in judge(spec).refusals] == ["dynamic"]


def test_an_alias_is_resolved_and_its_target_judged() -> None:
    aliases = {"exec": ("shell",), "shell": ("bash",), "look": ("read",)}
    spec = replace(WF, uses=("exec", "look"), aliases=aliases)
    assert chains(spec) == [("bash", "unsafe", "wf@2 → exec → shell → bash")]


def test_an_alias_of_one_tool_can_be_called_and_a_group_cannot() -> None:
    aliases = {
        "look": ("peek",),
        "peek": ("read", "read"),
        "all": ("peek", "search"),
        "x": ("all",),
    }
    tools = load(replace(WF, uses=("look", "x"), aliases=aliases)).tools
    assert dict(tools) == {"read": READ, "look": READ, "peek": READ, "search": SEARCH}
    (only,) = load(replace(WF, uses=("mcp:f",), aliases={"mcp:f": ("read",)})).tools
    assert only == "read"


def test_an_alias_that_leads_back_to_itself_is_refused() -> None:
    spec = replace(WF, uses=("a",), aliases={"a": ("b",), "b": ("a", "read")})
    assert chains(spec) == [("a", "dynamic", "wf@2 → a → b → a")]


def test_every_chain_to_a_tool_is_named_once() -> None:
    aliases = {"a": ("bash", "bash"), "b": ("bash",)}
    steps = (StepSpec("s1", tool="a"), StepSpec("s2", tool="bash"))
    spec = replace(WF, uses=("a", "b", "a"), aliases=aliases, steps=steps)
    assert [chain for _, _, chain in chains(spec)] == [
        "wf@2 → a → bash",
        "wf@2 → b → bash",
        "wf@2 → s1 → a → bash",
        "wf@2 → s2 → bash",
    ]


def test_sub_agents_are_walked_and_inherit_nothing() -> None:
    spec = replace(
        WF,
        subagents={"c": SubagentSpec(("search",), ("d",)), "d": SubagentSpec(("bash",))},
        steps=(StepSpec("s3", subagent="c"),),
    )
    assert chains(spec) == [("bash", "unsafe", "wf@2 → s3 → c → d → bash")]


def test_a_declared_sub_agent_is_walked_though_no_step_names_it() -> None:
    spec = replace(WF, subagents={"c": SubagentSpec(("bash",))})
    assert chains(spec) == [("bash", "unsafe", "wf@2 → c → bash")]


def test_sub_agents_that_start_each_other_are_refused_by_name() -> None:
    agents = {"a": SubagentSpec(subagents=("b",)), "b": SubagentSpec(subagents=("a",))}
    spec = replace(WF, subagents=agents, steps=(StepSpec("s", subagent="a"),))
    assert chains(spec) == [("a", "dynamic", "wf@2 → s → a → b → a")]


def test_sub_agents_and_sub_workflows_that_are_not_declared_are_refused() -> None:
    steps = (StepSpec("s1", subagent="x"), StepSpec("s2", workflow="y"))
    assert chains(replace(WF, steps=steps)) == [
        ("x", "undeclared", "wf@2 → s1 → x"),
        ("y", "undeclared", "wf@2 → s2 → y"),
    ]


def test_sub_workflows_are_walked_with_their_own_names() -> None:
    inner = WorkflowSpec("in", "1", uses=("exec",), tools=(BASH,), aliases={"exec": ("bash",)})
    spec = replace(WF, workflows={"in": inner}, steps=(StepSpec("s", workflow="in"),))
    assert chains(spec) == [("bash", "unsafe", "wf@2 → s → in → exec → bash")]
    assert chains(replace(spec, steps=())) == [("bash", "unsafe", "wf@2 → in → exec → bash")]


def test_a_name_that_means_two_tools_is_refused() -> None:
    inner = WorkflowSpec("in", "1", uses=("read",), tools=(replace(READ, grants=NO_GRANTS),))
    spec = replace(WF, workflows={"in": inner})
    assert chains(spec) == [("read", "dynamic", "wf@2 → in → read")]
    assert judge(replace(WF, workflows={"in": replace(inner, tools=(READ,))})).is_eligible


def test_a_listing_that_was_not_read_is_refused() -> None:
    spec = replace(WF, uses=("mcp:files",))
    assert chains(spec) == [("mcp:files", "undeclared", "wf@2 → mcp:files")]
    assert "listing was not read" in reason(spec)


def test_a_simulator_stands_in_where_that_is_asked_for() -> None:
    spec = replace(WF, uses=("send", "read"))
    assert "--simulate send" in reason(spec)
    eligible = load(spec, simulate=frozenset({"send", "elsewhere"}))
    assert eligible.simulated == {"send"}
    assert eligible.tools["send"] == replace(SEND, grants=NO_GRANTS)
    assert judge(spec, simulate=frozenset({"send"})).simulated == ("send",)


def test_a_simulated_tool_that_is_not_reached_marks_nothing() -> None:
    assert load(WF, simulate=frozenset({"send"})).simulated == frozenset()


def test_a_tool_without_a_simulator_cannot_be_simulated() -> None:
    with pytest.raises(UsageError, match="tool 'bash' has no simulator"):
        judge(WF, simulate=frozenset({"bash"}))
    inner = replace(WF, uses=(), tools=(), workflows={"in": WF})
    with pytest.raises(UsageError, match="tool 'bash' has no simulator"):
        judge(inner, simulate=frozenset({"bash"}))


def test_a_tool_that_no_workflow_declares_cannot_be_simulated() -> None:
    check_simulate((WorkflowSpec("a", "1"), WF), ("send",))
    with pytest.raises(UsageError, match="no tool 'sned' to simulate") as caught:
        check_simulate((WF,), ("send", "sned"))
    assert caught.value.hint == "with a simulator: send"


def test_what_needs_a_network_is_refused_at_a_level_without_one() -> None:
    fetch = ToolSpec("fetch", "read_only", Grants(network=("a:1", "b:2")))
    spec = replace(WF, uses=("fetch",), tools=(fetch,))
    assert judge(spec).is_eligible
    assert chains(spec, level="landlock") == [("fetch", "read_only", "wf@2 → fetch")]
    assert "a:1, b:2" in reason(spec, level="landlock")
    with pytest.raises(IneligibleError, match="fetch"):
        load(spec, level="landlock")


def test_a_command_is_refused_at_a_level_without_a_network() -> None:
    spec = WorkflowSpec("agent", "1", "command", command=("python", "agent.py"))
    assert judge(spec).is_eligible
    assert chains(spec, level="landlock") == [("python", "command", "agent@1 → python")]


def test_the_error_carries_every_refusal() -> None:
    spec = replace(WF, uses=("bash", "send", "nothing"))
    with pytest.raises(IneligibleError, match=r"bash: declared unsafe \(wf@2 → bash\)") as caught:
        load(spec)
    error = caught.value
    assert (error.tool, error.chain) == ("bash", ("wf@2", "bash"))
    assert [Refusal(*refusal) for refusal in error.refusals] == list(judge(spec).refusals)
    assert "send" in error.hint
    assert "nothing" in error.hint
    with pytest.raises(IneligibleError) as alone:
        load(replace(WF, uses=("bash",)))
    assert alone.value.hint == "redrive eligible shows every tool"


def test_a_long_list_of_refusals_is_counted_in_the_hint() -> None:
    with pytest.raises(IneligibleError) as caught:
        load(replace(WF, uses=tuple(f"t{number}" for number in range(30))))
    assert caught.value.hint.endswith("and 9 more")
    assert len(caught.value.refusals) == 30


def test_a_declaration_with_too_many_chains_is_refused_and_not_walked() -> None:
    layers = {f"a{n}": (f"a{n + 1}", f"b{n + 1}") for n in range(40)}
    layers |= {f"b{n}": (f"a{n + 1}", f"b{n + 1}") for n in range(40)}
    layers |= {"a40": ("read",), "b40": ("read",)}
    (refusal,) = judge(replace(WF, uses=("a0",), aliases=layers)).refusals
    assert str(MOST_VISITS) in refusal.reason
    agents = {name: SubagentSpec(subagents=further) for name, further in list(layers.items())[:-2]}
    agents |= {"a40": SubagentSpec(), "b40": SubagentSpec()}
    spec = replace(WF, subagents=agents, steps=(StepSpec("s", subagent="a0"),))
    assert any(str(MOST_VISITS) in refusal.reason for refusal in judge(spec).refusals)


def test_a_declaration_that_is_too_deep_is_refused() -> None:
    aliases = {f"a{n}": (f"a{n + 1}",) for n in range(5000)} | {"a5000": ("read",)}
    (refusal,) = judge(replace(WF, uses=("a0",), aliases=aliases)).refusals
    assert "links lead to it" in refusal.reason


def test_a_malformed_declaration_is_no_verdict() -> None:
    with pytest.raises(UsageError, match="declared twice"):
        judge(replace(WF, tools=(READ, replace(READ, effect="unsafe"))))


def test_only_a_passed_check_makes_an_eligible_workflow() -> None:
    with pytest.raises(TypeError, match=r"eligibility\.load alone"):
        EligibleWorkflow(None)  # type: ignore[arg-type]


def test_what_was_judged_does_not_change_afterwards() -> None:
    eligible = load(WF)
    with pytest.raises(AttributeError, match="does not change"):
        eligible.tools = {"bash": BASH}
    with pytest.raises(TypeError):
        eligible.tools["bash"] = BASH  # type: ignore[index]
    assert dict(eligible.tools) == {"read": READ}


def test_a_part_of_the_workspace_cannot_be_granted_beside_a_command_that_may_swap_it() -> None:
    def spec(kind: str, *read: str, write: tuple[str, ...] = ()) -> WorkflowSpec:
        tool = ToolSpec("look_up", "read_only", Grants(read=read, write=write))
        command = ("agent",) if kind == "command" else ()
        return WorkflowSpec("w", "1", kind, uses=("look_up",), tools=(tool,), command=command)

    refused = [("look_up", "read_only", "w@1 → look_up")]
    assert chains(spec("command", "codes.json")) == refused
    assert chains(spec("command", ".", write=("out",))) == refused
    assert "grant all, `.`" in reason(spec("command", "a/./b"))
    assert chains(spec("command", "./", "/etc/hosts", write=(".",))) == []
    assert chains(spec("python", "codes.json")) == []
