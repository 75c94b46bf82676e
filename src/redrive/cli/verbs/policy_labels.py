"""The verbs about labels: `policy annotate` and `policy precision`."""

import shlex
import sys
import time
import webbrowser
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread

import click
import msgspec

from redrive.app.annotating import BRANCHES, Annotation, Wish, begin_annotation
from redrive.app.annotation_terminal import KEYS_HELP, LEFT, RIGHT, label_by_keys
from redrive.app.listing import find_task
from redrive.app.policy_precision import Measured, measure_precision
from redrive.cli import output
from redrive.cli.exits import Exit
from redrive.cli.options import json_option, opened_store
from redrive.errors import UsageError
from redrive.reports.precision import precision_lines, recall_lines
from redrive.stores.port import Store

_TASK_CHARS = 201
_ARROWS = {
    f"\x1b{between}{end}": name for between in "[O" for end, name in (("D", LEFT), ("C", RIGHT))
}
_EXITS = {
    "measured": Exit.DONE,
    "met": Exit.DONE,
    "missed": Exit.FINDING,
    "inconclusive": Exit.OPEN,
}


@click.command("annotate", epilog=f"Keys, in the terminal and on the page: {KEYS_HELP}.")
@click.argument("policy", metavar="POLICY[@VERSION]")
@click.option("--rater", required=True, metavar="NAME", help="Who labels; labels stay apart.")
@click.option("--sample", "size", type=click.IntRange(1), metavar="N", help="Fires to draw (50).")
@click.option("--seed", metavar="TEXT", help="What the sample is drawn with (1).")
@click.option("--branches", type=click.Choice(BRANCHES), default="head", help="Which fires (head).")
@click.option("--page/--terminal", "is_page", default=None, help="On a page, or by keys here.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The page's port (any).")
@click.option("--no-browser", is_flag=True, help="Print the page's address and open nothing.")
@click.pass_context
def annotate_verb(
    ctx: click.Context,
    policy: str,
    rater: str,
    size: int | None,
    seed: str | None,
    branches: str,
    is_page: bool | None,  # noqa: FBT001 - a flag of the command line
    port: int,
    no_browser: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Label a random sample of a policy's fires: should it have fired there?

    True: a careful engineer would be glad that it acted as it did. False: it cried wolf. Unsure
    counts as false at a gate. Each label is stored at once; the same rater goes on where it
    stopped. No rater sees another's labels. `policy precision` says what the labels prove.
    """
    label = _label_on_page(port, opens=not no_browser) if is_page else _label_by_keys
    with opened_store(ctx.obj) as store:
        wish = Wish(branches, size, seed)
        annotation = begin_annotation(
            store.policies, policy, rater, time.time_ns, wish, _task_finder(store)
        )
        if annotation is None:
            output.write_lines([f"{output.escape(policy)} fired nowhere: nothing to label"])
            return Exit.DONE
        label(annotation)
    output.write_lines(_end_lines(annotation, policy))
    return Exit.DONE


def _task_finder(store: Store) -> Callable[[str], str]:
    """Give what finds a session's own task line, redacted as the report is."""
    redactor = output.redactor()
    return lambda name: redactor.redact_excerpt(find_task(store, name) or "", _TASK_CHARS)


def _end_lines(annotation: Annotation, policy: str) -> Iterable[str]:
    """Yield what was labelled, and what to run next."""
    sample = annotation.sample
    name = output.escape(f"{sample.policy}@{sample.version}")
    done = f"{annotation.n_labelled} of {len(annotation.items)}"
    yield (
        f"{name}  {output.escape(annotation.rater)} labelled {done} fires drawn from"
        f" {sample.population}, sample {output.escape(sample.id)}"
    )
    if annotation.n_labelled < len(annotation.items):
        yield "  to go on   the same command again"
    if annotation.n_labelled:
        yield f"  next       redrive policy precision {output.escape(shlex.quote(policy))}"


def _label_on_page(port: int, *, opens: bool) -> Callable[[Annotation], None]:
    try:
        from redrive.app.annotation_page import serve_page
    except ImportError as error:
        raise UsageError(
            "the page needs starlette and uvicorn, which are not installed",
            hint="pip install 'redrive[ui]', or --terminal",
        ) from error

    def announce(address: str) -> None:
        output.say_address(f"label at {address}  (Finish on the page, or Ctrl-C here, ends it)")
        if opens:
            # A browser that runs in the terminal would keep the page from being served.
            Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    return lambda annotation: serve_page(annotation, port, announce)


def _label_by_keys(annotation: Annotation) -> None:
    label_by_keys(annotation, TypedKeys(), output.write_lines)


class TypedKeys:
    """Keys from the terminal, one press each, or from a pipe, one character each.

    A terminal forgets what was typed before a key is waited for, and of several that come at once
    the first counts: no fire is labelled by a key that was typed before it stood there.
    """

    def read_key(self) -> str:
        """Give the next key; empty at the end, and where the terminal says so with Ctrl-D."""
        if sys.stdin is None:
            return ""
        if not sys.stdin.isatty():
            return sys.stdin.read(1)
        try:
            typed = click.getchar()
        except EOFError:
            return ""
        return _ARROWS.get(typed[:3], typed[:1])

    def read_line(self) -> str:
        """Give what is typed up to the end of the line."""
        return sys.stdin.readline().rstrip("\r\n")


@click.command("precision")
@click.argument("policy", metavar="POLICY[@VERSION]")
@click.option(
    "--min-precision",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="X",
    help="Exit 1 where the lower bound is below X; there, what is not settled counts as false.",
)
@click.option(
    "--should-have-fired",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Event refs, one a line; gives the recall against exactly this set.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    help="Of the intervals (0.95).",
)
@json_option
@click.pass_context
def precision_verb(
    ctx: click.Context,
    policy: str,
    min_precision: float | None,
    should_have_fired: Path | None,
    confidence: float,
    as_json: bool,  # noqa: FBT001 - a flag of the command line
) -> int:
    """Say how often a policy was right where it fired, from labels, with an exact interval.

    Exit 3 where there are no labels, or too few for what --min-precision asks.
    """
    with opened_store(ctx.obj) as store:
        measured = measure_precision(
            store.policies,
            policy,
            confidence=confidence,
            min_precision=min_precision,
            should_have_fired=should_have_fired,
        )
    if as_json:
        output.write_json(precision_document(measured))
    else:
        output.write_lines(_lines(measured))
    return _EXITS[measured.verdict]


def precision_document(measured: Measured) -> dict[str, object]:
    """Give the JSON form of `policy precision`: the figures stand at the top."""
    rest: dict[str, object] = msgspec.to_builtins(measured)
    figures: dict[str, object] = msgspec.to_builtins(measured.precision)
    del rest["precision"]
    head = {"schema": "redrive.policy_precision", "schema_version": 1}
    return head | figures | rest


def _lines(measured: Measured) -> Iterable[str]:
    yield from precision_lines(measured.precision)
    if measured.recall is not None:
        yield from recall_lines(measured.recall)
    if measured.min_precision is not None:
        yield (
            f"  asked      lower bound of at least {measured.min_precision:.4g}:"
            f" {measured.verdict}; no fewer than {measured.labels_needed} labels can reach it"
        )
