"""Which hooks a settings file of Claude Code names, and which tools they take.

Pure: it reads bytes, and neither looks for files nor runs anything.

Source: the public "Hooks reference" of Claude Code, as of version 2.1.218: sections "Matcher
patterns" and "Hook handler fields".
"""

import re

import msgspec

from redrive.errors import UsageError

# What Claude Code waits for a command, by event and otherwise.
_TIMEOUT_S = 600.0
_TIMEOUTS_S = {"UserPromptSubmit": 30.0, "MessageDisplay": 10.0}
# Events that ignore a matcher.
_NO_MATCHER_EVENTS = frozenset(
    {
        *("UserPromptSubmit", "PostToolBatch", "Stop", "TeammateIdle", "TaskCreated"),
        *("TaskCompleted", "WorktreeCreate", "WorktreeRemove", "MessageDisplay", "CwdChanged"),
    }
)
_EXACT_MATCHER = re.compile(r"[A-Za-z0-9_\-\s,|]*")


class HookSetting(msgspec.Struct, frozen=True):
    """One hook of a settings file.

    Args:
        event: the event it is called on.
        matcher: see `matches`; `None` if there is none.
        command: a shell command, or with `args` a program.
        args: arguments of the program, which then runs without a shell; `None`: a shell command.
        timeout_s: after which it is ended and has decided nothing.
        unsupported: why redrive cannot run it as Claude Code does; empty if it can.
    """

    event: str
    matcher: str | None
    command: str
    args: tuple[str, ...] | None
    timeout_s: float
    unsupported: str = ""


class _Handler(msgspec.Struct, frozen=True):
    type: str = "command"
    command: str = ""
    args: tuple[str, ...] | None = None
    shell: str = "bash"
    timeout: float | None = None
    condition: str | None = msgspec.field(default=None, name="if")
    is_async: bool = msgspec.field(default=False, name="async")
    async_rewake: bool = msgspec.field(default=False, name="asyncRewake")


class _Group(msgspec.Struct, frozen=True):
    matcher: str | None = None
    hooks: tuple[_Handler, ...] = ()


class _Settings(msgspec.Struct, frozen=True):
    hooks: dict[str, tuple[_Group, ...]] = {}
    are_disabled: bool = msgspec.field(default=False, name="disableAllHooks")


def matches(matcher: str | None, tool_name: str) -> bool:
    """Say whether a matcher takes a tool.

    Nothing, the empty text and `*` take every tool. Letters, digits, `_`, `-`, spaces, `,` and `|`
    alone are exact names, separated by `|` or `,`. Anything else is a regular expression that may
    match anywhere; one that does not compile takes nothing.
    """
    if not matcher or matcher == "*":
        return True
    if _EXACT_MATCHER.fullmatch(matcher):
        return tool_name in {name.strip() for name in re.split(r"[|,]", matcher)}
    pattern = _compile_matcher(matcher)
    return pattern is not None and pattern.search(tool_name) is not None


def _compile_matcher(matcher: str) -> re.Pattern[str] | None:
    # JavaScript writes a named group without the P, and its classes know ASCII alone.
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", matcher), re.ASCII)
    except re.error:
        return None


def parse_settings(data: bytes) -> tuple[HookSetting, ...]:
    """List the hooks of a settings file, in its order.

    Raises:
        UsageError: it is not JSON, or its `hooks` are not of the documented form.
    """
    try:
        settings = msgspec.json.decode(data, type=_Settings)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            f"no settings with hooks: {error}",
            where="settings.json",
            hint='{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"command": …}]}]}}',
        ) from error
    return tuple(
        _setting(event, group.matcher, handler, are_disabled=settings.are_disabled)
        for event, groups in settings.hooks.items()
        for group in groups
        for handler in group.hooks
    )


def _setting(
    event: str, matcher: str | None, handler: _Handler, *, are_disabled: bool
) -> HookSetting:
    timeout_s = _TIMEOUTS_S.get(event, _TIMEOUT_S)
    return HookSetting(
        event=event,
        matcher=None if event in _NO_MATCHER_EVENTS else matcher,
        command=handler.command,
        args=handler.args,
        timeout_s=timeout_s if handler.timeout is None else handler.timeout,
        unsupported=_unsupported(matcher, handler, are_disabled=are_disabled),
    )


def _unsupported(matcher: str | None, handler: _Handler, *, are_disabled: bool) -> str:
    if handler.type != "command":
        return f"a hook of type {handler.type!r} is no command"
    if not handler.command:
        return "the hook names no command"
    if handler.shell != "bash":
        return f"it asks for another shell: {handler.shell!r}"
    if handler.is_async or handler.async_rewake:
        return "the hook runs in the background and decides nothing"
    if handler.condition is not None:
        return f"its condition is not evaluated: if {handler.condition!r}"
    if matcher and not _EXACT_MATCHER.fullmatch(matcher) and _compile_matcher(matcher) is None:
        return f"its matcher is no regular expression: {matcher!r}"
    return "disableAllHooks is set" if are_disabled else ""
