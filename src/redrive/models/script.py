"""A model that answers from a file: one decision per line, whatever it is asked.

Knows the `shadow*.jsonl` lines of the interchange format. Must not know what it is asked: it reads
no context, so it may answer where a request is missing.

Source: DESIGN.md §8 "Specs", §10 "Scripts"; tests/cases/SCHEMA.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.canonical import get_field
from redrive.errors import UsageError
from redrive.models.options import ModelOptions
from redrive.record.event import raw_of
from redrive.replay.ports import CallAsked, ModelFingerprint, ModelQuery, ModelReply

FILE_PATTERN = "shadow*.jsonl"
_DECISION_KEYS = frozenset({"text", "tool_calls", "final"})
_EXPECTED = 'expected {"tool_calls": […]}, {"text": …, "final": true}, or both keys on one line'


class Script(msgspec.Struct, frozen=True):
    """A parsed script: its decisions in order, and who is said to have answered."""

    replies: tuple[ModelReply, ...]
    model: ModelFingerprint | None = None


class _UsualCall(msgspec.Struct, gc=False):
    """A call as most lines write it; `args` keeps its bytes."""

    name: str
    args: Raw | UnsetType = UNSET
    args_json: str | UnsetType | None = UNSET


class _UsualLine(msgspec.Struct, gc=False):
    """A decision as most lines write it; a line of any other shape is read key by key."""

    tool_calls: list[_UsualCall]
    text: str | None = None
    final: bool | None = None


class ScriptModel:
    """Gives the decisions of one script in order; one line per query."""

    reads_context = False
    apis: tuple[str, ...] = ()

    def __init__(self, spec: str, path: Path, script: Script) -> None:
        self.spec = spec
        self._path = path
        self._script = script
        self._asked = 0

    def decide(self, query: ModelQuery) -> ModelReply:
        """Give the next line; without a model line the recorded model is said to have answered.

        Raises:
            UsageError: the script has no further line; names the file and its number of decisions.
        """
        n_lines = len(self._script.replies)
        if self._asked == n_lines:
            raise UsageError(
                f"the script ran out: {n_lines} decisions, and decision {query.decision} was asked",
                where=str(self._path),
                hint='end the script with a line {"text": "…", "final": true}',
            )
        reply = self._script.replies[self._asked]
        self._asked += 1
        return msgspec.structs.replace(reply, model=self._script.model or query.recorded_model)

    def close(self) -> None:
        """Hold nothing, release nothing."""


def open_model(argument: str, options: ModelOptions) -> ScriptModel:
    """Open `script:FILE`, or file number `options.run` of `script:FOLDER`, in name order.

    Raises:
        UsageError: no such file, a folder with too few scripts, or a malformed line (file:line).
    """
    path = Path(argument)
    if path.is_dir():
        path = _file_of_run(path, options.run)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"cannot read the script: {error.strerror}",
            where=str(path),
            hint="script:FILE or script:FOLDER",
        ) from error
    return ScriptModel(f"script:{argument}", path, parse_script(data, str(path)))


def _file_of_run(folder: Path, run: int) -> Path:
    files = sorted(folder.glob(FILE_PATTERN))
    if run >= len(files):
        raise UsageError(
            f"{len(files)} scripts ({FILE_PATTERN}), and run {run + 1} was asked for",
            where=str(folder),
            hint="script:FOLDER needs one script per run",
        )
    return files[run]


def parse_script(data: bytes, name: str) -> Script:
    """Parse a script.

    Args:
        data: UTF-8 lines; empty lines are skipped.
        name: what the script is called in errors.

    Raises:
        UsageError: a line is malformed; `where` is file:line.
    """
    model = None
    replies: list[ModelReply] = []
    tools: dict[str, str] = {}  # each name once
    for number, written in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        reply = _usual_reply(written, tools)
        if reply is not None:
            replies.append(reply)
            continue
        if not written.strip():
            continue
        where = f"{name}:{number}"
        line = _object(written, where)
        if "model" in line and not _DECISION_KEYS & line.keys():
            if model is not None or replies:
                raise UsageError("a model line that is not the first", where=where, hint=_EXPECTED)
            model = _fingerprint(line, where)
        else:
            replies.append(_reply(line, where))
    return Script(tuple(replies), model)


def _usual_reply(data: bytes, tools: dict[str, str]) -> ModelReply | None:
    """Read a line of the usual shape in one decode; `None` for any other."""
    try:
        line = _decode_usual(data)
        if not data.isascii():
            data.decode()  # the decoder does not look for UTF-8 in what it skips
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    calls = []
    for call in line.tool_calls:
        if call.args is not UNSET and call.args_json is not UNSET:
            return None
        text = None if isinstance(call.args_json, UnsetType) else call.args_json
        calls.append(CallAsked(tools.setdefault(call.name, call.name), call.args, text))
    return ModelReply(line.text or "", tuple(calls), line.final is True)


_decode_usual = msgspec.json.Decoder(_UsualLine).decode


def _object(data: bytes, where: str) -> Mapping[str, Any]:
    try:
        value = canonical.decode_value(data)
    except ValueError as error:
        raise UsageError("a line that is not JSON", where=where, hint=_EXPECTED) from error
    if not isinstance(value, dict):
        raise UsageError("a line that is no object", where=where, hint=_EXPECTED)
    return value


def _fingerprint(line: Mapping[str, Any], where: str) -> ModelFingerprint:
    stated = get_field(line, "model", dict)
    if stated is None:
        raise UsageError("a model line without a model object", where=where)
    return ModelFingerprint(
        **{name: get_field(stated, name, str) for name in ModelFingerprint.__struct_fields__}
    )


def _reply(line: Mapping[str, Any], where: str) -> ModelReply:
    if not _DECISION_KEYS & line.keys():
        raise UsageError("a line without a decision", where=where, hint=_EXPECTED)
    calls = _typed(line, "tool_calls", list, where) or ()
    return ModelReply(
        text=_typed(line, "text", str, where) or "",
        calls=tuple(_call(call, where) for call in calls),
        is_final=bool(_typed(line, "final", bool, where)),
    )


def _call(call: object, where: str) -> CallAsked:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise UsageError("a tool call without a name", where=where, hint=_EXPECTED)
    if "args" in call and "args_json" in call:
        raise UsageError("a tool call with both args and args_json", where=where)
    if "args" in call:
        return CallAsked(call["name"], arguments=raw_of(call["args"]))
    return CallAsked(call["name"], arguments_text=_typed(call, "args_json", str, where))


def _typed(line: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    """Give `line[key]`, `None` where it is absent or null; another type is malformed."""
    if line.get(key) is None:
        return None
    value = get_field(line, key, kind)
    if value is None:
        raise UsageError(f"{key} is no {kind.__name__}", where=where, hint=_EXPECTED)
    return value
