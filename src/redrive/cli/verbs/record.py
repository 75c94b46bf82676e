"""The verb `record`: an agent in any language, recorded without a line of code."""

import os
import sys
from typing import Any

import click
import msgspec

from redrive.cli import output
from redrive.cli.exits import Exit
from redrive.cli.options import json_option
from redrive.record.decisions import JSON_CONTENT, TOOL_CALLS
from redrive.reports.counts import counted


@click.command("record", context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--agent", metavar="NAME", help="Its name; else the program's.")
@click.option("--task", metavar="TEXT", help="What it was asked.")
@click.option(
    "--decisions",
    type=click.Choice([TOOL_CALLS, JSON_CONTENT]),
    default=TOOL_CALLS,
    help="Where decisions stand in an answer.",
)
@click.option("--model", metavar="SPEC", help="local[:OPTIONS]: the local engine as OpenAI's API.")
@click.option(
    "--token-evidence",
    is_flag=True,
    help="Ask for token ids and log-probabilities too; this changes requests, and is recorded.",
)
@click.option("--sync", is_flag=True, help="Each event is durable before the agent goes on.")
@click.option("--fail-closed", is_flag=True, help="What cannot be recorded stops the agent.")
@click.option(
    "--redact-at-write", is_flag=True, help="Mask secrets before anything is stored; opens steps."
)
@json_option
@click.pass_context
def record_verb(ctx: click.Context, /, as_json: bool, **fields: Any) -> int:  # noqa: FBT001
    """Run COMMAND with a recording proxy before its model; exits with its code."""
    from redrive.app.record_command import RecordRequest, record_command
    from redrive.app.recorder_opening import RecorderOptions
    from redrive.stores.locate import find_cwd, find_home, locate_store

    recorder = RecorderOptions(fields["sync"], fields["fail_closed"], fields["redact_at_write"])
    request = RecordRequest(
        command=tuple(fields["command"]),
        agent=fields["agent"],
        task=fields["task"],
        decisions=fields["decisions"],
        model=fields["model"],
        token_evidence=fields["token_evidence"],
        recorder=recorder,
    )
    path = locate_store(ctx.obj, os.environ, find_cwd, find_home)
    # With --json nothing but the document may stand on stdout.
    stdout = sys.stderr.fileno() if as_json else None
    outcome = record_command(request, path, os.environ, stdout=stdout)
    if as_json:
        document = {"schema": "redrive.record", "schema_version": 1}
        output.write_json(document | msgspec.to_builtins(outcome))
    for session in outcome.sessions:
        how = "by the agent itself"
        if session.exchanges is not None:
            how = counted(session.exchanges, "exchange")
        output.say(f"redrive: recorded {session.session_id} ({how})")
    if not outcome.sessions:
        output.say("redrive: nothing was recorded: no request passed the proxy")
    if outcome.faults and outcome.exit_code == 0:
        return Exit.UNUSABLE
    return outcome.exit_code
