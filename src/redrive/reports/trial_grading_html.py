"""The gate, the ranking and the judge of a trial as parts of its page.

Knows what graders say, summed up. Must not know runs or money.
"""

from collections.abc import Iterator

from redrive.compare.gate import GateResult
from redrive.compare.tournament import RankedGroup, Rating
from redrive.compare.trial_document import GraderReport, GradingReport, VariantGrade
from redrive.reports.counts import counted
from redrive.reports.escape import cut
from redrive.reports.markup import Markup, element, joined
from redrive.reports.trial_words import gate_text, interval, percent

_NAME_CHARS = 200
_TEXT_CHARS = 2000
_MAX_LISTED = 100
_TONES = {"passed": "good", "failed": "bad", "inconclusive": "doubt"}
_VERDICTS = {
    "passed": "The difference is shown to lie above the margin.",
    "failed": "The difference is shown to lie below the margin.",
    "inconclusive": "These tasks show neither.",
}


def gate_section(grading: GradingReport | None) -> Markup:
    """Say whether the gate passed, and what the tasks can show at all."""
    if grading is None or grading.gate is None:
        return joined()
    gate = grading.gate
    return element(
        "section",
        element(
            "h2", "Gate: ", element("b", gate.status, class_=_TONES[gate.status]), class_="verdict"
        ),
        element("p", gate_text(gate)),
        *_gate_figures(gate),
        element("p", f"{_VERDICTS[gate.status]} {_can_show(gate)}", class_="muted"),
    )


def _gate_figures(gate: GateResult) -> Iterator[Markup]:
    if gate.difference is None:
        yield element("p", "No task has both scores.")
        return
    yield element(
        "p",
        f"Difference {gate.difference:+.3f}, between {gate.low:+.3f} and {gate.high:+.3f}"
        f" (each bound at {percent(gate.level)}); the red line is the margin, {-gate.margin:+g}.",
    )
    yield _difference_bar(gate)


def _can_show(gate: GateResult) -> str:
    tasks = counted(gate.n_tasks, "task")
    left_out = ""
    if gate.left_out:
        left_out = f" {counted(len(gate.left_out), 'task')} left out: one side has no score there."
    if gate.smallest_margin is None:
        return f"{tasks}.{left_out}"
    return f"{tasks} can show a margin of {gate.smallest_margin:.3f} at best.{left_out}"


def _difference_bar(gate: GateResult) -> Markup:
    """Draw the interval of the difference from −1 to +1, zero and the margin as lines."""

    def at(value: float) -> float:
        return (max(-1.0, min(1.0, value)) + 1) * 50

    low, high = at(gate.low), at(gate.high)
    point = at(gate.difference or 0.0)
    bar = element(
        "svg",
        element("rect", class_="track", width="100", height="10"),
        element("rect", class_="range", x=f"{low:.2f}", width=f"{high - low:.2f}", height="10"),
        element("rect", class_="zero", x="49.9", width="0.2", height="10"),
        element(
            "rect", class_="margin", x=f"{at(-gate.margin) - 0.15:.2f}", width="0.3", height="10"
        ),
        element("rect", class_="point", x=f"{point - 0.4:.2f}", width="0.8", height="10"),
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{gate.difference:+.3f}, from {gate.low:+.3f} to {gate.high:+.3f}",
    )
    ends = element(
        "p", element("span", "−1"), element("span", "0"), element("span", "+1"), class_="scale"
    )
    return element("div", bar, ends, class_="gate-bar")


def grader_sections(grading: GradingReport | None) -> Iterator[Markup]:
    """Yield a part for each grader, the deciding one first."""
    if grading is None:
        return
    for number, grader in enumerate(grading.graders):
        decides = ", decides" if number == 0 else ""
        kind = element("span", f" {cut(grader.kind, _NAME_CHARS)}{decides}", class_="muted")
        yield element(
            "section",
            element("h2", f"Ranking by {cut(grader.grader, _NAME_CHARS)}", kind),
            *_groups(grader),
            *_doubts(grader),
        )


def _groups(grader: GraderReport) -> Iterator[Markup]:
    ranking = grader.ranking
    scores = {entry.variant: entry for entry in grader.variants}
    for number, group in enumerate(ranking.groups, 1):
        if len(ranking.groups) > 1:
            yield element("h3", f"Group {number}: never met the others, not comparable with them")
        yield _group(group, scores)
    ranked = {entry.variant for group in ranking.groups for entry in group.ratings}
    rest = [entry for entry in grader.variants if entry.variant not in ranked]
    if rest:
        rows = (
            element(
                "tr", element("th", _name(entry.variant), scope="row"), element("td", _score(entry))
            )
            for entry in rest
        )
        yield element("h3", "Not ranked: no game that counts")
        yield element("table", *rows, class_="stack")


