"""Writes a trial's report as one HTML file that needs no server, loads nothing and runs no script.

Knows the document. Every text goes in through `markup`, which makes it inert. The figures stand in
words beside each bar, so that nothing rests on colour or on a drawing.

Source: DESIGN.md §6 "report"; docs/trials.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from importlib.resources import files

from redrive.compare.trial_document import Cell
from redrive.compare.trial_report import RunView, TrialReport
from redrive.replay.money import add
from redrive.reports.counts import counted
from redrive.reports.escape import cut
from redrive.reports.markup import Markup, element, joined, page
from redrive.reports.trial import first_grades, progress
from redrive.reports.trial_grading_html import gate_section, grader_sections
from redrive.reports.trial_words import MEANINGS, OUTCOMES, PURPOSES, seconds, spend_line

TEXT_CHARS = 2000
MAX_LISTED = 500
_NAME_CHARS = 200
_FIRST, _WIDE_COLUMNS = 20, 6
_TONES = {
    "complete": "good",
    "failed": "bad",
    "denied": "bad",
    "limit": "bad",
    "timeout": "bad",
}
_MARKS = {True: "✓", False: "✗", None: "?"}
_SAID = {True: "succeeded", False: "did not succeed", None: "not known whether it succeeded"}


def trial_page(report: TrialReport) -> str:
    """Write the page: the same for the same document.

    Returns:
        HTML that UTF-8 can carry, whatever the trial holds. Lists of more than `MAX_LISTED` are cut
        with their count; the JSON report has them whole.
    """
    style = files("redrive.reports").joinpath("pages/trial.css").read_text(encoding="utf-8")
    return page(
        f"Trial {_name(report.name)} – redrive",
        style,
        _head(report),
        gate_section(report.grading),
        *grader_sections(report.grading),
        _matrix(report),
        _cost(report),
        _troubles(report),
        _unrun(report),
        _tasks(report),
        _basis(report),
    )


def _head(report: TrialReport) -> Markup:
    spent = add(*(Decimal(line.spent_usd) for line in report.spend.values()))
    figures = (
        ("planned", str(report.planned)),
        ("started", str(report.started)),
        ("finished", str(report.finished)),
        ("not run", str(len(report.not_run))),
        ("denied calls", str(report.denied)),
        ("USD spent", f"{spent:f}"),
        ("isolation", report.isolation or "nothing ran"),
    )
    cells = (element("div", element("dd", value), element("dt", name)) for name, value in figures)
    return element(
        "header",
        element("p", "redrive trial", class_="mark"),
        element("h1", _name(report.name)),
        element("p", progress(report), class_="lead"),
        *_boxes(report),
        element("dl", *cells, class_="figures"),
    )


def _boxes(report: TrialReport) -> Iterator[Markup]:
    """Say first what makes the rest doubtful."""
    for stop in report.stopped:
        at = f"Stopped at the ceiling of {stop.purpose}: " if stop.purpose else "Stopped: "
        yield element("p", element("strong", at), cut(stop.reason, TEXT_CHARS), class_="box bad")
    if report.is_simulated:
        note = "Figures marked ~ rest on tools that were simulated; none of their effects happened."
        yield element("p", element("strong", "Simulated. "), note, class_="box doubt")
    unlike = [task for task in report.tasks if task.environment.differences]
    if unlike:
        n_tasks = counted(len(unlike), "task")
        note = f"{n_tasks} ran in another environment than recorded; each field is named below."
        yield element("p", element("strong", "Environment. "), note, class_="box doubt")


def _matrix(report: TrialReport) -> Markup:
    grades = first_grades(report)
    runs: dict[tuple[str, str], list[RunView]] = {}
    for run in report.runs:
        runs.setdefault((run.task_id, run.variant), []).append(run)
    labels = [entry.variant for entry in report.variants]
    heads = (element("th", _name(entry.variant), scope="col") for entry in report.variants)
    rows = (
        element(
            "tr",
            element("th", cut(task.name, _NAME_CHARS), scope="row"),
            *(_cell(runs[task.task_id, label], grades) for label in labels),
        )
        for task in report.tasks
    )
    sums = (
        element(
            "td",
            element("b", f"{entry.finished} of {entry.planned}"),
            element("small", _cost_and_time(Decimal(entry.cost_usd), entry.duration_s)),
        )
        for entry in report.variants
    )
    table = element(
        "table",
        element("thead", element("tr", element("th", "task", scope="col"), *heads)),
        element("tbody", *rows),
        element("tfoot", element("tr", element("th", "all tasks", scope="row"), *sums)),
    )
    wide = " wide" if len(labels) > _WIDE_COLUMNS else ""
    # A box that scrolls is reached by keyboard only if it can be focused.
    box = element(
        "div",
        table,
        class_=f"matrix{wide}",
        tabindex="0",
        role="region",
        aria_label="Variants and tasks",
    )
    return element("section", element("h2", "Every run"), _legend(report, grades), box)


def _legend(report: TrialReport, grades: Mapping[tuple[str, str, int], Cell]) -> Markup:
    parts = [
        f"{OUTCOMES[word].lower()}: {MEANINGS[word]}"
        for word in MEANINGS
        if any(run.outcome == word for run in report.runs)
    ]
    if grades:
        parts.append("✓ succeeded, ✗ did not, ? not known, by the first grader")
    if report.denied:
        parts.append("!N: N denied calls")
    if report.is_simulated:
        parts.append("~ rests on a simulated tool")
    return element("ul", *(element("li", part) for part in parts), class_="legend")


def _cell(runs: Sequence[RunView], grades: Mapping[tuple[str, str, int], Cell]) -> Markup:
    words = [
        _end(run, grades.get((run.task_id, run.variant, run.attempt)), is_one=len(runs) == 1)
        for run in runs
    ]
    begun = [run for run in runs if run.execution]
    if not begun:
        return element("td", *words)
    took = [run.duration_s for run in begun if run.duration_s is not None]
    cost = add(*(Decimal(run.cost_usd) for run in begun))
    small = [_cost_and_time(cost, sum(took) / len(took) if took else None)]
    denied = sum(len(run.denied) for run in runs)
    small += [f" !{denied}"] if denied else []
    small += [" ~"] if any(run.simulated for run in runs) else []
    return element("td", *words, element("small", "".join(small)))


def _end(run: RunView, grade: Cell | None, *, is_one: bool) -> Markup:
    word = OUTCOMES[run.outcome].lower()
    mark = "" if grade is None else f" {_MARKS[grade.passed]}"
    said = "" if grade is None else f"; {_SAID[grade.passed]} {cut(grade.reason, _NAME_CHARS)}"
    number = "" if is_one else f"#{run.attempt} "
    tone = _TONES.get(run.outcome, "none")
    if tone == "good" and grade is not None and grade.passed is False:
        tone = "poor"
    title = f"{number}{MEANINGS[run.outcome]}{said}".strip()
    return element("b", f"{number}{word}{mark}", class_=tone, title=title)


def _cost_and_time(cost: Decimal, took: float | None) -> str:
    return f"${cost:f}" if took is None else f"${cost:f} · {seconds(took)}"


def _cost(report: TrialReport) -> Markup:
    rows = []
    for purpose, line in report.spend.items():
        ceiling = Decimal(line.ceiling_usd) or Decimal(1)
        spent, held = (Decimal(usd) / ceiling for usd in (line.spent_usd, line.reserved_usd))
        rows.append(
            element(
                "tr",
                element("th", PURPOSES.get(purpose, _name(purpose)), scope="row"),
                element("td", _share_bar(float(spent), float(held)), class_="bar-cell"),
                element("td", spend_line(line)),
            )
        )
    variants = (
        element(
            "tr",
            element("th", _name(entry.variant), scope="row"),
            element("td", f"USD {entry.cost_usd}", class_="num"),
            element("td", f"{entry.finished} of {counted(entry.planned, 'run')} finished"),
        )
        for entry in report.variants
    )
    nothing = element("p", "Nothing was spent.") if not rows else joined()
    return element(
        "section",
        element("h2", "Cost by purpose"),
        element(
            "p",
            "A trial is the most expensive rung: every run is a whole agent run. Runs and judging"
            " have ceilings of their own, and neither can spend the other's.",
        ),
        nothing,
        element("table", *rows, class_="stack") if rows else joined(),
        element("h3", "By variant"),
        element("table", *variants, class_="stack"),
    )


def _share_bar(spent: float, held: float) -> Markup:
    spent, held = min(spent, 1.0), min(held, max(0.0, 1.0 - spent))
    return element(
        "svg",
        element("rect", class_="track", width="100", height="10"),
        element(
            "rect", class_="held", x=f"{spent * 100:.2f}", width=f"{held * 100:.2f}", height="10"
        ),
        element("rect", class_="live", width=f"{spent * 100:.2f}", height="10"),
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _troubles(report: TrialReport) -> Markup:
    found = [run for run in report.runs if run.denied or run.error or run.outcome in _BAD]
    if not found:
        return joined()
    items = [_trouble(run) for run in found[:MAX_LISTED]]
    rest: Markup = joined()
    if len(items) > _FIRST:
        summary = element("summary", f"{len(found) - _FIRST} more")
        rest = element("details", summary, *items[_FIRST:], _more(len(found)))
    return element("section", element("h2", "Denied and failed"), *items[:_FIRST], rest)


_BAD = frozenset(word for word, tone in _TONES.items() if tone == "bad")


def _trouble(run: RunView) -> Markup:
    head = f"{cut(run.variant, _NAME_CHARS)}, {cut(run.task, _NAME_CHARS)} #{run.attempt}"
    denied = (
        element("li", element("code", _name(call.tool)), f": {cut(call.reason, TEXT_CHARS)}")
        for call in run.denied
    )
    facts = (
        ("session", run.session_id),
        ("seed", str(run.seed)),
        ("isolation", run.isolation),
        ("model", ", ".join(run.model_fingerprints)),
        ("cost", f"USD {run.cost_usd}"),
        ("notes", "; ".join(run.notes)),
    )
    shown = (
        joined(element("dt", name), element("dd", cut(value, TEXT_CHARS)))
        for name, value in facts
        if value
    )
    error = joined() if run.error is None else element("pre", cut(run.error, TEXT_CHARS))
    return element(
        "details",
        element("summary", element("b", OUTCOMES[run.outcome].lower(), class_="bad"), " ", head),
        element("p", f"{MEANINGS[run.outcome]}."),
        error,
        element("ul", *denied) if run.denied else joined(),
        element("dl", *shown, class_="facts"),
    )


def _unrun(report: TrialReport) -> Markup:
    if not report.not_run:
        return joined()
    items = (element("li", _name(name)) for name in report.not_run[:MAX_LISTED])
    return element(
        "section",
        element("h2", "Not run"),
        element("p", "Planned and not finished. What is missing is never counted as failed."),
        element("ul", *items, class_="columns"),
        _more(len(report.not_run)),
    )


def _tasks(report: TrialReport) -> Markup:
    unlike = [task for task in report.tasks if task.environment.notes]
    if not unlike:
        return joined()
    items = (
        joined(
            element("h3", _name(task.name)),
            element(
                "ul", *(element("li", cut(note, TEXT_CHARS)) for note in task.environment.notes)
            ),
        )
        for task in unlike[:MAX_LISTED]
    )
    return element("section", element("h2", "Environment"), *items, _more(len(unlike)))


def _basis(report: TrialReport) -> Markup:
    models = sorted({name for run in report.runs for name in run.model_fingerprints})
    facts = (
        ("trial", report.trial_id),
        ("plan", report.plan_digest),
        ("models", ", ".join(models)),
        *(
            (entry.variant, f"{entry.source}, code {entry.digest[:16]}")
            for entry in report.variants
        ),
    )
    shown = (
        joined(element("dt", _name(name)), element("dd", cut(value, TEXT_CHARS)))
        for name, value in facts
        if value
    )
    notes = (element("li", cut(note, TEXT_CHARS)) for note in report.notes)
    return element(
        "section",
        element("h2", "What this rests on"),
        element("dl", *shown, class_="facts"),
        element("ul", *notes),
    )


def _more(total: int) -> Markup:
    left = total - MAX_LISTED
    return element("p", f"… {left} more of {total}, in the JSON report") if left > 0 else joined()


def _name(text: str) -> str:
    return cut(text, _NAME_CHARS)
