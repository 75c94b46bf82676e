import pytest

from redrive.audit.tools import TOOLS, Category, judge_tool


@pytest.mark.parametrize(
    ("tool", "category"),
    [
        ("Bash", Category.COMMAND),
        ("exec_command", Category.COMMAND),
        ("execute_bash", Category.COMMAND),
        ("KillShell", Category.COMMAND),
        ("MultiEdit", Category.FILE_WRITE),
        ("str_replace_editor", Category.FILE_WRITE),
        ("apply_patch", Category.FILE_WRITE),
        ("WebFetch", Category.NETWORK),
        ("web_search", Category.NETWORK),
        ("Task", Category.OTHER),
        ("Read", None),
        ("BashOutput", None),
    ],
)
def test_known_tools_are_judged_by_the_table(tool, category):
    judged = judge_tool(tool, {tool: "pure"})
    assert (judged.rule.category, judged.basis) == (category, "table")


def test_other_tools_are_judged_by_what_is_declared():
    declared = {"a": "pure", "b": "read_only", "c": "idempotent", "d": "unsafe", "e": "harmless"}
    found = {tool: judge_tool(tool, declared).rule.category for tool in declared}
    assert found == {
        "a": None,
        "b": None,
        "c": Category.OTHER,
        "d": Category.OTHER,
        "e": Category.OTHER,
    }


def test_an_undeclared_tool_is_an_effect_and_says_so():
    judged = judge_tool("mcp__server__read", {})
    assert (judged.rule.category, judged.basis) == (Category.OTHER, "undeclared")


def test_names_in_the_table_are_lower_case():
    assert all(name == name.lower() for name in TOOLS)
