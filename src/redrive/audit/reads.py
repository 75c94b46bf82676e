"""Clock and PRNG reads: whether each has its value, and serving them again.

Knows reads and what they are keyed by. Must not know who asks.

A read that was not recorded is a gap that names it: it takes neither another read's value nor the
real clock or dice.

Source: DESIGN.md §4 "clock and PRNG".
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UnsetType

from redrive.audit.gaps import InputClass, ProvenanceGap, make_gap
from redrive.audit.redaction import find_mark
from redrive.record.event import Event, Kind, Read, payload_of, raw_value
from redrive.record.session import EventReader, SessionIndex
from redrive.record.trajectory import Step, Trajectory

READ_CLASSES = {Kind.CLOCK_READ: InputClass.CLOCK, Kind.PRNG_READ: InputClass.PRNG}


def find_read_gap(input_class: InputClass, read: Read) -> ProvenanceGap | None:
    """Find why a recorded read cannot be served: no value, `null`, or a masked one."""
    value = b"null" if isinstance(read.value, UnsetType) else bytes(read.value)
    if value == b"null":
        return make_gap(f"missing_{input_class}_value", read.name, name=read.name)
    mark = find_mark(value.decode())
    if mark is None and not read.redactions:
        return None
    rule = mark or read.redactions[0].rule or "no rule named"
    return make_gap(f"masked_{input_class}_value", read.name, name=read.name, rule=rule)


def read_numbers(trajectory: Trajectory, reader: EventReader) -> Mapping[int, int]:
    """Map the step numbers that the record itself gives to ordinals on the path.

    A step without one has its ordinal; of a number that is given twice the first step counts.

    Cost: decodes one request or response per step.
    """
    numbers: dict[int, int] = {}
    for step in trajectory.steps:
        recorded = _recorded_step(step, reader)
        numbers.setdefault(step.step if recorded is None else recorded, step.step)
    return numbers


def _recorded_step(step: Step, reader: EventReader) -> int | None:
    request = () if step.request is None else (step.request,)
    payloads = map(payload_of, reader.read_events((*request, *step.responses)))
    return next((payload.step for payload in payloads if payload.step is not None), None)


class ServedRead(msgspec.Struct, frozen=True):
    """A recorded read's value, decoded anew each time, so that a caller may change it."""

    value: Any


class ReadLedger:
    """The recorded reads of one trajectory, keyed by (step, class, name).

    Within a key reads are served in recorded order, each once.
    """

    def __init__(self, index: SessionIndex, trajectory: Trajectory, reader: EventReader) -> None:
        numbers: Mapping[int, int] | None = None
        self._unserved: dict[tuple[int, InputClass, str], list[Read]] = {}
        for ordinal, event in _read_events(index, trajectory, reader):
            read: Read = payload_of(event)
            step = ordinal
            if read.step is not None and read.step != ordinal:
                if numbers is None:
                    numbers = read_numbers(trajectory, reader)
                step = numbers.get(read.step, ordinal)
            key = (step, READ_CLASSES[event.kind], read.name)
            self._unserved.setdefault(key, []).append(read)
        for reads in self._unserved.values():
            reads.reverse()

    def serve(self, step: int, input_class: InputClass, name: str) -> ServedRead | ProvenanceGap:
        """Serve the next recorded read of this key, or say which read is missing.

        Args:
            step: 1-based ordinal on the path.
            input_class: `CLOCK` or `PRNG`.
            name: the read's name.
        """
        reads = self._unserved.get((step, input_class, name))
        if not reads:
            return make_gap(f"unrecorded_{input_class}_read", name, step=step, name=name)
        read = reads.pop()
        gap = find_read_gap(input_class, read)
        return ServedRead(raw_value(read.value)) if gap is None else gap

    def list_unserved(self) -> tuple[tuple[int, InputClass, str], ...]:
        """List the keys of the reads that nobody asked for, one entry per read, sorted."""
        return tuple(sorted(key for key, reads in self._unserved.items() for _ in reads))


def _read_events(
    index: SessionIndex, trajectory: Trajectory, reader: EventReader
) -> Iterator[tuple[int, Event]]:
    """Yield the path's reads with the decision they belong to; those above the first are step 1."""
    groups = [(1, trajectory.opening), *((step.step, step.attached) for step in trajectory.steps)]
    for ordinal, attached in groups:
        seqs = [seq for seq in attached if index.kind(seq) in READ_CLASSES]
        for event in reader.read_events(seqs):
            yield ordinal, event
