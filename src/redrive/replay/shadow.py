"""Shadow replay: the model decides again, recorded answers are served, nothing is executed.

A stepped value machine. `start` gives a state and the first command; `step` takes the reply to that
command and gives the next state and command, until `Done`::

    AskModel      ── ModelReply ──→  ServeEvidence | AskModel | FindNearest | Done
    ServeEvidence ── Evidence ────→  ServeEvidence | AskModel | FindNearest | Done
    FindNearest   ── Nearest ─────→  Done
    Done          (no reply)

States are frozen. A reply that does not fit the command raises and leaves the state as it was.

While every signature so far equals the record, decision n+1 is asked with recorded request n+1.
After a difference there is none: the request is rebuilt from the last one that was sent. A call
without a recorded answer stops the run, since everything after it would rest on a made-up value.

Knows the record as digests, and the model's replies. Must not know models, files or sockets.

Source: DESIGN.md §5, §10.
"""

from typing import Any, assert_never

import msgspec

from redrive.errors import UsageError
from redrive.record.evidence import (
    UNFAITHFUL,
    Cell,
    Gap,
    NearestCall,
    arguments_value,
    open_evidence,
)
from redrive.record.signature import (
    EMPTY_TEXT,
    CallSignature,
    DecisionSignature,
    argument_digests,
    split_text,
    text_digest,
)
from redrive.replay.exchange import (
    DEFAULT_OPTIONS,
    AskModel,
    Command,
    Done,
    Evidence,
    FindNearest,
    MissingCall,
    Nearest,
    ReplayedDecision,
    Reply,
    ServedCall,
    ServeEvidence,
    ShadowOptions,
    ShadowRun,
    Stop,
    Turn,
)
from redrive.replay.persistent import Cursor, Log
from redrive.replay.ports import CallAsked, ModelReply
from redrive.replay.recorded import DecisionForm, RecordedDecision, RecordedRun


class _Pending(msgspec.Struct, frozen=True, gc=False):
    """A decision whose calls are being served."""

    decision: int
    reply: ModelReply
    signature: DecisionSignature
    ends: bool
    results: tuple[ServedCall, ...] = ()


_NO_DECISION = _Pending(
    0, ModelReply(), DecisionSignature(EMPTY_TEXT, (), is_final=False), ends=False
)


class ShadowState(msgspec.Struct, frozen=True, gc=False):
    """Everything a run needs to go on; a value.

    Attributes:
        recorded: the path replayed against.
        options: how.
        command: what was asked last.
        is_on_track: whether every signature so far equals the record.
        base: seq of the last recorded request that was sent as it is.
        turns: what was decided and served since.
        used: per key (number of its first cell) how many of its answers were consumed; kept from
            the first difference on, until which the recorded calls got their own answers.
        decisions: what was decided.
        served: what was served.
        pending: the decision whose calls are being served.
    """

    recorded: RecordedRun
    options: ShadowOptions
    command: Command
    is_on_track: bool
    base: int | None
    turns: Log[Turn]
    used: Cursor
    decisions: Log[ReplayedDecision]
    served: Log[ServedCall]
    pending: _Pending = _NO_DECISION


def start(
    recorded: RecordedRun, options: ShadowOptions = DEFAULT_OPTIONS
) -> tuple[ShadowState, Command]:
    """Begin a run.

    Raises:
        UsageError: the record holds no such decision to begin with.
    """
    first, n_decisions = options.from_decision, len(recorded.decisions)
    if not 1 <= first <= n_decisions:
        raise UsageError(
            f"the path has {n_decisions} decisions, and the replay is to begin at {first}",
            where=recorded.session_id,
        )
    state = ShadowState(
        recorded=recorded,
        options=options,
        command=_NOTHING,
        is_on_track=True,
        base=None,
        turns=_NO_TURNS,
        used=Cursor(),
        decisions=Log(),
        served=Log(),
    )
    return _ask(state, first)


_NO_TURNS: Log[Turn] = Log()
_NOTHING = AskModel(0, None, None, _NO_TURNS, is_rebuilt=False)


