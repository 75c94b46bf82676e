"""The recorded path as a replay compares with it: one signature per decision, and the evidence.

Knows how decisions are read from events. Must not know what a replay answers (shadow), and holds no
payload: per decision two or three digests and seqs.

Decisions are read alike on both sides: the calls of an answer, or, under `json_content`, the call
that its text holds. A recorded decision without calls that others follow is a decision that goes
on; the last one without calls ends the run.

Source: DESIGN.md §5 "Decisions", §10 "Scripts".
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from redrive.audit.redaction import find_mark, may_hold_mark
from redrive.record.decisions import TOOL_CALLS
from redrive.record.event import PAYLOAD_DECODERS, Event, Kind, ModelResponse, payload_of
from redrive.record.evidence import Cell, ToolEvidenceStore, build_evidence, decode_known
from redrive.record.pairing import pair_path
from redrive.record.session import EventReader, SessionIndex
from redrive.record.signature import (
    EMPTY_TEXT,
    CallSignature,
    DecisionSignature,
    argument_digests,
    result_signature,
    split_text,
    text_digest,
)
from redrive.record.trajectory import Step, Trajectory
from redrive.replay.ports import ModelFingerprint


class DecisionForm(msgspec.Struct, frozen=True, gc=False):
    """What a signature leaves out of a decision, to count ignored differences.

    Attributes:
        text: digest of the answer text as it was written.
        arguments: per call, checksum of the bytes that its arguments were written in.
        call_ids: per call, its id; empty where no call has one.
    """

    text: bytes
    arguments: tuple[int, ...] = ()
    call_ids: tuple[str | None, ...] = ()


class RecordedDecision(msgspec.Struct, frozen=True, gc=False):
    """One recorded decision, comparable.

    Attributes:
        step: 1-based ordinal on the path.
        node_id: its first node.
        request: seq of the `model.request` that led to it, if recorded.
        signature: what is compared.
        form: what is ignored and counted.
        model: who served it, as far as the response says.
        users: seqs of the user messages since the decision before.
    """

    step: int
    node_id: str
    request: int | None
    signature: DecisionSignature
    form: DecisionForm
    model: ModelFingerprint
    users: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One recorded path, ready to be replayed against.

    Attributes:
        session_id: the session.
        decisions: n decisions, root first.
        evidence: the answers recorded on the same path.
        mode: `tool_calls` or `json_content`: how decisions are read, here and in the replay.
        is_ended: whether the last decision ends the run; otherwise the record stops there.
    """

    session_id: str
    decisions: tuple[RecordedDecision, ...]
    evidence: ToolEvidenceStore
    mode: str
    is_ended: bool

    def get(self, step: int) -> RecordedDecision | None:
        """Give a decision by its ordinal; `None` beyond the record."""
        return self.decisions[step - 1] if step <= len(self.decisions) else None


def read_run(
    index: SessionIndex,
    trajectory: Trajectory,
    reader: EventReader,
    *,
    mode: str = TOOL_CALLS,
) -> RecordedRun:
    """Read one path for replay, in two streams over its events.

    Args:
        index: the session's index.
        trajectory: the path; a prefix of one is a path too.
        reader: gives payloads.
        mode: how decisions are read; see `RecordedRun.mode`.

    Cost: O(n); about 700 bytes per decision with one call.
    """
    evidence = build_evidence(trajectory, pair_path(index, trajectory, reader), reader, holds_mark)
    events = reader.read_events(seq for step in trajectory.steps for seq in step.responses)
    build = _Reading(index, mode, {})
    decisions = tuple(
        build.decision(step, events, evidence.cells_of_step(step.step)) for step in trajectory.steps
    )
    is_ended = bool(decisions) and not decisions[-1].signature.calls and not trajectory.is_cut
    if is_ended:
        decisions = (*decisions[:-1], _ended(decisions[-1]))
    return RecordedRun(trajectory.session_id, decisions, evidence, mode, is_ended)


def read_results(recorded: RecordedRun, reader: EventReader) -> tuple[DecisionSignature, ...]:
    """Give each decision's signature with the results of its calls, for comparing two records.

    Cost: one stream over the recorded results.
    """
    store = recorded.evidence
    events = reader.read_events(cell.result for cell in store.cells if cell.result is not None)
    return tuple(
        msgspec.structs.replace(
            decision.signature,
            results=tuple(
                result_signature(None if cell.result is None else payload_of(next(events)))
                for cell in store.cells_of_step(decision.step)
            ),
        )
        for decision in recorded.decisions
    )


def _ended(decision: RecordedDecision) -> RecordedDecision:
    signature = msgspec.structs.replace(decision.signature, is_final=True)
    return msgspec.structs.replace(decision, signature=signature)


def holds_mark(payload: bytes) -> bool:
    """Say whether a stored payload holds a redaction mark."""
    return may_hold_mark(payload) and find_mark(payload.decode("utf-8", "replace")) is not None


@dataclass(frozen=True, slots=True)
class _Reading:
    """Reads decisions; equal fingerprints share one value."""

    index: SessionIndex
    mode: str
    models: dict[tuple[str | None, str | None], ModelFingerprint]

    def decision(
        self, step: Step, events: Iterator[Event], cells: Sequence[Cell]
    ) -> RecordedDecision:
        responses: list[ModelResponse] = [
            decode_known(next(events), _decode_response) for _ in step.responses
        ]
        text = "".join([response.text for response in responses])
        signed, sources, call_ids = [], [], []
        for cell in cells:
            signed.append(CallSignature(cell.tool, cell.arguments))
            sources.append(cell.source)
            call_ids.append(cell.call_id)
        compared = written = EMPTY_TEXT
        if text:
            parts = split_text(text, self.mode)
            if parts.call is not None and not cells:
                digests = argument_digests(parts.call.arguments, None)
                signed.append(CallSignature(parts.call.tool, digests.value))
                sources.append(digests.source)
                call_ids.append(None)
            written = text_digest(text)
            compared = written if parts.rest is text else text_digest(parts.rest)
        return RecordedDecision(
            step.step,
            step.node_id,
            step.request,
            DecisionSignature(compared, tuple(signed), is_final=False),
            DecisionForm(written, tuple(sources), tuple(call_ids)),
            self._model(responses),
            tuple([s for s in step.before if self.index.kind(s) is Kind.USER_MESSAGE]),
        )

    def _model(self, responses: Iterable[ModelResponse]) -> ModelFingerprint:
        served = fingerprint = None
        for response in responses:
            served = response.model or served
            fingerprint = response.fingerprint or fingerprint
        model = self.models.get((served, fingerprint))
        if model is None:
            model = ModelFingerprint(served=served, fingerprint=fingerprint)
            self.models[(served, fingerprint)] = model
        return model


_decode_response = PAYLOAD_DECODERS[Kind.MODEL_RESPONSE].decode
