"""Finds what a line of the interchange format says that this format does not let it say.

Knows line structs and docs/interchange.md. Must not know what becomes of a faulty line.

In this format a field that is absent was not recorded, and a session written in it can be closed.
So a field that is there, not `null`, and of another type, or of a word that means nothing, is
named: it must never pass for one that is absent.

Source: DESIGN.md §8 "Interchange".
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw, UnsetType

from redrive import canonical
from redrive.importers.interchange_lines import (
    DecisionLine,
    DerivedLine,
    EventLine,
    Line,
    Output,
    ReadLine,
    ResultLine,
    SessionLine,
)
from redrive.importers.repeated_keys import find_repeated_keys
from redrive.importers.typed_lines import Fault, Placed
from redrive.record.decisions import JSON_CONTENT, TOOL_CALLS
from redrive.record.signature import canonical_bytes

INPUT_CLASSES = ("context", "tool_results", "sampling", "clock", "prng", "environment")
CAPTURED = "captured"
_NUMBER, _INTEGER = ((int, float), "is no number"), ((int,), "is no integer")
_SAMPLING: Mapping[str, tuple[tuple[type, ...], str]] = {
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "top_k": _INTEGER,
    "seed": _INTEGER,
    "max_tokens": _INTEGER,
    "logits": ((bool, list, dict), "is no boolean, list or object"),
    "chosen_tokens": ((list,), "is no list"),
}
Faults = list[Fault]


def find_faults(placed: Placed[Line]) -> Faults:
    """List what is wrong with a line; usually nothing."""
    line = placed.line
    faults = list(placed.faults)
    for path in find_repeated_keys(line, placed.data, is_usual=not placed.is_odd):
        faults.append(Fault(path, "stands twice"))  # noqa: PERF401 - usually there is none
    check = _CHECKS.get(type(line))
    if check is not None:
        check(line, faults)
    if placed.faults:  # a field that was left out is told once, and not as absent too
        return list({one.field: one for one in reversed(faults)}.values())[::-1]
    return faults


def _check_session(line: SessionLine, faults: Faults) -> None:
    captures = {} if line.captures is None else line.captures
    if not isinstance(captures, dict):
        faults.append(Fault("captures", "is no object"))
    else:
        for name, state in captures.items():
            if name not in INPUT_CLASSES and state != CAPTURED:
                reason = f"is none of {', '.join(INPUT_CLASSES)}"
                faults.append(Fault(f"captures.{name}", reason))
    if line.decisions not in (None, TOOL_CALLS, JSON_CONTENT):
        faults.append(Fault("decisions", f"is neither {TOOL_CALLS} nor {JSON_CONTENT}"))
    if isinstance(line.environment, Raw) and bytes(line.environment)[:1] not in (b"{", b"n"):
        faults.append(Fault("environment", "is no object"))


def _check_decision(line: DecisionLine, faults: Faults) -> None:
    if line.output is not None:
        _check_output(line.output, faults)
    if line.sampling:
        _check_sampling(line.sampling, faults)
    if line.context_truncated is not None:
        _check_flag("context_truncated", line.context_truncated, faults)
    if line.redactions is not None:
        _check_redactions("redactions", line.redactions, faults)


def _check_output(output: Output, faults: Faults) -> None:
    if output.redactions is not None:
        _check_redactions("output.redactions", output.redactions, faults)
    for number, call in enumerate(output.tool_calls or ()):
        if not call.name:
            faults.append(Fault(f"output.tool_calls[{number}].name", "is not there"))
        if call.redactions is not None:
            name = f"output.tool_calls[{number}].redactions"
            _check_redactions(name, call.redactions, faults)
        if call.args_json is not None and _disagree(call.args, call.args_json):
            faults.append(Fault(f"output.tool_calls[{number}].args", "is not what args_json says"))


def _disagree(value: Raw | UnsetType, text: str) -> bool:
    """Say whether two forms of the same arguments differ; `null` beside a text says nothing."""
    if isinstance(value, UnsetType) or bytes(value) == b"null":
        return False
    one, other = bytes(value), canonical.text_bytes(text) or b"{}"
    return one != other and (canonical_bytes(one) or one) != (canonical_bytes(other) or other)


def _check_sampling(sampling: Mapping[str, Any], faults: Faults) -> None:
    for name, value in sampling.items():
        known = _SAMPLING.get(name)
        if known is not None and value is not None and type(value) not in known[0]:
            faults.append(Fault(f"sampling.{name}", known[1]))
    tokens = sampling.get("chosen_tokens")
    if isinstance(tokens, list) and not all(type(token) is int for token in tokens):
        faults.append(Fault("sampling.chosen_tokens", "is no list of integers"))


def _check_flag(name: str, value: object, faults: Faults) -> None:
    if not isinstance(value, bool):
        faults.append(Fault(name, "is no boolean"))


def _check_redactions(name: str, value: object, faults: Faults) -> None:
    if not isinstance(value, list):
        faults.append(Fault(name, "is no list"))
        return
    for number, entry in enumerate(value):
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            faults.append(Fault(f"{name}[{number}]", "is no object with a path"))


def _check_result(line: ResultLine, faults: Faults) -> None:
    if line.result_truncated is not None:
        _check_flag("result_truncated", line.result_truncated, faults)
    if line.redactions is not None:
        _check_redactions("redactions", line.redactions, faults)


def _check_read(line: ReadLine, faults: Faults) -> None:
    if line.kind not in ("clock", "prng"):
        faults.append(Fault("kind", "is neither clock nor prng"))
    if not line.name:
        faults.append(Fault("name", "is not there"))
    if line.redactions is not None:
        _check_redactions("redactions", line.redactions, faults)


def _check_derived(line: DerivedLine, faults: Faults) -> None:
    if line.redactions is not None:
        _check_redactions("redactions", line.redactions, faults)


def _check_event(line: EventLine, faults: Faults) -> None:
    if not isinstance(line.kind, str) or not line.kind:
        faults.append(Fault("kind", "is no text"))
    if line.kind == "user" and not isinstance(line.text, str | None):
        faults.append(Fault("text", "is no text"))
    if line.kind != "tool_call":
        return
    if not isinstance(line.tool, str) or not line.tool:
        faults.append(Fault("tool", "is no text"))
    if line.redactions is not None:
        _check_redactions("redactions", line.redactions, faults)


_CHECKS: Mapping[type[Line], Callable[[Any, Faults], None]] = {
    SessionLine: _check_session,
    DecisionLine: _check_decision,
    ResultLine: _check_result,
    ReadLine: _check_read,
    DerivedLine: _check_derived,
    EventLine: _check_event,
}
