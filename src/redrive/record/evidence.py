"""Recorded tool answers, to be served again: one cell per recorded call.

Knows which recorded answer belongs to which call, and whether it may be served. Must not know who
asks (replay), and holds no payload: a cell is digests and seqs, the bytes stay with the reader.

Rules (DESIGN.md §5 "Evidence"):

* the key is the tool plus the canonical arguments, with no looser fallback;
* within one key the recorded answers are served in recorded order, each once: the store never
  changes, a cursor lies with who asks, so one replay cannot poison the next;
* a call without a result, with differing results, or whose result was cut or masked by the
  recorder, is a cell without evidence: it takes its place in the order and answers nothing;
* what is served is decoded anew from stored bytes whose digest is checked.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from redrive import canonical
from redrive.record.event import PAYLOAD_DECODERS, Event, Kind, ToolCall, ToolResult, payload_of
from redrive.record.pairing import Pairing
from redrive.record.session import EventReader
from redrive.record.signature import NOT_RECORDED, argument_digests, canonical_bytes
from redrive.record.texts import common_ends
from redrive.record.trajectory import Step, Trajectory


class Gap(StrEnum):
    """Why a call has no answer that may be served."""

    NOT_RECORDED = "not_recorded"
    USED_UP = "used_up"
    NO_RESULT = "no_result"
    CONFLICTING = "conflicting_results"
    TRUNCATED = "truncated"
    MASKED = "masked"
    ALTERED = "digest_mismatch"


UNFAITHFUL = frozenset({Gap.TRUNCATED, Gap.MASKED, Gap.ALTERED})
"""Gaps of an answer that is there and is not what the tool gave; the others have no answer."""


class Cell(msgspec.Struct, frozen=True, gc=False):
    """One recorded call and its answer.

    Attributes:
        step: 1-based ordinal of the decision that made the call.
        call: seq of the `tool.call`.
        result: seq of its one `tool.result`.
        tool: the tool called.
        arguments: digest of the canonical arguments; `NOT_RECORDED` matches no call.
        source: checksum of the bytes that the arguments were written in.
        digest: sha256 of the result's stored payload.
        status: `ok`, `error`, or another word of the source.
        gap: why it cannot be served; absent where it can.
        call_id: the recorded call's id.
    """

    step: int
    call: int
    result: int | None
    tool: str
    arguments: bytes
    source: int
    digest: bytes
    status: str
    gap: Gap | None = None
    call_id: str | None = None


@dataclass(frozen=True)
class ToolEvidenceStore:
    """The cells of one path, in recorded order, and where to look them up.

    Attributes:
        cells: one per call of the path.
        offsets: `offsets[n - 1]:offsets[n]` are the cells of step n.
        pairing: how results were joined with calls; says what is left over on both sides.
    """

    cells: tuple[Cell, ...]
    offsets: "array[int]"
    pairing: Pairing

    @cached_property
    def keys(self) -> Mapping[str, Mapping[bytes, Sequence[int]]]:
        """Tool → arguments digest → numbers of its cells, in recorded order.

        Made when it is first asked for: a replay that decides as the record never does.
        """
        keys: dict[str, dict[bytes, list[int]]] = {}
        for number, cell in enumerate(self.cells):
            if cell.arguments != NOT_RECORDED:
                keys.setdefault(cell.tool, {}).setdefault(cell.arguments, []).append(number)
        return keys

    def find_cells(self, tool: str, arguments: bytes) -> Sequence[int]:
        """Find the cells of a key, in recorded order; none where the key was never recorded."""
        of_tool = self.keys.get(tool)
        return () if of_tool is None else of_tool.get(arguments, ())

    def cells_of_step(self, step: int) -> tuple[Cell, ...]:
        """Give the cells of a decision, in call order."""
        return self.cells[self.offsets[step - 1] : self.offsets[step]]

    def find_cell(self, step: int, place: int) -> Cell | None:
        """Find the cell of a decision's call by its place in call order, from 0."""
        number = self.offsets[step - 1] + place
        return self.cells[number] if number < self.offsets[step] else None

    def count_before(self, step: int) -> int:
        """Count the calls of the decisions before a step."""
        return self.offsets[step - 1]

    def used_by(self, n_calls: int) -> dict[int, int]:
        """Count the answers that the first `n_calls` recorded calls consumed.

        Returns:
            Number of a key's first cell → how many of its cells were consumed.
        """
        used: dict[int, int] = {}
        for cell in self.cells[:n_calls]:
            for first in self.find_cells(cell.tool, cell.arguments)[:1]:
                used[first] = used.get(first, 0) + 1
        return used

    def find_unused(self, used: Mapping[int, int]) -> tuple[Cell, ...]:
        """List the cells with evidence that a cursor has not passed, in recorded order.

        Args:
            used: number of a key's first cell → how many of its cells were passed.
        """
        left: list[int] = []
        for of_tool in self.keys.values():
            for numbers in of_tool.values():
                left.extend(numbers[used.get(numbers[0], 0) :])
        return tuple(self.cells[n] for n in sorted(left) if self.cells[n].gap is None)

    def candidates(self, tool: str) -> tuple[int, ...]:
        """List call seqs to look through for the nearest call: one per key.

        The keys of the same tool, or, where that tool was never called, of every tool.
        """
        maps = [self.keys[tool]] if tool in self.keys else list(self.keys.values())
        firsts = sorted(numbers[0] for of_tool in maps for numbers in of_tool.values())
        return tuple(self.cells[number].call for number in firsts)

    def find_step(self, call: int) -> int | None:
        """Find the decision that made a recorded call. Cost: O(n)."""
        return next((cell.step for cell in self.cells if cell.call == call), None)


