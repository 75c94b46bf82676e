"""Counts a Claude Code file as it lies: the rules C1 to C5 that tests compare with.

Knows lines. Must not know events: these counts are of strictly parsed lines, copies included,
before anything is joined.

Source: docs/claude-code.md "Counts". Memory: about 170 bytes a line with a uuid.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from redrive.importers.claude_lines import Line
from redrive.importers.draft import FileTally
from redrive.importers.lines import is_bad_line
from redrive.record.event import Damage

SYNTHETIC_MODEL = "<synthetic>"
_NO_PARENT, _SELF = -1, -2
_UNSEEN = -3
_NOT_CONTINUING, _USER, _USER_EXIT = -1, -2, -3
_IS_MODEL, _IS_SYNTHETIC = 1, 2
_NESTED = {
    "tool_use": "nested_progress_tool_use",
    "tool_result": "nested_progress_tool_results",
}
_EXIT_COMMAND = "<command-name>/exit</command-name>"


@dataclass(slots=True)
class FileCounter:
    """Folds the strict lines of one file; `finish` writes the counts to its tally."""

    tally: FileTally
    _numbers: dict[str, int] = field(default_factory=dict)
    _parents: "array[int]" = field(default_factory=lambda: array("i"))
    _answers: "array[int]" = field(default_factory=lambda: array("i"))
    _ids: dict[str | None, int] = field(default_factory=dict)
    _answer_kinds: bytearray = field(default_factory=bytearray)
    _sessions: set[str] = field(default_factory=set)
    _nested_models: set[str | None] = field(default_factory=set)
    _n_recovered: int = 0
    _previous_timestamp: str = ""
    _counts: Counter[str] = field(default_factory=Counter)
    _readers: dict[str, Callable[[Line], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._readers = {
            "assistant": self._add_assistant,
            "user": self._add_user,
            "progress": self._add_progress,
            "system": self._add_system,
        }

    def add_damage(self, damage: Damage) -> None:
        """Take a stretch that could not be read."""
        self.tally.damage.append(damage)
        if is_bad_line(damage):
            self.count("bad_lines")

    def add_recovered(self) -> None:
        """Take a record of a damaged line: it is counted, and nothing else of it."""
        self._n_recovered += 1

    def add(self, line: Line) -> None:
        """Take the next strictly parsed line."""
        self.tally.records += 1
        if line.session_id is not None:
            self._sessions.add(line.session_id)
        if line.timestamp is not None:
            if line.timestamp < self._previous_timestamp:
                self.count("ts_backwards")
            self._previous_timestamp = line.timestamp
        if line.is_sidechain:
            self.count("sidechain")
        if line.type == "summary":
            self.count("summary")
        read = self._readers.get(line.type or "")
        answer = _NOT_CONTINUING if read is None else read(line)
        if line.uuid is not None:
            self._add_node(line.uuid, line.parent_uuid, answer)

    def _add_assistant(self, line: Line) -> int:
        message = line.message
        name = None if message is None else message.id
        answer = self._ids.setdefault(line.uuid if name is None else name, len(self._ids))
        if answer == len(self._answer_kinds):
            self._answer_kinds.append(0)
        if message is not None and message.model == SYNTHETIC_MODEL:
            self._answer_kinds[answer] |= _IS_SYNTHETIC
        elif not line.is_api_error_message:
            self._answer_kinds[answer] |= _IS_MODEL
        for block in line.blocks:
            if block.get("type") == "tool_use":
                self.tally.tool_calls += 1
                self.tally.called.add(_id_of(block, "id"))
        return answer

    def _add_user(self, line: Line) -> int:
        has_result = False
        for block in line.blocks:
            kind = block.get("type")
            if kind == "tool_result":
                has_result = True
                self._add_result(block)
            elif kind == "image":
                self.count("images")
        if line.is_compact_summary:
            self.count("compact_summary")
        if has_result or line.is_meta:
            return _NOT_CONTINUING
        return _USER_EXIT if _is_exit(line) else _USER

    def _add_result(self, block: dict[str, Any]) -> None:
        self.tally.tool_results += 1
        self.tally.answered.add(_id_of(block, "tool_use_id"))
        if block.get("is_error") is True:
            self.count("tool_errors")
        inner = block.get("content")
        for part in inner if isinstance(inner, list) else ():
            if isinstance(part, dict) and part.get("type") == "image":
                self.count("images")

    def _add_progress(self, line: Line) -> int:
        inner = None if line.data is None else line.data.message
        if inner is not None:
            if inner.type == "assistant" and inner.message is not None:
                self._nested_models.add(inner.message.id)
            for block in inner.blocks:
                name = _NESTED.get(str(block.get("type")))
                if name is not None:
                    self.count(name)
        return _NOT_CONTINUING

    def _add_system(self, line: Line) -> int:
        if line.subtype == "compact_boundary":
            self.count("compact_boundary")
        return _NOT_CONTINUING

    def _add_node(self, uuid: str, parent: str | None, answer: int) -> None:
        number = self.number(uuid)
        if self._parents[number] != _UNSEEN:
            self.count("dup_uuid")
            return
        if parent is None:
            self._parents[number] = _NO_PARENT
        elif parent == uuid:
            self._parents[number] = _SELF
        else:
            above = self.number(parent)
            if self._parents[above] == _UNSEEN:
                self.count("parent_after_child")
            self._parents[number] = above
        self._answers[number] = answer

    def count(self, name: str) -> None:
        """Count one more of something that has no field of its own in the tally."""
        self._counts[name] += 1

    def number(self, uuid: str) -> int:
        """Give the number of a uuid, dense in order of first mention; nothing is counted."""
        numbers = self._numbers
        number = numbers.get(uuid)
        if number is None:
            number = numbers[uuid] = len(numbers)
            self._parents.append(_UNSEEN)
            self._answers.append(_NOT_CONTINUING)
        return number

    def finish(self) -> None:
        """Write the counts that need the whole file."""
        children: Counter[int] = Counter()
        continuing: Counter[int] = Counter()
        dangling = 0
        for number, parent in enumerate(self._parents):
            if parent < 0:
                continue
            children[parent] += 1
            dangling += self._parents[parent] == _UNSEEN
            answer = self._answers[number]
            is_other = answer >= 0 and answer != self._answers[parent]
            continuing[parent] += answer <= _USER or is_other
        nodes = sum(parent != _UNSEEN for parent in self._parents)
        rewinds = {
            number: count
            for number, count in continuing.items()
            if count > 1 and self._is_node(number)
        }
        self.tally.branches = 1 + sum(count - 1 for count in rewinds.values())
        self.tally.model_calls = sum(bool(kind & _IS_MODEL) for kind in self._answer_kinds)
        self._counts["parent_after_child"] -= dangling
        found = {
            **self._counts,
            "synthetic": sum(bool(kind & _IS_SYNTHETIC) for kind in self._answer_kinds),
            "sessions": len(self._sessions),
            "nested_progress_model_calls": len(self._nested_models),
            "roots": self._parents.count(_NO_PARENT),
            "dangling_parents": dangling,
            "forks": sum(n > 1 and self._is_node(number) for number, n in children.items()),
            "leaves": nodes - sum(self._is_node(number) for number in children),
            "rewind_forks": len(rewinds),
            "resume_forks": self._count_resumes(rewinds),
            "events_tolerant": self.tally.records + self._n_recovered,
        }
        self.tally.extra.update({name: count for name, count in found.items() if count})

    def _count_resumes(self, rewinds: Mapping[int, int]) -> int:
        """Count forks that a resumed session left: `/exit` on one side, filler on the other."""
        left: set[int] = set()
        resumed: set[int] = set()
        for number, answer in enumerate(self._answers):
            if answer == _USER_EXIT:
                left.add(self._parents[number])
            elif answer >= 0 and self._answer_kinds[answer] & _IS_SYNTHETIC:
                resumed.add(self._parents[number])
        both = left & resumed
        return sum(count == 2 and number in both for number, count in rewinds.items())

    def _is_node(self, number: int) -> bool:
        return self._parents[number] != _UNSEEN


def _is_exit(line: Line) -> bool:
    return any(_EXIT_COMMAND in str(block.get("text")) for block in line.blocks)


def _id_of(block: dict[str, Any], key: str) -> str | None:
    value = block.get(key)
    return value if isinstance(value, str) else None
