"""The verbs `shadow`, `investigate` and `diff`."""

import os
from collections.abc import Callable
from typing import Any

import click
import msgspec

from redrive import canonical
from redrive.app.diffing import DiffResult, diff_paths
from redrive.app.framing import read_frame
from redrive.app.shadowing import ShadowRequest, ShadowResult, run_shadow
from redrive.cli import output
from redrive.cli.exits import Exit
from redrive.cli.options import json_option, opened_store
from redrive.compare.divergence import MAX_DIFFERENCES
from redrive.compare.document import dump_document
from redrive.reports.shadow import diff_lines, investigation_lines, shadow_lines

_COUNT = click.IntRange(min=0)
_ORDINAL = click.IntRange(min=1)

_SHARED = (
    click.argument("session"),
    click.option("--model", metavar="SPEC", required=True, help="Who decides again."),
    click.option("--path", metavar="NODE", help="The node to end at (default: the head)."),
    click.option("--actor", metavar="NAME", help="The flow to follow (default: main)."),
    click.option("--until", type=_ORDINAL, metavar="N", help="Only the first N decisions."),
    click.option("--from", "start", type=_ORDINAL, default=1, metavar="N", help="Begin at N."),
    click.option(
        "--outcome",
        type=click.Choice(["success", "failure"]),
        help="How the recorded run ended, where the record does not say.",
    ),
    click.option("--extra", type=_COUNT, default=3, help="Decisions beyond the record."),
    click.option("--max-differences", type=_COUNT, default=MAX_DIFFERENCES, help="Listed at most."),
    click.option(
        "--sampling",
        type=click.Choice(["zero", "recorded"]),
        default="zero",
        help="Temperature 0, or what is recorded.",
    ),
    click.option("--seed", type=int, help="Seed to set."),
    click.option(
        "--decisions",
        type=click.Choice(["tool_calls", "json_content"]),
        help="Where decisions stand in an answer (default: as the session says).",
    ),
    click.option("--reconstruct", is_flag=True, help="Replay an open trajectory too."),
    click.option("--system", metavar="FILE", help="Reconstruction: the system prompt, as text."),
    click.option("--tools", metavar="FILE", help="Reconstruction: tool schemas, a JSON list."),
    json_option,
)


def _shared_options(command: Callable[..., int]) -> Callable[..., int]:
    for option in reversed(_SHARED):
        command = option(command)
    return command


@click.command("shadow")
@_shared_options
@click.pass_context
def shadow_verb(ctx: click.Context, /, as_json: bool, **fields: Any) -> int:  # noqa: FBT001
    """Let a model decide again on the recorded evidence of one session; nothing is executed."""
    result = _run(ctx.obj, fields)
    if as_json:
        output.write_json(msgspec.Raw(dump_document(result.document)))
    else:
        output.write_lines(shadow_lines(result.document, result.head))
    return result.document.exit_code


@click.command("investigate")
@_shared_options
@click.pass_context
def investigate_verb(ctx: click.Context, /, as_json: bool, **fields: Any) -> int:  # noqa: FBT001
    """Audit, shadow, compare and give the verdict: the main job in one command."""
    result = _run(ctx.obj, fields)
    if as_json:
        output.write_json(investigation_document(result))
    else:
        output.write_lines(investigation_lines(result.document, result.audit, result.head))
    return result.document.exit_code


def _run(store_path: str | None, fields: dict[str, Any]) -> ShadowResult:
    request = ShadowRequest(
        session=fields["session"],
        model=fields["model"],
        path=fields["path"],
        actor=fields["actor"],
        until=fields["until"],
        start=fields["start"],
        outcome=fields["outcome"],
        extra=fields["extra"],
        max_differences=fields["max_differences"],
        is_sampling_recorded=fields["sampling"] == "recorded",
        seed=fields["seed"],
        decisions=fields["decisions"],
        is_reconstruction=fields["reconstruct"],
        frame=read_frame(fields["system"], fields["tools"], is_used=fields["reconstruct"]),
    )
    with opened_store(store_path) as store:
        return run_shadow(
            store, request, environment=os.environ, progress=output.progress("decision")
        )


def investigation_document(result: ShadowResult) -> dict[str, Any]:
    """Give the JSON form of an investigation: the audit and the shadow document, whole."""
    from redrive.cli.verbs.audit import document

    return {
        "schema": "redrive.investigation",
        "schema_version": 1,
        "session_id": result.document.session_id,
        "verdict": result.document.verdict,
        "attribution": result.document.attribution,
        "audit": document(result.audit, result.head),
        "shadow": msgspec.Raw(canonical.encode(result.document)),
        "head": result.head,
    }


@click.command("diff")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B", required=False)
@click.option("--path-a", metavar="NODE", help="The node at which A ends (default: its head).")
@click.option("--path-b", metavar="NODE", help="The node at which B ends.")
@click.option("--actor", metavar="NAME", help="The flow to compare (default: main).")
@click.option("--max-differences", type=_COUNT, default=MAX_DIFFERENCES, help="Listed at most.")
@json_option
@click.pass_context
def diff_verb(
    ctx: click.Context,
    left: str,
    right: str | None,
    path_a: str | None,
    path_b: str | None,
    actor: str | None,
    max_differences: int,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Compare two recorded sessions, or two paths of one; exit 1 where decisions differ."""
    with opened_store(ctx.obj) as store:
        result = diff_paths(
            store,
            (left, right or left),
            (path_a, path_b),
            actor=actor,
            max_differences=max_differences,
        )
    if as_json:
        output.write_json(diff_document(result))
    else:
        output.write_lines(diff_lines(result.left.name, result.right.name, result.comparison))
    return Exit.DONE if result.comparison.n_differences == 0 else Exit.FINDING


def diff_document(result: DiffResult) -> dict[str, Any]:
    """Give the JSON form of a comparison."""
    fields: dict[str, Any] = msgspec.structs.asdict(result.comparison)
    sides = {
        "a": result.left.session_id,
        "b": result.right.session_id,
        "path_a": result.left.path,
        "path_b": result.right.path,
        "heads": {side.session_id: side.head for side in (result.left, result.right)},
    }
    is_equal = result.comparison.n_differences == 0
    return {"schema": "redrive.diff", "schema_version": 1} | sides | {"equal": is_equal} | fields
