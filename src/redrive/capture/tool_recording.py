"""Records what tools did: which call of which model a run answers, and how it ended.

Knows the calls that wait for a result. Must not know the wire, nor how a tool was reached. Not
locked: `recording` holds one lock around each call.

A run answers the waiting call of its tool with its arguments; else, in the flow of its context, the
oldest one of its tool, whose arguments the harness then changed, which is recorded. A run that no
model asked for is the harness's own.

Source: DESIGN.md §3, §5 "Evidence".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive.capture.event_log import EventLog, Fact
from redrive.capture.flows import Flow, FlowTracker
from redrive.record.event import (
    FLAG_NO_FORM,
    FLAG_WITHIN_CALL,
    Custom,
    Kind,
    ToolCall,
    ToolResult,
    raw_of,
)
from redrive.record.signature import argument_digests

HARNESS_CALL, HARNESS_RESULT = "harness.call", "harness.result"
TOOL_REPORTED = "tool.reported"
TOOL_INTENT, UNREPRESENTABLE = "tool.intent", "tool.unrepresentable"
MCP_SEPARATOR = "__"


@dataclass(eq=False, slots=True)
class Asked:
    """A call that a model made and that has no result yet."""

    call_id: str
    tool: str
    digest: bytes
    is_running: bool = False

    def is_of(self, tool: str) -> bool:
        """Say whether it is a call of this tool; clients prefix the names of MCP servers' tools."""
        return self.tool == tool or self.tool.endswith(MCP_SEPARATOR + tool)


class AskedCalls:
    """The calls of each flow that wait for their result, oldest first."""

    def __init__(self) -> None:
        self._waiting: dict[Flow, list[Asked]] = {}

    def learn(self, flow: Flow, facts: Sequence[Fact]) -> None:
        """Take the calls of an answer."""
        for fact in facts:
            if isinstance(fact.payload, ToolCall):
                call = fact.payload
                digest = argument_digests(call.arguments, call.arguments_text).value
                asked = Asked(fact.call_id or "", call.tool, digest)
                self._waiting.setdefault(flow, []).append(asked)

    def is_waiting(self, flow: Flow) -> bool:
        """Say whether a call of this flow waits."""
        return bool(self._waiting.get(flow))

    def take(self, flow: Flow, call_id: str) -> Asked | None:
        """Take the waiting call with an id, unless it is running at a seam."""
        for asked in self._waiting.get(flow, ()):
            if asked.call_id == call_id and not asked.is_running:
                self._waiting[flow].remove(asked)
                return asked
        return None

    def find(self, call_id: str) -> tuple[Flow, Asked] | None:
        """Find the waiting call with an id, in any flow, unless it is running at a seam."""
        for flow, calls in self._waiting.items():
            for asked in calls:
                if asked.call_id == call_id and not asked.is_running:
                    return flow, asked
        return None

    def begin(self, own: Flow, names: Sequence[str], digest: bytes) -> tuple[Flow, Asked] | None:
        """Find the call that a run of a tool answers; it runs from now on.

        Args:
            own: the flow of the context that runs it.
            names: of the tool, the surest first.
            digest: of the arguments.
        """
        others = (flow for flow in self._waiting if flow is not own)
        idle = [
            (flow, asked)
            for flow in (own, *others)
            for asked in self._waiting.get(flow, ())
            if not asked.is_running
        ]
        same = (pair for name in names for pair in idle if pair[1].is_of(name))
        found = next((pair for pair in same if pair[1].digest == digest), None)
        if found is None:
            changed = (pair for name in names for pair in idle if pair[1].is_of(name))
            found = next((pair for pair in changed if pair[0] is own), None)
        if found is not None:
            found[1].is_running = True
        return found

    def end(self, flow: Flow, asked: Asked) -> None:
        """Take a call whose run has ended."""
        if asked in self._waiting.get(flow, ()):
            self._waiting[flow].remove(asked)


@dataclass(eq=False, slots=True)
class Run:
    """One run of a tool; `flow` is absent where its beginning could not be recorded."""

    tool: str
    seam: str
    flow: Flow | None = None
    asked: Asked | None = None
    name: str = ""
    executed: Raw | UnsetType = UNSET
    token: Any = None
    flags: tuple[str, ...] = ()


def names_of(tool: str, seam: str) -> tuple[str, ...]:
    """Give the names by which a model may have called a tool, the surest first.

    What runs on an MCP server is `SERVER__TOOL`. A client may show it to the model under that name,
    under one that ends in it, or as `TOOL`, also behind another name of the server.
    """
    _, mark, plain = tool.partition(MCP_SEPARATOR)
    return (tool, plain) if mark and seam.startswith("mcp") else (tool,)


def flags_of(tracker: FlowTracker) -> tuple[str, ...]:
    """Give the flags of what happens in this context: a tool's own doings are no one else's."""
    return (FLAG_WITHIN_CALL,) if tracker.is_within_call() else ()


