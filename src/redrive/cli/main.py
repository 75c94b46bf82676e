"""The command group: finds a verb, runs it, and turns what it raises into one line and a code.

A verb's module is imported only when it is asked for. No traceback reaches a user.
"""

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from redrive.cli import output
from redrive.cli.exits import MEANINGS, Exit
from redrive.errors import RedriveError, UsageError
from redrive.reports.redact import Redactor
from redrive.stores.locate import find_home
from redrive.stores.redaction_key import RedactionKey, load_key

DEBUG_ENV = "REDRIVE_DEBUG"
VERBS = {
    "import": ("redrive.cli.verbs.importing", "Store recorded sessions, with a report per file."),
    "sessions": ("redrive.cli.verbs.seeing", "List stored sessions and threads."),
    "show": ("redrive.cli.verbs.seeing", "Show a session: timeline, branches, steps, cost."),
    "cat": ("redrive.cli.verbs.seeing", "Print a session's events as JSON lines."),
    "grep": ("redrive.cli.verbs.seeing", "Search what agents, tools and users said."),
    "audit": ("redrive.cli.verbs.audit", "Say whether the record is sufficient, step by step."),
    "redact": ("redrive.cli.verbs.redact", "Mask the secrets of stored sessions for good."),
    "verify": ("redrive.cli.verbs.store", "Check every digest and chain of the store."),
    "doctor": ("redrive.cli.verbs.store", "Check the installation and its plug-ins."),
    "shadow": ("redrive.cli.verbs.shadow", "Let a model decide again on recorded evidence."),
    "investigate": ("redrive.cli.verbs.shadow", "Audit, shadow, compare, and give the verdict."),
    "record": ("redrive.cli.verbs.record", "Record an agent, without a line of code."),
    "record-hook": ("redrive.cli.verbs.record_hook", "Report a hook of Claude Code to a recorder."),
    "mcp": ("redrive.cli.verbs.mcp", "Record the tools of an MCP server, from its client's side."),
    "rerun": ("redrive.cli.verbs.rerun", "Run an agent's own code again on what was recorded."),
    "eligible": ("redrive.cli.verbs.eligible", "Say whether a workflow reaches an unsafe tool."),
    "trial": (
        "redrive.cli.verbs.trial",
        "Re-run tasks under new workflow versions, in the sandbox.",
    ),
    "policy": ("redrive.cli.verbs.policy", "Test a policy on history before anyone meets it."),
    "diff": ("redrive.cli.verbs.shadow", "Compare two recorded sessions, decision by decision."),
}

_SILENT = frozenset({"record-hook"})
"""Verbs that write nothing, and need no stdout."""


class Verbs(click.Group):
    """Loads each verb from its module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List the verbs in the order of the main job."""
        return list(VERBS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import a verb."""
        if cmd_name not in VERBS:
            return None
        module = import_module(VERBS[cmd_name][0])
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_verb")
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of verbs without importing them."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, line) for name, (_, line) in VERBS.items()])
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in MEANINGS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--store", metavar="PATH", help="The store's file; else $REDRIVE_STORE, …/.redrive.")
@click.version_option(package_name="redrive", message="redrive %(version)s")
@click.pass_context
def redrive(ctx: click.Context, store: str | None) -> None:
    """Re-drive recorded AI-agent sessions and get a verdict that can be defended."""
    ctx.obj = store


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit code. Errors are one line on stderr, or an error document on stdout with `--json`.
    """
    sys.set_int_max_str_digits(4300)
    signal.signal(signal.SIGTERM, _interrupt)
    wants_json = _wants_json(arguments) and sys.stdout is not None
    try:
        key = load_key(os.environ, find_home)
        output.use_redactor(Redactor(key.key))
        code = _invoke(arguments)
        _tell_of_key(key)
        return code
    except (KeyboardInterrupt, click.Abort):
        output.say("redrive: interrupted; what was finished before is stored")
        return Exit.INTERRUPTED
    except click.ClickException as error:
        return _fail(_as_usage(error), wants_json=wants_json)
    except RedriveError as error:
        return _fail(error, wants_json=wants_json)
    except BrokenPipeError:
        output.drop_stdout()
        return Exit.DONE
    except OSError as error:  # an error of any file is a RedriveError by now: this is stdout
        output.drop_stdout()
        output.say(f"redrive: stdout cannot be written: {error.strerror}")
        return Exit.UNUSABLE
    except Exception as error:  # noqa: BLE001 - the last door: a fault of redrive itself
        if os.environ.get(DEBUG_ENV):
            output.say_lines(traceback.format_exc())
        return _fail(_as_internal(error), wants_json=wants_json)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Say whether `--json` is ours: what stands behind `--` is a command's own."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


def _tell_of_key(key: RedactionKey) -> None:
    """Say that marks match those of no other run, where there are any."""
    if key.problem and output.redactor().n_marks:
        output.say(f"redrive: redaction marks match no other run's: {key.problem}")


def _invoke(arguments: Sequence[str]) -> int:
    """Run one command line; not by click's `main`, which ends the process on a closed pipe."""
    if sys.stdout is None and not _SILENT.intersection(arguments):
        error = RedriveError("stdout is closed")
        if "--fail-closed" in arguments:  # of `policy hook`: what cannot answer must block
            error.exit_code = Exit.USAGE
        raise error
    try:
        with redrive.make_context("redrive", list(arguments)) as context:
            return int(redrive.invoke(context) or 0)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(error.format_message() + "\n")
        return Exit.USAGE


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _as_usage(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context is not None else "redrive --help"
    if getattr(error, "option_name", None) == "--store":
        hint = "--store stands before the verb"
    return UsageError(error.format_message().replace("\n", " "), hint=hint)


def _as_internal(error: Exception) -> RedriveError:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    where = "" if last is None else f"{last.tb_frame.f_globals.get('__name__')}:{last.tb_lineno}"
    return RedriveError(
        f"a fault of redrive itself: {type(error).__name__}: {error}".splitlines()[0],
        where=where,
        hint=f"please report it, with the traceback that {DEBUG_ENV}=1 shows",
    )


def _fail(error: RedriveError, *, wants_json: bool) -> int:
    code = error.exit_code
    if wants_json:
        output.write_json(output.error_document(error, code))
    place = f"{error.where}: " if error.where and error.where not in error.message else ""
    line = f"redrive: {place}{error.message}"
    if error.hint:
        line += f" (hint: {error.hint})"
    output.say(line)
    return code
