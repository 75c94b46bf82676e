"""One fire as a rater sees it on a terminal.

Knows lines. Must not know who labels or where labels lie. All of it is text from a recording, so
every line is escaped.

Source: DESIGN.md §7 "Annotation", §8.
"""

from collections.abc import Iterator

from redrive import canonical
from redrive.compare.policy_report import FireView
from redrive.reports.escape import escape

_INDENT = 10
_STATE_LINES = 40


def fire_lines(fire: FireView, snapshot: str) -> Iterator[str]:
    """Yield the lines that say what fired, where, on what and after what."""
    yield from _field("reason", fire.reason)
    yield from _field("on", fire.context)
    if fire.asked:
        yield from _field("asked", fire.asked)
    for text in fire.before:
        yield from _field("before", text)
    yield from _field("where", " · ".join(facts_of(fire)))
    if fire.inferences:
        yield from _field("inferred", canonical.encode(fire.inferences).decode())
    lines = snapshot.split("\n")
    shown = lines if len(lines) <= _STATE_LINES else [*lines[:_STATE_LINES], "…"]
    yield from _field("state", "\n".join(shown))
    for note in fire.notes:
        yield from _field("note", note)


def facts_of(fire: FireView) -> list[str]:
    """List where a fire stands: event, tool or kind, actor, step, time, branch."""
    facts = [fire.event_ref, fire.tool or fire.kind, fire.actor]
    facts += [f"step {fire.step}"] if fire.step is not None else []
    facts += [fire.ts] if fire.ts is not None else []
    return facts if fire.on_head_path else [*facts, "not on the live path"]


def _field(name: str, text: str) -> Iterator[str]:
    """Yield a name beside the lines of its text; nothing for an empty one."""
    for number, line in enumerate(text.split("\n") if text else ()):
        yield f"{'' if number else name:<{_INDENT}}{escape(line)}"