def step(state: ShadowState, reply: Reply) -> tuple[ShadowState, Command]:
    """Take the reply to a state's command.

    Raises:
        UsageError: the reply is not one to this command; the state stays usable.
    """
    command = state.command
    match command:
        case AskModel():
            if isinstance(reply, ModelReply):
                return _take_decision(state, command, reply)
        case ServeEvidence():
            if isinstance(reply, Evidence):
                return _take_evidence(state, command, reply)
        case FindNearest():
            if isinstance(reply, Nearest):
                stop = Stop.UNFAITHFUL if command.missing.why in UNFAITHFUL else Stop.NO_ANSWER
                return _finish(state, stop, command.missing, reply.call)
        case Done():
            pass
        case _ as never:
            assert_never(never)
    raise UsageError(f"{type(reply).__name__} is no reply to {type(command).__name__}")


def _give(state: ShadowState, command: Command, **changes: Any) -> tuple[ShadowState, Command]:
    return msgspec.structs.replace(state, command=command, **changes), command


def _ask(state: ShadowState, decision: int) -> tuple[ShadowState, Command]:
    """Ask for a decision, with the recorded request while there is one that fits."""
    recorded = state.recorded.get(decision)
    model = None if recorded is None else recorded.model
    if recorded is not None and recorded.request is not None and state.is_on_track:
        base = recorded.request
        command = AskModel(decision, base, base, _NO_TURNS, is_rebuilt=False, recorded_model=model)
        state = msgspec.structs.replace(
            state, command=command, base=base, turns=_NO_TURNS, pending=_NO_DECISION
        )
        return state, command
    turns = (
        state.turns if state.pending is _NO_DECISION else state.turns.add(_turn(state, recorded))
    )
    command = AskModel(decision, None, state.base, turns, is_rebuilt=True, recorded_model=model)
    return _give(state, command, turns=turns, pending=_NO_DECISION)


def _turn(state: ShadowState, following: RecordedDecision | None) -> Turn:
    """Make a turn of the decision whose calls were all served."""
    pending = state.pending
    users = () if following is None else following.users
    return Turn(pending.decision, pending.reply.text, pending.reply.calls, pending.results, users)


def _take_decision(
    state: ShadowState, command: AskModel, reply: ModelReply
) -> tuple[ShadowState, Command]:
    """Compare an answer with the record, and go on to its first call."""
    run, decision = state.recorded, command.decision
    recorded = run.get(decision)
    reply, signature, form = _read_reply(reply, run.mode)
    ends = reply.is_final and _ends_run(state, recorded, reply)
    # Where the record stops at a decision that did not end the run, it does not say what came
    # next: an end at this very place is no difference.
    if ends and (run.is_ended or decision != len(run.decisions)):
        signature = msgspec.structs.replace(signature, is_final=True)
    found: ModelReply | None = reply
    is_on_track, used = False, state.used
    if recorded is not None and recorded.signature == signature:
        signature, found, is_on_track = recorded.signature, None, state.is_on_track
        if form == DecisionForm(recorded.form.text, recorded.form.arguments):
            form = recorded.form  # it states no call ids, and differs in nothing that is counted
    elif state.is_on_track:
        store = run.evidence
        used = Cursor((store.used_by(store.count_before(decision)),))
    decided = ReplayedDecision(decision, signature, form, command.is_rebuilt, reply.model, found)
    pending = _Pending(decision, reply, signature, ends)
    return _serve_next(
        msgspec.structs.replace(
            state,
            is_on_track=is_on_track,
            used=used,
            decisions=state.decisions.add(decided),
            pending=pending,
        )
    )


def _read_reply(reply: ModelReply, mode: str) -> tuple[ModelReply, DecisionSignature, DecisionForm]:
    """Sign an answer as the record is signed; termination is for the caller to judge."""
    text = written = EMPTY_TEXT
    if reply.text:
        parts = split_text(reply.text, mode)
        if parts.call is not None and not reply.calls:
            call = CallAsked(parts.call.tool, parts.call.arguments)
            reply = msgspec.structs.replace(reply, calls=(call,))
        written = text_digest(reply.text)
        text = written if parts.rest is reply.text else text_digest(parts.rest)
    signed, sources, call_ids = [], [], []
    for call in reply.calls:
        digests = argument_digests(call.arguments, call.arguments_text)
        signed.append(CallSignature(call.tool, digests.value))
        sources.append(digests.source)
        call_ids.append(call.call_id)
    form = DecisionForm(written, tuple(sources), tuple(call_ids) if any(call_ids) else ())
    return reply, DecisionSignature(text, tuple(signed), is_final=False), form


