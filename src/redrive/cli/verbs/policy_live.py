"""The verbs `policy diff` and `policy hook`."""

import sys
from contextlib import closing
from typing import Any

import click

from redrive import canonical, plugins
from redrive.app.policy_asking import Asking
from redrive.app.policy_live import decide_live
from redrive.app.policy_loading import find_policies, find_policy
from redrive.app.policy_replay import AUGMENTED, STRICT, replay_policies
from redrive.cli import output
from redrive.cli.exits import Exit, worst
from redrive.cli.options import chosen_sessions, json_option, opened_store
from redrive.cli.verbs.policy import (
    exit_code,
    read_request,
    say_if_partial,
    write_file,
)
from redrive.compare.policy_diff import diff_reports
from redrive.errors import RedriveError, UsageError
from redrive.models.options import ModelOptions, parse_spec
from redrive.policies.hook_protocol import MAX_BYTES, parse_input
from redrive.reports.policy import diff_lines
from redrive.reports.sarif import policy_diff_sarif

BLOCK = 2


@click.command("diff")
@click.argument("old")
@click.argument("new")
@click.option("--sessions", multiple=True, metavar="ID", help="Ids, prefixes or all (default).")
@click.option("--model", metavar="SPEC", help="Who computes missing inferences.")
@click.option("--mode", type=click.Choice([STRICT, AUGMENTED]), help="strict computes none.")
@click.option("--offline", is_flag=True, help="Read inferences from the cache alone.")
@click.option("--fail-on-widening", is_flag=True, help="Exit 1 where NEW fires more on live paths.")
@click.option("--sarif", metavar="FILE", help="Write new fires as SARIF 2.1.0.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes; as many as processors.")
@json_option
@click.pass_obj
def diff_verb(store: str | None, /, **options: Any) -> int:
    """Compare two versions of a policy: PATH.py:NAME, PATH.py:NAME@REVISION, or a name."""
    codes = find_policies([options["old"], options["new"]])
    if len(codes) != 2:
        raise UsageError("policy diff compares two policies", hint="name one on each side")
    with opened_store(store) as opened:
        rows, damaged = chosen_sessions(opened, options["sessions"] or ("all",))
        request = read_request(opened.path, options)
        progress = output.progress("policy diff")
        document = replay_policies(opened, codes, rows, request, output.redactor(), progress)
    say_if_partial(document)
    old, new = document.reports
    diff = diff_reports(old, new, document.sessions)
    if options["sarif"]:
        write_file(options["sarif"], canonical.encode(policy_diff_sarif(diff)) + b"\n")
    if options["as_json"]:
        output.write_json(diff)
    else:
        output.write_lines(diff_lines(diff))
    for session in damaged:
        output.say(f"redrive: {session.session_id}: {session.fault}")
    codes_found = [exit_code(document), *([Exit.VIOLATED] if damaged else [])]
    if options["fail_on_widening"] and diff.widened:
        codes_found.append(Exit.FINDING)
    return worst(codes_found)


class _Hook(click.Command):
    """A command whose usage errors are no decision: exit code 2 would block the agent."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; what is wrong with them exits as any other fault of the hook does."""
        code = BLOCK if "--fail-closed" in args else Exit.UNUSABLE
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            output.say(f"redrive policy hook: {error.format_message()} (hint: --help)")
            raise click.exceptions.Exit(code) from error


@click.command("hook", cls=_Hook)
@click.argument("policy")
@click.option("--unreplayed", is_flag=True, help="Decide although no replay report is stored.")
@click.option("--fail-closed", is_flag=True, help="Block (exit 2) where no decision can be made.")
@click.option("--model", metavar="SPEC", help="Who computes inferences.")
@click.pass_obj
def hook_verb(store: str | None, /, **options: Any) -> int:
    """Decide as a hook command of Claude Code, with the code that was replayed.

    Exit code 2 would block the agent, so whatever goes wrong exits with 6, and Claude Code shows
    the line and goes on; --fail-closed blocks instead.
    """
    try:
        _hook(store, options)
    except RedriveError as error:
        hint = f" (hint: {error.hint})" if error.hint else ""
        where = f"{error.where}: " if error.where and error.where not in error.message else ""
        output.say(f"redrive policy hook: {where}{error.message}{hint}")
        return BLOCK if options["fail_closed"] else Exit.UNUSABLE
    except Exception as error:  # a fault of redrive itself: it blocks, too, where it should
        if not options["fail_closed"]:
            raise
        output.say(f"redrive policy hook: a fault of redrive itself: {type(error).__name__}")
        return BLOCK
    return Exit.DONE


def _hook(store: str | None, options: dict[str, Any]) -> None:
    if sys.stdin is None:
        raise UsageError("stdin is closed", hint="Claude Code gives a hook its input there")
    hook_input = parse_input(sys.stdin.buffer.read(MAX_BYTES + 1))
    code = find_policy(options["policy"])
    with opened_store(store, create=options["unreplayed"]) as opened:
        if options["model"] is None:
            decision = decide_live(opened, code, hook_input, allow_unreplayed=options["unreplayed"])
        else:
            spec = parse_spec(options["model"])
            model = plugins.load(plugins.MODELS, spec.kind)(spec.argument, ModelOptions())
            with closing(model):
                asking = Asking(opened.policies, options["model"], model, is_offline=False)
                decision = decide_live(
                    opened,
                    code,
                    hook_input,
                    allow_unreplayed=options["unreplayed"],
                    answer=asking.answer,
                )
    if decision.problem:
        output.say(f"redrive policy hook: this decision is not recorded: {decision.problem}")
    if decision.output:
        output.write_bytes([output.redactor().json(decision.output), b"\n"])
