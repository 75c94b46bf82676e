"""The verb `import`."""

from pathlib import PurePath
from typing import Any

import click
import msgspec

from redrive.app.import_report import (
    FileReport,
    ImportReport,
    Refused,
    check_any,
    report_error,
    report_of,
)
from redrive.app.importing import import_each
from redrive.app.sources import Found, find_files
from redrive.cli import output
from redrive.cli.exits import Exit, worst
from redrive.cli.options import json_option, opened_store
from redrive.errors import RedriveError, UsageError
from redrive.reports.counts import counted
from redrive.stores.port import Store

Stop = RedriveError | KeyboardInterrupt


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
    found = find_files(wanted)
    work = _Work(found, as_json=as_json)
    with opened_store(ctx.obj, create=True) as store:
        stop = work.run(store, format_name)
    report = report_of(found, work.entries)
    if stop is None:
        check_any(report, wanted)
    return _finish(report, stop, strict=strict, as_json=as_json)


class _Work:
    """Imports the files that were found, and keeps what became of each; text is shown at once."""

    def __init__(self, found: Found, *, as_json: bool) -> None:
        self.entries: list[FileReport | Refused] = []
        self._found = found
        self._progress = output.progress("importing")
        self._is_silent = as_json

    def run(self, store: Store, format_name: str | None) -> Stop | None:
        """Import all; give what stopped it, if something did.

        Raises:
            UsageError: the format is unknown.
            OSError: the lines could not be written; everything is imported all the same.
        """
        unwritten: OSError | None = None
        try:
            for entry in import_each(
                store, self._found, format_name=format_name, progress=self._progress
            ):
                self.entries.append(entry)
                try:
                    self._show(entry)
                except OSError as error:  # who reads may have seen enough
                    unwritten, self._is_silent = error, True
        except UsageError:
            raise
        except (RedriveError, KeyboardInterrupt) as error:
            self._progress(0, 0, "")
            return error
        if unwritten is not None:
            raise unwritten
        return None

    def _show(self, entry: FileReport | Refused) -> None:
        if not self._is_silent and isinstance(entry, FileReport):
            self._progress(0, 0, "")
            output.write_lines(_lines_of(entry))


def _finish(report: ImportReport, stop: Stop | None, *, strict: bool, as_json: bool) -> int:
    """Show what is not shown yet; give the exit code."""
    error = stop if isinstance(stop, RedriveError) else report_error(report)
    codes = [Exit.DONE if error is None else error.exit_code]
    if isinstance(stop, KeyboardInterrupt):
        codes.append(Exit.INTERRUPTED)
    if strict and report.has_damage:
        codes.append(Exit.UNUSABLE)
    if as_json:
        output.write_json(document(report, error))
    else:
        output.write_lines(_closing_lines(report))
    for entry in report.refused:
        if entry.is_named:
            output.say(f"redrive: {entry.reason}{_hint(entry.hint)}")
    if stop is not None:
        output.say(f"redrive: {_said(stop, report)}")
    return worst(codes)


def _said(stop: Stop, report: ImportReport) -> str:
    done = f"{counted(len(report.files), 'file')} stored, {report.unfinished} left undone"
    if isinstance(stop, KeyboardInterrupt):
        return f"interrupted; {done}"
    return f"{stop.message}; {done}{_hint(stop.hint)}"


def _hint(hint: str) -> str:
    return f" (hint: {hint})" if hint else ""


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
    result: dict[str, Any] = {"schema": "redrive.import", "schema_version": 1}
    result |= msgspec.to_builtins(report) | {"files": files}
    if error is not None:
        result["error"] = output.error_document(error, error.exit_code)["error"]
    return result


_COUNTED = {
    "records": "record",
    "model_calls": "model call",
    "tool_calls": "tool call",
    "tool_results": "result",
}


def _lines_of(entry: FileReport) -> list[str]:
    """Give the lines of one imported file."""
    counts = ", ".join(counted(entry.counts[key], noun) for key, noun in _COUNTED.items())
    lines = [f"{output.escape(entry.path)}  {entry.format}: {counts}"]
    lines += [
        f"  damage: line {part.line}, {counted(part.bytes, 'byte')}: {output.escape(part.reason)}"
        for part in entry.damage
    ]
    lines += [f"  lost: {output.escape(text)}" for text in entry.lost]
    for session in entry.sessions:
        state = "complete" if session.summary.get("complete") else "incomplete"
        lines.append(
            f"  {output.escape(session.session_id)}  {session.change}"
            f" ({counted(session.events_added, 'event')} added), {state},"
            f" head {session.head[:16]}"
        )
    return lines


def _closing_lines(report: ImportReport) -> list[str]:
    """Give the lines on what was not imported, but for files that the user named."""
    unnamed = [entry for entry in report.refused if not entry.is_named]
    lines = [
        f"not read: {output.escape(entry.reason)}{_hint(entry.hint)}"
        for entry in unnamed
        if entry.is_unreadable
    ]
    foreign = sum(not entry.is_unreadable for entry in unnamed)
    links, folders = report.links_not_followed, report.folders_left_out
    if foreign:
        are = ("file is no session and was", "files are no sessions and were")
        lines.append(f"{counted(foreign, *are)} left alone")
    if links:
        lines.append(f"{counted(links, 'link was', 'links were')} not followed")
    if folders:
        names = ", ".join(sorted({PurePath(folder).name for folder in folders}))
        lines.append(f"{counted(len(folders), 'folder')} left out: {names}")
    return lines
