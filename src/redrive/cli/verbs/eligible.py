"""The verb `eligible`."""

import click

from redrive.cli import output
from redrive.cli.exits import Exit
from redrive.cli.options import json_option


@click.command("eligible")
@click.argument("workflow", metavar="WORKFLOW")
@click.option(
    "--simulate",
    "simulate",
    multiple=True,
    metavar="ID",
    help="Let this tool's simulator stand in.",
)
@click.option(
    "--registry", metavar="FILE", help="Tools and aliases as JSON, for a WORKFLOW that is JSON."
)
@json_option
def eligible_verb(
    workflow: str,
    simulate: tuple[str, ...],
    registry: str | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Say before anything runs whether a workflow reaches an unsafe tool; exit 4 if it does."""
    from redrive.app.trial_eligible import (
        dump_view,
        find_eligibility,
    )  # late: it starts the sandbox
    from redrive.reports.trial_eligible import eligible_lines

    view = find_eligibility(workflow, simulate=simulate, registry=registry)
    if as_json:
        output.write_json(dump_view(view))
    else:
        output.write_lines(eligible_lines(view))
    return Exit.DONE if view.eligible else Exit.INELIGIBLE
