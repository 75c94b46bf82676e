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

from redrive.app.effect_table import TOOLS_VERSION, Category, judge_tool
from redrive.app.effect_what import Deed, deed_of, exit_code_of, is_denial
from redrive.app.excerpts import excerpt
from redrive.app.survey import Survey, time_of
from redrive.record.event import (
    FLAG_INHERITED,
    Event,
    Kind,
    ModelResponse,
    ToolCall,
    ToolPermission,
    ToolResult,
    payload_of,
)
from redrive.record.pairing import Pairing
from redrive.record.session import NO_NODE
from redrive.reports.views import AskedBy, EffectTotals, EffectView

DENIED = "denied"
NO_RESULT = "no result"
CONFLICTING = "conflicting"


class EffectScan:
    """One pass over the effects of a session; `totals` is right once `entries` is exhausted."""

    def __init__(self, session: Survey) -> None:
        self._session = session
        self._pairing: Pairing = session.pair()
        self._permissions = _permissions_by_call(session)
        self._call_of = {p: call for call, all_ in self._permissions.items() for p in all_}
        self._asking = AskingTexts(session)
        self._categories: Counter[str] = Counter()
        self._statuses: Counter[str] = Counter()
        self._undeclared: Counter[str] = Counter()
        self._read_only: Counter[str] = Counter()
        self._not_live = 0
        self._inherited = 0

    def entries(self) -> Iterator[EffectView]:
        """Yield the effects in (`ts`, `seq`) order."""
        seqs = self._session.index.seqs_of(Kind.TOOL_CALL, Kind.TOOL_PERMISSION)
        for seq in self._session.chronological(seqs):
            event = self._session.read(seq)
            found = (
                self._of_call(event) if event.kind is Kind.TOOL_CALL else self._of_permission(event)
            )
            for entry in found:
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
    """Finds the text that asked for a call: its decision's own, else the user's above it."""

    def __init__(self, session: Survey) -> None:
        self._session = session
        index = session.index
        self._responses = self._by_group(index.seqs_of(Kind.MODEL_RESPONSE))
        self._user_of = array("i", [-1]) * len(index.node_ids)
        for seq in reversed(index.seqs_of(Kind.USER_MESSAGE)):
            if index.event_node[seq] != NO_NODE:
                self._user_of[index.event_node[seq]] = seq
        self._last: AskedBy | None = None

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
        return reasoning or self._user_above(seq)

    def _user_above(self, seq: int) -> AskedBy | None:
        node = self._session.places.asked_by[self._session.index.event_node[seq]]
        if node == -1:
            return None
        user_seq = self._user_of[node]
        if self._last is None or self._last.seq != user_seq:
            text = self._session.payload(user_seq).text
            self._last = AskedBy("user", user_seq, excerpt(text))
        return self._last
