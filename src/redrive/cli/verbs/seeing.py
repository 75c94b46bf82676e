"""The verbs for seeing: `sessions`, `show`, `cat`, `grep`."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import click

from redrive.app.auditing import audit_session
from redrive.app.effects import EffectScan
from redrive.app.listing import find_thread, list_sessions, view_row
from redrive.app.raw_events import dump_events, parse_kinds, read_source
from redrive.app.searching import Search, compile_pattern
from redrive.app.seeing import actors_of, branches_of, closure_marks, steps_of, view_survey
from redrive.app.survey import Survey, survey_session
from redrive.app.timeline import timeline_of
from redrive.cli import output
from redrive.cli.exits import Exit
from redrive.cli.options import chosen_session, chosen_sessions, json_option, opened_store
from redrive.errors import UsageError
from redrive.record.trajectory import Trajectory
from redrive.reports.counts import counted
from redrive.reports.effects import effect_lines, totals_lines
from redrive.reports.sessions import (
    actor_lines,
    branch_lines,
    break_lines,
    header_lines,
    match_lines,
    session_list_lines,
    step_lines,
    thread_lines,
    timeline_lines,
)
from redrive.reports.views import DamagedView, SessionView, ThreadView
from redrive.stores.port import SessionRow, Store

Fields = Iterator[tuple[str, Any]]
_T = TypeVar("_T")


@click.command("sessions")
@json_option
@click.pass_context
def sessions_verb(ctx: click.Context, as_json: bool) -> int:  # noqa: FBT001 - a flag
    """List stored sessions and the threads that they form."""
    with opened_store(ctx.obj) as store:
        listed = list_sessions(store)
    if as_json:
        output.write_document(
            (
                *_schema("sessions"),
                ("sessions", iter(listed.sessions)),
                ("threads", listed.threads),
                ("damaged", listed.damaged),
            )
        )
    else:
        output.write_lines(session_list_lines(listed))
    return say_damaged(listed.damaged)


def say_damaged(damaged: Sequence[DamagedView]) -> Exit:
    """Name on stderr the sessions that were left out as damaged; give the exit code."""
    for entry in damaged:
        output.say(f"redrive: damaged: {entry.session_id}: {entry.fault}")
    return Exit.VIOLATED if damaged else Exit.DONE


@click.command("show")
@click.argument("session")
@click.option("--effects", is_flag=True, help="List commands, writes, network calls, approvals.")
@click.option("--path", metavar="NODE", help="Show the steps of the path to this node.")
@click.option("--actor", metavar="NAME", help="Show this flow of execution alone.")
@json_option
@click.pass_context
def show_verb(
    ctx: click.Context,
    session: str,
    effects: bool,  # noqa: FBT001 - flags of the command line
    path: str | None,
    actor: str | None,
    as_json: bool,  # noqa: FBT001
) -> int:
    """Show a session: timeline, branches, steps with their closure, tokens and cost.

    With --effects, show what it did to the world, over all paths and actors.
    """
    if effects and (path is not None or actor is not None):
        raise UsageError("--effects goes over all paths and actors: no --path, no --actor")
    with opened_store(ctx.obj) as store:
        row = chosen_session(store, session, "show")
        survey = survey_session(store, row)
        thread = find_thread(store, row)
        view = view_survey(survey, view_row(store, row, thread.thread))
        if effects:
            scan = EffectScan(survey)
            if as_json:
                output.write_document(_effects_fields(view, scan))
            else:
                output.write_lines(_effects_text(view, scan))
        else:
            trajectory = survey.opened.trajectory(actor, path)
            if as_json:
                output.write_document(_show_fields(view, thread, survey, trajectory, actor))
            else:
                output.write_lines(_show_text(view, thread, survey, trajectory, actor))
    return Exit.DONE


def _schema(name: str) -> tuple[tuple[str, Any], ...]:
    return ("schema", f"redrive.{name}"), ("schema_version", 1)


def _effects_fields(view: SessionView, scan: EffectScan) -> Fields:
    yield from _schema("effects")
    yield "session", view
    yield "effects", scan.entries()
    yield "totals", scan.totals()


def _effects_text(view: SessionView, scan: EffectScan) -> Iterator[str]:
    yield from header_lines(view)
    yield from effect_lines(scan.entries())
    yield from totals_lines(scan.totals())


def _show_fields(
    view: SessionView,
    thread: ThreadView,
    survey: Survey,
    trajectory: Trajectory,
    actor: str | None,
) -> Fields:
    audit, _ = audit_session(survey.opened, trajectory)
    yield from _schema("show")
    yield "session", view
    yield "thread", thread
    yield "actors", actors_of(survey)
    yield "branches", branches_of(survey)
    yield (
        "path",
        {
            "actor": trajectory.actor,
            "leaf": trajectory.leaf,
            "breaks": trajectory.breaks,
            "closure": {"status": audit.status, "closed_until": audit.closed_until},
        },
    )
    yield "steps", steps_of(survey, trajectory, closure_marks(audit))
    yield "timeline", timeline_of(survey, survey.pair(), actor=actor)


def _show_text(
    view: SessionView,
    thread: ThreadView,
    survey: Survey,
    trajectory: Trajectory,
    actor: str | None,
) -> Iterator[str]:
    audit, _ = audit_session(survey.opened, trajectory)
    yield from header_lines(view)
    yield from break_lines(trajectory.breaks)
    yield f"Closure   {audit.status}, closed until step {audit.closed_until} of {len(audit.steps)}"
    yield from thread_lines(thread, view.session_id)
    yield from actor_lines(actors_of(survey))
    yield from branch_lines(branches_of(survey))
    yield from timeline_lines(timeline_of(survey, survey.pair(), actor=actor))
    yield from step_lines(steps_of(survey, trajectory, closure_marks(audit)))


@click.command("cat")
@click.argument("session")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind.")
@click.option(
    "--raw", is_flag=True, help="Print the stored source itself; only secrets are replaced."
)
@json_option
@click.pass_context
def cat_verb(
    ctx: click.Context,
    session: str,
    kinds: tuple[str, ...],
    raw: bool,  # noqa: FBT001 - flags of the command line
    as_json: bool,  # noqa: FBT001
) -> int:
    """Print a session's events as JSON lines, or its source as it was recorded."""
    if raw and (as_json or kinds):
        raise UsageError("--raw prints the source as it is: no --json, no --kind")
    wanted = parse_kinds(kinds)
    with opened_store(ctx.obj) as store:
        row = chosen_session(store, session, "cat")
        if raw:
            _write_source(store, row)
        elif as_json:
            events = _primed(dump_events(store, row, wanted))
            output.write_document(
                (
                    *_schema("cat"),
                    ("session_id", row.session_id),
                    ("head", row.head),
                    ("events", events),
                )
            )
        else:
            output.write_json_lines(dump_events(store, row, wanted))
    return Exit.DONE


