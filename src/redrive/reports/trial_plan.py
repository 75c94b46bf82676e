"""What a trial will be, shown as text before it starts.

Knows the document of a preview. Must not know how it was made.

Source: DESIGN.md §8 `trial plan`.
"""

from collections.abc import Iterator, Sequence

from redrive.compare.trial_preview import (
    FREE,
    CostLine,
    TaskPreview,
    TimeLine,
    TrialPreview,
    VariantPreview,
)
from redrive.reports.counts import counted
from redrive.reports.escape import cut
from redrive.reports.trial_words import PURPOSES, seconds

SHOWN_TASKS = 20
_NAME_CHARS = 200
_TEXT_CHARS = 300
_BASES = {
    "recorded": "from what the recorded runs used",
    "partly recorded": "from what some of the recorded runs used, the others taken as their mean",
    "limits": "nothing is recorded: a bound, not an expectation",
    "free": "nothing that is asked costs anything",
}


def preview_lines(preview: TrialPreview) -> Iterator[str]:
    """Yield the lines of a preview: size, cost, time, what it can show, who may run."""
    yield f"Trial {_name(preview.name)}, plan {preview.plan_digest[:12]}: nothing is started yet"
    yield from headline(preview)
    yield f"Isolation  {_name(preview.isolation or 'not looked at')} is proven here"
    yield ""
    for variant in preview.variants:
        yield from _variant_lines(variant)
    yield ""
    yield from _task_lines(preview.tasks)
    graders = ", ".join(f"{_name(name)} ({_name(kind)})" for name, kind in preview.graders)
    yield f"Graders  {graders or 'none'}"
    for note in preview.notes:
        yield f"Note  {cut(note, _TEXT_CHARS)}"


def headline(preview: TrialPreview) -> Iterator[str]:
    """Yield what must be known before a trial starts: size, cost, time, what it can show."""
    sizes = (
        counted(preview.n_variants, "variant"),
        counted(preview.n_tasks, "task"),
        counted(preview.attempts, "attempt"),
    )
    yield f"Runs   {' × '.join(sizes)} = {preview.planned}"
    yield f"Calls  {counted(preview.judge_calls, 'judge call')} at most"
    most = "at most " if preview.is_bound else "about "
    yield f"Cost   {most}USD {preview.estimate_usd} in all"
    for line in preview.costs:
        yield f"  {_cost(line)}"
    yield f"Time   {_time(preview.time)}"
    yield f"Shows  {_margin(preview)}"


def _cost(line: CostLine) -> str:
    purpose = PURPOSES.get(line.purpose, _name(line.purpose))
    if line.basis == FREE:
        return f"{purpose}: USD 0.00: {_BASES[FREE]}"
    most = "at most " if line.is_bound else "about "
    ceiling = "no ceiling" if line.ceiling_usd is None else f"ceiling USD {line.ceiling_usd}"
    calls = counted(line.calls, "model call")
    return (
        f"{purpose}: {most}USD {line.estimate_usd}, never more than USD {line.bound_usd}"
        f" ({ceiling}); at most {calls}; {_BASES[line.basis]}"
    )


def _time(line: TimeLine) -> str:
    most = "at most " if line.is_bound else "about "
    beside = counted(line.parallel, "run") + " at a time"
    runs = f"{seconds(line.runs_s)} of runs"
    return f"{most}{seconds(line.wall_s)} with {beside} ({runs}); {_BASES[line.basis]}"


def _margin(preview: TrialPreview) -> str:
    if preview.smallest_margin is None:
        return "no difference: nothing is compared"
    tasks = counted(preview.n_tasks, "task")
    gate = f"; gate: {_name(preview.gate)}" if preview.gate else ""
    return f"{tasks} can show a margin of {preview.smallest_margin:.3f} at best{gate}"


def _variant_lines(variant: VariantPreview) -> Iterator[str]:
    role = f", {_name(variant.role)}" if variant.role else ""
    head = f"{_name(variant.variant)} ({_name(variant.source)}{role})"
    if variant.eligible:
        tools = ", ".join(map(_name, variant.tools)) or "no tools"
        yield f"{head}: eligible at {variant.isolation} and above; {tools}"
    else:
        yield f"{head}: INELIGIBLE, nothing of this plan runs"
    for refusal in variant.refusals:
        chain = " → ".join(map(_name, refusal.chain))
        what = f"{_name(refusal.tool)} ({_name(refusal.effect)})"
        yield f"  {what}: {cut(refusal.reason, _TEXT_CHARS)}"
        yield f"    reached by {chain}"
    if variant.simulated:
        yield f"  simulated: {', '.join(map(_name, variant.simulated))}"


def _task_lines(tasks: Sequence[TaskPreview]) -> Iterator[str]:
    for task in tasks[:SHOWN_TASKS]:
        place = "no workspace" if task.workspace is None else f"{task.workspace} workspace"
        wanted = "" if task.has_expected else ", nothing is expected"
        yield f"{task.task_id}  {_name(task.name)}: {_name(task.origin)}, {place}{wanted}"
        for note in task.environment.notes:
            yield f"  {cut(note, _TEXT_CHARS)}"
    if len(tasks) > SHOWN_TASKS:
        yield f"… {counted(len(tasks) - SHOWN_TASKS, 'more task')}, in --json"


def _name(text: str) -> str:
    return cut(text, _NAME_CHARS)
