"""Shows one session: what is known of it, its actors, branches, timeline and steps.

Gives values one at a time, so that a session of any size can be shown. Must not know how they are
written, nor how closure is found: the audit's marks are an argument.

Source: DESIGN.md §8 `show`.
"""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import UnsetType

from redrive.app.effects import CONFLICTING, DENIED, NO_RESULT
from redrive.app.excerpts import excerpt
from redrive.app.survey import Survey, time_of
from redrive.audit.arguments import arguments_text
from redrive.audit.report import AuditReport
from redrive.record.branches import Branch, count_branches, find_branches
from redrive.record.event import (
    FLAG_INHERITED,
    Event,
    Kind,
    ModelResponse,
    ToolCall,
    ToolPermission,
    ToolResult,
    Usage,
    payload_of,
)
from redrive.record.pairing import pair_path
from redrive.record.session import IS_DECISION, NO_NODE, NO_TS
from redrive.record.summary import larger_usage, main_actor
from redrive.record.trajectory import Step, Trajectory
from redrive.reports.times import time_or_none
from redrive.reports.views import (
    ActorView,
    BranchView,
    CallView,
    ClosureMark,
    MissingView,
    SessionView,
    StepView,
)

LIVE, DISCARDED, FURTHER_ROOT = "live", "discarded", "further root"


def view_survey(survey: Survey, view: SessionView) -> SessionView:
    """Add to a listed session what only its events tell: how it ended, and its forks counted."""
    branches = count_branches(survey.places, main_actor(survey.index))
    return msgspec.structs.replace(view, outcome=survey.opened.outcome, branches=branches)


def actors_of(session: Survey) -> list[ActorView]:
    """List the flows of execution that have nodes, in order of appearance."""
    index = session.index
    nodes = [0] * len(index.actors)
    firsts: dict[int, int] = {}
    decisions = [0] * len(index.actors)
    calls = [0] * len(index.actors)
    for node, actor in enumerate(index.node_actor):
        firsts.setdefault(actor, node)
        nodes[actor] += 1
        is_first = index.node_group[node] == node
        decisions[actor] += bool(index.node_role[node] & IS_DECISION and is_first)
    for seq in index.seqs_of(Kind.TOOL_CALL):
        if index.event_node[seq] != NO_NODE:
            calls[index.node_actor[index.event_node[seq]]] += 1
    heads = {b.actor: b.leaf for b in find_branches(session.places) if b.is_live}
    return [
        ActorView(
            actor=index.actors[actor],
            nodes=nodes[actor],
            decisions=decisions[actor],
            tool_calls=calls[actor],
            head_node=_node_name(session, heads.get(index.actors[actor])),
            started_at=_hanging_off(session, first),
        )
        for actor, first in sorted(firsts.items())
    ]


def _node_name(session: Survey, node: int | None) -> str | None:
    return None if node is None else session.index.node_ids[node]


def _hanging_off(session: Survey, first: int) -> str | None:
    """Give the node of another actor that an actor's first node hangs off."""
    index = session.index
    parent = index.node_parent[first]
    is_other = parent >= 0 and index.node_actor[parent] != index.node_actor[first]
    return index.node_ids[parent] if is_other else None


def branches_of(session: Survey) -> Iterator[BranchView]:
    """Yield every branch of every actor, its live path first."""
    index = session.index
    for branch in find_branches(session.places):
        newest = index.node_ts[branch.leaf]
        yield BranchView(
            actor=branch.actor,
            leaf=index.node_ids[branch.leaf],
            steps=branch.n_steps,
            own_steps=branch.n_own_steps,
            state=_state(branch),
            fork=_node_name(session, branch.fork),
            start=index.node_ids[branch.start],
            last=None if newest == NO_TS else time_or_none(newest),
        )


def _state(branch: Branch) -> str:
    if branch.is_live:
        return LIVE
    return FURTHER_ROOT if branch.fork is None else DISCARDED


def steps_of(
    session: Survey, trajectory: Trajectory, closures: Mapping[int, ClosureMark]
) -> Iterator[StepView]:
    """Yield the decisions of a path, root first.

    Args:
        session: the session.
        trajectory: n decisions of it.
        closures: step → what the audit says of it; a step that is not in it has no mark.
    """
    pairing = pair_path(session.index, trajectory, session.reader)
    for step in trajectory.steps:
        denied = _denied_calls(session, step)
        calls = []
        for event in session.reader.read_events(step.calls):
            answer = pairing.answers.get(event.seq)
            is_conflicting = event.seq in pairing.conflicts
            missing = CONFLICTING if is_conflicting else NO_RESULT
            fallback = DENIED if event.call_id in denied else missing
            calls.append(_view_call(session, event, answer, fallback))
        yield _view_step(session, step, tuple(calls), closures.get(step.step))


def _denied_calls(session: Survey, step: Step) -> set[str | None]:
    found = set()
    for event in session.reader.read_events(step.attached):
        if event.kind is Kind.TOOL_PERMISSION:
            permission: ToolPermission = payload_of(event)
            if permission.decision == DENIED:
                found.add(event.call_id)
    return found


def _view_call(session: Survey, event: Event, answer: int | None, fallback: str) -> CallView:
    call: ToolCall = payload_of(event)
    arguments = arguments_text(call)
    result: ToolResult | None = None if answer is None else session.payload(answer)
    status = fallback if result is None or fallback == DENIED else result.status
    size = None
    if result is not None and not isinstance(result.result, UnsetType):
        size = len(bytes(result.result))
    return CallView(
        seq=event.seq,
        tool=call.tool,
        status=status,
        arguments=None if arguments is None else excerpt(arguments),
        call_id=event.call_id,
        result_seq=answer,
        exit_code=None if result is None else result.exit_code,
        result_bytes=size,
        provider_side=call.is_provider_side,
    )


def _view_step(
    session: Survey, step: Step, calls: tuple[CallView, ...], closure: ClosureMark | None
) -> StepView:
    texts, reasonings = [], []
    usage: Usage | None = None
    model = ts = None
    is_inherited = False
    for event in session.reader.read_events(step.responses):
        response: ModelResponse = payload_of(event)
        texts += [response.text] if response.text else []
        reasonings += [response.reasoning] if response.reasoning else []
        model = response.model or model
        ts = ts or time_of(event)
        is_inherited = is_inherited or FLAG_INHERITED in event.flags
        usage = _merged(usage, response.usage)
    return StepView(
        step=step.step,
        node_id=step.node_id,
        ts=ts,
        model=model,
        text=excerpt("\n".join(texts)) if texts else None,
        reasoning=excerpt("\n".join(reasonings)) if reasonings else None,
        calls=calls,
        usage=usage,
        closure=closure,
        inherited=is_inherited,
    )


def _merged(known: Usage | None, stated: Usage | None) -> Usage | None:
    """Take the final usage of those that the pieces of one answer state."""
    if known is None or stated is None:
        return stated if known is None else known
    return larger_usage(known, stated)


def closure_marks(report: AuditReport) -> dict[int, ClosureMark]:
    """Give the audit's marks by step."""
    return {
        step.step: ClosureMark(
            step.status,
            step.decision_closed,
            tuple(MissingView(gap.input_class.value, gap.what) for gap in step.missing),
        )
        for step in report.steps
    }
