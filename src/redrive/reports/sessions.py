"""Writes lists of sessions, one session, and matches as lines of text.

Knows views and words. Must not know where they come from. Text from a recording is escaped here.
"""

from collections.abc import Iterable, Iterator

from redrive.record.event import Usage
from redrive.record.trajectory import PathBreak
from redrive.reports.counts import counted
from redrive.reports.escape import cut, escape
from redrive.reports.views import (
    ActorView,
    BranchView,
    CallView,
    ClosureMark,
    Excerpt,
    MatchView,
    SessionList,
    SessionView,
    StepView,
    ThreadView,
    TimelineEntry,
)

_TASK_CHARS = 100
_TEXT_CHARS = 500
_NO_TIME = "no time recorded"
_USAGE_WORDS = {
    "input_tokens": "in",
    "output_tokens": "out",
    "cache_read_tokens": "cache read",
    "cache_write_tokens": "cache write",
    "reasoning_tokens": "reasoning",
}
_BREAKS = {
    "cycle": "parent links form a cycle",
    "broken_chain": "a parent is not recorded",
}
_MARKS = ("discarded", "inherited")


def usage_text(usage: Usage | None) -> str:
    """Write token counts and cost, each only where it was recorded."""
    if usage is None:
        return "tokens not recorded"
    parts = [
        f"{word} {getattr(usage, name)}"
        for name, word in _USAGE_WORDS.items()
        if getattr(usage, name) is not None
    ]
    if not parts and usage.total_tokens is not None:
        parts = [f"total {usage.total_tokens}"]
    tokens = f"tokens {', '.join(parts)}" if parts else "tokens not recorded"
    return tokens if usage.cost_usd is None else f"{tokens}; cost {escape(usage.cost_usd)} USD"


def excerpt_text(excerpt: Excerpt, limit: int = _TEXT_CHARS) -> str:
    """Write an excerpt on one line."""
    text = excerpt.text.strip()
    if excerpt.chars is None and len(text) <= limit:
        return escape(text)
    chars = len(text) if excerpt.chars is None else excerpt.chars
    return f"{escape(text[:limit])}… ({chars} characters)"


def session_list_lines(listed: SessionList) -> Iterator[str]:
    """Yield the lines of `sessions`: each thread with its sessions, oldest first."""
    views = {view.session_id: view for view in listed.sessions}
    for thread in listed.threads:
        is_alone = len(thread.sessions) == 1
        if not is_alone:
            yield f"thread {escape(thread.thread)}: {counted(len(thread.sessions), 'session')}"
        for session_id in thread.sessions:
            is_old = f"{session_id}@2" in thread.sessions  # the id alone opens the newest revision
            lines = _listed(views[session_id], f"{session_id}@1" if is_old else session_id)
            yield from lines if is_alone else (f"  {line}" for line in lines)
    for damaged in listed.damaged:
        if damaged.session_id not in views:
            yield f"{escape(damaged.session_id)}  DAMAGED: {escape(damaged.fault)}"
    sessions, threads = counted(len(views), "session"), counted(len(listed.threads), "thread")
    n_damaged = len(listed.damaged)
    yield f"{sessions} in {threads}" + (f", {n_damaged} damaged" if n_damaged else "")


def _listed(view: SessionView, name: str) -> Iterator[str]:
    yield f"{escape(name)}  {_span(view)}"
    if view.damage:
        yield f"    DAMAGED: {escape(view.damage)}"
    if view.task:
        yield f"    task  {cut(view.task, _TASK_CHARS)}"
    yield f"    {_counts(view)}; {usage_text(view.usage)}"
    yield f"    {_state(view)}, revision {view.revision}, head {view.head[:16]}"


def _span(view: SessionView) -> str:
    if view.first is None or view.last is None:
        return _NO_TIME
    return view.first if view.first == view.last else f"{view.first} – {view.last}"


def _counts(view: SessionView) -> str:
    counts = (
        (view.events, "event", None),
        (view.model_calls, "model call", None),
        (view.tool_calls, "tool call", None),
        (view.tool_results, "result", None),
        (view.branches, "branch", "branches"),
    )
    return ", ".join(counted(n, one, many) for n, one, many in counts if n is not None)


def _state(view: SessionView) -> str:
    if view.recorder == "recording":
        return "recording now"
    state = "complete" if view.complete else "incomplete"
    if view.complete is None:
        state = "completeness not known"
    return state if view.recorder is None else f"recorder {escape(view.recorder)}, {state} so far"


def header_lines(view: SessionView) -> Iterator[str]:
    """Yield what is known of one session as a whole."""
    yield f"Session   {escape(view.session_id)} (revision {view.revision}, {view.format})"
    yield f"Head      {view.head}"
    if view.task:
        yield f"Task      {cut(view.task, _TEXT_CHARS)}"
    agent = " ".join(filter(None, (view.agent, view.agent_version)))
    for label, value in (
        ("Agent", agent),
        ("Folder", view.cwd),
        ("Git", view.git),
        ("Parent", view.parent_session),
        ("Outcome", view.outcome),
    ):
        if value:
            yield f"{label:<9} {escape(value)}"
    yield f"Time      {_span(view)}"
    yield f"Counts    {_counts(view)}"
    yield f"Usage     {usage_text(view.usage)}"
    yield f"Record    {_state(view)}{_orphans(view)}{_broken(view)}"


