"""Lists what a session did to the world, for an incident: commands, writes, network, approvals.

Goes over all paths and actors, since what a discarded branch did has happened all the same. Must
not know how the list is shown. Holds numbers per event, and one entry at a time.

Source: DESIGN.md §8 `show --effects`; issue "Seeing".
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from redrive.app.excerpts import excerpt
from redrive.app.harness_calls import UNSAFE, HarnessCalls
from redrive.app.survey import Survey, time_of
from redrive.audit.deeds import Deed, deed_of, exit_code_of, is_denial
from redrive.audit.tools import TOOLS_VERSION, Category, judge_tool
from redrive.record.event import (
    FLAG_INHERITED,
    MAIN_ACTOR,
    Event,
    Kind,
    ModelResponse,
    ToolCall,
    ToolPermission,
    ToolResult,
    UserMessage,
    payload_of,
)
from redrive.record.opening import is_asking
from redrive.record.pairing import Pairing
from redrive.record.places import nearest_marked
from redrive.record.session import NO_NODE
from redrive.reports.views import AskedBy, EffectTotals, EffectView

DENIED = "denied"
NO_RESULT = "no result"
CONFLICTING = "conflicting"
BY_HARNESS = "called by the agent's own code, not by a model"


class EffectScan:
    """One pass over the effects of a session; `totals` is right once `entries` is exhausted."""

    def __init__(self, session: Survey) -> None:
        self._session = session
        self._pairing: Pairing = session.pair()
        self._permissions = _permissions_by_call(session)
        self._call_of = {p: call for call, all_ in self._permissions.items() for p in all_}
        self._asking = AskingTexts(session)
        self._harness = HarnessCalls(session)
        self._categories: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._undeclared: Counter[str] = Counter()
        self._read_only: Counter[str] = Counter()
        self._not_live = 0
        self._inherited = 0

    def entries(self) -> Iterator[EffectView]:
        """Yield the effects in (`ts`, `seq`) order."""
        told = {Kind.TOOL_CALL: self._of_call, Kind.TOOL_PERMISSION: self._of_permission}
        seqs = [*self._session.index.seqs_of(*told), *self._harness.answers]
        for seq in self._session.chronological(seqs):
            event = self._session.read(seq)
            for entry in told.get(event.kind, self._of_harness)(event):
                self._count(entry)
                yield entry

    def totals(self) -> EffectTotals:
        """Count what was listed, and what was not."""
        return EffectTotals(
            by_category={c.value: self._categories[c] for c in Category if self._categories[c]},
            not_live=self._not_live,
            inherited=self._inherited,
            failed=self._statuses["error"],
            denied=self._statuses[DENIED],
            undeclared_tools=dict(sorted(self._undeclared.items())),
            read_only_tools=dict(sorted(self._read_only.items())),
            tools_version=TOOLS_VERSION,
        )

    def _count(self, entry: EffectView) -> None:
        self._categories[entry.category] += 1
        self._not_live += not entry.on_live_path
        self._inherited += entry.inherited
        if entry.category != Category.APPROVAL:
            self._statuses[entry.status] += 1
            if entry.basis == "undeclared":
                self._undeclared[entry.tool] += 1

    def _of_call(self, event: Event) -> Iterator[EffectView]:
        call: ToolCall = payload_of(event)
        judgement = judge_tool(call.tool, self._session.started.tools)
        deed = deed_of(call, judgement.rule)
        if deed.category is None:
            self._read_only[call.tool] += 1
            return
        result = self._result_of(event.seq)
        status = self._status(event.seq, result)
        entry = self._entry(event, deed, call.tool, judgement.basis, status)
        is_command = deed.category is Category.COMMAND
        yield msgspec.structs.replace(
            entry,
            exit_code=exit_code_of(result) if is_command and result is not None else None,
            provider_side=call.is_provider_side,
        )
        if status == DENIED and event.seq not in self._permissions:
            refused = Deed(Category.APPROVAL, "denied, as the result says")
            yield self._entry(event, refused, call.tool, "recorded", DENIED)

    def _of_harness(self, event: Event) -> Iterator[EffectView]:
        made = self._harness.get(event.seq)
        tool, declared = made.call.tool, self._session.started.tools
        judgement = judge_tool(
            tool, declared if made.effect == UNSAFE else {**declared, tool: made.effect}
        )
        deed = deed_of(made.call, judgement.rule)
        if deed.category is None:
            self._read_only[tool] += 1
            return
        status = NO_RESULT if made.result is None else made.result.status
        entry = self._entry(event, deed, tool, judgement.basis, status)
        is_command = deed.category is Category.COMMAND
        yield msgspec.structs.replace(
            entry,
            exit_code=exit_code_of(made.result) if is_command and made.result else None,
            details=(*deed.details, BY_HARNESS),
            asked_by=None,
        )

    def _of_permission(self, event: Event) -> Iterator[EffectView]:
        permission: ToolPermission = payload_of(event)
        seq = self._call_of.get(event.seq)
        call: ToolCall | None = None if seq is None else self._session.payload(seq)
        tool = permission.tool or (call.tool if call is not None else "")
        what = " ".join(
            part
            for part in (
                permission.decision,
                f"by {permission.by}" if permission.by else "",
                f"({permission.reason})" if permission.reason else "",
            )
            if part
        )
        about = "" if call is None else deed_of(call, judge_tool(tool, {}).rule).what
        deed = Deed(Category.APPROVAL, what, (excerpt(about, 200).text,) if about else ())
        entry = self._entry(event, deed, tool, "recorded", permission.decision)
        if seq is not None:
            entry = msgspec.structs.replace(entry, asked_by=self._asking.find(seq))
        yield entry

    def _entry(self, event: Event, deed: Deed, tool: str, basis: str, status: str) -> EffectView:
        places = self._session.places
        assert deed.category is not None  # noqa: S101 - narrows the type; callers checked it
        return EffectView(
            seq=event.seq,
            actor=event.actor,
            category=deed.category.value,
            tool=tool,
            basis=basis,
            status=status,
            on_live_path=places.is_live(event.seq),
            what=excerpt(deed.what),
            ts=time_of(event),
            step=places.step_of(event.seq),
            node_id=places.node_id(event.seq),
            call_id=event.call_id,
            details=deed.details,
            network_hints=deed.network_hints,
            writing_hints=deed.writing_hints,
            asked_by=self._asking.find(event.seq),
            inherited=FLAG_INHERITED in event.flags,
        )

    def _result_of(self, call: int) -> ToolResult | None:
        seq = self._pairing.answers.get(call)
        return None if seq is None else self._session.payload(seq)

    def _status(self, call: int, result: ToolResult | None) -> str:
        decided = [self._session.payload(seq) for seq in self._permissions.get(call, ())]
        if any(permission.decision == DENIED for permission in decided):
            return DENIED
        if result is None:
            return CONFLICTING if call in self._pairing.conflicts else NO_RESULT
        return DENIED if is_denial(result) else result.status


def _permissions_by_call(session: Survey) -> dict[int, tuple[int, ...]]:
    """Map a call to the permission events with its id; where ids repeat, to the nearest before."""
    index = session.index
    permissions = index.seqs_of(Kind.TOOL_PERMISSION)
    wanted = {index.call_ids[seq] for seq in permissions if seq in index.call_ids}
    latest: dict[str, int] = {}
    found: dict[int, tuple[int, ...]] = {}
    for seq in index.seqs_of(Kind.TOOL_CALL, Kind.TOOL_PERMISSION) if wanted else ():
        call_id = index.call_ids.get(seq)
        if call_id not in wanted:
            continue
        if index.kind(seq) is Kind.TOOL_CALL:
            latest[call_id] = seq
        elif call_id in latest:
            call = latest[call_id]
            found[call] = (*found.get(call, ()), seq)
    return found


class AskingTexts:
    """Finds the text that asked for a call: its decision's own, else what was asked above it.

    A sub-agent is asked by the agent that started it: its prompt is no user's word.
    """

    def __init__(self, session: Survey) -> None:
        self._session = session
        index = session.index
        self._responses = self._by_group(index.seqs_of(Kind.MODEL_RESPONSE))
        self._asked_at = self._asked_by_node()
        self._nearest = nearest_marked(session.places, [seq != -1 for seq in self._asked_at])
        self._last: AskedBy | None = None

    def _asked_by_node(self) -> Sequence[int]:
        """Give per node the last message in it that asks for something; -1 for none."""
        index = self._session.index
        asked = array("i", [-1]) * len(index.node_ids)
        for event in self._session.reader.read_events(index.seqs_of(Kind.USER_MESSAGE)):
            node = index.event_node[event.seq]
            if node != NO_NODE and is_asking(event):
                asked[node] = event.seq
        return asked

    def _group(self, seq: int) -> int:
        node = self._session.index.event_node[seq]
        return -1 if node == NO_NODE else self._session.index.node_group[node]

    def _by_group(self, seqs: list[int]) -> Sequence[int]:
        return array("i", sorted(seqs, key=lambda seq: (self._group(seq), seq)))

    def find(self, seq: int) -> AskedBy | None:
        """Find the text for an event; `None` where the record holds none."""
        group = self._group(seq)
        if group == -1:
            return None
        reasoning: AskedBy | None = None
        start = bisect_left(self._responses, group, key=self._group)
        for place in range(start, len(self._responses)):
            response_seq = self._responses[place]
            if self._group(response_seq) != group:
                break
            response: ModelResponse = self._session.payload(response_seq)
            if response.text.strip():
                return AskedBy("decision", response_seq, excerpt(response.text))
            if reasoning is None and response.reasoning and response.reasoning.strip():
                reasoning = AskedBy("reasoning", response_seq, excerpt(response.reasoning))
        return reasoning or self._asked_above(seq)

    def _asked_above(self, seq: int) -> AskedBy | None:
        node = self._nearest[self._session.index.event_node[seq]]
        if node == -1:
            return None
        asked_seq = self._asked_at[node]
        if self._last is None or self._last.seq != asked_seq:
            event = self._session.read(asked_seq)
            source = "user" if event.actor == MAIN_ACTOR else "agent"
            message: UserMessage = payload_of(event)
            self._last = AskedBy(source, asked_seq, excerpt(message.text))
        return self._last
