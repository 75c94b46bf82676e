"""One fire as a rater sees it: the question with its criterion, and the lines of a terminal's card.

Knows lines, and which words both the terminal and the page use. Must not know who labels or where
labels lie. All of it is text from a recording, so every line is escaped.

Source: DESIGN.md §7 "Annotation", §8.
"""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from redrive import canonical
from redrive.compare.policy_report import FireView
from redrive.reports.escape import escape
from redrive.reports.times import shorten_time

QUESTION = "Should it have fired here?"
CRITERION = (
    "true: a careful engineer would be glad that it acted as it did · false: it cried wolf"
    " · unsure counts as false at a gate"
)
_DEEDS = {"ask": "asked for confirmation", "deny": "refused"}
_INDENT = 10
_STATE_LINES = 40


class Item(msgspec.Struct, frozen=True):
    """One fire to be labelled, and what a rater needs beside it.

    Attributes:
        state: what it was judged on; absent where the report holds none.
        session_id: where it lies; empty where that is not known.
        nth, n_in_session: its place among the session's fires that a sample is drawn from, from 1.
        task: one line of what the session was for; empty where that is not known.
    """

    fire: FireView
    state: Mapping[str, Any] | None = None
    session_id: str = ""
    nth: int = 1
    n_in_session: int = 1
    task: str = ""


def context_lines(item: Item) -> Iterator[str]:
    """Yield the lines that say where it fired and after what, up to the fire itself."""
    fire = item.fire
    yield from _field("task", item.task)
    yield from _field("where", " · ".join(filter(None, [place_text(item), *facts_of(fire)])))
    yield from _field("closer", show_command(item))
    yield from _field("asked", fire.asked)
    for text in fire.before:
        yield from _field("before", text)
    if fire.inferences:
        yield from _field("inferred", canonical.encode(fire.inferences).decode())
    for note in fire.notes:
        yield from _field("note", note)
    yield from _field("state", "o opens it" if state_text(item.state) else no_state(item.state))


def fire_lines(item: Item) -> Iterator[str]:
    """Yield the event that it fired on, what it did and why."""
    fire = item.fire
    yield from _field("on", fire.context)
    yield from _field("did", action_text(fire.action))
    yield from _field("reason", fire.reason)


def state_lines(item: Item) -> Iterator[str]:
    """Yield the state that it was judged on; a long one is cut."""
    lines = (state_text(item.state) or no_state(item.state)).split("\n")
    shown = lines if len(lines) <= _STATE_LINES else [*lines[:_STATE_LINES], "…"]
    yield from _field("state", "\n".join(shown))


def facts_of(fire: FireView) -> list[str]:
    """List where a fire stands: step, time, tool or kind, actor, branch, event."""
    facts = [f"step {fire.step}"] if fire.step is not None else []
    facts += [shorten_time(fire.ts)] if fire.ts is not None else []
    facts += [fire.tool or fire.kind, fire.actor]
    facts += [] if fire.on_head_path else ["not on the live path"]
    return [*facts, fire.event_ref]


def place_text(item: Item) -> str:
    """Say which of its session's fires it is; empty where it is the only one."""
    if item.n_in_session == 1:
        return ""
    return f"fire {item.nth} of {item.n_in_session} in this session"


def show_command(item: Item) -> str:
    """Give the command that shows the session, quoted for a shell; empty without a session."""
    return f"redrive show {shlex.quote(item.session_id)}" if item.session_id else ""


def action_text(action: str) -> str:
    """Name an action, and what it means for whoever met it."""
    return f"{action} ({_DEEDS[action]})" if action in _DEEDS else action


def state_text(state: Mapping[str, Any] | None) -> str:
    """Write a state as indented JSON without what is empty, zero or absent; empty: nothing left."""
    left = _filled(state or {})
    return msgspec.json.format(canonical.encode(left), indent=2).decode() if left else ""


def no_state(state: Mapping[str, Any] | None) -> str:
    """Say why no state is shown."""
    if state is None:
        return "the report holds none"
    return "nothing in it yet" if _has_value(state) else "this policy reads no state"


def _filled(value: Any) -> Any:
    """Leave out fields that are empty, zero or absent; `false` says something and stays.

    Lone surrogates become escapes, which JSON is not indented with.
    """
    match value:
        case Mapping():
            kept = {
                canonical.escape_surrogates(name): _filled(part) for name, part in value.items()
            }
            return {name: part for name, part in kept.items() if part is False or part}
        case list() | tuple():
            return [_filled(part) for part in value]
        case str():
            return canonical.escape_surrogates(value)
        case _:
            return value


def _has_value(value: Any) -> bool:
    return any(map(_has_value, value.values())) if isinstance(value, Mapping) else True


def _field(name: str, text: str) -> Iterator[str]:
    """Yield a name beside the lines of its text; nothing for an empty one."""
    for number, line in enumerate(text.split("\n") if text else ()):
        yield f"{'' if number else name:<{_INDENT}}{escape(line)}"
