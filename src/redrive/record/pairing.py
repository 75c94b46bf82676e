"""Which result answers which call.

Knows the call ids of an index, and equality of two results. Must not know how a path was walked.

A result answers the unanswered call with its id in the nearest decision above that made a call with
this id, in call order, since ids repeat in real files. Equal results of one call are one; different
ones conflict, and the call counts as unanswered.

Source: DESIGN.md §3 "DAG first".
"""

from collections.abc import Iterable, Mapping, Sequence

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
    ids = index.call_ids
    open_calls: dict[str, list[int]] = {}
    answers: dict[int, int] = {}
    further: dict[int, list[int]] = {}
    taken: dict[int, int] = {}  # of several calls with one id, by the first: how many are answered
    orphans = list(opening)
    order: list[int] = []
    for calls, results in decisions:
        own: dict[str, list[int]] = {}
        for call in calls:
            name = ids.get(call)
            if name in own:
                own[name].append(call)
            elif name is not None:
                own[name] = [call]
        order += calls
        open_calls.update(own)
        for result in results:
            nearest = open_calls.get(ids.get(result, ""))
            if nearest is None:
                orphans.append(result)
                continue
            call = nearest[0]
            if len(nearest) > 1:
                place = taken.get(call, 0)
                taken[call] = place + 1
                call = nearest[place] if place < len(nearest) else call
            if answers.setdefault(call, result) != result:
                further.setdefault(call, []).append(result)
    duplicates, conflicts = _settle(order, answers, further, reader)
    unanswered = tuple([call for call in order if call not in answers])
    return Pairing(answers, unanswered, tuple(orphans), conflicts, duplicates)


def _settle(
    order: Sequence[int],
    answers: dict[int, int],
    further: Mapping[int, Sequence[int]],
    reader: EventReader,
) -> tuple[tuple[int, ...], dict[int, tuple[int, ...]]]:
    """Tell the duplicates from the conflicts among further results; a conflict answers nothing."""
    duplicates: list[int] = []
    conflicts: dict[int, tuple[int, ...]] = {}
    for call in order if further else ():
        if call in further:
            results = (answers[call], *further[call])
            if _all_equal(results, reader):
                duplicates += further[call]
            else:
                conflicts[call] = results
                del answers[call]
    return tuple(duplicates), conflicts


def _all_equal(results: Sequence[int], reader: EventReader) -> bool:
    payloads = {bytes(event.payload) for event in reader.read_events(results)}
    return len(payloads) == 1


def pair_path(index: SessionIndex, trajectory: Trajectory, reader: EventReader) -> Pairing:
    """Pair results with calls on a trajectory."""
    opening = [s for s in trajectory.opening if index.kind(s) is Kind.TOOL_RESULT]
    return pair_results(
        index, ((step.calls, step.results) for step in trajectory.steps), reader, opening
    )
