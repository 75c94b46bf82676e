"""The verb `trial`: plan a trial, run it, go on with it, and report it."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec
from msgspec.structs import replace

from redrive import canonical
from redrive.app.trial_plan import PlanChanges, read_plan
from redrive.cli import output
from redrive.cli.exits import Exit, worst
from redrive.cli.options import json_option, opened_store
from redrive.compare.trial_preview import JudgingBound, TrialPreview
from redrive.compare.trial_report import TrialReport
from redrive.errors import UsageError
from redrive.replay.trial_plan import PlannedWorkflow, TrialPlan
from redrive.replay.trial_values import Outcome
from redrive.stores.locate import find_cwd, find_home, locate_store

if TYPE_CHECKING:
    from redrive.app.trial_grading import OpenedGrader

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Document = TypeVar("_Document", TrialPreview, TrialReport)
_GATES = {"passed": Exit.DONE, "failed": Exit.FINDING, "inconclusive": Exit.OPEN}


@click.group("trial")
def trial_verb() -> None:
    """Re-run tasks under new workflow versions, in the sandbox, under a ceiling."""


def plan_options(command: _Command) -> _Command:
    """Add what a command line may say beside the plan's file."""
    for option in (
        click.option(
            "--gate", metavar="TEXT", help='Such as "challenger within 0.05 of incumbent".'
        ),
        click.option("--simulate", multiple=True, metavar="ID", help="Let its simulator stand in."),
        click.option("--no-workspace", is_flag=True, help="Recorded tasks may have no workspace."),
        click.argument("plan", metavar="PLAN"),
    ):
        command = option(command)
    return command


def report_options(command: _Command) -> _Command:
    """Add the forms in which a report is written."""
    for option in (
        json_option,
        click.option("--junit", metavar="FILE", help="Write the report as JUnit XML."),
        click.option("--html", metavar="FILE", help="Write the report as one HTML file."),
    ):
        command = option(command)
    return command


def plan_changes(options: dict[str, Any]) -> PlanChanges:
    """Give what the command line says beside the plan's file."""
    return PlanChanges(
        gate=options["gate"],
        simulate=options["simulate"],
        is_without_workspace=options["no_workspace"],
    )


def load_plan(store: str | None, options: dict[str, Any]) -> TrialPlan:
    """Read the plan that a command line names; workflows are loaded in the sandbox."""
    from redrive.app.trial_workspace import digest_workspace  # late: archives, git

    return read_plan(
        Path(options["plan"]),
        partial(opened_store, store),
        load_workflow=_load_workflow,
        digest_workspace=digest_workspace,
        changes=plan_changes(options),
    )


def _load_workflow(source: str, folder: Path) -> PlannedWorkflow:
    from redrive.app.trial_loading import load_workflow  # late: it starts the sandbox

    return load_workflow(source, folder).planned


@trial_verb.command("plan")
@plan_options
@json_option
@click.pass_obj
def plan_verb(store: str | None, /, **options: Any) -> int:
    """Say what a trial will be: runs, calls, costs, time. Nothing is started."""
    from redrive.app.plan_table import in_file
    from redrive.app.trial_grading import open_graders
    from redrive.app.trial_preview import preview_plan
    from redrive.reports.trial_plan import preview_lines
    from redrive.sandbox.door import find_level  # late: it starts the sandbox

    plan = load_plan(store, options)
    level = find_level().name
    with in_file(Path(options["plan"])):
        judging = _judging(plan, open_graders(plan, Path(plan.folder)))
        found = preview_plan(plan, partial(opened_store, store), level=level, judging=judging)
    preview = redacted(found)
    if options["as_json"]:
        output.write_json(preview)
    else:
        output.write_lines(preview_lines(preview))
    return Exit.DONE if preview.is_eligible else Exit.INELIGIBLE


def _judging(plan: TrialPlan, graders: "Sequence[OpenedGrader]") -> JudgingBound:
    """Say what the plan's graders may ask."""
    from redrive.app.trial_grading import judge_bound_usd, judge_calls

    return JudgingBound(judge_calls(plan, graders), judge_bound_usd(plan, graders))


@trial_verb.command("run")
@plan_options
@report_options
@click.option("--parallel", type=click.IntRange(1), help="Runs at the same time.")
@click.option("--again", is_flag=True, help="Begin anew, though a trial of the plan is unfinished.")
@click.pass_obj
def run_verb(store: str | None, /, **options: Any) -> int:
    """Run every workflow of the plan on every task, grade them, and report."""
    from redrive.app.trials import run_trial

    return _work(store, options, partial(run_trial, is_again=options["again"]))


