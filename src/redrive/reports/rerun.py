"""Reruns, shown as text.

Knows the document. Must not know how it was made. Text from a recording is escaped and cut.
"""

from collections.abc import Iterator

from redrive import canonical
from redrive.compare.rerun_difference import RerunDivergence
from redrive.compare.rerun_document import AgentEnd, FlowCounts, RerunDocument
from redrive.compare.rerun_verdict import CodeState, Finding
from redrive.reports.counts import counted
from redrive.reports.escape import escape

_CUT_CHARS = 300
_LISTED = 20
_NEXT = 3
MEANINGS = {
    Finding.IDENTICAL: "the agent's code asked for the same again, byte for byte",
    Finding.DIVERGENCE: "the agent's code asked for something else than the record holds",
    Finding.GAP: "the record does not hold what the agent's code asked for",
    Finding.UNKNOWN_INPUT: "the same code asked for something else: an input is not recorded",
}
_LIVE = "the run came to its end with a live model"


def rerun_lines(document: RerunDocument) -> Iterator[str]:
    """Yield the lines of a rerun: what it came to first."""
    is_live = document.model is not None
    is_same = document.finding is Finding.IDENTICAL
    meaning = _LIVE if is_live and is_same else MEANINGS[document.finding]
    word = "finished" if is_live and is_same else document.finding.value
    yield f"{escape(document.session_id)}  {word}: {meaning}"
    if document.divergence is not None:
        yield from _divergence_lines(document.divergence)
    served = document.served
    yield (
        f"  served: {counted(served.requests, 'request')}, {counted(served.calls, 'tool call')},"
        f" {counted(served.reads, 'read')}, {counted(served.values, 'derived value')},"
        f" {counted(served.others, 'other exchange')}; live calls: {document.live_calls}"
    )
    yield from _decision_lines(document)
    for flow in document.flows:
        yield f"  flow {escape(flow.name)}: {_flow(flow)}"
    if document.n_unserved:
        yield f"  in the record and not asked for: {document.n_unserved}"
        for left in document.unserved[:_NEXT]:
            yield f"    step {left.step} of {escape(left.flow)}: {left.kind} {escape(left.what)}"
    if document.control_flow == "not proved":
        yield "  control flow not proved: the agent read its own clock and dice"
    yield from _end_lines(document.agent)
    yield from _code_lines(document)
    yield from _proof_lines(document)
    for note in document.notes:
        yield f"  note: {escape(note)}"
    yield f"  head {document.head}"


def _divergence_lines(found: RerunDivergence) -> Iterator[str]:
    node = f" ({escape(found.node_id)})" if found.node_id else ""
    named = f" [{found.input_class}]" if found.input_class else ""
    where = f" at {escape(found.where)}" if found.where else ""
    yield f"  step {found.step} of {escape(found.flow)}{node}: {found.what.value}{named}{where}"
    yield f"    expected: {_shown(found.expected)}"
    yield f"    found:    {_shown(found.found)}"
    if found.reason:
        yield f"    {escape(found.reason)}"
    if found.nearest is not None and found.nearest.differs:
        yield f"    nearest recorded call differs in {escape(', '.join(found.nearest.differs))}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else canonical.encode(value).decode()
    return escape(text if len(text) <= _CUT_CHARS else f"{text[:_CUT_CHARS]}…")


def _decision_lines(document: RerunDocument) -> Iterator[str]:
    if document.model is None:
        return
    different = [decision for decision in document.decisions if not decision.equal]
    yield (
        f"  model {escape(document.model)}: {counted(len(document.decisions), 'decision')},"
        f" {len(different)} not as recorded"
    )
    for decision in different[:_LISTED]:
        yield f"    step {decision.step} of {escape(decision.flow)}:"
        yield f"      expected: {_shown(decision.expected or 'nothing')}"
        yield f"      found:    {_shown(decision.found or 'no call')}"


def _end_lines(agent: AgentEnd) -> Iterator[str]:
    """Say how the agent's code ended, where it did not simply come to its end."""
    if agent.exit_code:
        said = None if agent.error == f"exit {agent.exit_code}" else agent.error
        yield f"  the agent ended with exit {agent.exit_code}{_because(said)}"
    elif agent.error is not None:
        yield f"  the agent was ended by an error{_because(agent.error)}"


def _because(error: str | None) -> str:
    return "" if error is None else f": {_shown(error)}"


def _flow(flow: FlowCounts) -> str:
    return f"{flow.state}, {flow.requests} of {counted(flow.recorded_requests, 'request')}"


def _code_lines(document: RerunDocument) -> Iterator[str]:
    code = document.code
    if code.state is CodeState.UNKNOWN:
        yield "  code: not compared, one of the digests is not known"
    else:
        recorded, now = (code.recorded or "")[:12], (code.now or "")[:12]
        yield f"  code: {code.state.value} (recorded {recorded}, now {now})"
    for entry in document.environment[:_LISTED]:
        sides = f"{escape(entry.recorded)} → {escape(entry.given)}"
        yield f"  environment {escape(entry.field)}: {sides}"


def _proof_lines(document: RerunDocument) -> Iterator[str]:
    if document.proof is None:
        return
    for run in document.proof.runs:
        variant = run.variant
        yield (
            f"  under hash seed {variant.hash_seed}, {escape(str(variant.time_zone))},"
            f" {variant.n_cpus} cpu: {run.finding.value}"
        )
        if run.divergence is not None:
            yield from _divergence_lines(run.divergence)
    basis = document.proof.basis
    yield f"  basis: {basis}" if basis else "  basis: not proved by rerun"
