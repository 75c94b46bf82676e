"""Counts a Claude Code file as it lies: the rules C1 to C5 that tests compare with.

Knows lines. Must not know events: these counts are of strictly parsed lines, copies included,
before anything is joined.

Source: docs/claude-code.md "Counts". Memory: about 170 bytes a line with a uuid.
"""

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from redrive.importers.claude_lines import Line, Message
from redrive.importers.draft import FileTally
from redrive.record.event import FLAG_UNREPRESENTABLE, Damage

SYNTHETIC_MODEL = "<synthetic>"
_NO_PARENT, _SELF = -1, -2
_UNSEEN = -3
_NOT_CONTINUING, _USER = -1, -2
_BYTE_ORDER_MARK = "byte order mark"


@dataclass(slots=True)
class FileCounter:
    """Folds the strict lines of one file; `finish` writes the counts to its tally."""

    tally: FileTally
    _numbers: dict[str, int] = field(default_factory=dict)
    _parents: "array[int]" = field(default_factory=lambda: array("i"))
    _answers: "array[int]" = field(default_factory=lambda: array("i"))
    _ids: dict[str | None, int] = field(default_factory=dict)
    _models: set[int] = field(default_factory=set)
    _synthetic: set[int] = field(default_factory=set)
    _sessions: set[str] = field(default_factory=set)
    _nested_models: set[str | None] = field(default_factory=set)
    _previous_timestamp: str = ""
    _counts: Counter[str] = field(default_factory=Counter)

    def add_damage(self, damage: Damage) -> None:
        """Take a stretch that could not be read."""
        self.tally.damage.append(damage)
        if damage.reason not in (_BYTE_ORDER_MARK, FLAG_UNREPRESENTABLE):
            self._counts["bad_lines"] += 1

    def add(self, line: Line) -> None:
        """Take the next strictly parsed line."""
        self.tally.records += 1
        if line.session_id is not None:
            self._sessions.add(line.session_id)
        if line.timestamp is not None:
            self._counts["ts_backwards"] += line.timestamp < self._previous_timestamp
            self._previous_timestamp = line.timestamp
        answer = _NOT_CONTINUING
        match line.type:
            case "assistant":
                answer = self._add_assistant(line)
            case "user":
                answer = self._add_user(line)
            case "progress":
                self._add_nested(line)
            case "summary":
                self._counts["summary"] += 1
            case "system":
                self._counts["compact_boundary"] += line.subtype == "compact_boundary"
        self._counts["sidechain"] += line.is_sidechain is True
        if line.uuid is not None:
            self._add_node(line.uuid, line.parent_uuid, answer)

    def _add_assistant(self, line: Line) -> int:
        message = line.message or Message()
        name = line.uuid if message.id is None else message.id
        answer = self._ids.setdefault(name, len(self._ids))
        if message.model == SYNTHETIC_MODEL:
            self._synthetic.add(answer)
        elif not line.is_api_error_message:
            self._models.add(answer)
        for block in line.blocks:
            if block.get("type") == "tool_use":
                self.tally.tool_calls += 1
                self.tally.called.add(_id_of(block, "id"))
        return answer

    def _add_user(self, line: Line) -> int:
        has_result = False
        for block in line.blocks:
            if block.get("type") == "tool_result":
                has_result = True
                self.tally.tool_results += 1
                self.tally.answered.add(_id_of(block, "tool_use_id"))
                self._counts["tool_errors"] += block.get("is_error") is True
                inner = block.get("content")
                self._count_images(inner if isinstance(inner, list) else ())
        self._count_images(line.blocks)
        self._counts["compact_summary"] += line.is_compact_summary is True
        return _NOT_CONTINUING if has_result or line.is_meta else _USER

    def _count_images(self, blocks: Any) -> None:
        for block in blocks:
            self._counts["images"] += isinstance(block, dict) and block.get("type") == "image"

    def _add_nested(self, line: Line) -> None:
        inner = None if line.data is None else line.data.message
        if inner is None:
            return
        if inner.type == "assistant" and inner.message is not None:
            self._nested_models.add(inner.message.id)
        for block in inner.blocks:
            kind = block.get("type")
            self._counts["nested_progress_tool_use"] += kind == "tool_use"
            self._counts["nested_progress_tool_results"] += kind == "tool_result"

    def _add_node(self, uuid: str, parent: str | None, answer: int) -> None:
        number = self.number(uuid)
        if self._parents[number] != _UNSEEN:
            self._counts["dup_uuid"] += 1
            return
        if parent is None:
            self._parents[number] = _NO_PARENT
        elif parent == uuid:
            self._parents[number] = _SELF
        else:
            above = self.number(parent)
            self._counts["parent_after_child"] += self._parents[above] == _UNSEEN
            self._parents[number] = above
        self._answers[number] = answer

    def count(self, name: str) -> None:
        """Count one more of something that has no field of its own in the tally."""
        self._counts[name] += 1

    def number(self, uuid: str) -> int:
        """Give the number of a uuid, dense in order of first mention; nothing is counted."""
        number = self._numbers.setdefault(uuid, len(self._numbers))
        if number == len(self._parents):
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
            continuing[parent] += answer == _USER or is_other
        nodes = sum(parent != _UNSEEN for parent in self._parents)
        rewinds = [
            count for number, count in continuing.items() if count > 1 and self._is_node(number)
        ]
        self.tally.branches = 1 + sum(count - 1 for count in rewinds)
        self.tally.model_calls = len(self._models)
        self._counts["parent_after_child"] -= dangling
        found = {
            **self._counts,
            "synthetic": len(self._synthetic),
            "sessions": len(self._sessions),
            "nested_progress_model_calls": len(self._nested_models),
            "roots": self._parents.count(_NO_PARENT),
            "dangling_parents": dangling,
            "forks": sum(n > 1 and self._is_node(number) for number, n in children.items()),
            "leaves": nodes - sum(self._is_node(number) for number in children),
            "rewind_forks": len(rewinds),
        }
        self.tally.extra.update({name: count for name, count in found.items() if count})

    def _is_node(self, number: int) -> bool:
        return self._parents[number] != _UNSEEN


def _id_of(block: dict[str, Any], key: str) -> str | None:
    value = block.get(key)
    return value if isinstance(value, str) else None
