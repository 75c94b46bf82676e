"""Where two paths part: by signature and by decision, and how far their tool sequences are apart.

Knows signatures, and shows the two decisions at which paths part. Must not know what a difference
means (verdict), nor who answered.

Source: DESIGN.md §5 "Two comparisons".
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from redrive.compare.views import DecisionView, view_recorded, view_replayed
from redrive.record.session import EventReader
from redrive.record.signature import (
    ARGUMENT_BYTES,
    CALL_ID,
    DECISION_TEXT_BYTES,
    RULES,
    DecisionSignature,
)
from redrive.record.trajectory import Trajectory
from redrive.replay.exchange import UNANSWERED_STOPS, ShadowRun
from redrive.replay.recorded import DecisionForm, RecordedRun, read_results

MAX_DIFFERENCES = 100
_BLOCK = 4096
_FIRST_CUTOFF = 32
# Up to here the doubling attempts together cost under a tenth of the plain distance.
_CUTOFF_SHARE = 32


class Divergence(msgspec.Struct, frozen=True):
    """Where two paths part.

    Attributes:
        decision: 1-based ordinal.
        node_id: the recorded decision's node; absent beyond the record.
        expected: what the record holds; absent beyond its end.
        found: what was decided instead; absent where nothing was.
        fields: what differs, of `FIELDS`.
    """

    decision: int
    node_id: str | None
    expected: DecisionView | None
    found: DecisionView | None
    fields: tuple[str, ...]


class Difference(msgspec.Struct, frozen=True):
    """One decision that differs from the record's at the same place."""

    decision: int
    node_id: str | None
    fields: tuple[str, ...]


FIELDS = (
    "decision",
    "calls",
    "order",
    "tool",
    "arguments",
    "termination",
    "text",
    "result",
    "status",
)


class Comparison(msgspec.Struct, frozen=True):
    """Two paths compared.

    Attributes:
        first_divergence: by signature.
        decision_divergence: by decision; absent where text alone (or a result) differs.
        differences: the decisions that differ, place by place; at most as many as asked for.
        n_differences: all of them.
        text_only: how many of them differ in text alone.
        ignored: normalisation rule → differences that it ignored.
        tool_sequence_edits: Levenshtein distance of the two sequences of tool names.
        tool_sequence_distance: the same by the longer length, 0 to 1.
    """

    first_divergence: Divergence | None
    decision_divergence: Divergence | None
    differences: tuple[Difference, ...]
    n_differences: int
    text_only: int
    ignored: dict[str, int]
    tool_sequence_edits: int
    tool_sequence_distance: float


def first_difference(left: Sequence[Any], right: Sequence[Any]) -> int | None:
    """Find the first place at which two sequences differ; where one ends, that is its end.

    Cost: one comparison per item, in blocks, so that it runs at the speed of `left == right`.
    """
    shared = min(len(left), len(right))
    for start in range(0, shared, _BLOCK):
        low, high = start, min(start + _BLOCK, shared)
        if left[low:high] != right[low:high]:
            return _narrow(left, right, low, high)
    return shared if len(left) != len(right) else None


def _narrow(left: Sequence[Any], right: Sequence[Any], low: int, high: int) -> int:
    """Halve a stretch that differs somewhere down to its first difference."""
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] != right[low:middle]:
            high = middle
        else:
            low = middle
    return low


def sequence_edits(left: Sequence[str], right: Sequence[str]) -> int:
    """Count the fewest insertions, removals and replacements that turn one sequence into the other.

    Cost: after the common start and end are cut off, O(n·d/64) for d edits, and never more than a
    tenth above the plain distance.
    """
    numbers: dict[str, int] = {}
    ours = [numbers.setdefault(name, len(numbers)) for name in left]
    theirs = [numbers.setdefault(name, len(numbers)) for name in right]
    start = first_difference(ours, theirs)
    if start is None:
        return 0
    from rapidfuzz.distance import Levenshtein  # late: most paths are equal, and it slows the start

    ours, theirs = ours[start:][::-1], theirs[start:][::-1]
    end = first_difference(ours, theirs) or 0
    ours, theirs = ours[end:], theirs[end:]
    longest = max(len(ours), len(theirs))
    cutoff = max(_FIRST_CUTOFF, abs(len(ours) - len(theirs)))
    while cutoff * _CUTOFF_SHARE <= longest:
        found = Levenshtein.distance(ours, theirs, score_cutoff=cutoff)
        if found <= cutoff:
            return found
        cutoff *= 2
    return Levenshtein.distance(ours, theirs)