def _group(group: RankedGroup, scores: dict[str, VariantGrade]) -> Markup:
    names = ("rank", "variant", "wins against another", "", "games", "", "score")
    head = element("tr", *(element("th", name, scope="col") for name in names))
    rows = (_rating(entry, scores[entry.variant]) for entry in group.ratings)
    return element("table", element("thead", head), element("tbody", *rows), class_="stack")


def _rating(entry: Rating, score: VariantGrade) -> Markup:
    places = (
        "" if entry.best_rank == entry.worst_rank else f" ({entry.best_rank}–{entry.worst_rank})"
    )
    low, high = entry.win_low * 100, entry.win_high * 100
    point = entry.win_probability * 100
    bar = element(
        "svg",
        element("rect", class_="track", width="100", height="10"),
        element("rect", class_="range", x=f"{low:.2f}", width=f"{high - low:.2f}", height="10"),
        element("rect", class_="zero", x="49.8", width="0.4", height="10"),
        element("rect", class_="point", x=f"{point - 0.75:.2f}", width="1.5", height="10"),
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    role = element("span", f" {cut(score.role, _NAME_CHARS)}", class_="muted") if score.role else ""
    return element(
        "tr",
        element("td", element("b", f"{entry.rank}."), places, class_="fit"),
        element("th", _name(entry.variant), role, scope="row"),
        element("td", bar, class_="bar-cell"),
        element(
            "td", interval(entry.win_probability, entry.win_low, entry.win_high), class_="num fit"
        ),
        element("td", _tally(entry), class_="num"),
        element("td", f"best in {percent(entry.p_best)}", class_="num fit"),
        element("td", _score(score), class_="num"),
    )


def _tally(entry: Rating) -> str:
    counts = ((entry.wins, "won"), (entry.ties, "even"), (entry.losses, "lost"))
    return ", ".join(f"{count}\u00a0{word}" for count, word in counts)


def _score(entry: VariantGrade) -> str:
    parts = []
    if entry.judged:
        parts.append(f"{entry.successes} of {entry.judged} succeeded")
    if entry.mean_score is not None:
        parts.append(f"mean\u00a0{entry.mean_score:.3f}")
    for name, rates in (("pass@", entry.pass_at), ("pass^", entry.pass_all)):
        known = [rate for rate in rates if rate.value is not None and rate.k > 1]
        parts += [
            f"{name}{rate.k} {interval(rate.value, rate.low, rate.high)}" for rate in known[-1:]
        ]
    parts += [f"~{entry.simulated} simulated"] if entry.simulated else []
    return ", ".join(parts) or "–"


def _doubts(grader: GraderReport) -> Iterator[Markup]:
    ranking = grader.ranking
    lines = [
        f"{counted(ranking.n_games, 'game')} on {counted(ranking.n_tasks, 'task')};"
        f" intervals at {percent(ranking.level)}, {ranking.method}"
    ]
    if ranking.n_inconclusive:
        lines.append(f"{counted(ranking.n_inconclusive, 'game')} inconclusive, not counted")
    if ranking.n_position_dependent:
        ties = counted(ranking.n_position_dependent, "tie")
        lines.append(f"{ties} since the judge contradicted itself in another order")
    if grader.judge is not None:
        judge = grader.judge
        lines.append(
            f"judge: {counted(judge.judgements, 'judgement')}, {judge.unreadable} unreadable;"
            f" {judge.position_dependent} of {counted(judge.pairs, 'pair')} depend on the order"
        )
    lines += [f"no data: {one} and {other} never met" for one, other in ranking.no_data]
    lines += [f"not ranked: {gap.name} #{gap.attempt}: {gap.reason}" for gap in grader.not_ranked]
    lines += list(grader.notes)
    items = [element("li", cut(line, _TEXT_CHARS)) for line in lines[:_MAX_LISTED]]
    left = len(lines) - len(items)
    items += [element("li", f"… {left} more, in the JSON report")] if left else []
    yield element("ul", *items, class_="small muted")


def _name(text: str) -> str:
    return cut(text, _NAME_CHARS)
