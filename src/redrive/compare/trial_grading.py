"""Sums up what graders say of a trial: successes, passes, ranking, gate, judge.

Knows grades as values, and which runs finished. Must not know where they come from, nor how a
report is shown.

Source: DESIGN.md §6 "Grading is group-wise", §8 "JSON contract".
"""

import math
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

import msgspec

from redrive.compare.gate import Gate, GateResult, find_sides, judge_gate
from redrive.compare.judging import measure_bias, reconcile
from redrive.compare.passes import PassEstimate, PassRate, average_passes, pass_all, pass_at
from redrive.compare.tournament import DEFAULT_RESAMPLES, PairOutcome, PairResult, rank
from redrive.compare.trial_document import (
    Cell,
    GraderReport,
    GradingReport,
    GroupGrade,
    NotRanked,
    TaskRow,
    VariantGrade,
    grade_key,
    split_key,
)
from redrive.replay.trial_values import RunKey

_MOST_PASSES = 10
_POINTS: Mapping[PairOutcome, float] = {"first": 1.0, "tie": 0.5, "second": 0.0}


class GradedTrial(msgspec.Struct, frozen=True):
    """What is summed up.

    Attributes:
        variants: label and role of each, in the plan's order.
        tasks: id and name of each, in the plan's order.
        attempts: runs of each variant on each task.
        graders: name and kind of each, in the plan's order; the first one decides.
        grades: at most one of each grader and task.
        finished: runs that came to an end, however.
        gate: what the first grader is to show.
        seed: of the resampling.
        resamples: how often tasks are drawn again.
        level: of the intervals, and of either bound of the gate.
    """

    variants: tuple[tuple[str, str], ...]
    tasks: tuple[tuple[str, str], ...]
    attempts: int
    graders: tuple[tuple[str, str], ...]
    grades: tuple[GroupGrade, ...]
    finished: Collection[RunKey]
    gate: Gate | None = None
    seed: int = 0
    resamples: int = DEFAULT_RESAMPLES
    level: float = 0.95

    @property
    def labels(self) -> tuple[str, ...]:
        """The variants' labels."""
        return tuple(label for label, _ in self.variants)

    def of_grader(self, name: str) -> dict[str, GroupGrade]:
        """Give a grader's grades: task id → grade, in the plan's order of tasks."""
        found = {grade.task_id: grade for grade in self.grades if grade.grader == name}
        return {task: found[task] for task, _ in self.tasks if task in found}


def sum_up(trial: GradedTrial) -> GradingReport:
    """Sum up all graders.

    Raises:
        UsageError: the gate names no variant, or a role that several have.
    """
    reports = tuple(_sum_up_grader(trial, name, kind) for name, kind in trial.graders)
    is_simulated = any(report.simulated for report in reports)
    if trial.gate is None or not reports:
        return GradingReport(reports, None, "", gate_simulated=False, simulated=is_simulated)
    gate, basis = _judge(trial, trial.gate, trial.of_grader(trial.graders[0][0]))
    rests = any(
        graded.simulated
        for graded in reports[0].variants
        if graded.variant in (gate.one, gate.other)
    )
    return GradingReport(reports, gate, basis, gate_simulated=rests, simulated=is_simulated)


def games_of(grade: GroupGrade) -> tuple[PairResult, ...]:
    """Give the games of a grade: its own, else those that its orders or its scores tell.

    By scores, the higher one wins, equal ones are tied, and where one of them is not known the game
    is inconclusive. Only episodes of the same attempt meet.
    """
    if grade.pairs:
        return grade.pairs
    if grade.orders:
        return reconcile(grade.task_id, grade.orders)
    scored = sorted((attempt, variant) for variant, attempt in map(split_key, grade.scores))
    return tuple(
        PairResult(grade.task_id, one, other, _outcome(grade, one, other, attempt), attempt)
        for (attempt, one), (again, other) in combinations(scored, 2)
        if attempt == again
    )


def _outcome(grade: GroupGrade, one: str, other: str, attempt: int) -> PairOutcome:
    mine, theirs = (grade.scores[grade_key(variant, attempt)] for variant in (one, other))
    if mine is None or theirs is None:
        return "inconclusive"
    if mine == theirs:
        return "tie"
    return "first" if mine > theirs else "second"


def _sum_up_grader(trial: GradedTrial, name: str, kind: str) -> GraderReport:
    grades = trial.of_grader(name)
    games = [game for grade in grades.values() for game in games_of(grade)]
    gaps = tuple(_find_gaps(trial, grades, games))
    broken = {(gap.task_id, gap.attempt) for gap in gaps}
    complete = [game for game in games if (game.task_id, game.attempt) not in broken]
    judged = {task: grade.orders for task, grade in grades.items() if grade.orders}
    return GraderReport(
        grader=name,
        kind=kind,
        variants=tuple(_sum_up_variant(trial, grades, *variant) for variant in trial.variants),
        tasks=tuple(
            TaskRow(task, title, tuple(_cells(trial, grades[task])))
            for task, title in trial.tasks
            if task in grades
        ),
        ranking=rank(
            complete,
            trial.labels,
            resamples=trial.resamples,
            seed=trial.seed,
            level=trial.level,
        ),
        not_ranked=gaps,
        judge=measure_bias(judged, trial.level) if judged else None,
        simulated=any(grade.simulated for grade in grades.values()),
        notes=tuple(dict.fromkeys(note for grade in grades.values() for note in grade.notes)),
    )


