"""Makes sessions and policies on which a replay of whole processes has something to find.

Every name and text is invented. Counts that the tests rely on stand beside what makes them.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests import claude_files as claude

HOUR_S = 3600
N_SESSIONS = 5
N_ROUNDS = 6

# --- interchange sessions

# One round of work: (tool, arguments, result) in order. A round begins with a user message.
_ROUND: tuple[tuple[str, dict[str, str], Any], ...] = (
    ("Bash", {"command": "git status"}, "clean"),
    ("Edit", {"file_path": "/srv/demo/src/a.py", "old_string": "1", "new_string": "2"}, "edited"),
    ("Bash", {"command": "git push origin main"}, "pushed"),
    ("Bash", {"command": "pytest -q"}, "3 passed in 0.1s"),
    ("Bash", {"command": "git push origin main"}, "pushed"),
    ("Bash", {"command": "git status"}, "clean"),
)
EXPLODING = "make explode"


def at(second: int, *, day: int = 2) -> str:
    """Write a time of a session: seconds after nine o'clock."""
    hours, rest = divmod(second, HOUR_S)
    return f"2026-03-{day:02d}T{9 + hours:02d}:{rest // 60:02d}:{rest % 60:02d}Z"


def interchange_session(name: str, *, rounds: int = N_ROUNDS, explodes: bool = False) -> str:
    """Write a session of several rounds; in one, a command on which a policy breaks down."""
    lines: list[dict[str, Any]] = [{"type": "session", "id": name, "task": "work"}]
    number, parent = 0, None

    def add(line_type: str, **fields: Any) -> None:
        nonlocal number, parent
        number += 1
        place = {"id": f"n{number}", "parent": parent, "ts": at(number * 5)}
        lines.append({"type": line_type, **place, **fields})
        parent = f"n{number}"

    for round_number in range(rounds):
        add("event", kind="user", text=f"round {round_number} of {name}")
        works = [*_ROUND, *([("Bash", {"command": EXPLODING}, "bang")] if explodes else [])]
        explodes = False
        for tool, arguments, result in works:
            call_id = f"c{number}"
            call = {"call_id": call_id, "name": tool, "args": arguments}
            add("decision", output={"text": "", "tool_calls": [call]})
            add("tool_result", call_id=call_id, name=tool, status="ok", result=result)
        add("decision", output={"text": f"All done, round {round_number} of {name} is finished."})
    return "".join(json.dumps(line) + "\n" for line in lines)


# --- a Claude Code session with a rewind and a sub-agent


def claude_session() -> bytes:
    """Write a session: a first try, a rewind to the first answer, a second try, a sub-agent."""
    lines = [
        claude.user(1, None, "tidy up"),
        claude.assistant(2, 1, claude.call("t1", command="git status")),
        claude.user(3, 2, [claude.result("t1", "clean")]),
        claude.assistant(4, 3, claude.call("t2", command="rm -rf build")),
        claude.user(5, 4, [claude.result("t2", "gone")]),
        claude.assistant(6, 5, claude.call("t3", command="git push --force")),
        claude.user(7, 6, [claude.result("t3", "pushed")]),
        claude.user(8, 3, "no, do it carefully"),  # the rewind
        claude.assistant(9, 8, claude.call("t4", "Task", prompt="look", description="look")),
        claude.user(10, None, "look", isSidechain=True, agentId="a1"),
        claude.assistant(
            11, 10, claude.call("t5", command="rm -rf cache"), isSidechain=True, agentId="a1"
        ),
        claude.user(12, 11, [claude.result("t5", "gone")], isSidechain=True, agentId="a1"),
        claude.assistant(13, 12, claude.text("looked"), isSidechain=True, agentId="a1"),
        claude.user(14, 9, [claude.result("t4", "looked")]),
        claude.assistant(15, 14, claude.call("t6", command="git push origin main")),
        claude.user(16, 15, [claude.result("t6", "pushed")]),
        claude.assistant(17, 16, claude.text("All is finished and working.")),
    ]
    return claude.dump(lines)


def write_corpus(folder: Path, n_sessions: int = N_SESSIONS) -> list[Path]:
    """Write the sessions as files; give them in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(n_sessions):
        path = folder / f"work-{number}.jsonl"
        path.write_text(interchange_session(path.stem, explodes=number == 2))
        paths.append(path)
    path = folder / f"{claude.SESSION}.jsonl"
    path.write_bytes(claude_session())
    return [*paths, path]


# --- policies

HEAD = "from redrive.policy import *\n\n"

GUARDS = (
    HEAD
    + '''
class NoDestruction(Policy):
    """A stateless gate."""

    version = "1"
    on = ("tool.call",)
    lane = "gate"
    uses_standard_state = False

    def evaluate(self, event, state):
        command = event.command or ""
        if "--force" in command:
            return Deny("a forced push rewrites what others have")
        if command.startswith("rm -rf"):
            return Ask(f"deletes: {command}")
        return None


class PushAfterTests(Policy):
    """A stateful gate."""

    version = "1"
    on = ("tool.call",)
    lane = "gate"
    critical = True

    def evaluate(self, event, state):
        if not (event.command or "").startswith("git push"):
            return None
        if state.verification.test_passed_at > state.changes.source_at:
            return None
        return Deny("nothing was tested since the last change")


class Statuses(Reducer):
    """Counts how often each command ran."""

    on = ("tool.call",)
    initial = Table()

    def fold(self, value, event):
        command = event.command
        return value if command is None else value.set(command, (value.find(command) or 0) + 1)


class Repeats(Policy):
    """An observer with a cooldown, and a reducer of its own."""

    version = "1"
    on = ("tool.call",)
    cooldown_s = 100.0
    reducers = {"seen": Statuses()}

    def evaluate(self, event, state):
        count = state["seen"].find(event.command or "") or 0
        return Notify(f"{event.command} again", dedup_key=event.command) if count >= 2 else None


class Explodes(Policy):
    """An observer that breaks down on one command."""

    version = "1"
    on = ("tool.call",)

    def evaluate(self, event, state):
        if event.command == "make explode":
            raise ValueError("boom")
        return None
'''
)
GUARD_NAMES = ("NoDestruction", "PushAfterTests", "Repeats", "Explodes")


def write_guards(folder: Path) -> Path:
    """Write the file of the four policies."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "guards.py"
    path.write_text(GUARDS)
    return path


def named(path: Path, names: Sequence[str] = GUARD_NAMES) -> list[str]:
    """Give the options that name policies of one file."""
    return [word for name in names for word in ("--policy", f"{path}:{name}")]


def policy_text(
    body: Iterable[str],
    *,
    name: str = "Suspect",
    lane: str = "observer",
    before: str = "",
    fields: str = "",
) -> str:
    """Write a policy that judges `tool.call`; `body` are the lines of `evaluate`."""
    lines = "".join(f"        {line}\n" for line in body)
    return (
        f"{HEAD}{before}\n\nclass {name}(Policy):\n    version = '1'\n    on = ('tool.call',)\n"
        f"    lane = '{lane}'\n{fields}\n    def evaluate(self, event, state):\n{lines}"
    )
