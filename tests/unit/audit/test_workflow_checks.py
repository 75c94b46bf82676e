import pytest
from msgspec.structs import replace

from redrive.audit.workflow import (
    Grants,
    McpSpec,
    StepSpec,
    SubagentSpec,
    ToolSpec,
    WorkflowSpec,
)
from redrive.audit.workflow_checks import check_spec, check_tool, is_tool_id, mcp_tool_id
from redrive.errors import UsageError

READ = ToolSpec("read_file", "read_only")
GOOD = WorkflowSpec(
    "triage",
    "2.0-rc_1",
    uses=("read_file", "mcp:files"),
    tools=(
        READ,
        ToolSpec(
            "send/mail.v2",
            "unsafe",
            Grants(("/usr/share/dict", "."), ("out/a",), ("[::1]:80", "mail.example:25"), ("KEY",)),
            "fixture",
        ),
    ),
    steps=(StepSpec("s1", tool="read_file"), StepSpec("s2", subagent="r")),
    subagents={"r": SubagentSpec(("exec",))},
    workflows={"inner": WorkflowSpec("inner", "1")},
    aliases={"exec": ("read_file",), "mcp:other": ()},
    mcp=(McpSpec("my_files-2", ("python", "x.py")), McpSpec("f", ("x",))),
)


def refusal(spec: WorkflowSpec) -> str:
    with pytest.raises(UsageError) as caught:
        check_spec(spec)
    return caught.value.message


def test_a_well_formed_declaration_passes() -> None:
    check_spec(GOOD)


@pytest.mark.parametrize("word", ["", "a b", "a@1", "ä", "-x", "x" * 65, "a\n"])
def test_ids_and_versions_are_plain_words(word: str) -> None:
    assert "no workflow can be named" in refusal(replace(GOOD, id=word))
    assert "no version" in refusal(replace(GOOD, version=word))
    assert "no step can be named" in refusal(replace(GOOD, steps=(StepSpec(word, tool="a"),)))
    assert "sub-agent can be named" in refusal(replace(GOOD, subagents={word: SubagentSpec()}))
    inner = {word: WorkflowSpec("i", "1")}
    assert "sub-workflow can be named" in refusal(replace(GOOD, workflows=inner))


@pytest.mark.parametrize(
    "name", ["", "b ash", "b\u0430sh", "\uff42ash", "*", "mcp:x", "a" * 129, "a\u200b"]
)
def test_a_tool_is_declared_under_a_plain_ascii_id_alone(name: str) -> None:
    assert not is_tool_id(name)
    assert "a tool's id is" in refusal(replace(GOOD, tools=(ToolSpec(name),)))


def test_an_mcp_tool_has_an_id_that_can_be_declared() -> None:
    assert mcp_tool_id("files", "list") == "mcp__files__list"
    assert is_tool_id("mcp__files__list")


def test_no_name_is_declared_twice() -> None:
    assert "tool 'read_file' is declared twice" in refusal(replace(GOOD, tools=(READ, READ)))
    steps = (StepSpec("s", tool="a"), StepSpec("s", tool="b"))
    assert "step 's' is declared twice" in refusal(replace(GOOD, steps=steps))
    servers = (McpSpec("f", ("x",)), McpSpec("f", ("y",)))
    assert "MCP server 'f' is declared twice" in refusal(replace(GOOD, mcp=servers))
    aliases = {"read_file": ("send/mail.v2",)}
    assert "is a tool and an alias as well" in refusal(replace(GOOD, aliases=aliases))


@pytest.mark.parametrize("name", ["", "a b", "mcp:", "mcp:a__b", "-", "?"])
def test_an_alias_has_a_name_that_can_be_called(name: str) -> None:
    assert "no alias can be named" in refusal(replace(GOOD, aliases={name: ()}))


@pytest.mark.parametrize("name", ["", "a__b", "_a", "a_", "a.b", "x" * 33])
def test_a_server_has_a_name_that_no_other_tools_name_can_imitate(name: str) -> None:
    assert "a server's name is" in refusal(replace(GOOD, mcp=(McpSpec(name, ("x",)),)))


def test_a_server_has_a_command_and_checked_grants() -> None:
    assert "a server has a command" in refusal(replace(GOOD, mcp=(McpSpec("f", ()),)))
    assert "empty or holds a NUL" in refusal(replace(GOOD, mcp=(McpSpec("f", ("a\0",)),)))
    escaping = McpSpec("f", ("x",), grants=Grants(write=("/etc",)))
    assert "cannot grant to write '/etc'" in refusal(replace(GOOD, mcp=(escaping,)))


def test_a_step_reaches_exactly_one_thing() -> None:
    assert "step 's' reaches 0 things" in refusal(replace(GOOD, steps=(StepSpec("s"),)))
    both = StepSpec("s", tool="a", subagent="r")
    assert "step 's' reaches 2 things" in refusal(replace(GOOD, steps=(both,)))


def test_a_command_belongs_to_a_command_workflow() -> None:
    check_spec(WorkflowSpec("a", "1", "command", command=("python", "agent.py")))
    assert "a command workflow has a command" in refusal(WorkflowSpec("a", "1", "command"))
    assert "no other has" in refusal(replace(GOOD, command=("x",)))
    assert "no kind 'magic'" in refusal(WorkflowSpec("a", "1", "magic"))
    empty = WorkflowSpec("a", "1", "command", command=("",))
    assert "empty or holds a NUL" in refusal(empty)


def test_a_command_is_no_sub_workflow() -> None:
    inner = {"in": WorkflowSpec("a", "1", "command", command=("x",))}
    assert "the command 'in' is no sub-workflow" in refusal(replace(GOOD, workflows=inner))


def test_sub_workflows_are_checked_and_bounded() -> None:
    bad = {"in": WorkflowSpec("a", "1", tools=(READ, READ))}
    assert "declared twice" in refusal(replace(GOOD, workflows=bad))
    spec = WorkflowSpec("a", "1")
    for _ in range(40):
        spec = WorkflowSpec("a", "1", workflows={"in": spec})
    assert "nested too deeply" in refusal(spec)


@pytest.mark.parametrize("path", ["", "/etc", "~/x", "../x", "a/../../b", "a\0b", "a/" + "é" * 128])
def test_only_paths_inside_the_workspace_can_be_granted_for_writing(path: str) -> None:
    with pytest.raises(UsageError, match="cannot grant to write"):
        check_tool(replace(READ, grants=Grants(write=(path,))))


@pytest.mark.parametrize("path", ["", "../x", "/a/../etc", "a\0b", "n" * 256])
def test_a_path_for_reading_says_what_it_is(path: str) -> None:
    with pytest.raises(UsageError, match="cannot grant to read"):
        check_tool(replace(READ, grants=Grants(read=(path,))))


@pytest.mark.parametrize(
    "place",
    *(["mail.example", "mail.example:", ":25", "a:0", "a:65536", "a b:1", "http://a:80", "*:80"],),
)
def test_the_network_is_granted_as_host_and_port(place: str) -> None:
    with pytest.raises(UsageError, match="cannot grant the network to"):
        check_tool(replace(READ, grants=Grants(network=(place,))))


@pytest.mark.parametrize("name", ["", "A B", "1A", "A=B"])
def test_a_secret_is_the_name_of_a_variable(name: str) -> None:
    with pytest.raises(UsageError, match="no variable can be named"):
        check_tool(replace(READ, grants=Grants(secrets=(name,))))


def test_a_simulator_is_a_function_or_a_fixture() -> None:
    with pytest.raises(UsageError, match="no simulator 'magic'"):
        check_tool(replace(READ, simulator="magic"))
