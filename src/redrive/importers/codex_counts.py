"""Counts one Codex rollout as it lies, copied history included.

A model call is a run of model items (reasoning, assistant messages, calls of any kind) between
other items; only `response_item` lines open or close a run. Tool calls are function, custom and
local shell calls; their outputs are the results.
"""

from collections import Counter
from dataclasses import dataclass, field

from redrive.canonical import get_field
from redrive.importers.codex_lines import CALL_ITEMS, OUTPUT_ITEMS, RolloutLine
from redrive.importers.draft import FileTally
from redrive.importers.lines import is_bad_line
from redrive.record.event import Damage

_LINE_COUNTS = {
    "session_meta": "session_meta",
    "turn_context": "turn_context",
    "compacted": "compacted",
    "response_item": "response_items",
    "event_msg": "event_msgs",
}


@dataclass(slots=True)
class _Counts:
    """The counts of a stretch of the file."""

    events: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    is_run_open: bool = False

    def add(self, line: RolloutLine) -> None:
        self.events += 1
        if line.kind != "response_item":
            return
        self.model_calls += line.is_model_item and not self.is_run_open
        self.is_run_open = line.is_model_item
        self.tool_calls += line.item in CALL_ITEMS
        self.tool_results += line.item in OUTPUT_ITEMS


@dataclass(slots=True)
class RolloutCounts:
    """Fills a tally from the strictly parsed lines of one rollout.

    `tally.extra` receives the counts of line types, `token_count_steps`, `web_search_calls`,
    `bad_lines`, `events_tolerant` (records, those recovered from damaged lines included), and, in a
    file with a second `session_meta`, `own_*`: what follows the first own turn.
    """

    tally: FileTally
    _all: _Counts = field(default_factory=_Counts)
    _own: _Counts = field(default_factory=_Counts)
    _extra: Counter[str] = field(default_factory=Counter)
    _total_tokens: int | None = None
    _n_recovered: int = 0

    def add_damage(self, damage: Damage) -> None:
        """Take a stretch that could not be read."""
        self.tally.damage.append(damage)
        if is_bad_line(damage):
            self._extra["bad_lines"] += 1

    def add_recovered(self, line: RolloutLine) -> None:
        """Take a record of a damaged line."""
        self._n_recovered += 1
        self._note_opening(line)

    def _note_opening(self, line: RolloutLine) -> None:
        if line.kind == "session_meta":
            self.tally.has_opening = True

    def add(self, line: RolloutLine, *, is_own: bool) -> None:
        """Take the next line."""
        self._all.add(line)
        self._note_opening(line)
        if is_own:
            self._own.add(line)
        if line.kind in _LINE_COUNTS:
            self._extra[_LINE_COUNTS[line.kind]] += 1
        if line.kind == "response_item":
            self._add_item(line)
        elif line.item == "token_count":
            total = find_total_tokens(line)
            if total is not None and total != self._total_tokens:
                self._total_tokens = total
                self._extra["token_count_steps"] += 1

    def _add_item(self, line: RolloutLine) -> None:
        call_id = get_field(line.payload, "call_id", str)
        if line.item in CALL_ITEMS:
            self.tally.called.add(call_id)
        elif line.item in OUTPUT_ITEMS:
            self.tally.answered.add(call_id)
        elif line.item == "web_search_call":
            self._extra["web_search_calls"] += 1

    def close(self) -> None:
        """Write the counts to the tally."""
        self.tally.records = self._all.events
        self.tally.model_calls = self._all.model_calls
        self.tally.tool_calls = self._all.tool_calls
        self.tally.tool_results = self._all.tool_results
        self.tally.extra |= self._extra
        self.tally.extra["events_tolerant"] = self._all.events + self._n_recovered
        if self._extra["session_meta"] > 1 and self._own.events:
            self.tally.extra |= {
                "own_events": self._own.events,
                "own_model_calls": self._own.model_calls,
                "own_tool_calls": self._own.tool_calls,
                "own_tool_results": self._own.tool_results,
            }


def find_total_tokens(line: RolloutLine) -> int | None:
    """Find the session's running token total in a `token_count` message."""
    info = get_field(line.payload, "info", dict) or {}
    return get_field(get_field(info, "total_token_usage", dict) or {}, "total_tokens", int)
