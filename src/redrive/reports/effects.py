"""Writes the list of effects as lines of text.

Knows views and words. Must not know where they come from. Text from a recording is escaped here.
"""

from collections.abc import Iterable, Iterator

from redrive.reports.counts import counted
from redrive.reports.escape import escape
from redrive.reports.sessions import excerpt_text
from redrive.reports.views import AskedBy, EffectTotals, EffectView

_WHAT_CHARS = 2000
_ASKED_CHARS = 300
_ASKING = {"agent": "the agent that started this flow"}
_WORDS = {
    "command": ("command", "commands"),
    "file_write": ("file write", "file writes"),
    "network": ("network call", "network calls"),
    "approval": ("approval", "approvals"),
    "provider_side": ("call run by the provider", "calls run by the provider"),
    "other": ("other call", "other calls"),
}


def effect_lines(entries: Iterable[EffectView]) -> Iterator[str]:
    """Yield each effect: when, who, what, how it ended, and who asked for it."""
    yield ""
    yield "Effects, over all paths and actors, in order"
    asked: AskedBy | None = None
    for entry in entries:
        yield ""
        yield _head(entry)
        yield f"    {'$ ' if entry.category == 'command' else ''}{_what(entry)}"
        yield from (f"    {escape(detail)}" for detail in entry.details)
        if entry.network_hints:
            yield f"    reaches the network: {escape(', '.join(entry.network_hints))}"
        if entry.writing_hints:
            yield f"    changes files: {escape(', '.join(entry.writing_hints))}"
        yield from _asked(entry, asked)
        asked = entry.asked_by


def _head(entry: EffectView) -> str:
    code = "" if entry.exit_code is None else f", exit {entry.exit_code}"
    marks = [
        word
        for word, holds in (
            ("discarded path", not entry.on_live_path),
            ("copied from the parent session", entry.inherited),
            ("run by the provider", entry.provider_side),
            ("undeclared tool, counts as unsafe", entry.basis == "undeclared"),
        )
        if holds
    ]
    where = "before step 1" if entry.step is None else f"step {entry.step}"
    parts = (
        entry.ts or "no time recorded",
        where,
        escape(entry.actor),
        entry.category,
        escape(entry.tool),
        f"{escape(entry.status)}{code}",
        f"[{'; '.join(marks)}]" if marks else "",
        f"node {escape(entry.node_id)}" if entry.node_id else "",
    )
    return "  ".join(filter(None, parts))


def _what(entry: EffectView) -> str:
    return excerpt_text(entry.what, _WHAT_CHARS) or "(no arguments recorded)"


def _asked(entry: EffectView, before: AskedBy | None) -> Iterator[str]:
    if entry.asked_by is None:
        yield "    asked by: nothing recorded"
    elif before is not None and before.seq == entry.asked_by.seq:
        yield "    asked by: the same"
    else:
        text = excerpt_text(entry.asked_by.text, _ASKED_CHARS) or "(no text)"
        source = entry.asked_by.source
        yield f"    asked by {_ASKING.get(source, source)}: {text}"


def totals_lines(totals: EffectTotals) -> Iterator[str]:
    """Yield what the list holds, and what it leaves out."""
    parts = [counted(count, *_WORDS[name]) for name, count in totals.by_category.items()]
    yield ""
    yield f"Totals    {', '.join(parts) or 'no effects'}"
    for count, word in (
        (totals.failed, "failed"),
        (totals.denied, "denied"),
        (totals.not_live, "on discarded paths"),
        (totals.inherited, "copied from the parent session, not run here"),
    ):
        if count:
            yield f"          {count} {word}"
    if totals.undeclared_tools:
        yield f"Unsafe    undeclared tools: {_tools(totals.undeclared_tools)}"
    if totals.read_only_tools:
        yield f"Not shown only read: {_tools(totals.read_only_tools)}"
    yield f"Judged by table of known tools, version {totals.tools_version}"


def _tools(counts: dict[str, int]) -> str:
    return ", ".join(f"{escape(tool) or '(no name)'} {count}" for tool, count in counts.items())
