from typing import Any

import msgspec
import pytest

from redrive.audit.workflow import Grants, McpSpec, StepSpec, SubagentSpec, WorkflowSpec
from redrive.errors import UsageError
from redrive.trial import (
    CommandWorkflow,
    McpServer,
    Step,
    Subagent,
    Tool,
    Workflow,
    find_tools,
    to_spec,
    tool,
)


@tool("read", effect="read_only")
def read(path: str) -> str:
    return path


@tool("search", effect="pure")
def search(text: str) -> str:
    return text


@tool("bash", effect="unsafe")
def bash(command: str) -> str:
    return command


def run(task: Any, context: Any) -> None:
    return None


def workflow(**declared: Any) -> Workflow:
    return Workflow(**{"id": "wf", "version": "1", "run": run, **declared})


def refusal(**declared: Any) -> str:
    with pytest.raises(UsageError) as caught:
        to_spec(workflow(**declared))
    return caught.value.message


def test_a_declaration_becomes_a_value_without_any_function() -> None:
    spec = to_spec(
        workflow(
            tools=[read, "look", "mcp:files"],
            steps=[Step("s1", tool=search), Step("s2", subagent="r"), Step("s3", workflow="in")],
            subagents={"r": Subagent(tools=["bash", read], subagents=["r2"]), "r2": Subagent()},
            workflows={"in": workflow(id="in", tools=[search])},
            aliases={"look": ["read"]},
            mcp=[
                McpServer(
                    "files",
                    command=["python", "x.py"],
                    effects={"list": "read_only"},
                    grants=Grants(read=["."]),  # type: ignore[arg-type]
                )
            ],
        ),
        [bash],
    )
    assert spec.uses == ("read", "look", "mcp:files")
    assert [found.id for found in spec.tools] == ["read", "search", "bash"]
    assert spec.steps == (
        StepSpec("s1", tool="search"),
        StepSpec("s2", subagent="r"),
        StepSpec("s3", workflow="in"),
    )
    assert spec.subagents == {"r": SubagentSpec(("bash", "read"), ("r2",)), "r2": SubagentSpec()}
    assert spec.workflows["in"].uses == ("search",)
    assert spec.aliases == {"look": ("read",)}
    assert spec.mcp == (
        McpSpec("files", ("python", "x.py"), {"list": "read_only"}, Grants(read=(".",))),
    )
    assert msgspec.json.decode(msgspec.json.encode(spec), type=WorkflowSpec) == spec


def test_tools_beside_a_workflow_are_meant_by_name() -> None:
    spec = to_spec(workflow(tools=["bash"]), [bash, read])
    assert spec.uses == ("bash",)
    assert [found.id for found in spec.tools] == ["bash", "read"]


def test_a_command_workflow_is_a_value_of_its_words() -> None:
    spec = to_spec(CommandWorkflow("a", version="1", command=["python", "a.py"], tools=[read]))
    assert (spec.kind, spec.command, spec.uses) == ("command", ("python", "a.py"), ("read",))


def test_every_tool_is_found_once_by_its_id() -> None:
    inner = workflow(tools=[search])
    outer = workflow(
        tools=[read, read],
        steps=[Step("s", tool=bash), Step("t", tool="x")],
        subagents={"r": Subagent(tools=[read])},
        workflows={"in": inner},
    )
    assert find_tools(outer, [read]) == {"read": read, "bash": bash, "search": search}


def test_two_tools_of_one_id_are_refused() -> None:
    other: Tool = tool("read", effect="pure")(lambda path: path)
    assert "tool 'read' is declared twice" in refusal(tools=[read, other])


@pytest.mark.parametrize("tools", ["*", "read", None, lambda: [read], {read}, iter([read]), 3])
def test_what_is_no_list_of_tools_is_dynamic(tools: Any) -> None:
    spec = to_spec(workflow(tools=tools, subagents={"r": Subagent(tools=tools)}))
    assert len(spec.dynamic) == 2
    assert "in the place of a list" in spec.dynamic[0]


@pytest.mark.parametrize("item", ["*", "mcp__*", "", None, len, run, 3])
def test_what_is_no_tool_in_a_list_is_dynamic(item: Any) -> None:
    spec = to_spec(workflow(tools=[read, item]))
    assert spec.uses == ("read",)
    assert "is no tool, id or alias" in spec.dynamic[0]


def test_a_step_that_reaches_no_literal_is_dynamic() -> None:
    steps = [Step("s", tool=len), Step("t", subagent=Subagent())]  # type: ignore[arg-type]
    spec = to_spec(workflow(steps=steps))
    assert spec.steps == ()
    assert len(spec.dynamic) == 2


def test_tools_chosen_at_run_time_in_a_sub_workflow_are_its_own() -> None:
    spec = to_spec(workflow(workflows={"in": workflow(tools="*")}))
    assert spec.dynamic == ()
    assert spec.workflows["in"].dynamic


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ({"version": 2}, "a version is a text, not int"),
        ({"id": 2}, "an id is a text"),
        ({"id": "a b"}, "no workflow can be named"),
        ({"steps": {}}, "steps is a list"),
        ({"steps": ["s"]}, "a step is a Step"),
        ({"steps": [Step(1, tool="a")]}, "a step's id is a text"),  # type: ignore[arg-type]
        ({"steps": [Step("s")]}, "reaches 0 things"),
        ({"subagents": ["r"]}, "subagents is a dict"),
        ({"subagents": {"r": ["read"]}}, "sub-agent r is a Subagent"),
        ({"subagents": {"r": Subagent(subagents="r")}}, "subagents is a list"),
        ({"workflows": [1]}, "workflows is a dict"),
        ({"aliases": {"a": "bash"}}, "the alias 'a' is a list"),
        ({"aliases": {"a": [bash]}}, "the alias 'a' is a text"),
        ({"mcp": ["files"]}, "mcp holds McpServers"),
        ({"mcp": [McpServer("f", command="python x")]}, "command is a list"),
        ({"mcp": [McpServer("f", command=["x"], effects=["list"])]}, "effects is a dict"),  # type: ignore[arg-type]
        ({"mcp": [McpServer("f", command=["x"], effects={"l": 1})]}, "an effect is a text"),  # type: ignore[dict-item]
        ({"mcp": [McpServer("f", command=["x"], grants=3)]}, "grants are a Grants"),  # type: ignore[arg-type]
        ({"mcp": [McpServer("f", command=["x"], grants=Grants(write=("/a",)))]}, "write '/a'"),
        ({"run": 3}, "run is a plain function"),
        ({"run": bash}, "run is a plain function"),
        ({"run": lambda task: None}, r"run takes \(task, context\)"),
    ],
)
def test_a_malformed_declaration_is_refused_by_name(declared: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        to_spec(workflow(**declared))


def test_run_is_no_coroutine() -> None:
    async def late(task: Any, context: Any) -> None: ...

    assert "run is a plain function" in refusal(run=late)
    assert to_spec(workflow(run=print)).label == "wf@1"


def test_what_is_no_workflow_says_what_it_is() -> None:
    with pytest.raises(UsageError, match="this is no workflow, but int"):
        to_spec(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="no workflow, but str"):
        to_spec(workflow(workflows={"in": "wf"}))


def test_a_workflow_in_itself_is_refused() -> None:
    outer = workflow()
    outer.workflows = {"in": outer}
    with pytest.raises(UsageError, match="nested too deeply, or in themselves"):
        to_spec(outer)
