"""Guards against commands that lose what nothing brings back.

Knows which dangers are denied and which are asked about. How a command is read is in `shell` and
`sql`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from redrive.policies.shell import find_dangers
from redrive.policies.shell_danger import Danger, Severity
from redrive.policies.sql import find_losses
from redrive.policy import Action, Ask, Deny, Policy, PolicyEvent, State

SQL_ARGUMENTS = ("sql", "query", "statement", "queries", "script")
_SQL_TOOLS = ("sql", "query", "postgres", "mysql", "sqlite", "database", "db_")


class DangerousCommandGuard(Policy):
    """Denies commands that lose data, history or machines, and asks about the doubtful ones.

    It reads shell commands as bash would and SQL statement by statement, so text that only talks
    about a command is none. Scratch and build folders may be deleted. It is a guard rail: what a
    program does by its own code and files is not seen.
    """

    name = "DangerousCommandGuard"
    version = "3"
    on = ("tool.call", "custom:sql")
    lane = "gate"
    critical = True
    uses_standard_state = False
    libraries: ClassVar[tuple[str, ...]] = ("msgspec", "sqlglot")
    notes: ClassVar[tuple[str, ...]] = (
        "coverage is not complete: what a program does by its own code and files is not seen",
    )

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:  # noqa: ARG002
        """Judge a call, or a recorded SQL statement."""
        mild: Ask | None = None
        for severity, reason in self._dangers(event):
            if severity is Severity.DENY:
                return Deny(reason)
            mild = mild or Ask(reason)
        return mild

    def _dangers(self, event: PolicyEvent) -> Iterator[tuple[Severity, str]]:
        command = event.command
        if command is not None:
            cwd = event.arguments.get("workdir") or event.arguments.get("cwd")
            for danger in find_dangers(command, cwd=cwd if isinstance(cwd, str) else None):
                yield danger.severity, _told(danger)
        for sql in _sql_of(event):
            for loss in find_losses(sql):
                is_mild = loss.is_mild or loss.is_conditional or not loss.is_certain
                reason = f"sql_data_loss: {loss.how.replace('_', ' ')} {loss.table}".rstrip()
                yield Severity.ASK if is_mild else Severity.DENY, reason


def _told(danger: Danger) -> str:
    target = f" ({danger.target})" if danger.target else ""
    return f"{danger.rule}: {danger.what}{target}"


def _sql_of(event: PolicyEvent) -> Iterator[str]:
    """Yield the SQL of a recorded statement, or of a call to a tool that is named for it."""
    fields: Mapping[str, Any] = event.data
    if event.kind.value == "tool.call":
        tool = (event.tool or "").lower()
        if event.command is not None or not any(word in tool for word in _SQL_TOOLS):
            return
        fields = event.arguments
    for name in SQL_ARGUMENTS:
        value = fields.get(name)
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, str))
