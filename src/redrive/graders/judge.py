"""The grader `judge`: a model ranks the outputs of all variants on one task, in several orders.

Knows which episodes meet and in which orders. What survives of contradicting orders is decided by
`compare.judging.reconcile`. A judge compares: it gives games, and no verdict on success.

Source: DESIGN.md §6 "a model judge shown several orders".
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Literal

import msgspec
from msgspec import UnsetType

from redrive import canonical
from redrive.compare.judging import ShownOrder, plan_orders, reconcile
from redrive.compare.tournament import PairResult
from redrive.graders.judge_prompt import Shown, answer_schema, fit, read_ranking, write_prompt
from redrive.graders.options import check_pointer, find_file, read_options, wrong
from redrive.graders.outputs import one_line, read_output, text_of
from redrive.grading import (
    GradeContext,
    GradedEpisode,
    GradeGroup,
    GraderSetup,
    GroupGrade,
    JudgeCalls,
    Question,
    TrialTask,
    grade_key,
)
from redrive.replay.trial_plan import TrialPlan

_MIN_ANSWER_BYTES, _MIN_TOKENS, _MAX_ORDERS = 100, 16, 100
_MAX_SEED = 2**31 - 1


class JudgeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options.

    Attributes:
        model: its name in the plan.
        criteria: what makes an answer better.
        criteria_file: a file that says so, in place of `criteria`.
        orders: how many orders each comparison is shown in.
        show: `all` episodes of an attempt together, or `pairs` of them.
        at: JSON pointer into the output, where only a part is judged.
        reference: whether what the task expects is shown.
        reason: whether a reason is asked for before the ranking.
        constrained: whether the answer's JSON Schema is sent, as APIs of the OpenAI form take it.
        max_tokens: of each answer.
        max_answer_bytes: of each output shown; what is longer is cut, and a note says so.
    """

    model: str
    criteria: str = ""
    criteria_file: str = ""
    orders: int = 2
    show: Literal["all", "pairs"] = "all"
    at: str = ""
    reference: bool = False
    reason: bool = True
    constrained: bool = True
    max_tokens: int = 512
    max_answer_bytes: int = 8000


class _Comparison(msgspec.Struct, frozen=True):
    """One question: the episodes in the order shown."""

    attempt: int
    number: int
    shown: tuple[GradedEpisode, ...]


class JudgeGrader:
    """Asks one model of the plan."""

    def __init__(self, options: JudgeOptions, criteria: str, setup: GraderSetup) -> None:
        self._options = options
        self._criteria = criteria
        self._setup = setup

    # --- beforehand

    def plan_calls(self, plan: TrialPlan) -> tuple[JudgeCalls, ...]:
        """Give the calls about each task: attempts × comparisons × orders."""
        n = len(plan.workflows)
        if n < 2:
            return ()
        n_shown = 2 if self._options.show == "pairs" else n
        n_comparisons = n * (n - 1) // 2 if self._options.show == "pairs" else 1
        calls = plan.attempts * n_comparisons * self._options.orders
        return tuple(
            JudgeCalls(
                self._options.model,
                calls,
                self._most_bytes(task, n_shown),
                self._options.max_tokens,
            )
            for task in plan.tasks
        )

    def _most_bytes(self, task: TrialTask, n_shown: int) -> int:
        """Measure the body of a question in which every answer is as long as may be."""
        longest = ("x" * self._options.max_answer_bytes,) * n_shown
        return self._setup.measure(self._question(task, longest, _MAX_SEED))

    # --- grading

    def grade(self, group: GradeGroup, context: GradeContext) -> GroupGrade:
        """Ask about each attempt that is complete.

        Raises:
            ModelError, CeilingReached: see `GradeContext.ask`; what was answered is paid, kept, and
                not asked again on resume.
        """
        texts, notes = self._read(group)
        absent = {run.attempt for run in group.missing}
        notes += [f"attempt {n}: a run is missing, so it is not judged" for n in sorted(absent)]
        if len(group.variants) < 2:
            notes.append("one variant: there is nothing to compare it with")
        orders = [
            self._ask(group.task, comparison, texts, context)
            for comparison in self._comparisons(group, absent, context.seed)
        ]
        games = (*reconcile(group.task.task_id, orders), *_games_of_failed(group, absent))
        return GroupGrade(
            grader="",
            kind="",
            task_id=group.task.task_id,
            scores=_scores(group, games),
            passed={episode.key: None for episode in group.episodes},
            pairs=games,
            orders=tuple(orders),
            notes=tuple(notes),
        )

    def _read(self, group: GradeGroup) -> tuple[Mapping[str, str], list[str]]:
        texts, notes = {}, []
        for episode in group.episodes:
            try:
                text = text_of(read_output(episode, self._options.at))
            except (LookupError, ValueError, RecursionError) as error:
                text = f"[{one_line(str(error.args[0]))}]"
            if episode.run.variant in text:
                notes.append(f"{episode.key}: its output names its variant, which the judge sees")
            texts[episode.key], is_cut = fit(text, self._options.max_answer_bytes)
            if is_cut:
                most = self._options.max_answer_bytes
                notes.append(
                    f"{episode.key}: an output of {len(text)} characters, cut to {most} bytes"
                )
        return texts, notes

    def _comparisons(self, group: GradeGroup, absent: set[int], seed: int) -> Iterator[_Comparison]:
        by_attempt: dict[int, list[GradedEpisode]] = {}
        for episode in group.episodes:
            by_attempt.setdefault(episode.run.attempt, []).append(episode)
        for attempt, met in sorted(by_attempt.items()):
            if attempt in absent or len(met) < 2:
                continue
            sets = combinations(met, 2) if self._options.show == "pairs" else (tuple(met),)
            number = 0
            for n_set, episodes in enumerate(sets):
                drawn = _draw(seed, attempt, n_set)
                for order in plan_orders(len(episodes), self._options.orders, drawn):
                    yield _Comparison(attempt, number, tuple(episodes[n] for n in order))
                    number += 1

    def _ask(
        self,
        task: TrialTask,
        comparison: _Comparison,
        texts: Mapping[str, str],
        context: GradeContext,
    ) -> ShownOrder:
        shown = comparison.shown
        seed = _draw(context.seed, comparison.attempt, comparison.number, "answer")
        answers = tuple(texts[episode.key] for episode in shown)
        reply = context.ask(self._question(task, answers, seed))
        labels = tuple(episode.run.variant for episode in shown)
        ranking, reason = None, reply.fault
        if reply.text is not None and not reason:
            try:
                read = read_ranking(reply.text, len(shown))
                ranking = tuple(tuple(labels[n - 1] for n in tied) for tied in read)
            except ValueError as error:
                reason = one_line(str(error))
        return ShownOrder(
            labels,
            ranking,
            comparison.attempt,
            reason,
            reply.request_sha256,
            reply.answer_sha256,
        )

    def _question(self, task: TrialTask, answers: tuple[str, ...], seed: int) -> Question:
        options = self._options
        shows_reference = options.reference and not isinstance(task.expected, UnsetType)
        shown = Shown(
            criteria=self._criteria,
            task=_text(bytes(task.input)),
            reference=_text(bytes(task.expected)) if shows_reference else None,  # type: ignore[arg-type]
            answers=answers,
        )
        system, text = write_prompt(shown, asks_reason=options.reason)
        schema = answer_schema(len(answers), asks_reason=options.reason)
        return Question(
            model=options.model,
            system=system,
            text=text,
            seed=seed,
            max_tokens=options.max_tokens,
            **({"answer_schema": schema} if options.constrained else {}),
        )


