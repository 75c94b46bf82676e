"""The calls of one MCP connection that have no result yet, and by what each is found.

Knows ids, tasks, calls that wait for input, and progress tokens. Must not know messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from msgspec import Raw

from redrive.capture.mcp_messages import Id
from redrive.capture.ports import CallObserver


@dataclass(eq=False, slots=True)
class Call:
    """One call of a tool.

    Attributes:
        tool: its name.
        observer: who is told how it ends.
        token: what its notifications of progress carry.
        n_progress: notifications of progress so far.
        last_progress: the newest one.
    """

    tool: str
    observer: CallObserver
    token: Id | None = None
    n_progress: int = 0
    last_progress: Raw | None = None


class Calls:
    """The open calls; each is in exactly one of the three places, or ended."""

    def __init__(self) -> None:
        self._by_id: dict[Id, Call] = {}
        self._by_task: dict[str, Call] = {}
        self._paused: list[tuple[str | None, Call]] = []
        self._by_token: dict[Id, Call] = {}

    def __len__(self) -> int:
        return len(self._by_id) + len(self._by_task) + len(self._paused)

    def begin(self, call: Call, identity: Id) -> None:
        """Take a new call."""
        self._by_id[identity] = call
        if call.token is not None:
            self._by_token[call.token] = call

    def end(self, call: Call) -> None:
        """Forget a call that was taken out and has ended."""
        if call.token is not None:
            self._by_token.pop(call.token, None)

    def take(self, identity: Id) -> Call | None:
        """Take out the call that a request stands for, if it stands for one."""
        return self._by_id.pop(identity, None)

    def pause(self, call: Call, state: str | None) -> None:
        """Keep a call whose server asked for input, until the client calls again."""
        self._paused.append((state, call))

    def resume(self, tool: str, state: str | None, identity: Id) -> bool:
        """Let a request stand for the paused call that it goes on with, if there is one."""
        for place, (known, call) in enumerate(self._paused):
            if known == state and call.tool == tool:
                del self._paused[place]
                self._by_id[identity] = call
                return True
        return False

    def defer(self, call: Call, task: str) -> None:
        """Keep a call that became a task, until its result is asked for."""
        self._by_task[task] = call

    def await_task(self, task: str | None, identity: Id) -> None:
        """Let a request for a task's result stand for the task's call."""
        call = None if task is None else self._by_task.pop(task, None)
        if call is not None:
            self._by_id[identity] = call

    def progressed(self, token: Id | None, progress: Raw) -> None:
        """Count a notification of progress."""
        call = None if token is None else self._by_token.get(token)
        if call is not None:
            call.n_progress += 1
            call.last_progress = progress

    def drain(self) -> list[Call]:
        """Take all open calls out."""
        found = list(self._open())
        self._by_id.clear()
        self._by_task.clear()
        self._paused.clear()
        self._by_token.clear()
        return found

    def _open(self) -> Iterator[Call]:
        yield from self._by_id.values()
        yield from self._by_task.values()
        yield from (call for _, call in self._paused)
