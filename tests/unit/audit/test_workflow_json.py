import json

import pytest

from redrive.audit.workflow import Grants, StepSpec, SubagentSpec
from redrive.audit.workflow_json import MOST_CHARS, parse_workflow
from redrive.errors import UsageError


def text(**more: object) -> str:
    return json.dumps({"id": "wf", "version": "2", **more})


def test_a_declaration_is_read_with_its_registry() -> None:
    registry = {
        "tools": {
            "read": {"effect": "pure", "description": "Reads.", "grants": {"read": ["."]}},
            "send": {"effect": "unsafe", "simulator": "fixture"},
        },
        "aliases": {"exec": ["send"]},
    }
    spec = parse_workflow(
        text(
            tools=["read", "more"],
            steps=[{"id": "s1", "tool": "exec"}, {"id": "s2", "subagent": "r"}],
            subagents={"r": {"tools": ["read"], "subagents": ["r"]}},
            workflows={"in": {"id": "in", "version": "1", "tools": ["read"]}},
            aliases={"more": ["read"]},
        ),
        json.dumps(registry),
    )
    assert spec.label == "wf@2"
    assert spec.uses == ("read", "more")
    read, send = spec.tools
    assert (read.id, read.effect, read.description, read.grants) == (
        *("read", "pure", "Reads."),
        Grants(read=(".",)),
    )
    assert type(read.grants) is Grants
    assert send.simulator == "fixture"
    assert spec.steps == (StepSpec("s1", tool="exec"), StepSpec("s2", subagent="r"))
    assert spec.subagents == {"r": SubagentSpec(("read",), ("r",))}
    assert spec.aliases == {"exec": ("send",), "more": ("read",)}
    assert spec.workflows["in"].tools == spec.tools
    assert spec.kind == "python"


def test_a_command_makes_a_command_workflow() -> None:
    spec = parse_workflow(text(command=["python", "agent.py"]))
    assert (spec.kind, spec.command, spec.tools) == ("command", ("python", "agent.py"), ())


def test_what_is_no_list_of_names_is_dynamic() -> None:
    spec = parse_workflow(
        text(
            tools="*",
            steps=[{"id": "s", "tool": {"any": 1}}, {"id": "t", "tool": "mcp__*"}],
            subagents={"r": {"tools": ["read", "mcp__x__*", 3]}},
        )
    )
    assert spec.uses == ()
    assert spec.steps == ()
    assert spec.subagents["r"].tools == ("read",)
    assert len(spec.dynamic) == 5
    assert "tools: '*' in the place of a list" in spec.dynamic


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("[]", "workflow as JSON"),
        ("{", "not JSON"),
        ('{"id": "a", "id": "b", "version": "1"}', "'id' stands twice"),
        (text(version=2), "version"),
        (text(sub_agents={}), "sub_agents"),
        (text(steps=[{"id": "s", "tol": "x"}]), "tol"),
        (text(steps=[{"id": "s"}]), "reaches 0 things"),
        (text(workflows={"in": {"id": "in"}}), "version"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_what_is_not_understood_is_refused(given: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        parse_workflow(given)


@pytest.mark.parametrize(
    ("registry", "what"),
    [
        ('{"tools": {"a": {"effect": "unsafe"}, "a": {"effect": "pure"}}}', "'a' stands twice"),
        ('{"tools": {"a": {"effekt": "pure"}}}', "effekt"),
        ('{"tools": {"a": {"effect": 1}}}', "effect"),
        ('{"tools": {"a": {"grants": {"net": []}}}}', "net"),
        ('{"tools": {"a": {"simulator": "magic"}}}', "simulator"),
        ('{"tools": {"a b": {}}}', "a tool's id is"),
        ('{"aliases": {"x": ["a"]}}', "alias 'x' is declared twice"),
    ],
)
def test_a_registry_that_is_not_understood_is_refused(registry: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        parse_workflow(text(aliases={"x": ["b"]}), registry)


def test_a_declaration_is_bounded() -> None:
    with pytest.raises(UsageError, match="at most"):
        parse_workflow(" " * (MOST_CHARS + 1))
    nested: object = {"id": "a", "version": "1"}
    for _ in range(40):
        nested = {"id": "a", "version": "1", "workflows": {"in": nested}}
    with pytest.raises(UsageError, match="nested too deeply"):
        parse_workflow(json.dumps(nested))