def _text(data: bytes) -> str:
    return canonical.escape_surrogates(text_of(canonical.decode_value(data)))


def _draw(*parts: int | str) -> int:
    """Derive a number from 0 to 2**31 − 1."""
    return int(canonical.value_digest(list(parts))[:8], 16) >> 1


def _games_of_failed(group: GradeGroup, absent: set[int]) -> Iterator[PairResult]:
    """Yield the games of episodes that failed: each loses to all that did not, and ties the others.

    Nobody need be asked for that, so nothing is shown and nothing is paid.
    """
    has_failed = {(e.run.variant, e.run.attempt): False for e in group.episodes}
    has_failed |= {(e.run.variant, e.run.attempt): True for e in group.failed}
    for attempt in sorted({attempt for _, attempt in has_failed} - absent):
        met = sorted(variant for variant, number in has_failed if number == attempt)
        for first, second in combinations(met, 2):
            lost = has_failed[first, attempt], has_failed[second, attempt]
            if any(lost):
                outcome: Literal["first", "second", "tie"] = (
                    "tie" if all(lost) else "second" if lost[0] else "first"
                )
                yield PairResult(group.task.task_id, first, second, outcome, attempt)


def _scores(group: GradeGroup, games: tuple[PairResult, ...]) -> dict[str, float | None]:
    """Give each episode its share of points in the games that were decided; `None` without any."""
    points: dict[str, list[float]] = {episode.key: [] for episode in group.episodes}
    for game in games:
        if game.outcome == "inconclusive":
            continue
        for variant, won in ((game.first, "first"), (game.second, "second")):
            key = grade_key(variant, game.attempt)
            point = 0.5 if game.outcome == "tie" else float(game.outcome == won)
            points.setdefault(key, []).append(point)
    known = {episode.key for episode in group.episodes}
    return {k: sum(p) / len(p) if p else None for k, p in points.items() if k in known}


def open_grader(setup: GraderSetup) -> JudgeGrader:
    """Open `judge`.

    Raises:
        UsageError: an option is wrong, the model is not in the plan, or there are no criteria.
    """
    options = read_options(setup.spec, JudgeOptions)
    check_pointer(setup.spec, options.at)
    if options.model not in setup.models:
        known = ", ".join(setup.models) or "none"
        raise wrong(setup.spec, f"no model {options.model!r} in the plan", f"models: {known}")
    if not 2 <= options.orders <= _MAX_ORDERS:
        raise wrong(setup.spec, f"orders = {options.orders}, expected 2 to {_MAX_ORDERS}")
    if options.max_tokens < _MIN_TOKENS or options.max_answer_bytes < _MIN_ANSWER_BYTES:
        raise wrong(
            setup.spec,
            f"max_tokens is at least {_MIN_TOKENS}, max_answer_bytes at least {_MIN_ANSWER_BYTES}",
        )
    return JudgeGrader(options, _find_criteria(setup, options), setup)


def _find_criteria(setup: GraderSetup, options: JudgeOptions) -> str:
    if bool(options.criteria) is bool(options.criteria_file):
        raise wrong(setup.spec, "expected exactly one of criteria and criteria_file")
    if options.criteria:
        return canonical.escape_surrogates(options.criteria)
    try:
        return find_file(setup, options.criteria_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(setup.spec, f"criteria_file cannot be read: {error}") from error
