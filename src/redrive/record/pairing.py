"""Which result answers which call.

Knows the call ids of an index, and equality of two results. Must not know how a path was walked.

A result answers the unanswered call with its id in the nearest decision above that made a call with
this id, in call order, since ids repeat in real files. Equal results of one call are one; different
ones conflict, and the call counts as unanswered.

Source: DESIGN.md §3 "DAG first".
"""

from collections.abc import Iterable, Sequence

import msgspec

from redrive.record.event import Kind
from redrive.record.session import EventReader, SessionIndex
from redrive.record.trajectory import Trajectory


class Pairing(msgspec.Struct, frozen=True):
    """Which result answers which call.

    Attributes:
        answers: call seq → result seq, for calls with exactly one recorded answer.
        unanswered: seqs of calls without a usable answer, conflicting ones included.
        orphans: seqs of results that answer no call.
        conflicts: call seq → the seqs of its differing results.
        duplicates: seqs of results equal to one that was paired already.
    """

    answers: dict[int, int]
    unanswered: tuple[int, ...]
    orphans: tuple[int, ...]
    conflicts: dict[int, tuple[int, ...]]
    duplicates: tuple[int, ...]


def pair_results(
    index: SessionIndex,
    decisions: Iterable[tuple[Sequence[int], Sequence[int]]],
    reader: EventReader,
    opening: Sequence[int] = (),
) -> Pairing:
    """Pair results with calls along one path.

    Args:
        index: the session's index (for the call ids).
        decisions: per decision, root first: its call seqs and the result seqs that belong to it.
        reader: gives payloads, asked only where one call has several results.
        opening: results above the first decision; they answer nothing.

    Returns:
        The pairing. Calls and results without an id are never paired by position.
    """
    open_calls: dict[str, list[list[int]]] = {}
    given: dict[int, list[int]] = {}
    orphans = list(opening)
    order: list[int] = []
    for calls, results in decisions:
        by_id: dict[str, list[int]] = {}
        for call in calls:
            order.append(call)
            given[call] = []
            if call in index.call_ids:
                by_id.setdefault(index.call_ids[call], []).append(call)
        for call_id, same in by_id.items():
            open_calls.setdefault(call_id, []).append(same)
        for result in results:
            wanted = open_calls.get(index.call_ids.get(result, ""), ())
            if not wanted:
                orphans.append(result)
                continue
            nearest = wanted[-1]
            call = next((c for c in nearest if not given[c]), nearest[0])
            given[call].append(result)
    return _settle(order, given, orphans, reader)


def _settle(
    order: list[int], given: dict[int, list[int]], orphans: list[int], reader: EventReader
) -> Pairing:
    answers, conflicts = {}, {}
    unanswered, duplicates = [], []
    for call in order:
        results = given[call]
        if not results:
            unanswered.append(call)
        elif len(results) == 1 or _all_equal(results, reader):
            answers[call] = results[0]
            duplicates.extend(results[1:])
        else:
            conflicts[call] = tuple(results)
            unanswered.append(call)
    return Pairing(answers, tuple(unanswered), tuple(orphans), conflicts, tuple(duplicates))


def _all_equal(results: Sequence[int], reader: EventReader) -> bool:
    payloads = {bytes(event.payload) for event in reader.read_events(results)}
    return len(payloads) == 1


def pair_path(index: SessionIndex, trajectory: Trajectory, reader: EventReader) -> Pairing:
    """Pair results with calls on a trajectory."""
    opening = [s for s in trajectory.opening if index.kind(s) is Kind.TOOL_RESULT]
    return pair_results(
        index, ((step.calls, step.results) for step in trajectory.steps), reader, opening
    )
