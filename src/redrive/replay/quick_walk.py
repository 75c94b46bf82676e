"""Finds the walk of a session whose nodes follow each other, but for rewinds, in one short pass.

Knows envelopes alone. Must not know payloads, policies or states. What it finds is exactly what
`folding` plans. It looks at a node only to see whether it goes on from the one before it; where
that does not tell its place (sub-agents, a result behind something else, a late piece of an answer,
events outside the DAG among the others) it leaves the session to `branched_walk`.

Source: DESIGN.md §3 "DAG first", §7 "Branches".
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, compress, count, islice, pairwise
from operator import and_, eq, le, ne, not_, or_
from typing import Any

from redrive.record.event import MAIN_ACTOR, Kind
from redrive.record.session import (
    FLAG_META,
    IS_ATTACHED,
    IS_DECISION,
    IS_NOTE,
    IS_OTHER,
    IS_USER,
    ROLES,
    SESSION_KINDS,
)
from redrive.replay.branched_walk import find_branched_walk
from redrive.replay.columns import Columns
from redrive.replay.walking import BASE, Run, Walk

# What a node is, is the greatest of what its events are.
_OUTSIDE, _NOTE, _BESIDE, _OTHER, _USER, _DECISION, _PIECE = range(7)
_RANKS = {
    IS_NOTE: _NOTE,
    IS_ATTACHED: _BESIDE,
    IS_OTHER: _OTHER,
    IS_USER: _USER,
    IS_DECISION: _DECISION,
}
_RANK = {kind: _OUTSIDE if kind in SESSION_KINDS else _RANKS[role] for kind, role in ROLES.items()}
_AS_NOTE, _AS_OTHER = bytes([_NOTE]), bytes([_OTHER])
# A stage is a decision with its further pieces and its results, or any other node; notes between
# are in no one's way.
_STAGE = re.compile(b"\5[\1\2\6]*|[\1-\4]\1*")
# Results and pieces that belong to a decision which something else stands behind already.
_LATE = re.compile(b"\5[\1\2\6]*\3[\1\3]*[\2\6]")
_BEHIND = re.compile(b"[\1\3]*[\2\6]")
_UNSURE = frozenset((_NOTE, _BESIDE, _PIECE))


def find_walk(columns: Columns, *, needs_ends: bool) -> Walk | None:
    """Find the walk of a session of a common shape.

    Args:
        columns: of all its events.
        needs_ends: whether a policy asks which answers end a turn.

    Returns:
        The walk; `None` where the session must be planned in full. Cost: O(n).
    """
    total = len(columns.kinds)
    if columns.supersedes.count(None) != total:
        return None
    if columns.actors.count(MAIN_ACTOR) == total:
        cutter = _Cutter(columns)
        if cutter.cut():
            ends = cutter.ends() if needs_ends else frozenset[int]()
            return Walk(cutter.outside, cutter.runs(), ends)
    return find_branched_walk(columns, needs_ends=needs_ends)


class _Cutter:
    """Cuts a session into stages, as `folding` does, each a slice of its events in the DAG.

    Attributes:
        outside: seqs of the events outside the DAG.
        inside: seqs of the others; everything else here counts these.
    """

    def __init__(self, columns: Columns) -> None:
        kinds, names, parents, groups, flags, times, *_ = columns
        ranks = [_RANK[kind] for kind in kinds]
        self.outside: Sequence[int] = ()
        self.inside: Sequence[int] = range(len(kinds))
        if _OUTSIDE in ranks or "" in names:
            pairs = list(zip(ranks, names, strict=True))
            self.inside = inside = [seq for seq, (r, name) in enumerate(pairs) if r and name]
            self.outside = [seq for seq, (r, name) in enumerate(pairs) if not (r and name)]
            ranks, names = [ranks[seq] for seq in inside], [names[seq] for seq in inside]
            kinds, flags = [kinds[seq] for seq in inside], [flags[seq] for seq in inside]
            parents, groups = [parents[seq] for seq in inside], [groups[seq] for seq in inside]
            times = [times[seq] for seq in inside]
        for place in compress(count(), flags):
            if ranks[place] == _USER and FLAG_META in flags[place]:
                ranks[place] = _OTHER
        self._times, self._total = times, len(kinds)
        self._kinds, self._names, self._ranks = kinds, names, ranks
        self._parents, self._groups = parents, list(groups)
        self._first_of: dict[str, int] = {}  # node → its first event
        self._starts: Sequence[int] = ()  # per node its first event
        self._begun: list[int] = []  # per stage its first event
        self._jumps: dict[int, int] = {}  # stage that does not go on from the one before it → which

    def cut(self) -> bool:
        """Cut it; false where a place is not sure."""
        names, total = self._names, self._total
        is_same = list(map(eq, names, names[1:]))
        starts = [0, *compress(range(1, total), map(not_, is_same))] if total else []
        nodes = [names[start] for start in starts]
        self._first_of = dict(zip(nodes, starts, strict=True))
        if len(self._first_of) != len(starts) or not self._merge(starts, is_same):
            return False
        above = [self._parents[start] for start in starts]
        jumps: list[int] = []
        if self._parents.count(None) == total:
            times: Any = self._times
            if None in times or not all(map(le, times, times[1:])):
                return False
        elif above.count(None) == len(above):
            return False  # only later events of a node name a parent
        else:
            jumps = list(compress(range(1, len(above)), map(ne, above[1:], nodes)))
            jumps += [0] if above[0] is not None else []
        codes = self._codes(starts)
        return codes is not None and self._cut_stages(codes, starts) and self._jump(jumps, codes)

    def _merge(self, starts: Sequence[int], is_same: Sequence[bool]) -> bool:
        """Give each node's first event the rank and group of the node; false for a strange node."""
        ranks, groups = self._ranks, self._groups
        changes = map(or_, map(ne, ranks, ranks[1:]), map(ne, groups, groups[1:]))
        if not any(map(and_, is_same, changes)):
            return True
        for start, stop in pairwise([*starts, self._total]):
            if stop - start == 1:
                continue
            inside = ranks[start:stop]
            ranks[start] = max(inside)
            if ranks[start] == _DECISION and _USER in inside:
                return False
            named = {group for group in groups[start:stop] if group is not None}
            if len(named) > 1:
                return False
            groups[start] = next(iter(named), None)
        return True

    def _codes(self, starts: Sequence[int]) -> bytes | None:
        """Write each node's rank; `None` where a piece of an answer comes late."""
        self._starts = starts
        codes = bytearray(map(self._ranks.__getitem__, starts))
        if _NOTE in codes and None in self._times:
            codes = codes.replace(_AS_NOTE, _AS_OTHER)  # its time may be asked for
        if self._groups.count(None) != self._total:
            seen: set[str] = set()
            last = None
            for node, start in enumerate(starts):
                if codes[node] != _DECISION:
                    continue
                group = self._groups[start]
                if group is not None and group == last:
                    codes[node] = _PIECE
                elif group is not None:
                    if group in seen:
                        return None
                    seen.add(group)
                last = group
        return bytes(codes)

    def _cut_stages(self, codes: bytes, starts: Sequence[int]) -> bool:
        """Cut the nodes as if each went on from the one before it; false for late results."""
        if _LATE.search(codes):
            return False
        sizes = list(map(len, _STAGE.findall(codes)))
        if sum(sizes) != len(codes):
            return False  # a piece that no decision of its own stands before
        firsts = accumulate(sizes, initial=0)
        self._begun = [starts[first] for first in islice(firsts, len(sizes))]
        return True

    def _jump(self, jumps: Sequence[int], codes: bytes) -> bool:
        """Note where stages go on from another than the one before; false for what is unsure."""
        begun = self._begun
        for node in jumps:
            start = self._starts[node]
            parent, stage = self._stage_above(start), bisect_right(begun, start) - 1
            if parent is None:
                return False
            if begun[stage] != start:
                if parent != stage:
                    return False
            elif parent != stage - 1:
                if codes[node] in _UNSURE or (
                    codes[node] == _OTHER and _BEHIND.match(codes, node + 1)
                ):
                    return False
                self._jumps[stage] = parent
        return True

    def _stage_above(self, start: int) -> int | None:
        """Find the stage that a node goes on from; `None` where its parent comes later."""
        first = self._first_of.get(self._parents[start] or "")
        if first is None:
            return BASE  # it has none, or none that is recorded
        return None if first >= start else bisect_right(self._begun, first) - 1

    def runs(self) -> list[Run]:
        """Join stages that follow each other, up to where something else goes on from."""
        if not self._begun:
            return []
        firsts = {0, *self._jumps, *(stage + 1 for stage in self._jumps.values())}
        begun = sorted(stage for stage in firsts if stage < len(self._begun))
        seqs = [self._begun[stage] for stage in begun]
        lasts = [*(stage - 1 for stage in begun[1:]), len(self._begun) - 1]
        run_of = {stage: number for number, stage in enumerate(lasts)} | {BASE: BASE}
        return [
            Run(run_of[self._jumps.get(stage, stage - 1)], MAIN_ACTOR, self.inside[start:stop])
            for stage, start, stop in zip(begun, seqs, [*seqs[1:], self._total], strict=True)
        ]

    def ends(self) -> frozenset[int]:
        """List the last answers without calls that no decision followed before a user spoke."""
        kinds, ranks = self._kinds, self._ranks
        found: list[int] = []
        goes_on = bytearray(len(self._begun))
        stop = self._total
        for stage in range(len(self._begun) - 1, -1, -1):
            start = self._begun[stage]
            is_going = ranks[start] == _DECISION
            if not is_going:
                is_going = bool(goes_on[stage]) and ranks[start] != _USER
            elif not goes_on[stage] and Kind.TOOL_CALL not in kinds[start:stop]:
                places = reversed(range(start, stop))
                last = next(p for p in places if kinds[p] is Kind.MODEL_RESPONSE)
                found.append(self.inside[last])
            parent = self._jumps.get(stage, stage - 1)
            if is_going and parent != BASE:
                goes_on[parent] = 1
            stop = start
        return frozenset(found)
