"""The verb `import`."""

from typing import Any

import click
import msgspec

from redrive.app.importing import ImportReport, import_paths, report_error
from redrive.cli import output
from redrive.cli.exits import Exit, worst
from redrive.cli.options import json_option, opened_store
from redrive.errors import RedriveError, UsageError


@click.command("import")
@click.argument("paths", nargs=-1, metavar="PATH…")
@click.option("--format", "format_name", metavar="NAME", help="The importer to use.")
@click.option("--discover", is_flag=True, help="Find the folders of installed agents.")
@click.option("--strict", is_flag=True, help="Exit 6 where any file is damaged.")
@json_option
@click.pass_context
def import_verb(
    ctx: click.Context,
    paths: tuple[str, ...],
    format_name: str | None,
    discover: bool,  # noqa: FBT001 - a flag of the command line
    strict: bool,  # noqa: FBT001
    as_json: bool,  # noqa: FBT001
) -> int:
    """Store recorded sessions: files, or folders that are walked."""
    wanted = [*paths, *(_discovered() if discover else ())]
    if not wanted:
        raise UsageError("nothing to import", hint="name a file or folder, or use --discover")
    with opened_store(ctx.obj, create=True) as store:
        report = import_paths(
            store, wanted, format_name=format_name, progress=output.progress("importing")
        )
    error = report_error(report)
    codes = [error.exit_code if error else Exit.DONE]
    if strict and report.has_damage:
        codes.append(Exit.UNUSABLE)
    if as_json:
        output.write_json(document(report, error))
    else:
        output.write_lines(_lines(report))
    for entry in report.refused:
        if entry.is_named:
            output.say(f"redrive: {entry.reason}")
    return worst(codes)


def _discovered() -> list[str]:
    from redrive.app.discovery import discovered_folders

    folders = discovered_folders()
    if not folders:
        raise UsageError("no folder of an installed agent was found", hint="name a folder")
    return [str(folder) for folder in folders]


def document(report: ImportReport, error: RedriveError | None) -> dict[str, Any]:
    """Give the JSON form of an import."""
    files = []
    for entry in report.files:
        fields = msgspec.to_builtins(entry)
        counts = fields.pop("counts")
        for session in fields["sessions"]:
            session |= session.pop("summary")
        files.append(fields | counts)
    result = {
        "schema": "redrive.import",
        "schema_version": 1,
        "files": files,
        "refused": msgspec.to_builtins(report.refused),
    }
    if error is not None:
        result["error"] = output.error_document(error, error.exit_code)["error"]
    return result


def _lines(report: ImportReport) -> list[str]:
    lines = []
    for entry in report.files:
        counts = entry.counts
        lines.append(
            f"{output.escape(entry.path)}  {entry.format}: {counts['records']} records,"
            f" {counts['model_calls']} model calls, {counts['tool_calls']} tool calls,"
            f" {counts['tool_results']} results"
        )
        lines += [
            f"  damage: line {part.line}, {part.bytes} bytes: {output.escape(part.reason)}"
            for part in entry.damage
        ]
        lines += [f"  lost: {output.escape(text)}" for text in entry.lost]
        for session in entry.sessions:
            summary = session.summary
            state = "complete" if summary.get("complete") else "incomplete"
            lines.append(
                f"  {output.escape(session.session_id)}  {session.change}"
                f" ({session.events_added} events added), {state}, head {session.head[:16]}"
            )
    skipped = [entry for entry in report.refused if not entry.is_named]
    if skipped:
        lines.append(f"{len(skipped)} files are no sessions and were left alone")
    return lines