def _broken(view: SessionView) -> str:
    return "" if view.broken is None else f", {_BREAKS.get(view.broken, escape(view.broken))}"


def break_lines(breaks: PathBreak | None) -> Iterator[str]:
    """Yield where the path that is shown stops short of a root, if it does."""
    if breaks is None:
        return
    node, missing = escape(breaks.node_id), escape(breaks.missing)
    if breaks.what == "cycle":
        yield f"Broken    cycle: node {node} names as its parent {missing}, which is below it"
    else:
        yield f"Broken    broken chain: node {node} names as its parent {missing}, not recorded"


def _orphans(view: SessionView) -> str:
    parts = [
        f"{counted(count, noun)} {what}"
        for count, noun, what in (
            (view.orphan_calls, "call", "without a result"),
            (view.orphan_results, "result", "without a call"),
            (view.inherited, "event", "copied from a parent session"),
        )
        if count
    ]
    return "".join(f", {part}" for part in parts)


def thread_lines(thread: ThreadView, session_id: str) -> Iterator[str]:
    """Yield the thread that a session belongs to, where it is not alone in it."""
    if len(thread.sessions) == 1:
        return
    yield ""
    yield f"Thread    {escape(thread.thread)}"
    for name in thread.sessions:
        yield f"  {'*' if name == session_id else '-'} {escape(name)}"


def actor_lines(actors: Iterable[ActorView]) -> Iterator[str]:
    """Yield the flows of execution."""
    yield ""
    yield "Actors"
    for actor in actors:
        line = (
            f"  {escape(actor.actor)}: {counted(actor.decisions, 'decision')},"
            f" {counted(actor.tool_calls, 'tool call')}, {counted(actor.nodes, 'node')}"
        )
        if actor.head_node:
            line += f", head {escape(actor.head_node)}"
        yield line if not actor.started_at else f"{line}, started at {escape(actor.started_at)}"


def branch_lines(branches: Iterable[BranchView]) -> Iterator[str]:
    """Yield every branch, the live one of each actor first."""
    yield ""
    yield "Branches"
    for branch in branches:
        line = f"  {escape(branch.actor)}  {branch.state}: {counted(branch.steps, 'step')}"
        if branch.fork:
            line += f", {branch.own_steps} after the fork at {escape(branch.fork)}"
        line += f", leaf {escape(branch.leaf)}"
        yield line if branch.last is None else f"{line}, last {branch.last}"


def step_lines(steps: Iterable[StepView]) -> Iterator[str]:
    """Yield the decisions of the path that is shown, each with its closure, tokens and calls."""
    yield ""
    yield "Steps"
    for step in steps:
        yield " ".join(
            filter(
                None,
                (
                    f"  {step.step}",
                    step.ts or _NO_TIME,
                    _closure(step.closure),
                    escape(step.model) if step.model else "",
                    f"({usage_text(step.usage)})" if step.usage is not None else "",
                    "(copied from the parent session)" if step.inherited else "",
                    f"node {escape(step.node_id)}",
                ),
            )
        )
        if step.text is not None:
            yield f"      says: {excerpt_text(step.text)}"
        elif step.reasoning is not None:
            yield f"      thinks: {excerpt_text(step.reasoning)}"
        for call in step.calls:
            yield f"      {_call(call)}"


def _closure(mark: ClosureMark | None) -> str:
    if mark is None:
        return "[not audited]"
    if mark.status == "closed":
        return "[closed]"
    classes = ", ".join(dict.fromkeys(missing.input_class for missing in mark.missing))
    claim = "decision-closed, " if mark.decision_closed else ""
    return f"[open: {claim}missing {classes}]" if classes else "[open]"


def _call(call: CallView) -> str:
    arguments = "" if call.arguments is None else f" {excerpt_text(call.arguments, 2000)}"
    code = "" if call.exit_code is None else f", exit {call.exit_code}"
    size = "" if call.result_bytes is None else f", {counted(call.result_bytes, 'byte')}"
    return f"{escape(call.tool)}{arguments} → {escape(call.status)}{code}{size}"


def timeline_lines(entries: Iterable[TimelineEntry]) -> Iterator[str]:
    """Yield what happened, one line per event."""
    yield ""
    yield "Timeline"
    for entry in entries:
        step = "" if entry.step is None else f"step {entry.step}"
        marks = [word for word in _MARKS if getattr(entry, word)]
        line = (
            f"  {entry.ts or _NO_TIME}  {escape(entry.actor):<8}  {step:<8}  {entry.kind:<16}"
            f"  {escape(entry.what)}"
        )
        if entry.status is not None:
            line += f" → {escape(entry.status)}"
        yield f"{line}  [{', '.join(marks)}]" if marks else line


def match_lines(matches: Iterable[MatchView]) -> Iterator[str]:
    """Yield the lines that match, grouped by session."""
    session_id = None
    for match in matches:
        if match.session_id != session_id:
            session_id = match.session_id
            yield escape(session_id)
        step = "" if match.step is None else f" step {match.step}"
        tool = "" if match.tool is None else f" {escape(match.tool)}"
        mark = " [discarded]" if match.discarded else ""
        yield (
            f"  {match.seq}{step} {escape(match.actor)} {match.kind}{tool}"
            f" {escape(match.field)}:{match.line}{mark}: {escape(match.text)}"
        )