def _primed(items: Iterator[_T]) -> Iterator[_T]:
    """Take the first item, so that damaged evidence is found before anything is written."""
    first = next(items, None)
    return items if first is None else chain((first,), items)


def _write_source(store: Store, row: SessionRow) -> None:
    output.write_bytes(read_source(store, row))
    others = [f"{role} {digest}" for role, digest, _ in row.sources[1:]]
    if others:
        output.say(f"redrive: further sources of this session: {', '.join(others)}")


@click.command("grep")
@click.argument("pattern")
@click.argument("sessions", nargs=-1, metavar="[SESSION…|all]")
@click.option("--tool", metavar="T", help="Only calls of this tool and their results.")
@click.option("--ignore-case", "-i", is_flag=True, help="Take upper and lower case as one.")
@click.option("--fixed", "-F", is_flag=True, help="The pattern is plain text.")
@json_option
@click.pass_context
def grep_verb(
    ctx: click.Context,
    pattern: str,
    sessions: tuple[str, ...],
    tool: str | None,
    ignore_case: bool,  # noqa: FBT001 - flags of the command line
    fixed: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Search what users, models and tools said, line by line, by regular expression."""
    compiled = compile_pattern(pattern, is_fixed=fixed, ignore_case=ignore_case)
    search = Search(compiled, tool, output.redactor().parts)
    with opened_store(ctx.obj) as store:
        rows, search.damaged = chosen_sessions(store, sessions or ("all",))
        if as_json:
            output.write_document(_grep_fields(store, rows, pattern, search))
        else:
            output.write_lines(match_lines(search.matches(store, rows)))
            output.say(_grep_summary(search))
    return say_damaged(search.damaged)


def _grep_fields(store: Store, rows: Sequence[SessionRow], pattern: str, search: Search) -> Fields:
    matches = _primed(search.matches(store, rows))
    yield from _schema("grep")
    yield "pattern", pattern
    yield "tool", search.tool
    yield "matches", matches
    yield "sessions_searched", search.n_sessions
    yield "events_searched", search.n_events
    yield "events_cut", search.n_cut
    yield "damaged", tuple(search.damaged)


def _grep_summary(search: Search) -> str:
    cut = f"; {counted(search.n_cut, 'very long event')} searched in part"
    return (
        f"redrive: {counted(search.n_matches, 'line matches', 'lines match')},"
        f" {counted(search.n_events, 'event')} in"
        f" {counted(search.n_sessions, 'session')} searched{cut if search.n_cut else ''}"
    )
