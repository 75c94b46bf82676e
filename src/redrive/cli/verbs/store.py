"""The verbs about the store and the installation: `verify`, `doctor`."""

import click
import msgspec

from redrive.cli import output
from redrive.cli.exits import Exit
from redrive.cli.options import json_option, opened_store
from redrive.reports.counts import counted


@click.command("verify")
@click.argument("session", required=False)
@click.option("--head", metavar="DIGEST", help="Check that this head is still there.")
@json_option
@click.pass_context
def verify_verb(
    ctx: click.Context,
    session: str | None,
    head: str | None,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Check every digest, chain and catalogue row; exit 7 where one does not match."""
    with opened_store(ctx.obj) as store:
        is_whole = session is None or session == "all"
        wanted = None if is_whole else store.get_session(str(session)).session_id
        result = store.verify(wanted, head)
    if as_json:
        output.write_json(
            {
                "schema": "redrive.verify",
                "schema_version": 1,
                "ok": result.is_ok,
                "checked": result.checked,
                "heads": result.heads,
                "faults": msgspec.to_builtins(result.faults),
            }
        )
    else:
        lines = [f"{output.escape(name)}  head {digest}" for name, digest in result.heads.items()]
        lines += [
            f"FAULT {output.escape(fault.session_id) or 'store'}"
            f"{'' if fault.seq is None else f' from event {fault.seq}'}:"
            f" {output.escape(fault.fault)}"
            for fault in result.faults
        ]
        lines.append(
            f"{counted(result.checked, 'digest')} checked, {counted(len(result.faults), 'fault')}"
        )
        output.write_lines(lines)
    return Exit.DONE if result.is_ok else Exit.VIOLATED


@click.command("doctor")
@json_option
@click.pass_context
def doctor_verb(ctx: click.Context, as_json: bool) -> int:  # noqa: FBT001
    """Check the installation: store, plug-ins, local model; exit 6 where something is broken."""
    from redrive.app.doctor import examine, examine_sandbox

    findings = examine(ctx.obj)
    is_ok = all(finding.is_ok or finding.is_optional for finding in findings)
    if as_json:
        output.write_json(
            {
                "schema": "redrive.doctor",
                "schema_version": 1,
                "ok": is_ok,
                "findings": msgspec.to_builtins(findings),
                "sandbox": msgspec.to_builtins(examine_sandbox()),
            }
        )
    else:
        output.write_lines(
            f"{'ok  ' if finding.is_ok else 'MISS' if finding.is_optional else 'FAIL'}"
            f"  {finding.what}: {output.escape(finding.detail)}"
            for finding in findings
        )
    return Exit.DONE if is_ok else Exit.UNUSABLE