def differing_fields(
    expected: DecisionSignature | None, found: DecisionSignature | None
) -> tuple[str, ...]:
    """Name what differs between two decisions, in the order of `FIELDS`."""
    if expected is None or found is None:
        return ("decision",)
    names = set(_call_fields(expected, found))
    if expected.is_final != found.is_final:
        names.add("termination")
    if expected.text != found.text:
        names.add("text")
    for ours, theirs in zip(expected.results, found.results, strict=False):
        if ours.result != theirs.result:
            names.add("result")
        if ours.status != theirs.status:
            names.add("status")
    return tuple(name for name in FIELDS if name in names)


def _call_fields(expected: DecisionSignature, found: DecisionSignature) -> Iterator[str]:
    if expected.calls == found.calls:
        return
    if len(expected.calls) != len(found.calls):
        yield "calls"
    if Counter(expected.calls) == Counter(found.calls):
        yield "order"
        return
    for ours, theirs in zip(expected.calls, found.calls, strict=False):
        if ours.tool != theirs.tool:
            yield "tool"
        if ours.arguments != theirs.arguments:
            yield "arguments"


def count_ignored(pairs: Iterable[tuple[DecisionForm, DecisionForm]]) -> dict[str, int]:
    """Count what normalisation ignored between decisions with equal calls, by rule."""
    texts = arguments = call_ids = 0
    for ours, theirs in pairs:
        if ours.text != theirs.text:
            texts += 1
        if ours.arguments != theirs.arguments:
            arguments += _count_unequal(ours.arguments, theirs.arguments)
        if ours.call_ids and theirs.call_ids and ours.call_ids != theirs.call_ids:
            call_ids += _count_unequal(ours.call_ids, theirs.call_ids)
    counts = {ARGUMENT_BYTES: arguments, CALL_ID: call_ids, DECISION_TEXT_BYTES: texts}
    return {rule: counts[rule] for rule in RULES if counts[rule]}