def build_evidence(
    trajectory: Trajectory,
    pairing: Pairing,
    reader: EventReader,
    has_mark: Callable[[bytes], bool] | None = None,
) -> ToolEvidenceStore:
    """Build the evidence of one path.

    Args:
        trajectory: the path; evidence comes from it and its actor only.
        pairing: which result answers which call, from `trajectory.pair_path`.
        reader: gives payloads; each call and each paired result is read once.
        has_mark: says whether a result's stored bytes hold a redaction mark; its table belongs to
            the audit. Absent: only what the recorder lists as masked counts.

    Cost: O(n) time; per call one struct and at most three digests of 32 bytes.
    """
    cells: list[Cell] = []
    offsets = array("l", [0])
    words: dict[str, str] = {}  # tools and statuses, each once
    events = reader.read_events(_seqs(trajectory.steps, pairing))
    for step in trajectory.steps:
        cells += [
            _build_cell(step.step, seq, pairing, events, has_mark, words) for seq in step.calls
        ]
        offsets.append(len(cells))
    return ToolEvidenceStore(tuple(cells), offsets, pairing)


def _seqs(steps: Iterable[Step], pairing: Pairing) -> list[int]:
    """List each call's seq, followed by its answer's."""
    seqs: list[int] = []
    for step in steps:
        for seq in step.calls:
            seqs.append(seq)
            answer = pairing.answers.get(seq)
            if answer is not None:
                seqs.append(answer)
    return seqs


def _build_cell(
    step: int,
    seq: int,
    pairing: Pairing,
    events: Iterator[Event],
    has_mark: Callable[[bytes], bool] | None,
    words: dict[str, str],
) -> Cell:
    """Read a call, and its answer where it has one, from the stream of both."""
    called = next(events)
    call: ToolCall = decode_known(called, _decode_call)
    arguments, source = NOT_RECORDED, 0
    if not (call.is_not_recorded or call.truncated or call.redactions):
        digests = argument_digests(call.arguments, call.arguments_text)
        arguments, source = digests.value, digests.source
    answer = pairing.answers.get(seq)
    gap: Gap | None
    if answer is None:
        gap = Gap.CONFLICTING if seq in pairing.conflicts else Gap.NO_RESULT
        status, digest = "", NOT_RECORDED
    else:
        event = next(events)
        result: ToolResult = decode_known(event, _decode_result)
        status, gap = result.status, _result_gap(result)
        data = bytes(event.payload)
        digest = sha256(data).digest()
        if gap is None and has_mark is not None and has_mark(data):
            gap = Gap.MASKED
    tool, status = words.setdefault(call.tool, call.tool), words.setdefault(status, status)
    return Cell(step, seq, answer, tool, arguments, source, digest, status, gap, called.call_id)


_decode_call = PAYLOAD_DECODERS[Kind.TOOL_CALL].decode
_decode_result = PAYLOAD_DECODERS[Kind.TOOL_RESULT].decode


def decode_known(event: Event, decode: Callable[[Raw], Any]) -> Any:
    """Decode a payload of a known kind where it lies; one stored as text is no object."""
    try:
        return decode(event.payload)
    except msgspec.ValidationError:
        return payload_of(event)


