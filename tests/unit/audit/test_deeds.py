import pytest
from msgspec import UNSET

from redrive.audit.deeds import Deed, deed_of, exit_code_of, is_denial, is_in_background
from redrive.audit.tools import Category, judge_tool
from redrive.record.event import ToolCall, ToolResult, raw_of

PATCH = "*** Begin Patch\n*** Update File: a.go\n@@\n*** Move to: b.go\n*** Add File: c\n*** End"


def deed(tool, arguments=UNSET, **fields):
    given = arguments if arguments is UNSET else raw_of(arguments)
    return deed_of(ToolCall(tool, arguments=given, **fields), judge_tool(tool, {}).rule)


def test_a_command_is_its_line_with_hints_and_conditions():
    told = deed(
        "Bash",
        {"command": "git push > log", "run_in_background": True, "dangerouslyDisableSandbox": True},
    )
    assert told == Deed(
        Category.COMMAND,
        "git push > log",
        ("in the background", "sandbox switched off"),
        ("git push",),
        ("> log",),
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"command": ["bash", "-lc", "ls | wc"]}, "ls | wc"),
        ({"command": ["ls", "a b"]}, "ls 'a b'"),
        ({"command": {"odd": 1}}, '{"odd":1}'),
        ({"command": ["ls", 1]}, '["ls",1]'),
        (["git", "status"], "git status"),
        ({}, "{}"),
        (7, "7"),
    ],
)
def test_any_shape_of_a_command_becomes_one_line(arguments, line):
    assert deed("shell", arguments).what == line


def test_argument_text_that_is_no_json_is_shown_as_it_is():
    assert deed("Bash", arguments_text="ls {").what == "ls {"
    assert deed("Bash", arguments_text='{"command":"ls"}').what == "ls"
    assert deed("Bash", arguments_text="[1]").what == "[1]"
    assert deed("Bash").what == ""


def test_a_patch_names_its_files():
    files = "update a.go, move b.go, add c"
    assert deed("apply_patch", arguments_text=PATCH) == Deed(Category.FILE_WRITE, files)
    in_shell = deed("shell", {"command": ["apply_patch", PATCH]})
    assert (in_shell.category, in_shell.what) == (Category.FILE_WRITE, files)
    among_others = deed("exec_command", {"cmd": f"make && apply_patch <<'E'\n{PATCH}\nE"})
    assert among_others.category is Category.COMMAND
    assert among_others.details == ("update a.go", "move b.go", "add c")
    assert deed("apply_patch", arguments_text="nonsense").what == "nonsense"


def test_a_patch_with_too_many_files_is_cut():
    lines = "\n".join(f"*** Add File: f{n}" for n in range(500))
    assert deed("apply_patch", arguments_text=lines).what.count("add ") == 200


def test_a_tool_that_can_read_is_no_effect_when_it_reads():
    assert deed("str_replace_editor", {"command": "view", "path": "/a"}).category is None
    written = deed("str_replace_editor", {"command": "create", "path": "/a"})
    assert (written.category, written.what) == (Category.FILE_WRITE, "/a")
    assert deed("write_stdin", {"session_id": 1}).category is None
    assert deed("write_stdin", {"chars": ""}).category is None
    assert deed("write_stdin", {"chars": "yes\n"}).category is Category.COMMAND
    assert deed("write_stdin", {"chars": [None]}).what == "[null]"


def test_what_the_provider_runs_is_its_own_category_unless_it_is_a_network_call():
    assert deed("image", {}, is_provider_side=True).category is Category.PROVIDER_SIDE
    assert deed("web_search", {"query": "q"}, is_provider_side=True) == Deed(Category.NETWORK, "q")


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (ToolResult(exit_code=3, result=raw_of("Exit code 4")), 3),
        (ToolResult(result=raw_of("Exit code 2\nboom")), 2),
        (ToolResult(result=raw_of([{"type": "text", "text": "Error: Exit code 127"}])), 127),
        (ToolResult(result=raw_of({"exit_code": 0})), 0),
        (ToolResult(result=raw_of({"metadata": {"exit_code": 9}})), 9),
        (ToolResult(result=raw_of({"exit_code": True})), None),
        (ToolResult(result=raw_of("it said Exit code 2")), None),
        (ToolResult(result=raw_of([])), None),
        (ToolResult(result=raw_of(None)), None),
        (ToolResult(), None),
    ],
)
def test_an_exit_code_is_taken_only_where_one_is_stated(result, code):
    assert exit_code_of(result) == code


def test_a_refusal_in_a_result_is_known():
    assert is_denial(ToolResult(result=raw_of("exec command rejected by user")))
    assert not is_denial(ToolResult(result=raw_of("the patch was not rejected by user")))
    assert not is_denial(ToolResult())


@pytest.mark.parametrize(
    ("arguments", "is_so"),
    [
        ({"command": "x", "run_in_background": True}, True),
        ({"command": "x", "is_background": True}, True),
        ({"command": "x", "run_in_background": False}, False),
        ({"command": "x", "run_in_background": "yes"}, False),
        ({"command": "x"}, False),
    ],
)
def test_a_call_in_the_background_is_told(arguments, is_so):
    assert is_in_background(ToolCall("Bash", arguments=raw_of(arguments))) is is_so


def test_a_tool_that_only_reads_did_nothing():
    assert deed("Read", {"file_path": "a"}) == Deed(None)