def without_form(flags: tuple[str, ...]) -> tuple[str, ...]:
    """Flag that what the agent was given is not recorded; a tool's own doings reach nobody else."""
    return flags if FLAG_WITHIN_CALL in flags else (*flags, FLAG_NO_FORM)


class ReportedResult(msgspec.Struct, frozen=True):
    """A result that someone saw who did not run the tool, such as a hook.

    Attributes:
        call_id: of the model's call; absent where it is not known, and tool and arguments tell.
        tool: its name.
        arguments: what it was run with.
        result: JSON.
        status: `ok` or `error`.
    """

    call_id: str | None
    tool: str
    arguments: Raw
    result: Raw
    status: str = "ok"


class ToolRecording:
    """Writes runs of tools to a log.

    Args:
        log: where to.
        tracker: tells the flow of who runs.
        asked: the calls that models made.
        binds: whether a run's context acts in the flow of its call meanwhile.
    """

    def __init__(
        self, log: EventLog, tracker: FlowTracker, asked: AskedCalls, *, binds: bool
    ) -> None:
        self._log = log
        self._tracker = tracker
        self._asked = asked
        self._binds = binds

    def begin(self, run: Run, effect: str, arguments: Raw, *, is_unsafe: bool) -> None:
        """Write what must be known of a run before it begins; with `is_unsafe`, durably."""
        digest = argument_digests(arguments, None).value
        run.flags = flags_of(self._tracker)
        found = self._asked.begin(self._tracker.current(), names_of(run.tool, run.seam), digest)
        if found is None:
            self._begin_own(run, effect, arguments)
        else:
            run.flow, run.asked = found
            run.executed = UNSET if run.asked.digest == digest else arguments
            if is_unsafe:
                call_id = run.asked.call_id
                intent = {"call_id": call_id, "tool": run.tool, "arguments": arguments}
                self._log.add_custom(run.flow, TOOL_INTENT, intent, call_id, run.flags)
        if self._binds and run.flow is not None:
            run.token = self._tracker.bind(run.flow)
        if is_unsafe:
            self._log.flush()

    def _begin_own(self, run: Run, effect: str, arguments: Raw) -> None:
        run.flow, run.name = self._tracker.settled(), self._log.next("c")
        fields = {"call": run.name, "tool": run.tool, "effect": effect, "arguments": arguments}
        fact = Fact(Kind.CUSTOM, Custom(name=HARNESS_CALL, data=raw_of(fields)), flags=run.flags)
        self._log.add(run.flow, run.name, fact)

    def end(
        self, run: Run, status: str, result: Raw | UnsetType, unrepresentable: str | None = None
    ) -> None:
        """Write how a run ended.

        Args:
            run: the run.
            status: `ok` or `error`.
            result: JSON; absent where it has no JSON form.
            unrepresentable: name of the type that has none.
        """
        if run.token is not None:
            self._tracker.unbind(run.token)
        if run.flow is None:
            return
        fields: dict[str, Any] = {"tool": run.tool}
        if unrepresentable is not None:
            fields["unrepresentable"] = unrepresentable
        if run.asked is None:
            fields |= {"call": run.name, "status": status}
            if not isinstance(result, UnsetType):
                fields["result"] = result
            flags = run.flags if unrepresentable is None else without_form(run.flags)
            self._log.add_custom(run.flow, HARNESS_RESULT, fields, flags=flags)
            return
        self._asked.end(run.flow, run.asked)
        payload = ToolResult(
            status=status, result=result, tool=run.tool, seam=run.seam, executed=run.executed
        )
        fact = Fact(Kind.TOOL_RESULT, payload, run.asked.call_id, flags=run.flags)
        self._log.add(run.flow, self._log.next("r"), fact)
        if unrepresentable is not None:
            call_id = run.asked.call_id
            self._log.add_custom(run.flow, UNREPRESENTABLE, fields, call_id, run.flags)

    def report(self, reported: ReportedResult, seam: str) -> None:
        """Write the result of a call that someone else saw run.

        Where no call waits for it (it was seen at another seam already, or its model was not seen),
        it is written beside, as what was reported: it must not count as a second result.
        """
        digest = argument_digests(reported.arguments, None).value
        if reported.call_id is None:
            found = self._asked.begin(self._tracker.current(), (reported.tool,), digest)
        else:
            found = self._asked.find(reported.call_id)
        if found is None:
            fields = {
                "seam": seam,
                "call_id": reported.call_id,
                "tool": reported.tool,
                "arguments": reported.arguments,
                "status": reported.status,
                "result": reported.result,
            }
            self._log.add_custom(self._tracker.settled(), TOOL_REPORTED, fields, reported.call_id)
            return
        flow, asked = found
        self._asked.end(flow, asked)
        payload = ToolResult(
            status=reported.status,
            result=reported.result,
            tool=reported.tool,
            seam=seam,
            executed=UNSET if asked.digest == digest else reported.arguments,
        )
        self._log.add(flow, self._log.next("r"), Fact(Kind.TOOL_RESULT, payload, asked.call_id))
