"""A trial shown as text: the matrix of variants and tasks, the ranking, and what it cost.

Knows the document of a report. Must not know how it was made. Text of workflows and recordings is
escaped and cut; what is cut says so, and is full in JSON.

Source: DESIGN.md §6, §8 `trial report`.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice

from redrive.compare.gate import GateResult
from redrive.compare.passes import PassRate
from redrive.compare.trial_document import Cell, GraderReport, GradingReport, VariantGrade
from redrive.compare.trial_report import RunView, TrialReport
from redrive.replay.money import add
from redrive.reports.counts import counted
from redrive.reports.escape import cut
from redrive.reports.trial_words import (
    OUTCOMES,
    PURPOSES,
    gate_line,
    interval,
    percent,
    seconds,
    spend_line,
)

SHOWN_TASKS = 200
SHOWN_ITEMS = 20
_NAME_CHARS = 200
_TASK_CHARS = 32
_TEXT_CHARS = 300
_MATRIX_COLUMNS = 110
_PASSED, _UNGRADED = {True: "+", False: "-", None: "?"}, "."


def trial_lines(report: TrialReport) -> Iterator[str]:
    """Yield the lines of a report: how far it came, the matrix, the ranking, the cost."""
    yield f"Trial {_name(report.trial_id or report.name)}  {progress(report)}"
    for stop in report.stopped:
        at = f" at the ceiling of {_name(stop.purpose)}" if stop.purpose else ""
        yield f"STOPPED{at}: {cut(stop.reason, _TEXT_CHARS)}"
    yield from _listed("not run", report.not_run)
    yield f"Isolation  {report.isolation or 'nothing ran'}; {counted(report.denied, 'denied call')}"
    yield ""
    yield from matrix_lines(report)
    if report.grading is not None:
        yield from _grading_lines(report.grading)
    yield ""
    yield from _cost_lines(report)
    yield ""
    yield from _denied_lines(report.runs)
    yield from _environment_lines(report)
    for note in report.notes:
        yield f"Note  {cut(note, _TEXT_CHARS)}"


def progress(report: TrialReport) -> str:
    """Say in one line how far a trial came."""
    n_variants, n_tasks = len(report.variants), len(report.tasks)
    size = f"{counted(n_variants, 'variant')} × {counted(n_tasks, 'task')}"
    return (
        f"{size}: {report.planned} planned, {report.started} started, {report.finished} finished,"
        f" {len(report.not_run)} not run"
    )


def matrix_lines(report: TrialReport) -> Iterator[str]:
    """Yield the matrix, a line a task; many variants stand in several tables below each other."""
    cells = _cells(report)
    labels = [entry.variant for entry in report.variants]
    shown = {label: _short(label) for label in labels}
    tasks = report.tasks[:SHOWN_TASKS]
    widths = {
        label: max(len(shown[label]), *(len(cells[task.task_id, label]) for task in tasks))
        for label in labels
    }
    for columns in _split(labels, widths):
        head = "  ".join(shown[label].ljust(widths[label]) for label in columns)
        yield f"{'task'.ljust(_TASK_CHARS)}  {head}".rstrip()
        for task in tasks:
            line = "  ".join(cells[task.task_id, label].ljust(widths[label]) for label in columns)
            yield f"{_task(task.name)}  {line}".rstrip()
        yield (
            f"{'all tasks'.ljust(_TASK_CHARS)}  "
            + "  ".join(_sum(report, label).ljust(widths[label]) for label in columns).rstrip()
        )
        yield ""
    left = len(report.tasks) - len(tasks)
    if left:
        yield f"… {counted(left, 'more task')}, in --json and --html"
    yield "cell: end, USD, time, !N denied calls, ~ simulated; + good, - bad, ? unknown, . ungraded"


def _split(labels: Sequence[str], widths: Mapping[str, int]) -> Iterator[list[str]]:
    """Take as many columns as fit beside each other."""
    columns: list[str] = []
    for label in labels:
        used = sum(widths[column] + 2 for column in columns)
        if columns and used + widths[label] > _MATRIX_COLUMNS:
            yield columns
            columns = []
        columns.append(label)
    yield columns


def _cells(report: TrialReport) -> dict[tuple[str, str], str]:
    """Write each cell of the matrix: all attempts of a variant at a task."""
    grades = first_grades(report)
    runs: dict[tuple[str, str], list[RunView]] = {}
    for run in report.runs:
        runs.setdefault((run.task_id, run.variant), []).append(run)
    return {place: _cell(own, grades) for place, own in runs.items()}


def first_grades(report: TrialReport) -> Mapping[tuple[str, str, int], Cell]:
    """Give what the first grader, which decides, says: by task, variant and attempt."""
    if report.grading is None or not report.grading.graders:
        return {}
    return {
        (row.task_id, cell.variant, cell.attempt): cell
        for row in report.grading.graders[0].tasks
        for cell in row.cells
    }


def _cell(runs: Sequence[RunView], grades: Mapping[tuple[str, str, int], Cell]) -> str:
    marks, words = [], []
    for run in runs:
        grade = grades.get((run.task_id, run.variant, run.attempt))
        marks.append(_UNGRADED if grade is None else _PASSED[grade.passed])
        words.append(OUTCOMES[run.outcome])
    ends = _attempts(words, "".join(marks) if grades else "")
    if not any(run.execution for run in runs):
        return ends
    cost = add(*(Decimal(run.cost_usd) for run in runs))
    took = [run.duration_s for run in runs if run.duration_s is not None]
    denied = sum(len(run.denied) for run in runs)
    parts = [ends, f"${cost:f}", seconds(sum(took) / len(took)) if took else "-"]
    parts += [f"!{denied}"] if denied else []
    parts += ["~"] if any(run.simulated for run in runs) else []
    return " ".join(parts)


def _attempts(words: Sequence[str], marks: str) -> str:
    """Write the attempts: how many ended in which way, and the marks in their order."""
    if len(words) == 1:
        return words[0] + marks.rstrip(_UNGRADED)
    ends = ",".join(f"{words.count(word)}×{word}" for word in dict.fromkeys(words))
    return f"{ends} {marks}".rstrip()


def _sum(report: TrialReport, label: str) -> str:
    (entry,) = (entry for entry in report.variants if entry.variant == label)
    took = "" if entry.duration_s is None else f" {seconds(entry.duration_s)}"
    return f"{entry.finished}/{entry.planned} ${entry.cost_usd}{took}"


def _grading_lines(grading: GradingReport) -> Iterator[str]:
    if grading.gate is not None:
        yield ""
        yield gate_line(grading.gate)
        yield from _gate_detail(grading.gate)
    for number, grader in enumerate(grading.graders):
        yield ""
        decides = ", decides" if number == 0 else ""
        yield f"Grader {_name(grader.grader)} ({_name(grader.kind)}{decides})"
        for entry in grader.variants:
            yield f"  {_short(entry.variant)}  {_grade(entry)}"
        yield from _ranking_lines(grader)
        yield from _doubt_lines(grader)
    if grading.simulated:
        yield "SIMULATED: figures marked ~ rest on tools that were simulated"


def _gate_detail(gate: GateResult) -> Iterator[str]:
    if gate.left_out:
        yield f"  left out: {counted(len(gate.left_out), 'task')} in which one has no score"


def _grade(entry: VariantGrade) -> str:
    parts = []
    if entry.judged:
        parts.append(f"{entry.successes} of {entry.judged} succeeded")
    if entry.mean_score is not None:
        parts.append(
            f"mean score {entry.mean_score:.3f} over {counted(entry.scored_tasks, 'task')}"
        )
    at_least, every = (
        [rate for rate in rates if rate.value is not None]
        for rates in (entry.pass_at, entry.pass_all)
    )
    few_and_many = [*at_least[:1], *at_least[1:][-1:]]
    parts += [f"pass@{rate.k} {_rate(rate)}" for rate in few_and_many]
    parts += [f"pass^{rate.k} {_rate(rate)}" for rate in every[1:][-1:]]
    parts += [f"~{entry.simulated} simulated"] if entry.simulated else []
    return ", ".join(parts) or "no score of its own"


def _rate(rate: PassRate) -> str:
    return interval(rate.value, rate.low, rate.high)


def _ranking_lines(grader: GraderReport) -> Iterator[str]:
    ranking = grader.ranking
    apart = len(ranking.groups) > 1
    for number, group in enumerate(ranking.groups, 1):
        which = f" group {number}, not comparable with the others" if apart else ""
        yield f"  ranking{which} ({group.model}, {counted(ranking.n_games, 'game')})"
        for entry in group.ratings:
            places = (
                f"{entry.rank}"
                if entry.best_rank == entry.worst_rank
                else f"{entry.rank} ({entry.best_rank}–{entry.worst_rank})"
            )
            wins = interval(entry.win_probability, entry.win_low, entry.win_high)
            tally = f"{entry.wins} won, {entry.ties} even, {entry.losses} lost"
            best = f"best in {percent(entry.p_best)}"
            yield f"    {places:<8}  {_short(entry.variant)}  wins {wins}  {tally}  {best}"
    for label in ranking.not_ranked:
        yield f"  not ranked: {_short(label)}: no game that counts"
    yield from _listed(
        "  no data", [f"{_short(one)} and {_short(other)}" for one, other in ranking.no_data]
    )


def _doubt_lines(grader: GraderReport) -> Iterator[str]:
    ranking = grader.ranking
    if ranking.n_inconclusive:
        yield f"  inconclusive: {counted(ranking.n_inconclusive, 'game')}, not counted"
    if ranking.n_position_dependent:
        n_games = counted(ranking.n_position_dependent, "tie")
        yield f"  position: {n_games} since the judge contradicted itself in another order"
    if grader.judge is not None:
        share = grader.judge
        yield f"  judge: {counted(share.judgements, 'judgement')}, {share.unreadable} unreadable"
    yield from _listed(
        "  not ranked",
        [
            f"{_task(gap.name).strip()} #{gap.attempt}: {cut(gap.reason, _TEXT_CHARS)}"
            for gap in grader.not_ranked
        ],
    )
    for note in grader.notes:
        yield f"  note: {cut(note, _TEXT_CHARS)}"


def _cost_lines(report: TrialReport) -> Iterator[str]:
    yield "Cost by purpose; a trial is the most expensive rung"
    for purpose, line in report.spend.items():
        yield f"  {PURPOSES.get(purpose, _name(purpose))}: {spend_line(line)}"
    if not report.spend:
        yield "  nothing was spent"
    for entry in report.variants:
        share = f"USD {entry.cost_usd} in {counted(entry.finished, 'finished run')}"
        yield f"  {_short(entry.variant)}: {share}"


def _denied_lines(runs: Sequence[RunView]) -> Iterator[str]:
    denied = [f"{_run(run)}: {call.tool}: {call.reason}" for run in runs for call in run.denied]
    yield from _listed("denied", denied)
    failed = [f"{_run(run)}: {run.outcome}: {run.error}" for run in runs if run.error]
    yield from _listed("failed", failed)


def _run(run: RunView) -> str:
    return f"{run.variant}, {run.task} #{run.attempt}"


def _environment_lines(report: TrialReport) -> Iterator[str]:
    for task in report.tasks:
        for note in task.environment.notes:
            yield f"{_task(task.name).strip()}: {cut(note, _TEXT_CHARS)}"


def _listed(what: str, lines: Sequence[str]) -> Iterator[str]:
    for line in islice(lines, SHOWN_ITEMS):
        yield f"{what}: {cut(line, _TEXT_CHARS)}"
    if len(lines) > SHOWN_ITEMS:
        yield f"{what}: … {len(lines) - SHOWN_ITEMS} more of {len(lines)}, in --json"


def _name(text: str) -> str:
    return cut(text, _NAME_CHARS)


def _short(label: str) -> str:
    return cut(label, _TASK_CHARS)


def _task(name: str) -> str:
    text = name if len(name) <= _TASK_CHARS else f"{name[: _TASK_CHARS - 1]}…"
    return cut(text, _TASK_CHARS).ljust(_TASK_CHARS)
