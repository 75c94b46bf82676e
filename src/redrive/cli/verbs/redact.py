"""The verb `redact`."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click
import msgspec

from redrive.cli import output
from redrive.cli.exits import Exit, worst
from redrive.cli.options import chosen_sessions, json_option, opened_store
from redrive.cli.verbs.seeing import say_damaged
from redrive.errors import StoreError
from redrive.reports.redaction import RedactionReport, redaction_lines
from redrive.stores.locate import find_home
from redrive.stores.port import Store
from redrive.stores.recording_lock import hold_session
from redrive.stores.redaction_key import load_key


@click.command("redact")
@click.argument("sessions", nargs=-1, required=True, metavar="SESSION…")
@click.option("--dry-run", is_flag=True, help="Say what would be masked, and change nothing.")
@json_option
@click.pass_context
def redact_verb(
    ctx: click.Context,
    sessions: tuple[str, ...],
    dry_run: bool,  # noqa: FBT001 - a flag of the command line
    as_json: bool,  # noqa: FBT001
) -> int:
    """Mask the secrets of stored sessions for good; what held them leaves the store."""
    from redrive.app.redacting import redact_sessions
    from redrive.capture.exchanges import decode_content

    key = load_key(os.environ, find_home)
    if key.problem and not dry_run:
        raise StoreError(
            f"marks that stay need a key that stays: {key.problem}",
            hint="name a file for it: REDRIVE_REDACTION_KEY_FILE",
        )
    with opened_store(ctx.obj) as store:
        rows, damaged = chosen_sessions(store, sessions)
        report = redact_sessions(
            store,
            rows,
            key.key,
            decode=decode_content,
            hold=lambda base_id: _held(store, base_id),
            is_dry_run=dry_run,
            progress=output.progress("redacting"),
        )
    if as_json:
        output.write_json(
            {
                "schema": "redrive.redact",
                "schema_version": 1,
                **msgspec.to_builtins(report),
                "damaged": damaged,
            }
        )
    else:
        output.write_lines(redaction_lines(report))
    return worst((say_damaged(damaged), _code_of(report)))


def _code_of(report: RedactionReport) -> Exit:
    return Exit.UNUSABLE if report.left else Exit.DONE


@contextmanager
def _held(store: Store, base_id: str) -> Iterator[None]:
    lock = hold_session(store.path, base_id)
    try:
        yield
    finally:
        lock.release()
