"""Names what known tools of known agents do to the world, as one versioned table.

Knows tool names and which argument tells what was done. Must not know sessions or reports. A tool
that is not in the table is judged by its declared effect; an undeclared one counts as unsafe.

Source: DESIGN.md §1 "effect classes"; the tools of Claude Code, Codex, OpenHands, SWE-agent, Gemini
CLI, Goose and OpenCode.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from redrive.audit.effects import Effect, parse_effect

TOOLS_VERSION = 1


class Category(StrEnum):
    """What kind of effect a call had, or could have had."""

    COMMAND = "command"
    FILE_WRITE = "file_write"
    NETWORK = "network"
    APPROVAL = "approval"
    PROVIDER_SIDE = "provider_side"
    OTHER = "other"


class ToolRule(msgspec.Struct, frozen=True):
    """What a tool does.

    Attributes:
        category: absent for a tool that only reads, or that only changes the agent's own plan.
        told_by: names of the arguments that tell what was done; the first one present is shown.
        reads_if: an argument, and its values (absent counts as empty) with which this tool only
            reads.
    """

    category: Category | None
    told_by: tuple[str, ...] = ()
    reads_if: tuple[str, tuple[str, ...]] | None = None


_COMMAND = ToolRule(Category.COMMAND, ("command", "cmd", "script", "code", "input"))
_STDIN = ToolRule(Category.COMMAND, ("chars",), ("chars", ("",)))
_STOP = ToolRule(Category.COMMAND, ("shell_id", "task_id", "bash_id", "session_id"))
_PATH = ("file_path", "path", "notebook_path", "filename", "file", "target_file", "filePath")
_WRITE = ToolRule(Category.FILE_WRITE, _PATH)
_EDITOR = ToolRule(Category.FILE_WRITE, _PATH, ("command", ("view",)))
_PATCH = ToolRule(Category.FILE_WRITE, ("input", "patch", "patch_text", "patchText"))
_WEB = ToolRule(Category.NETWORK, ("url", "query", "queries", "uri", "q", "prompt"))
_AGENT = ToolRule(Category.OTHER, ("description", "message", "prompt", "task", "script"))
_READ = ToolRule(None)

_TABLE: tuple[tuple[ToolRule, str], ...] = (
    (
        _COMMAND,
        "bash shell shell_command exec_command local_shell local_shell_call container.exec"
        " execute_bash terminal run run_command run_shell_command run_terminal_cmd"
        " execute_command execute_shell cmd powershell sh execute_ipython_cell ipython"
        " run_ipython python python_repl code_interpreter execute_code developer__shell"
        " monitor",
    ),
    (_STDIN, "write_stdin"),
    (_STOP, "killshell killbash kill_shell taskstop"),
    (
        _WRITE,
        "write edit multiedit notebookedit write_file create_file edit_file write_to_file"
        " replace replace_in_file insert_edit_into_file search_replace apply_diff delete_file"
        " create_directory move_file insert create delete_path",
    ),
    (
        _EDITOR,
        "str_replace_editor str_replace_based_edit_tool text_editor developer__text_editor"
        " file_editor",
    ),
    (_PATCH, "apply_patch patch"),
    (
        _WEB,
        "webfetch websearch web_search web_search_call web_fetch fetch http_request browse"
        " browser browse_interactive browser_action google_web_search open_url",
    ),
    (_AGENT, "task agent spawn_agent send_input delegate_task workflow dispatch_agent"),
    (
        _READ,
        "read grep glob ls notebookread bashoutput taskoutput todowrite todoread exitplanmode"
        " enterplanmode askuserquestion toolsearch skill taskcreate taskupdate tasklist taskget"
        " listmcpresourcestool readmcpresourcetool lsp update_plan view_image"
        " view_image_tool tool_search wait_agent close_agent"
        " list_mcp_resources list_mcp_resource_templates read_mcp_resource tool_suggest"
        " read_file read_many_files list_dir list_directory list_files grep_files search_files"
        " search_file_content find_file search_dir search_file open scroll_up scroll_down think"
        " finish submit todoread todo_write request_user_input",
    ),
)
TOOLS: Mapping[str, ToolRule] = {name: rule for rule, names in _TABLE for name in names.split()}
"""Tool name, lower case → its rule."""

_UNKNOWN = ToolRule(Category.OTHER)


class ToolJudgement(msgspec.Struct, frozen=True):
    """A tool's rule, and on what it rests: `table`, `declared` or `undeclared`."""

    rule: ToolRule
    basis: str


def judge_tool(tool: str, declared: Mapping[str, str]) -> ToolJudgement:
    """Say what a tool does.

    Args:
        tool: its name as recorded.
        declared: tool → effect word, as the session states them.

    Returns:
        The table's rule; else none for a tool declared pure or read-only; else `other`.
    """
    rule = TOOLS.get(tool.lower())
    if rule is not None:
        return ToolJudgement(rule, "table")
    if tool not in declared:
        return ToolJudgement(_UNKNOWN, "undeclared")
    is_safe = parse_effect(declared[tool]) in (Effect.PURE, Effect.READ_ONLY)
    return ToolJudgement(_READ if is_safe else _UNKNOWN, "declared")