def _count_unequal(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    """Count the places where both sides say something, and not the same."""
    return sum(a != b for a, b in zip(ours, theirs, strict=True) if None not in (a, b))


class _Side(msgspec.Struct, frozen=True):
    """One of two paths: its decisions from the first compared one on, and how to show one."""

    signatures: Sequence[DecisionSignature]
    forms: Sequence[DecisionForm]
    show: Callable[[int], DecisionView]


def compare_run(
    recorded: RecordedRun,
    run: ShadowRun,
    trajectory: Trajectory,
    reader: EventReader,
    max_differences: int = MAX_DIFFERENCES,
) -> Comparison:
    """Compare a replay with the record.

    Args:
        recorded: the path replayed against.
        run: the replay; decisions that were not made since it stopped at a missing answer are no
            differences, and tool sequences are compared up to that decision.
        trajectory: the path's events, to show the decisions at which the paths part.
        reader: gives payloads; asked for at most two decisions.
        max_differences: how many differences to list; all are counted.

    Cost: O(n) digest comparisons.
    """
    first = run.first
    kept = recorded.decisions[first - 1 :]
    if run.stop in UNANSWERED_STOPS:
        kept = kept[: len(run.decisions)]

    def show_recorded(place: int) -> DecisionView:
        step = trajectory.steps[first - 1 + place]
        return view_recorded(step, kept[place].signature, reader)

    return _compare(
        first,
        [decision.node_id for decision in kept],
        _Side([d.signature for d in kept], [d.form for d in kept], show_recorded),
        _Side(
            [d.signature for d in run.decisions],
            [d.form for d in run.decisions],
            lambda place: view_replayed(run.decisions[place]),
        ),
        max_differences,
    )


def diff_sessions(
    left: tuple[RecordedRun, Trajectory, EventReader],
    right: tuple[RecordedRun, Trajectory, EventReader],
    max_differences: int = MAX_DIFFERENCES,
) -> Comparison:
    """Compare two recorded paths, their results included; the first is the expected one."""
    ours, theirs = _recorded_side(*left), _recorded_side(*right)
    nodes = [decision.node_id for decision in left[0].decisions]
    return _compare(1, nodes, ours, theirs, max_differences)


def _recorded_side(recorded: RecordedRun, trajectory: Trajectory, reader: EventReader) -> _Side:
    signatures = read_results(recorded, reader)
    answers = recorded.evidence.pairing.answers
    return _Side(
        signatures,
        [decision.form for decision in recorded.decisions],
        lambda place: view_recorded(trajectory.steps[place], signatures[place], reader, answers),
    )


def _compare(
    first: int, nodes: Sequence[str], ours: _Side, theirs: _Side, max_differences: int
) -> Comparison:
    places = _differing_places(ours.signatures, theirs.signatures)
    decided = [p for p in places if not _decides_alike(ours, theirs, p)]
    edits, distance = _tool_edits(ours, theirs) if decided else (0, 0.0)

    def divergence(found: Sequence[int]) -> Divergence | None:
        return _divergence(first, nodes, ours, theirs, found[0]) if found else None

    listed = (_difference(first, nodes, ours, theirs, p) for p in places[:max_differences])
    return Comparison(
        first_divergence=divergence(places),
        decision_divergence=divergence(decided),
        differences=tuple(listed),
        n_differences=len(places),
        text_only=sum(_fields_at(ours, theirs, p) == ("text",) for p in places),
        ignored=count_ignored(_alike_forms(ours, theirs, places, decided)),
        tool_sequence_edits=edits,
        tool_sequence_distance=distance,
    )


def _tool_edits(ours: _Side, theirs: _Side) -> tuple[int, float]:
    """Count the edits between both sequences of tool names, also by the longer length."""
    tools = [
        [call.tool for signature in side.signatures for call in signature.calls]
        for side in (ours, theirs)
    ]
    edits = sequence_edits(*tools)
    return edits, edits / max(1, *map(len, tools))


def _alike_forms(
    ours: _Side, theirs: _Side, places: Sequence[int], decided: Sequence[int]
) -> Iterable[tuple[DecisionForm, DecisionForm]]:
    """Pair the forms of the decisions that decide alike."""
    if not places:
        return zip(ours.forms, theirs.forms, strict=True)
    both, unequal = min(len(ours.forms), len(theirs.forms)), set(decided)
    return (
        (ours.forms[p], _without_text(ours, theirs, p)) for p in range(both) if p not in unequal
    )


def _without_text(ours: _Side, theirs: _Side, place: int) -> DecisionForm:
    """Give the second side's form; where the texts differ by signature, that is not ignored."""
    form = theirs.forms[place]
    if ours.signatures[place].text == theirs.signatures[place].text:
        return form
    return msgspec.structs.replace(form, text=ours.forms[place].text)


def _differing_places(
    left: Sequence[DecisionSignature], right: Sequence[DecisionSignature]
) -> list[int]:
    start = first_difference(left, right)
    if start is None:
        return []
    shared = min(len(left), len(right))
    places = [p for p in range(start, shared) if left[p] != right[p]]
    return [*places, *range(shared, max(len(left), len(right)))]


def _at(side: _Side, place: int) -> DecisionSignature | None:
    return side.signatures[place] if place < len(side.signatures) else None


def _decides_alike(ours: _Side, theirs: _Side, place: int) -> bool:
    left, right = _at(ours, place), _at(theirs, place)
    return left is not None and right is not None and left.decides_as(right)


def _fields_at(ours: _Side, theirs: _Side, place: int) -> tuple[str, ...]:
    return differing_fields(_at(ours, place), _at(theirs, place))


def _difference(
    first: int, nodes: Sequence[str], ours: _Side, theirs: _Side, place: int
) -> Difference:
    node_id = nodes[place] if place < len(nodes) else None
    return Difference(first + place, node_id, _fields_at(ours, theirs, place))


def _divergence(
    first: int, nodes: Sequence[str], ours: _Side, theirs: _Side, place: int
) -> Divergence:
    where = _difference(first, nodes, ours, theirs, place)
    expected = ours.show(place) if place < len(ours.signatures) else None
    found = theirs.show(place) if place < len(theirs.signatures) else None
    return Divergence(where.decision, where.node_id, expected, found, where.fields)
