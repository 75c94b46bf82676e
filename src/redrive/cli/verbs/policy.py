"""The verb `policy`: list and replay policies; its other verbs have files of their own."""

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from redrive import canonical
from redrive.app.policy_asking import dump_cache, read_cache
from redrive.app.policy_listing import list_policies
from redrive.app.policy_loading import find_policies
from redrive.app.policy_pool import MEMORY_BYTES, TIMEOUT_S
from redrive.app.policy_replay import AUGMENTED, STRICT, ReplayRequest, replay_policies
from redrive.cli import output
from redrive.cli.exits import Exit, worst
from redrive.cli.options import chosen_sessions, json_option, opened_store
from redrive.compare.policy_report import PolicyDocument, PolicyReport
from redrive.errors import StoreError, UsageError
from redrive.replay.policy import Lane
from redrive.reports.junit import policy_junit
from redrive.reports.policy import policy_lines
from redrive.reports.policy_html import html_page
from redrive.reports.redact import RULES_VERSION
from redrive.stores.port import Store

_MB = 1024 * 1024
_OTHERS: dict[str, tuple[str, str]] = {
    "annotate": ("redrive.cli.verbs.policy_labels", "annotate_verb"),
    "diff": ("redrive.cli.verbs.policy_live", "diff_verb"),
    "hook": ("redrive.cli.verbs.policy_live", "hook_verb"),
    "precision": ("redrive.cli.verbs.policy_labels", "precision_verb"),
}


