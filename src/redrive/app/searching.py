"""Searches what users, models and tools said, by pattern, over the sessions of a store.

Knows which fields of an event hold text. Must not know how a match is shown. The text of one event
is searched up to `MAX_CHARS`, a value up to its first MiB as it is stored; an event with more is
counted, never silently left out.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from redrive.app.excerpts import is_examined_whole, texts_of_arguments, texts_of_raw
from redrive.app.raw_events import check_events
from redrive.app.survey import time_of
from redrive.errors import TamperError, UsageError, quote
from redrive.record.event import Event, Kind, payload_of
from redrive.record.places import Places, build_places
from redrive.reports.views import DamagedView, MatchView
from redrive.stores.port import SessionRow, Store

MAX_CHARS = 1024 * 1024
_AROUND_CHARS = 120

Texts = Iterator[tuple[str, str]]
# Gives the part of a text between two places, as it may be shown.
Part = Callable[[int, int], str]


def _plain_parts(text: str, name: str) -> Part:  # noqa: ARG001 - as a redactor's
    return lambda start, end: text[start:end]


def compile_pattern(pattern: str, *, is_fixed: bool, ignore_case: bool) -> "re.Pattern[str]":
    """Compile a pattern.

    Raises:
        UsageError: it is no regular expression.
    """
    try:
        return re.compile(
            re.escape(pattern) if is_fixed else pattern, re.IGNORECASE if ignore_case else 0
        )
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(
            f"{quote(pattern)} is no regular expression: {error}",
            hint="--fixed takes it as plain text",
        ) from error


@dataclass(slots=True)
class Search:
    """One search; the counts are right once `matches` is exhausted.

    What is searched is the evidence; what is shown of it is what `parts` gives, which sees the
    whole text before a line is cut out of it.
    """

    pattern: "re.Pattern[str]"
    tool: str | None = None
    parts: Callable[[str, str], Part] = _plain_parts
    n_sessions: int = 0
    n_events: int = 0
    n_matches: int = 0
    n_cut: int = 0
    damaged: list[DamagedView] = field(default_factory=list)
    _calls: set[str] = field(default_factory=set)

    def matches(self, store: Store, rows: Sequence[SessionRow]) -> Iterator[MatchView]:
        """Yield the matching lines, session by session, in seq order.

        Of a damaged session nothing is told; it is noted in `damaged`, and the others are searched.

        Raises:
            TamperError: before the first match, where the only session is damaged.
        """
        for row in rows:
            try:
                check_events(store, row)
            except TamperError as error:
                if len(rows) == 1:
                    raise
                self.damaged.append(DamagedView(row.session_id, error.message))
            else:
                self.n_sessions += 1
                yield from self._in_session(store, row)

    def _in_session(self, store: Store, row: SessionRow) -> Iterator[MatchView]:
        self._calls = set()
        places: Places | None = None
        for event in store.events(row.session_id):
            for found in self._in_event(event):
                if places is None:
                    places = build_places(store.index(row.session_id))
                self.n_matches += 1
                yield self._view(event, found, places)

    def _in_event(self, event: Event) -> Iterator["_Found"]:
        payload = payload_of(event)
        tool = _tool_of(event, payload)
        if self.tool is not None and not self._is_wanted(event, tool):
            return
        self.n_events += 1
        left = MAX_CHARS
        for name, text in texts_of(event.kind, payload):
            self.n_cut += len(text) > left >= 0
            yield from self._in_text(name, text[: max(left, 0)], tool)
            left = left - len(text) if len(text) <= left else -1
        self.n_cut += left >= 0 and not is_examined_whole(payload)

    def _is_wanted(self, event: Event, tool: str | None) -> bool:
        """Say whether an event is a call of the wanted tool, or belongs to one by its call id."""
        if tool == self.tool:
            if event.kind is Kind.TOOL_CALL and event.call_id is not None:
                self._calls.add(event.call_id)
            return True
        return tool is None and event.call_id is not None and event.call_id in self._calls

    def _in_text(self, name: str, text: str, tool: str | None) -> Iterator["_Found"]:
        part: Part | None = None
        place = 0
        for number, line in enumerate(text.split("\n"), 1):
            match = self.pattern.search(line)
            if match is not None:
                part = part or self.parts(text, name)
                yield _Found(name, number, len(line), place, match.start(), match.end(), part, tool)
            place += len(line) + 1

    def _view(self, event: Event, found: "_Found", places: Places) -> MatchView:
        begin = max(0, found.start - _AROUND_CHARS)
        end = min(found.n_chars, found.end + _AROUND_CHARS, begin + 8 * _AROUND_CHARS)
        at = found.line_start
        before = found.part(at + begin, at + found.start)
        matched = found.part(at + begin, at + min(found.end, end))
        return MatchView(
            session_id=event.session_id,
            seq=event.seq,
            kind=event.kind.value,
            actor=event.actor,
            field=found.name,
            line=found.number,
            text=found.part(at + begin, at + end),
            start=min(len(before), len(matched)),
            end=len(matched),
            ts=time_of(event),
            step=places.step_of(event.seq),
            node_id=places.node_id(event.seq),
            tool=found.tool,
            discarded=not places.is_live(event.seq),
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """The first match on a line: which field, which line, where in the field and in the line."""

    name: str
    number: int
    n_chars: int
    line_start: int
    start: int
    end: int
    part: Part
    tool: str | None


def _tool_of(event: Event, payload: Any) -> str | None:
    is_of_tool = event.kind in (Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.TOOL_PERMISSION)
    tool: str | None = payload.tool if is_of_tool else None
    return tool


def texts_of(kind: Kind, payload: Any) -> Texts:  # noqa: C901 - one arm per kind, closed
    """Yield (field, text) of what an event says; model requests repeat it and are left out."""
    match kind:
        case Kind.USER_MESSAGE:
            yield "text", payload.text
            yield from texts_of_raw(payload.content, "content")
        case Kind.MODEL_RESPONSE:
            yield "text", payload.text
            yield "reasoning", payload.reasoning or ""
        case Kind.TOOL_CALL:
            yield "tool", payload.tool
            yield from texts_of_arguments(payload)
        case Kind.TOOL_RESULT:
            yield from texts_of_raw(payload.result, "result")
        case Kind.TOOL_PERMISSION:
            yield "reason", payload.reason or ""
        case Kind.MODEL_ERROR:
            yield "message", payload.message or ""
        case Kind.CONTEXT_REPLACED:
            yield from texts_of_raw(payload.before, "before")
            yield from texts_of_raw(payload.after, "after")
        case Kind.CLOCK_READ | Kind.PRNG_READ | Kind.VALUE_DERIVED | Kind.STATE_INFERRED:
            yield "name", payload.name
            yield from texts_of_raw(payload.value, "value")
        case Kind.CUSTOM:
            yield "name", payload.name
            yield from texts_of_raw(payload.data, "data")
        case Kind.NOTE:
            yield "text", payload.text or ""
            yield from texts_of_raw(payload.data, "data")
        case Kind.SESSION_STARTED:
            yield "task", payload.task or ""
        case Kind.SESSION_ENDED:
            yield "status", payload.status or ""
        case Kind.POLICY_ACTION:
            yield "action", f"{payload.policy} {payload.action}"
        case Kind.DAMAGE:
            yield "reason", payload.reason
        case Kind.MODEL_REQUEST:
            return
        case _ as never:
            assert_never(never)
