import pytest
from msgspec import Raw

from redrive.app.trial_listing import MOST_DESCRIPTION_CHARS, expand_listings
from redrive.app.trial_mcp_client import ListedTool
from redrive.audit.eligibility import judge
from redrive.audit.workflow import Grants, McpSpec, ToolSpec, WorkflowSpec
from redrive.errors import PluginError, UsageError

GRANTS = Grants(network=("a:1",))
SERVER = McpSpec("files", ("x",), {"list": "read_only", "gone": "pure"}, GRANTS)
LISTED = (
    ListedTool("list", "Lists.", Raw(b'{"type":"object"}'), {"destructiveHint": True}),
    ListedTool("remove", hints={"readOnlyHint": True}),
)
SPEC = WorkflowSpec("wf", "1", uses=("mcp:files",), mcp=(SERVER,))


def test_each_listed_tool_is_declared_with_the_workflow_s_effect_and_the_server_s_grants() -> None:
    spec = expand_listings(SPEC, lambda server: LISTED)
    first, second = spec.tools
    assert first == ToolSpec(
        "mcp__files__list",
        "read_only",
        GRANTS,
        origin="mcp:files",
        hints={"destructiveHint": True},
        description="Lists.",
        parameters=Raw(b'{"type":"object"}'),
    )
    assert second.effect == ""
    assert spec.aliases == {"mcp:files": ("mcp__files__list", "mcp__files__remove")}
    assert [refusal.tool for refusal in judge(spec).refusals] == ["mcp__files__remove"]
    assert spec.mcp == (SERVER,)


def test_a_server_of_a_sub_workflow_is_listed_once_for_all() -> None:
    asked: list[str] = []

    def list_server(server: McpSpec) -> tuple[ListedTool, ...]:
        asked.append(server.name)
        return LISTED[:1]

    spec = WorkflowSpec("outer", "1", mcp=(SERVER,), workflows={"in": SPEC, "none": SPEC})
    found = expand_listings(spec, list_server)
    assert asked == ["files"]
    assert found.workflows["in"].tools == found.tools
    assert judge(found).tools == ("mcp__files__list",)


def test_a_declared_tool_cannot_stand_in_for_a_listed_one() -> None:
    own = ToolSpec("mcp__files__remove", "pure")
    spec = WorkflowSpec("wf", "1", tools=(own,), mcp=(SERVER,))
    with pytest.raises(UsageError, match="'mcp__files__remove' is declared, and the name of"):
        expand_listings(spec, lambda server: LISTED)
    spec = WorkflowSpec("wf", "1", aliases={"mcp:files": ()}, mcp=(SERVER,))
    with pytest.raises(UsageError, match="'mcp:files' is declared"):
        expand_listings(spec, lambda server: LISTED)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ((ListedTool("a b"),), "under a name that cannot be called"),
        ((ListedTool(""), ListedTool("")), "twice"),
        ((LISTED[0], LISTED[0]), "twice"),
    ],
)
def test_a_listing_that_cannot_be_used_is_refused(
    listed: tuple[ListedTool, ...], said: str
) -> None:
    with pytest.raises(PluginError, match=said):
        expand_listings(SPEC, lambda server: listed)


def test_a_description_is_bounded() -> None:
    long = ListedTool("list", "x" * (MOST_DESCRIPTION_CHARS + 1))
    (tool,) = expand_listings(SPEC, lambda server: (long,)).tools
    assert len(tool.description) == MOST_DESCRIPTION_CHARS