def _result_gap(result: ToolResult) -> Gap | None:
    if isinstance(result.result, UnsetType):
        return Gap.NO_RESULT
    if result.truncated:
        return Gap.TRUNCATED
    return Gap.MASKED if result.redactions else None


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a cell serves: status, JSON value and the seq of the recorded result."""

    status: str
    result: Raw
    seq: int


def open_evidence(cell: Cell, event: Event | None) -> Answer | None:
    """Decode what a cell serves: a stretch of the stored bytes, which nothing can change.

    Returns:
        The answer; `None` where the bytes are not those that the cell was built from.
    """
    if event is None or event.seq != cell.result:
        return None
    if sha256(event.payload).digest() != cell.digest:
        return None
    result: ToolResult = decode_known(event, _decode_result)
    value = result.result
    return None if isinstance(value, UnsetType) else Answer(result.status, value, event.seq)


class NearestCall(msgspec.Struct, frozen=True):
    """The recorded call most like one that has no recorded answer.

    Attributes:
        call: its seq.
        tool: its tool.
        arguments: its arguments: a JSON value, or the text that was recorded.
        call_id: its id, where it has one.
        differs: what differs: `tool`, paths into the arguments (`/units`, `/items/0`), or
            `arguments` as a whole.
    """

    call: int
    tool: str
    arguments: Any
    call_id: str | None = None
    differs: tuple[str, ...] = ()


MAX_SHOWN_DEPTH = 100


def arguments_value(arguments: Raw | UnsetType, text: str | None) -> Any:
    """Give a call's arguments for people.

    Returns:
        The JSON value, `{}` for none; the text itself where it is no strict JSON, or is nested more
        than 100 deep.
    """
    if isinstance(arguments, UnsetType):
        data = canonical.text_bytes(text or "{}")
    else:
        data = bytes(arguments)
    if canonical_bytes(data) is not None:
        value = canonical.decode_value(data)
        if data.count(b"[") + data.count(b"{") <= MAX_SHOWN_DEPTH or not _is_deep(value):
            return value
    return data.decode("utf-8", "surrogatepass")


def _is_deep(root: Any) -> bool:
    """Say whether a value is nested too deeply to be shown."""
    stack = [(root, 1)]
    while stack:
        value, depth = stack.pop()
        if not isinstance(value, (dict, list)):
            continue
        if depth > MAX_SHOWN_DEPTH:
            return True
        items = value.values() if isinstance(value, dict) else value
        stack.extend((item, depth + 1) for item in items)
    return False


def find_nearest(tool: str, arguments: Any, events: Iterable[Event]) -> NearestCall | None:
    """Find the recorded call nearest to one without a recorded answer.

    Args:
        tool: the tool asked for.
        arguments: as `arguments_value` gives them.
        events: recorded calls in recorded order, those of `ToolEvidenceStore.candidates`.

    Returns:
        The call that differs in the fewest places, then in the fewest characters, then the first.
    """
    best: tuple[tuple[int, int], NearestCall] | None = None
    for event in events:
        call: ToolCall = payload_of(event)
        recorded = arguments_value(call.arguments, call.arguments_text)
        paths: list[str] = ["tool"] if call.tool != tool else []
        weight = _collect_differences(arguments, recorded, "", paths)
        if best is None or (len(paths), weight) < best[0]:
            nearest = NearestCall(event.seq, call.tool, recorded, event.call_id, tuple(paths))
            best = (len(paths), weight), nearest
    return None if best is None else best[1]


def _collect_differences(asked: Any, recorded: Any, path: str, paths: list[str]) -> int:
    """Add the paths that differ; give the number of characters that texts do not share."""
    if isinstance(asked, dict) and isinstance(recorded, dict):
        pairs: dict[Any, tuple[Any, Any]] = {
            key: (asked.get(key, _ABSENT), recorded.get(key, _ABSENT))
            for key in (*recorded, *(k for k in asked if k not in recorded))
        }
    elif isinstance(asked, list) and isinstance(recorded, list):
        longest = range(max(len(asked), len(recorded)))
        pairs = {i: (_item(asked, i), _item(recorded, i)) for i in longest}
    else:
        return _leaf_difference(asked, recorded, path, paths)
    return sum(
        _collect_differences(left, right, f"{path}/{key}", paths)
        for key, (left, right) in pairs.items()
    )


_ABSENT = object()


def _item(items: list[Any], place: int) -> Any:
    return items[place] if place < len(items) else _ABSENT


def _leaf_difference(asked: Any, recorded: Any, path: str, paths: list[str]) -> int:
    if asked is recorded or (asked == recorded and _is_bool(asked) == _is_bool(recorded)):
        return 0
    paths.append(path or "arguments")
    if isinstance(asked, str) and isinstance(recorded, str):
        return _unshared(asked, recorded)
    return 0


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _unshared(left: str, right: str) -> int:
    """Count the characters between the common start and the common end of two texts."""
    return max(len(left), len(right)) - sum(common_ends(left, right))
