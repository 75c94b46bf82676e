"""Writes what a workflow may reach, and what stands against it, as lines of text.

Knows views and words. Names come from a user's code: they are escaped here.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from redrive.audit.eligibility import Refusal
from redrive.reports.counts import counted
from redrive.reports.escape import escape

_ARROW = " → "


class ReachedTool(msgspec.Struct, frozen=True):
    """A declared tool that the workflow reaches.

    Attributes:
        tool: its id.
        effect: the word as declared; `undeclared` where there is none.
        chain: the first one that was found to it.
        origin: `python` or `mcp:SERVER`.
        refused: whether a refusal names it.
        simulated: whether its simulator stands in.
        grants: what it may reach; a simulator may reach nothing.
        hints: what an MCP server says of it.
    """

    tool: str
    effect: str
    chain: tuple[str, ...]
    origin: str
    refused: bool
    simulated: bool
    grants: Mapping[str, tuple[str, ...]] = {}
    hints: Mapping[str, object] = {}


class EligibleView(msgspec.Struct, frozen=True):
    """What `redrive eligible` says.

    Attributes:
        workflow: `ID@VERSION`.
        eligible: whether a trial may run it.
        refusals: see `audit.eligibility.Refusal`.
        tools: each declared tool that is reached, in the order found.
        simulated: ids of tools whose simulator stands in.
        kind: `python` or `command`.
        source: as the user named it.
        digest: sha256 of its code; absent for a declaration as JSON.
        isolation: the level of the sandbox that is proven here.
        runs_spawned: always 0: the check comes before any run.
    """

    workflow: str
    eligible: bool
    refusals: tuple[Refusal, ...]
    tools: tuple[ReachedTool, ...]
    simulated: tuple[str, ...]
    kind: str
    source: str
    digest: str | None
    isolation: str
    runs_spawned: int = 0


def eligible_lines(view: EligibleView) -> Iterator[str]:
    """Yield the verdict, the tools that are reached, and each refusal with its chain."""
    verdict = "eligible" if view.eligible else "NOT ELIGIBLE"
    yield f"{escape(view.workflow)}  {verdict}"
    yield f"  {view.kind}, {escape(view.source)}; isolation here: {view.isolation}"
    if view.tools:
        yield ""
        yield from _table([_row(tool) for tool in view.tools])
    else:
        yield "  it reaches no declared tool"
    if view.refusals:
        yield ""
        yield f"{counted(len(view.refusals), 'refusal')}; no run was started"
    for refusal in view.refusals:
        yield f"  {escape(refusal.tool)}  {refusal.effect}: {escape(refusal.reason)}"
        yield f"      {escape(_ARROW.join(refusal.chain))}"
    if view.simulated:
        yield ""
        yield f"simulated, and so is all that rests on it: {escape(', '.join(view.simulated))}"


def _row(tool: ReachedTool) -> tuple[str, ...]:
    mark = "refused" if tool.refused else "simulated" if tool.simulated else ""
    grants = "; ".join(f"{name} {', '.join(words)}" for name, words in tool.grants.items())
    hints = ", ".join(f"{name}={value}" for name, value in tool.hints.items())
    notes = "; ".join(filter(None, (grants, f"hints (not believed): {hints}" if hints else "")))
    words = (tool.tool, tool.effect, mark, _ARROW.join(tool.chain), notes)
    return tuple(escape(word) for word in words)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows below their heading, in columns; a column without a word is left out."""
    whole = [("tool", "effect", "", "chain", "grants"), *rows]
    columns = [column for column in zip(*whole, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"  {'  '.join(cells)}".rstrip()
