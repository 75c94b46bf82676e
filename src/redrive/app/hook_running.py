"""Finds foreign hooks and runs them: twice where they act, so that a fickle one is found.

Knows hook specs, the sandbox and the disk. Must not know how a replay is done.

Source: DESIGN.md §7, §8 "Specs".
"""

import re
from pathlib import Path

import msgspec
from msgspec import Raw

from redrive.app.hook_policy import EVENTS, HookAnswer, HookCode
from redrive.app.policy_messages import Answer, Outside, PolicyCode, raw_bytes
from redrive.errors import ContainmentError, UsageError, quote
from redrive.policies.claude_hook import UNENFORCED, ClaudeHook, read_version, run_hook
from redrive.policies.hook_protocol import Action, HookDecision, parse_input
from redrive.policies.hook_settings import parse_settings
from redrive.sandbox.bubblewrap import INSTALL_HINT, find_bubblewrap

HOOK_PREFIX, SETTINGS_PREFIX = "hook:", "settings:"
TIMEOUT_S = 60.0
_SPEC = re.compile(r"(?:(?P<event>[A-Z]\w*)(?::(?P<matcher>[^=]*))?=)?(?P<command>.+)", re.DOTALL)
HINT = "hook:[EVENT[:MATCHER]=]COMMAND, such as hook:PreToolUse:Bash=./block_rm.sh"


def find_hooks(spec: str) -> list[PolicyCode]:
    """Find the hooks that a spec names.

    Raises:
        UsageError: the spec or the settings file cannot be read, or names no hook that is replayed.
        ContainmentError: there is no sandbox to run one in.
    """
    if find_bubblewrap() is None:
        raise ContainmentError(
            "a foreign hook is run under bubblewrap or not at all, and bwrap is not installed",
            hint=INSTALL_HINT,
        )
    if spec.startswith(SETTINGS_PREFIX):
        return _from_settings(spec, Path(spec.removeprefix(SETTINGS_PREFIX)))
    match = _SPEC.fullmatch(spec.removeprefix(HOOK_PREFIX))
    if match is None:
        raise UsageError(f"no hook in {quote(spec)}", hint=HINT)
    event, command = match["event"] or "PreToolUse", match["command"]
    hook = ClaudeHook(
        name=_name_of(command),
        event=_checked(event),
        command=command,
        project_folder=str(Path.cwd()),
        matcher=match["matcher"] or None,
        timeout_s=TIMEOUT_S,
    )
    return [_code(spec, hook)]


def _from_settings(spec: str, path: Path) -> list[PolicyCode]:
    try:
        settings = parse_settings(path.read_bytes())
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}", hint="settings:.claude/settings.json"
        ) from error
    project = path.resolve().parent.parent if path.parent.name == ".claude" else Path.cwd()
    codes: list[PolicyCode] = []
    for setting in settings:
        if setting.event not in EVENTS or setting.unsupported:
            continue
        command = setting.command if setting.args is None else (setting.command, *setting.args)
        hook = ClaudeHook(
            name=f"{setting.event}:{_name_of(setting.command)}",
            event=setting.event,
            command=command,
            project_folder=str(project),
            matcher=setting.matcher,
            timeout_s=setting.timeout_s,
        )
        codes.append(_code(f"{spec}#{len(codes) + 1}", hook))
    if not codes:
        raise UsageError(
            f"{path}: no hook on {', '.join(EVENTS)} that can be replayed",
            hint="command hooks that are neither async nor conditional",
        )
    return codes


def _checked(event: str) -> str:
    if event not in EVENTS:
        raise UsageError(f"hooks on {quote(event)} are not replayed", hint=", ".join(EVENTS))
    return event


def _name_of(command: str) -> str:
    words = command.split()
    return words[-1].rpartition("/")[2] if words else "hook"


def _code(spec: str, hook: ClaudeHook) -> PolicyCode:
    version = read_version(hook)
    code = HookCode(
        name=hook.name,
        event=hook.event,
        matcher=hook.matcher,
        command=hook.command,
        project_folder=hook.project_folder,
        timeout_s=hook.timeout_s,
        version=version,
        unenforced=UNENFORCED,
    )
    return PolicyCode(
        spec=spec,
        source=f"hook {hook.event}{'' if hook.matcher is None else ':' + hook.matcher}",
        attribute=hook.name,
        code=None,
        digest=version.removeprefix("sha256:"),
        hook=Raw(msgspec.json.encode(code)),
    )


def answer_hook(code: PolicyCode, outside: Outside) -> Answer:
    """Run a hook on one event.

    Raises:
        ContainmentError: there is no proven sandbox.
    """
    found = msgspec.json.decode(raw_bytes(code.hook), type=HookCode)
    hook = ClaudeHook(
        name=found.name,
        event=found.event,
        command=found.command,
        project_folder=found.project_folder,
        matcher=found.matcher,
        timeout_s=found.timeout_s,
    )
    told = parse_input(msgspec.json.decode(bytes(outside.request), type=str).encode())
    first = _answer(run_hook(hook, told))
    if first.fault or first.action != Action.NONE or first.context:
        second = _answer(run_hook(hook, told))
        if (second.action, second.fault) != (first.action, first.fault):
            fault = f"answers differently when asked again: {_word(first)}, then {_word(second)}"
            first = HookAnswer(first.action, first.reason, fault=fault)
    return Answer(value=Raw(msgspec.json.encode(first)))


def _answer(decision: HookDecision) -> HookAnswer:
    reason = decision.reason or decision.stop_reason or decision.system_message
    return HookAnswer(decision.action.value, reason, decision.context, decision.fault)


def _word(answer: HookAnswer) -> str:
    return answer.fault or answer.action
