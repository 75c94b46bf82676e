"""The state that a policy is given: the standard facts, its own reducers' values, inferences.

Knows what is known of a session before an event. Must not know how it is folded (`standard_fold`),
nor in which order (`folding`). Every value here is immutable and shares what it has in common with
the state before it.

L0 facts are mechanical (turns, calls, files that file tools changed); L1 facts are heuristics (what
is a test, whether it passed); L2 facts are inferred by a model, and only `infer` gives them.

Source: DESIGN.md §7 "State is a pure fold".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from redrive.record.event import MAIN_ACTOR, Event, SessionStarted
from redrive.replay.persistent import Table

NEVER = 0


class Turn(msgspec.Struct, frozen=True, gc=False):
    """The current turn: what follows a user's message.

    Attributes:
        number: 1 for the first; 0 before any user message. Also the number of the segment.
        event_id: the message's event id; empty before any.
        ts_ns: its time, where recorded.
        text: its first 2,000 characters.
        calls, decisions: since it began.
        is_over: whether the agent's last answer made no call.
    """

    number: int = 0
    event_id: str = ""
    ts_ns: int | None = None
    text: str = ""
    calls: int = 0
    decisions: int = 0
    is_over: bool = False


class OpenCall(msgspec.Struct, frozen=True, gc=False):
    """A call whose result has not come yet: what it would change and check.

    `decision` names the decision that made it; `is_denied` says that it was not let through.
    """

    call_id: str
    tool: str
    decision: str = ""
    paths: tuple[str, ...] = ()
    check: str | None = None
    command: str = ""
    is_denied: bool = False


class ToolRecord(msgspec.Struct, frozen=True, gc=False):
    """How a tool has done: answered calls, errors, errors in a row, denials."""

    calls: int = 0
    errors: int = 0
    errors_in_row: int = 0
    denied: int = 0


class Changes(msgspec.Struct, frozen=True, gc=False):
    """Files changed by calls that succeeded.

    Attributes:
        files: path → moment of its last change.
        modules: folder → moment of its last change.
        n_edits: successful edits.
        source_at, test_at: moment of the last change of code that is no test, and of a test.
    """

    files: Table[str, int] = Table()
    modules: Table[str, int] = Table()
    n_edits: int = 0
    source_at: int = NEVER
    test_at: int = NEVER


class Verification(msgspec.Struct, frozen=True, gc=False):
    """Checks that were run, by their recorded results: a call without a result is none.

    Attributes:
        ran_at, passed_at, failed_at: moment of the last check, of the last that passed, failed.
        test_ran_at, test_passed_at: the same of tests alone.
        command: the last check's command, its first 200 characters.
        passed: whether the last check passed; absent before any.
    """

    ran_at: int = NEVER
    passed_at: int = NEVER
    failed_at: int = NEVER
    test_ran_at: int = NEVER
    test_passed_at: int = NEVER
    command: str = ""
    passed: bool | None = None

    @property
    def is_test_failing(self) -> bool:
        """Whether the last test run did not pass."""
        return self.test_ran_at > self.test_passed_at


class Permissions(msgspec.Struct, frozen=True, gc=False):
    """What was asked, allowed and denied; `denied_tools` maps tool → moment of the last denial."""

    asked: int = 0
    allowed: int = 0
    denied: int = 0
    denied_tools: Table[str, int] = Table()


class Framework(msgspec.Struct, frozen=True, gc=False):
    """What policies did at run time, since the last user message.

    Attributes:
        depth: recorded policy actions.
        is_muted: whether a recorded `mute` stands, with no `unmute` after it.
    """

    depth: int = 0
    is_muted: bool = False


class StandardState(msgspec.Struct, frozen=True, gc=False):
    """Everything that the standard reducers know.

    `moment` counts the events folded on this path: the clock of the `…_at` fields, from 1.
    `decision` names the decision of the last answer: several answers may be pieces of one.
    """

    moment: int = 0
    session: SessionStarted | None = None
    actor: str = MAIN_ACTOR
    decision: str = ""
    turn: Turn = Turn()
    open_calls: tuple[OpenCall, ...] = ()
    tools: Table[str, ToolRecord] = Table()
    changes: Changes = Changes()
    verification: Verification = Verification()
    permissions: Permissions = Permissions()
    framework: Framework = Framework()
    inferred: Table[str, Any] = Table()
    last_text: str = ""


class InferenceMissing(BaseException):
    """An L2 value is asked for and not there yet; the engine catches it.

    Not an `Exception`, so that a policy's own `except` cannot take a missing answer for a no.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class State(msgspec.Struct, frozen=True, gc=False):
    """What is known before an event, on its own path.

    Attributes:
        standard: the standard facts; the properties below are short ways to them.
        own: name → value of the policy's own reducers, read-only.
        inferences: name → value of the L2 inferences that the record or the engine holds for the
            event that is judged.
        needs: names that `infer` may be asked for.
    """

    standard: StandardState = StandardState()
    own: Mapping[str, Any] = MappingProxyType({})
    inferences: Mapping[str, Any] = MappingProxyType({})
    needs: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        """Give the value of one of the policy's own reducers.

        Raises:
            KeyError: the policy declares no such reducer.
        """
        return self.own[name]

    def infer(self, name: str) -> Any:
        """Give an L2 inference about the event that is judged.

        It is made only where a policy gets here, so ask last: for each turn at most two are made.

        Raises:
            KeyError: `needs` does not name it.
        """
        if name not in self.needs:
            raise KeyError(f"inference {name!r} is not in `needs`")
        if name not in self.inferences:
            raise InferenceMissing(name)
        return self.inferences[name]

    @property
    def turn(self) -> Turn:
        """The current turn."""
        return self.standard.turn

    @property
    def segment(self) -> int:
        """Number of the segment: user messages on the path so far."""
        return self.standard.turn.number

    @property
    def actor(self) -> str:
        """Whose path it is: `main`, or a sub-agent."""
        return self.standard.actor

    @property
    def cwd(self) -> str | None:
        """The session's working folder, where recorded."""
        return None if self.standard.session is None else self.standard.session.cwd

    @property
    def changes(self) -> Changes:
        """Files changed by calls that succeeded."""
        return self.standard.changes

    @property
    def changed_files(self) -> tuple[str, ...]:
        """Paths in the order of their first change. Cost: O(files)."""
        return tuple(self.standard.changes.files.merged())

    @property
    def touched_modules(self) -> tuple[str, ...]:
        """Folders in the order of their first change. Cost: O(folders)."""
        return tuple(self.standard.changes.modules.merged())

    @property
    def verification(self) -> Verification:
        """Checks that were run, and how they ended."""
        return self.standard.verification

    @property
    def is_verified(self) -> bool:
        """Whether a check passed after the last change of code, and neither it nor a test failed.

        A linter that passes does not make up for the test run that failed before it.
        """
        changes, checks = self.standard.changes, self.standard.verification
        changed_at = max(changes.source_at, changes.test_at)
        is_failing = checks.failed_at > checks.passed_at or checks.is_test_failing
        return checks.passed_at > changed_at and not is_failing

    @property
    def permissions(self) -> Permissions:
        """What was asked, allowed and denied."""
        return self.standard.permissions

    @property
    def is_muted(self) -> bool:
        """Whether observers were muted at run time; a gate must decide the same either way."""
        return self.standard.framework.is_muted

    @property
    def last_text(self) -> str:
        """The agent's last answer, its last 4,000 characters."""
        return self.standard.last_text

    def call_of(self, event: Event) -> OpenCall | None:
        """Give the call that a result answers; `None` where there is none, or for other kinds."""
        calls = self.standard.open_calls
        return next((call for call in calls if call.call_id == event.call_id), None)

    def tool(self, name: str) -> ToolRecord:
        """Give how a tool has done so far.

        Raises:
            TypeError: the name is no text: a result need not name its tool, `call_of` does.
        """
        if not isinstance(name, str):
            raise TypeError(f"tool({name!r}): a result may not name its tool; see state.call_of")
        return self.standard.tools.find(name) or ToolRecord()
