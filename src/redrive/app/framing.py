"""Reads files that a user gives beside a recording: environment, system prompt, tool schemas."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redrive import canonical
from redrive.errors import RecordError, UsageError
from redrive.replay.reconstruct import Frame


def read_environment(path: str) -> Mapping[str, Any]:
    """Read an environment description: one JSON object.

    Raises:
        UsageError: there is no such file.
        RecordError: it cannot be read, or is no JSON object.
    """
    value = _parse_json(path)
    if not isinstance(value, dict):
        raise RecordError(f"{path}: expected one JSON object", where=path)
    return value


def read_frame(system: str | None, tools: str | None, *, is_used: bool) -> Frame:
    """Read what stands around the messages of a request that is built.

    Args:
        system: path of the system prompt, UTF-8 text.
        tools: path of the tool schemas, a JSON list of objects in the form of the API asked.
        is_used: whether a reconstruction was asked for.

    Raises:
        UsageError: a file does not exist, or none of them is used.
        RecordError: a file cannot be read, or has another shape.
    """
    if not is_used and (system is not None or tools is not None):
        raise UsageError("--system and --tools serve a reconstruction", hint="add --reconstruct")
    listed = [] if tools is None else _parse_json(tools)
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise RecordError(f"{tools}: expected a JSON list of objects", where=tools or "")
    text = None if system is None else _read_text(system)
    return Frame(system=text, tools=tuple(listed))


def _parse_json(path: str) -> Any:
    data = _read_bytes(path)
    try:
        return canonical.decode_value(data)
    except ValueError as error:
        raise RecordError(f"{path}: not JSON: {error}", where=path) from error


def _read_text(path: str) -> str:
    try:
        return _read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise RecordError(f"{path}: not UTF-8 at byte {error.start}", where=path) from error


def _read_bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", where=path) from error
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}", where=path) from error