class PolicyVerbs(click.Group):
    """Loads each further verb from its module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the verbs in the order of the work."""
        return [*super().list_commands(ctx), *_OTHERS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb."""
        if cmd_name in _OTHERS:
            module, name = _OTHERS[cmd_name]
            command: click.Command = getattr(import_module(module), name)
            return command
        return super().get_command(ctx, cmd_name)


@click.group("policy", cls=PolicyVerbs)
def policy_verb() -> None:
    """Test a policy on history before anyone meets it."""


@policy_verb.command("list")
@json_option
def list_verb(*, as_json: bool) -> int:
    """List the policies and inferences that are installed."""
    found = list_policies()
    if as_json:
        output.write_json({"schema": "redrive.policy_list", "schema_version": 1} | found)
    else:
        output.write_lines(
            f"{entry['name']}  {entry['lane']}  {entry['what']}" for entry in found["policies"]
        )
    return Exit.DONE


@policy_verb.command("replay")
@click.option("--policy", "policies", multiple=True, metavar="SPEC", help="NAME or PATH.py:NAME.")
@click.option("--sessions", multiple=True, metavar="ID", help="Ids, prefixes or all (default).")
@click.option("--model", metavar="SPEC", help="Who computes missing inferences.")
@click.option("--mode", type=click.Choice([STRICT, AUGMENTED]), help="strict computes none.")
@click.option("--offline", is_flag=True, help="Read inferences from the cache alone.")
@click.option("--cache", metavar="FILE", help="Take the answers of this file first.")
@click.option("--export-cache", metavar="FILE", help="Write all answers to this file at the end.")
@click.option("--branches", type=click.Choice(["head", "all"]), default="head", show_default=True)
@click.option("--fail-on-fire", is_flag=True, help="Exit 1 where a policy fires.")
@click.option("--max-fires", type=click.IntRange(min=0), help="Exit 1 above this many fires.")
@click.option("--recheck", type=click.Choice(["sample", "all"]), default="sample")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes; as many as processors.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=TIMEOUT_S)
@click.option("--memory", "memory_mb", type=click.IntRange(min=64), default=MEMORY_BYTES // _MB)
@click.option("--html", metavar="FILE", help="Write the report as one HTML file.")
@click.option("--junit", metavar="FILE", help="Write the report as JUnit XML.")
@json_option
@click.pass_obj
def replay_verb(store: str | None, /, **options: Any) -> int:
    """Replay policies over stored sessions: where would they have fired?"""
    codes = find_policies(options["policies"])
    with opened_store(store) as opened:
        if options["cache"]:
            added = read_cache(opened.policies, Path(options["cache"]))
            output.say(f"redrive: {added} answers taken from {options['cache']}")
        rows, damaged = chosen_sessions(opened, options["sessions"] or ("all",))
        request = read_request(opened.path, options)
        document = replay_policies(
            opened, codes, rows, request, output.redactor(), output.progress("policy replay")
        )
        if options["export_cache"]:
            write_file(options["export_cache"], b"".join(dump_cache(opened.policies)))
        is_kept = _keep(opened, document)
    for session in damaged:
        output.say(f"redrive: {session.session_id}: {session.fault}")
    say_if_partial(document)
    _show(document, options)
    code = exit_code(document, fail_on_fire=options["fail_on_fire"], max_fires=options["max_fires"])
    failed = [*([Exit.VIOLATED] if damaged else []), *([] if is_kept else [Exit.UNUSABLE])]
    return worst([code, *failed])


def say_if_partial(document: PolicyDocument) -> None:
    """Say that a replay was interrupted, and after how much."""
    if document.is_partial:
        n_done, n_left = len(document.sessions), len(document.sessions_left)
        said = f"{n_done} session{'' if n_done == 1 else 's'} replayed, {n_left} left"
        output.say(f"redrive: interrupted; {said}, no report stored")


def read_request(path: Path, options: dict[str, Any]) -> ReplayRequest:
    """Read the options that replaying verbs share.

    Raises:
        UsageError: two of them exclude each other.
    """
    if options["offline"] and options["mode"] == STRICT:
        raise UsageError("--offline reads inferences, --mode strict uses none", hint="give one")
    return ReplayRequest(
        store_path=path,
        model=options["model"],
        is_strict=options["mode"] == STRICT,
        is_offline=options["offline"],
        recheck_all=options.get("recheck") == "all",
        branches=options.get("branches", "head"),
        n_workers=options["workers"] or os.cpu_count() or 1,
        timeout_s=options.get("timeout_s", TIMEOUT_S),
        memory_bytes=options.get("memory_mb", MEMORY_BYTES // _MB) * _MB,
        redaction=RULES_VERSION,
    )


def _show(document: PolicyDocument, options: dict[str, Any]) -> None:
    if options["html"]:
        write_file(options["html"], html_page(document).encode("utf-8", "backslashreplace"))
    if options["junit"]:
        limit = options["max_fires"] or 0
        write_file(options["junit"], policy_junit(document, options["branches"], limit))
    if options["as_json"]:
        output.write_json(document)
    else:
        output.write_lines(policy_lines(document))


def write_file(name: str, data: bytes) -> None:
    """Write a file that the user named.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        Path(name).write_bytes(data)
    except OSError as error:
        raise UsageError(f"{name} cannot be written: {error.strerror}") from error


def _keep(store: Store, document: PolicyDocument) -> bool:
    """Store the report of each policy that was replayed whole, for `annotate`, and `hook`.

    Returns:
        Whether it could be stored; if not, that is said, and the report is shown all the same.
    """
    if document.is_partial or store.is_read_only:
        return True
    data = canonical.encode(document)
    now = time.time_ns()
    try:
        for report in document.reports:
            if report.on:  # it was loaded
                store.policies.put_report(report.policy, report.version, report.digest, data, now)
    except StoreError as error:
        output.say(f"redrive: the report is not stored: {error.message} (hint: {error.hint})")
        return False
    return True


def exit_code(
    document: PolicyDocument, *, fail_on_fire: bool = False, max_fires: int | None = None
) -> Exit:
    """Give the exit code of a replay: faults and broken invariants above all."""
    codes = [Exit.DONE]
    if document.is_partial:
        codes.append(Exit.INTERRUPTED)
    for report in document.reports:
        is_gate = report.lane == Lane.GATE
        if report.faults:
            codes.append(Exit.VIOLATED if is_gate else Exit.UNUSABLE)
        if any(check.status == "fail" for check in report.invariant_checks.values()):
            codes.append(Exit.VIOLATED)
        codes += [Exit.VIOLATED if s.is_tampered else Exit.UNUSABLE for s in report.unreplayable]
        limit = 0 if fail_on_fire and max_fires is None else max_fires
        if limit is not None and _fires(report, document.branches) > limit:
            codes.append(Exit.FINDING)
    return worst(codes)


def _fires(report: PolicyReport, branches: str) -> int:
    return report.fired if branches == "all" else report.fired_on_head_path
