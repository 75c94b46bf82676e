"""The verb `rerun`: an agent's own command runs again on what was recorded, in the sandbox."""

import os
from typing import Any

import click

from redrive.cli import output
from redrive.cli.options import json_option, opened_store


@click.command("rerun", context_settings={"ignore_unknown_options": True})
@click.argument("session")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--model", metavar="SPEC", help="A live model answers; the rest is served.")
@click.option(
    "--prove",
    is_flag=True,
    help="Rerun under other hash seeds, time zones and cpu counts too; write the proved basis.",
)
@click.option("--no-recompute", is_flag=True, help="Serve derived values without computing them.")
@click.option("--env", "passed", multiple=True, metavar="NAME", help="Pass a variable on.")
@click.option("--readable", multiple=True, metavar="PATH", help="Show a further file or folder.")
@click.option("--copy", "is_copied", is_flag=True, help="Work in a private copy of the folder.")
@click.option("--show-output", is_flag=True, help="Show what the command wrote, on stderr.")
@json_option
@click.pass_context
def rerun_verb(ctx: click.Context, /, as_json: bool, **fields: Any) -> int:  # noqa: FBT001
    """Run COMMAND again on a recorded SESSION: no network, everything else is served."""
    import msgspec

    from redrive.app.rerun_confined import ConfinedRerun
    from redrive.app.rerun_proof import write_basis
    from redrive.app.rerun_serving import RerunRequest, rerun_command
    from redrive.compare.rerun_document import dump_rerun
    from redrive.reports.rerun import rerun_lines
    from redrive.stores.locate import find_cwd

    runner = ConfinedRerun(
        find_cwd(),
        os.environ,
        passed=fields["passed"],
        readable=fields["readable"],
        is_cwd_copied=fields["is_copied"],
        on_output=_show if fields["show_output"] else _hide,
    )
    request = RerunRequest(
        session=fields["session"],
        command=tuple(fields["command"]),
        model=fields["model"],
        recompute=not fields["no_recompute"],
        prove=fields["prove"],
        variables=os.environ,
    )
    with opened_store(ctx.obj) as store:
        report = rerun_command(store, request, runner, write_basis)
    if as_json:
        output.write_json(msgspec.Raw(dump_rerun(report.document)))
    else:
        output.write_lines(rerun_lines(report.document))
    return report.document.exit_code


def _show(stdout: bytes, stderr: bytes) -> None:
    for name, data in (("stdout", stdout), ("stderr", stderr)):
        if data:
            output.say(f"--- {name} of the command")
            output.say_lines(data.decode("utf-8", "replace"))


def _hide(stdout: bytes, stderr: bytes) -> None:
    """Show nothing."""