def _ends_run(state: ShadowState, recorded: RecordedDecision | None, reply: ModelReply) -> bool:
    """Say whether a final answer ends the run, and not its turn alone."""
    if state.options.is_end_stated:
        return True
    goes_on = (
        recorded is not None and not recorded.signature.calls and not recorded.signature.is_final
    )
    return not reply.calls and not goes_on


def _serve_next(state: ShadowState) -> tuple[ShadowState, Command]:
    """Serve the next call of the pending decision, or go on to the next decision."""
    pending = state.pending
    calls, place = pending.reply.calls, len(pending.results)
    if place == len(calls):
        return _after_calls(state)
    call, cell = calls[place], _find_cell(state)
    if isinstance(cell, Gap):
        return _miss(state, call, cell)
    if cell.gap is not None:
        return _miss(state, call, cell.gap)
    command = ServeEvidence(pending.decision, call, cell)
    return msgspec.structs.replace(state, command=command), command


def _find_cell(state: ShadowState) -> Cell | Gap:
    """Find the next answer of the key of the pending decision's next call.

    On the recorded path that is the answer of the recorded call itself: every call before it asked
    for, and got, its own.
    """
    pending, store = state.pending, state.recorded.evidence
    place = len(pending.results)
    if state.is_on_track:
        return store.find_cell(pending.decision, place) or Gap.NOT_RECORDED
    key = pending.signature.calls[place]
    numbers = store.find_cells(key.tool, key.arguments)
    if not numbers:
        return Gap.NOT_RECORDED
    used = state.used.get(numbers[0])
    return store.cells[numbers[used]] if used < len(numbers) else Gap.USED_UP


def _take_evidence(
    state: ShadowState, command: ServeEvidence, reply: Evidence
) -> tuple[ShadowState, Command]:
    """Check what was read, and serve it."""
    pending, cell = state.pending, command.cell
    answer = open_evidence(cell, reply.event)
    if answer is None:
        return _miss(state, command.call, Gap.ALTERED)
    served = ServedCall(
        command.decision, cell.call_id, cell.tool, cell.status, answer.result, answer.seq
    )
    used = state.used
    if not state.is_on_track:
        first = state.recorded.evidence.find_cells(cell.tool, cell.arguments)[0]
        used = used.set(first, used.get(first) + 1)
    results = (*pending.results, served)
    pending = _Pending(pending.decision, pending.reply, pending.signature, pending.ends, results)
    return _serve_next(
        msgspec.structs.replace(state, used=used, served=state.served.add(served), pending=pending)
    )


def _after_calls(state: ShadowState) -> tuple[ShadowState, Command]:
    """Go on to the next decision, or end the run."""
    pending, n_recorded = state.pending, len(state.recorded.decisions)
    if pending.ends:
        return _finish(state, Stop.TERMINAL)
    if pending.decision >= n_recorded and not state.recorded.is_ended:
        return _finish(state, Stop.RECORD_END)
    if pending.decision >= n_recorded + state.options.extra:
        return _finish(state, Stop.EXTRA_LIMIT)
    return _ask(state, pending.decision + 1)


def _miss(state: ShadowState, call: CallAsked, why: Gap) -> tuple[ShadowState, Command]:
    """Stop at a call that has no answer, after looking for the nearest recorded call."""
    pending, store = state.pending, state.recorded.evidence
    key = pending.signature.calls[len(pending.results)]
    missing = MissingCall(
        decision=pending.decision,
        tool=call.tool,
        arguments=arguments_value(call.arguments, call.arguments_text),
        why=why,
        recorded=len(store.find_cells(key.tool, key.arguments)),
    )
    return _give(state, FindNearest(missing, store.candidates(call.tool)))


def _finish(
    state: ShadowState,
    stop: Stop,
    missing: MissingCall | None = None,
    nearest: NearestCall | None = None,
) -> tuple[ShadowState, Command]:
    run = ShadowRun(
        first=state.options.from_decision,
        decisions=tuple(state.decisions),
        served=tuple(state.served),
        stop=stop,
        missing=missing,
        nearest=nearest,
        unused=_find_unused(state),
    )
    return _give(state, Done(run), pending=_NO_DECISION)


def _find_unused(state: ShadowState) -> tuple[Cell, ...]:
    """List the recorded answers that no call asked for."""
    pending, store = state.pending, state.recorded.evidence
    if not state.is_on_track:
        return store.find_unused(state.used.merged())
    left = store.cells[store.count_before(pending.decision) + len(pending.results) :]
    return tuple(cell for cell in left if cell.gap is None)