@trial_verb.command("resume")
@plan_options
@report_options
@click.option("--parallel", type=click.IntRange(1), help="Runs at the same time.")
@click.pass_obj
def resume_verb(store: str | None, /, **options: Any) -> int:
    """Go on with the newest trial of the plan; what was paid for is not paid again."""
    from redrive.app.trials import resume_trial

    return _work(store, options, resume_trial)


def _work(store: str | None, options: dict[str, Any], work: Callable[..., Any]) -> int:
    """Judge a plan, say what it will cost, work on its trial, and report it as far as it came."""
    from redrive.app.trial_grading import FAULT, MODEL
    from redrive.app.trial_preview import preview_plan
    from redrive.app.trial_reporting import report_stored
    from redrive.app.trials import judge_plan
    from redrive.reports.trial_plan import headline

    for name in filter(None, (options["html"], options["junit"])):
        _require_writable(Path(name))
    path = locate_store(store, os.environ, find_cwd, find_home)
    judged = judge_plan(Path(options["plan"]), partial(opened_store, store), plan_changes(options))
    if options["parallel"]:
        judged = replace(judged, plan=replace(judged.plan, parallel=options["parallel"]))
    found = preview_plan(
        judged.plan,
        partial(opened_store, store),
        level=judged.level,
        judging=_judging(judged.plan, judged.graders),
    )
    for line in headline(redacted(found)):
        output.say(line)
    try:
        end = work(judged, path, dict(os.environ), tell=output.progress("runs"))
    except KeyboardInterrupt:
        output.say("redrive trial resume goes on with this trial, and pays nothing twice")
        raise
    for left in end.ungraded:
        output.say(f"redrive: not graded: {left.task_id} by {left.grader}: {left.reason}")
    with opened_store(store) as opened:
        report = report_stored(opened, opened.trials.get_trial(end.trial_id))
    show_report(report, options)
    is_faulty = any(left.kind in (MODEL, FAULT) for left in end.ungraded)
    return worst([exit_code(report), Exit.UNUSABLE if is_faulty else Exit.DONE])


def _require_writable(path: Path) -> None:
    """Refuse before anything is paid for what could not be written after it.

    Raises:
        UsageError: the file's folder is not there or closed, or it is a folder itself.
    """
    place = path if path.exists() else path.parent
    if path.is_dir() or not os.access(place, os.W_OK):
        raise UsageError(f"{path} cannot be written: nothing is run")


@trial_verb.command("report")
@click.argument("trial", metavar="PLAN|TRIAL")
@report_options
@click.pass_obj
def report_verb(store: str | None, /, **options: Any) -> int:
    """Report a stored trial, as far as it came: by its id, or the newest one of a plan."""
    from redrive.app.trial_reporting import find_trial, report_stored

    with opened_store(store) as opened:
        row = find_trial(opened, options["trial"])
        report = report_stored(opened, row)
    show_report(report, options)
    return exit_code(report)


def show_report(report: TrialReport, options: dict[str, Any]) -> None:
    """Write a report in each form asked for; `run`, `resume` and `report` show the same."""
    from redrive.cli.verbs.policy import write_file
    from redrive.reports.trial import trial_lines

    shown = redacted(report)
    if options["html"]:
        from redrive.reports.trial_html import trial_page

        write_file(options["html"], trial_page(shown).encode())
    if options["junit"]:
        from redrive.reports.trial_junit import trial_junit

        write_file(options["junit"], trial_junit(shown))
    if options["as_json"]:
        output.write_json(shown)
    else:
        output.write_lines(trial_lines(shown))


def redacted(document: _Document) -> _Document:
    """Mask secrets in a document before anything is cut from it: half a secret is one too."""
    data = output.redactor().json(canonical.encode(document))
    return msgspec.convert(canonical.decode_value(data), type(document))


def exit_code(report: TrialReport) -> Exit:
    """Give the exit code of a trial.

    A model that failed counts above a ceiling, that above what is open, that above a failed gate.
    """
    codes = [Exit.DONE]
    if any(run.outcome == Outcome.MODEL for run in report.runs):
        codes.append(Exit.UNUSABLE)
    if any(stop.purpose is not None for stop in report.stopped):
        codes.append(Exit.CEILING)
    elif not report.is_complete:
        codes.append(Exit.OPEN)
    gate = None if report.grading is None else report.grading.gate
    if gate is not None:
        codes.append(_GATES[gate.status])
    elif report.gate:  # nothing was graded yet: it is neither passed nor failed
        codes.append(Exit.OPEN)
    return worst(codes)
