"""The verb `audit`."""

from collections.abc import Mapping
from typing import Any

import click
import msgspec

from redrive.app.auditing import audit_session
from redrive.app.framing import read_environment
from redrive.app.opening import open_row
from redrive.audit.report import AuditReport, recommendations
from redrive.cli import output
from redrive.cli.exits import Exit, worst
from redrive.cli.options import chosen_sessions, json_option, opened_store
from redrive.cli.verbs.seeing import say_damaged
from redrive.errors import TamperError
from redrive.reports.audit import audit_lines
from redrive.reports.counts import counted
from redrive.reports.views import DamagedView
from redrive.stores.port import SessionRow, Store


@click.command("audit")
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION…")
@click.option("--actor", metavar="NAME", help="The flow to audit (default: main).")
@click.option("--path", metavar="NODE", help="The node to end at (default: the head).")
@click.option("--until", type=click.IntRange(min=1), metavar="N", help="Only the first N steps.")
@click.option("--environment", metavar="FILE", help="Compare the recorded environment with FILE.")
@json_option
@click.pass_context
def audit_verb(
    ctx: click.Context,
    sessions: tuple[str, ...],
    actor: str | None,
    path: str | None,
    until: int | None,
    environment: str | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Say whether the record is sufficient, step by step; exit 3 where it is not."""
    given = None if environment is None else read_environment(environment)
    documents: list[dict[str, Any]] = []
    is_closed = True
    with opened_store(ctx.obj) as store:
        rows, damaged = chosen_sessions(store, sessions)
        tell = output.progress("auditing")
        for number, row in enumerate(rows):
            tell(number, len(rows), row.session_id)
            try:
                report = _audit(store, row, actor, path, until, given)
            except TamperError as error:
                if len(rows) == 1:
                    raise
                damaged.append(DamagedView(row.session_id, error.message))
                continue
            finally:
                tell(len(rows), len(rows), "")
            if until is not None and until > len(report.steps):
                steps = counted(len(report.steps), "step")
                output.say(f"redrive: {row.session_id}: --until {until}, but the path has {steps}")
            is_closed = is_closed and report.is_closed
            if as_json:
                documents.append(document(report, row.head))
            else:
                output.write_lines(audit_lines(report, row.head))
    if as_json:
        output.write_json(
            {
                "schema": "redrive.audit",
                "schema_version": 1,
                "sessions": documents,
                "damaged": damaged,
            }
        )
    return worst((say_damaged(damaged), Exit.DONE if is_closed else Exit.OPEN))


def _audit(
    store: Store,
    row: SessionRow,
    actor: str | None,
    path: str | None,
    until: int | None,
    environment: Mapping[str, Any] | None,
) -> AuditReport:
    session = open_row(store, row)
    trajectory = session.trajectory(actor, path)
    if until is not None:
        trajectory = trajectory.prefix(until)
    report, _ = audit_session(session, trajectory, environment=environment)
    return report


def document(report: AuditReport, head: str) -> dict[str, Any]:
    """Give the JSON form of one session's audit."""
    fields: dict[str, Any] = msgspec.to_builtins(report)
    advice = msgspec.to_builtins(recommendations(report))
    return fields | {"recommendations": advice, "head": head}
