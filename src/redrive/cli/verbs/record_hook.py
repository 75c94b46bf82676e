"""The verb `record-hook`: what a hook of Claude Code is told, handed to the recorder."""

import os
import sys
from contextlib import suppress

import click

from redrive.app.hook_reporting import end_in_time, report_to_recorder
from redrive.capture.claude_hooks import MAX_BYTES
from redrive.cli.exits import Exit


class _Silent(click.Command):
    """A command whose usage errors are silent: exit code 2 would block the agent's tool."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; what is wrong with them ends the command, and nothing else."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            raise click.exceptions.Exit(Exit.DONE) from error


@click.command("record-hook", cls=_Silent)
def record_hook_verb() -> int:
    """Hand a hook's input to the recorder that runs; for the settings of Claude Code.

    Reads one JSON object on standard input. Prints nothing and exits with 0 within four seconds,
    whatever goes wrong: recording must not disturb the agent. The recorder tells its operator.
    """
    timer = end_in_time()
    # Whatever it is: a recorder that is gone, an input that is none, an interrupt.
    with suppress(Exception, KeyboardInterrupt):
        if sys.stdin is not None:
            report_to_recorder(sys.stdin.buffer.read(MAX_BYTES + 1), os.environ)
    timer.cancel()
    return Exit.DONE
