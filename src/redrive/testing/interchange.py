"""Holds a writer of the interchange format to its line shapes, on one file that it wrote.

The reader goes on over a faulty line, names it and leaves the record open, since recordings are
hostile. A writer wants to be told at once.

Source: `docs/interchange.md`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from redrive.importers.interchange import IMPORTER
from redrive.importers.lines import Record, read_records
from redrive.importers.timestamps import parse_rfc3339
from redrive.record.event import Damage
from redrive.testing.importers import ConformanceError, MemorySource, check_importer

Types = type | tuple[type, ...]

_NUMBER = (int, float)
_JSON = (dict, list, str, int, float, bool)
_ENVELOPE: Mapping[str, Types] = {"id": str, "parent": str, "ts": str, "actor": str}


class _Shape(msgspec.Struct, frozen=True):
    """The fields of one line type that must be there, and the types of those that may be."""

    required: tuple[str, ...]
    fields: Mapping[str, Types]


_SHAPES: Mapping[str, _Shape] = {
    "session": _Shape(
        ("id", "task"),
        {
            "task": _JSON,
            "tools": dict,
            "captures": dict,
            "renderer": str,
            "environment": dict,
            "decisions": str,
            "agent": str,
            "cwd": str,
            "parent_session": str,
            "thread": str,
        },
    ),
    "decision": _Shape(
        ("id", "output"),
        {
            "step": int,
            "model": dict,
            "sampling": dict,
            "context": str,
            "request": dict,
            "usage": dict,
            "redactions": list,
            "output": dict,
            "output.text": str,
            "output.tool_calls": list,
            "model.requested": str,
            "model.served": str,
            "model.fingerprint": str,
            "sampling.temperature": _NUMBER,
            "sampling.top_p": _NUMBER,
            "sampling.seed": int,
            "sampling.chosen_tokens": list,
            "request.api": str,
            "request.body": str,
        },
    ),
    "tool_result": _Shape(
        ("id", "call_id"),
        {
            "call_id": str,
            "name": str,
            "status": str,
            "result": _JSON,
            "result_truncated": bool,
            "original_chars": int,
            "redactions": list,
        },
    ),
    "read": _Shape(("id", "kind", "name"), {"kind": str, "name": str, "step": int, "value": _JSON}),
    "derived": _Shape(
        ("id", "name"), {"name": str, "function": str, "step": int, "inputs": list, "value": _JSON}
    ),
    "event": _Shape(("id", "kind"), {"kind": str}),
    "permission": _Shape(("id", "decision"), {"call_id": str, "decision": str, "by": str}),
    "model_error": _Shape(
        ("id",), {"step": int, "status": int, "attempt": int, "delay_s": _NUMBER}
    ),
    "context_replaced": _Shape(("id",), {"from": _JSON, "to": _JSON}),
    "end": _Shape(("id",), {"status": str}),
}
_CALL_FIELDS: Mapping[str, Types] = {"call_id": str, "name": str, "args": dict, "args_json": str}
_WORDS: Mapping[tuple[str, str], frozenset[str]] = {
    ("session", "decisions"): frozenset({"tool_calls", "json_content"}),
    ("tool_result", "status"): frozenset({"ok", "error"}),
    ("read", "kind"): frozenset({"clock", "prng"}),
    ("permission", "decision"): frozenset({"asked", "allowed", "denied"}),
}


def check_interchange(path: str | Path) -> None:
    """Check a file that a writer of the interchange format made.

    Raises:
        ConformanceError: the first line that is not as `docs/interchange.md` says: not one JSON
            object, an unknown type, a missing field, a field of another type or with an unknown
            word, a time that is none, an id that was given before, a parent that no line has, or a
            first line that is no `session`.
    """
    data = Path(path).read_bytes()
    seen: set[str] = set()
    parents: dict[str, int] = {}
    with MemorySource(str(path), data).open() as file:
        for number, item in enumerate(read_records(file)):
            if isinstance(item, Damage):
                raise ConformanceError(f"{path}:{item.line}: {item.reason}")
            for fault in _find_faults(item, is_first=number == 0):
                raise ConformanceError(f"{path}:{item.line}: {fault}")
            name = item.value["id"]
            if name in seen:
                raise ConformanceError(f"{path}:{item.line}: the id {name!r} was given before")
            seen.add(name)
            if item.value.get("parent") is not None:
                parents.setdefault(item.value["parent"], item.line)
    for parent, line in parents.items():
        if parent not in seen:
            raise ConformanceError(f"{path}:{line}: no line has the parent's id {parent!r}")
    check_importer(IMPORTER, path, records_are_lines=True, n_mutations=0)


def _find_faults(record: Record, *, is_first: bool) -> Iterator[str]:
    line = record.value
    kind = line.get("type")
    shape = _SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        yield f"the type is {kind!r}, expected one of {', '.join(_SHAPES)}"
        return
    if is_first and kind != "session":
        yield f"the first line is a {kind!r}, expected a 'session'"
    yield from (f"{kind} has no {name!r}" for name in shape.required if line.get(name) is None)
    yield from _find_odd_types(str(kind), line, {**_ENVELOPE, **shape.fields})
    if line.get("ts") is not None and parse_rfc3339(line["ts"]) is None:
        yield f"ts is {line['ts']!r}, expected an RFC 3339 time"
    for (owner, name), words in _WORDS.items():
        if owner == kind and line.get(name) is not None and line[name] not in words:
            yield f"{name} is {line[name]!r}, expected {' or '.join(sorted(words))}"
    if kind == "decision":
        for number, call in enumerate(line["output"].get("tool_calls") or []):
            yield from _find_odd_call(f"output.tool_calls[{number}]", call)


def _find_odd_types(
    where: str, line: Mapping[str, Any], fields: Mapping[str, Types]
) -> Iterator[str]:
    """Yield a fault per field that is there, not `null`, and of none of its types."""
    for path, types in fields.items():
        owner, _, name = path.rpartition(".")
        holder = line.get(owner) if owner else line
        value = holder.get(name) if isinstance(holder, dict) else None
        if value is None:
            continue
        wanted = types if isinstance(types, tuple) else (types,)
        is_wanted = isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))
        if not is_wanted:
            names = " or ".join(kind.__name__ for kind in wanted)
            yield f"{where}: {path} is of type {type(value).__name__}, expected {names}"


def _find_odd_call(where: str, call: object) -> Iterator[str]:
    if not isinstance(call, dict):
        yield f"{where} is of type {type(call).__name__}, expected dict"
        return
    yield from (f"{where} has no {name!r}" for name in ("call_id", "name") if not call.get(name))
    if "args" in call and "args_json" in call:
        yield f"{where} has both 'args' and 'args_json', expected one"
    yield from _find_odd_types(where, call, _CALL_FIELDS)