def _find_gaps(
    trial: GradedTrial, grades: Mapping[str, GroupGrade], games: Iterable[PairResult]
) -> Iterable[NotRanked]:
    """Yield each attempt at a task in which some variant was not graded."""
    present = {
        (grade.task_id, attempt, variant)
        for grade in grades.values()
        for variant, attempt in map(split_key, (*grade.scores, *grade.passed))
    }
    for game in games:
        present |= {(game.task_id, game.attempt, side) for side in (game.first, game.second)}
    for task, title in trial.tasks:
        for attempt in range(1, trial.attempts + 1):
            missing = [label for label in trial.labels if (task, attempt, label) not in present]
            done = [label for label in missing if RunKey(label, task, attempt) in trial.finished]
            undone = [label for label in missing if label not in done]
            parts = (("did not finish", undone), ("was not graded", done))
            reason = "; ".join(f"{what}: {', '.join(who)}" for what, who in parts if who)
            if missing:
                yield NotRanked(task, title, attempt, tuple(undone), tuple(done), reason)


def _cells(trial: GradedTrial, grade: GroupGrade) -> Iterable[Cell]:
    for label in trial.labels:
        for attempt in range(1, trial.attempts + 1):
            key = grade_key(label, attempt)
            if key in grade.scores or key in grade.passed:
                yield Cell(
                    variant=label,
                    attempt=attempt,
                    score=grade.scores.get(key),
                    passed=grade.passed.get(key),
                    simulated=key in grade.simulated,
                    reason=grade.reasons.get(key, ""),
                )


def _sum_up_variant(
    trial: GradedTrial, grades: Mapping[str, GroupGrade], label: str, role: str
) -> VariantGrade:
    cells = {
        task: [cell for cell in _cells(trial, grade) if cell.variant == label]
        for task, grade in grades.items()
    }
    passed = {
        task: [cell.passed for cell in row if cell.passed is not None]
        for task, row in cells.items()
    }
    means = [
        mean for row in cells.values() if (mean := _mean(cell.score for cell in row)) is not None
    ]
    counts = {task: (len(known), sum(known)) for task, known in passed.items()}
    every = [cell for row in cells.values() for cell in row]
    return VariantGrade(
        variant=label,
        role=role,
        graded=len(every),
        judged=sum(n for n, _ in counts.values()),
        successes=sum(c for _, c in counts.values()),
        mean_score=_mean(means),
        scored_tasks=len(means),
        pass_at=_passes(trial, counts, pass_at),
        pass_all=_passes(trial, counts, pass_all),
        simulated=sum(cell.simulated for cell in every),
    )


def _mean(scores: Iterable[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return math.fsum(known) / len(known) if known else None


def _passes(
    trial: GradedTrial, counts: Mapping[str, tuple[int, int]], estimate: PassEstimate
) -> tuple[PassRate, ...]:
    """Give a figure for k from 1 to 10, and for all attempts; nothing where no success is known."""
    if not any(n for n, _ in counts.values()):
        return ()
    wanted = sorted({*range(1, min(trial.attempts, _MOST_PASSES) + 1), trial.attempts})
    return tuple(
        average_passes(
            counts, k, estimate, seed=trial.seed, resamples=trial.resamples, level=trial.level
        )
        for k in wanted
    )


# --- the gate


def _judge(
    trial: GradedTrial, gate: Gate, grades: Mapping[str, GroupGrade]
) -> tuple[GateResult, str]:
    """Judge by scores; by the points of games, where there are games and no score at all."""
    sides = find_sides(gate, trial.variants)
    has_scores = any(
        score is not None for grade in grades.values() for score in grade.scores.values()
    )
    has_games = any(games_of(grade) for grade in grades.values())
    by_games = has_games and not has_scores
    scores: dict[str, tuple[float | None, float | None]] = {}
    for task, _ in trial.tasks:
        grade = grades.get(task)
        if grade is None:
            scores[task] = (None, None)
        else:
            scores[task] = (_points if by_games else _scores)(grade, *sides, trial.attempts)
    return judge_gate(gate, sides, scores, trial.level), "games" if by_games else "scores"


def _scores(
    grade: GroupGrade, one: str, other: str, attempts: int
) -> tuple[float | None, float | None]:
    """Give the mean scores of both over the attempts in which both have one."""
    pairs = [
        (mine, theirs)
        for attempt in range(1, attempts + 1)
        if (mine := grade.scores.get(grade_key(one, attempt))) is not None
        and (theirs := grade.scores.get(grade_key(other, attempt))) is not None
    ]
    return _mean(mine for mine, _ in pairs), _mean(theirs for _, theirs in pairs)


def _points(
    grade: GroupGrade, one: str, other: str, _attempts: int
) -> tuple[float | None, float | None]:
    """Give the shares of both of the points of their games against each other."""
    met = [game for game in games_of(grade) if {game.first, game.second} == {one, other}]
    counted = [game for game in met if game.outcome != "inconclusive"]
    mine = _mean(
        _POINTS[game.outcome] if game.first == one else 1 - _POINTS[game.outcome]
        for game in counted
    )
    return mine, None if mine is None else 1 - mine
