"""Reads the tool calls that an agent's own code made, which no model asked for.

Knows how the recorder writes them: `harness.call`, and `harness.result` under the same name. Must
not know what they did. Holds two numbers per call, and the payload of one event at a time.

Source: docs/recording.md "Tools"; docs/mcp.md "Where it goes".
"""

import msgspec
from msgspec import Raw

from redrive.app.survey import Survey
from redrive.record.event import Custom, Kind, ToolCall, ToolResult, payload_of
from redrive.replay.rerun_record import HARNESS_CALL, HARNESS_RESULT

UNSAFE = "unsafe"


class _Fields(msgspec.Struct, frozen=True):
    call: str
    tool: str
    effect: str = UNSAFE
    arguments: Raw | msgspec.UnsetType = msgspec.UNSET
    status: str = "ok"
    result: Raw | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(_Fields).decode


class HarnessCall(msgspec.Struct, frozen=True):
    """One call; `result` is absent where none is recorded."""

    call: ToolCall
    effect: str
    result: ToolResult | None


class HarnessCalls:
    """The calls of one session.

    Args:
        session: whose; its `custom` events are read once.

    Attributes:
        answers: seq of a call → seq of its result; -1 where there is none.
    """

    def __init__(self, session: Survey) -> None:
        self._session = session
        self.answers: dict[int, int] = {}
        by_name: dict[str, int] = {}
        for event in session.reader.read_events(session.index.seqs_of(Kind.CUSTOM)):
            custom: Custom = payload_of(event)
            fields = _fields_of(custom)
            if fields is None:
                continue
            if custom.name == HARNESS_CALL:
                by_name[fields.call] = event.seq
                self.answers[event.seq] = -1
            elif fields.call in by_name:
                self.answers[by_name.pop(fields.call)] = event.seq

    def get(self, seq: int) -> HarnessCall:
        """Read a call of `answers`, and its result."""
        called, answer = self._read(seq), self.answers[seq]
        return HarnessCall(
            ToolCall(tool=called.tool, arguments=called.arguments),
            called.effect,
            None if answer == -1 else _result_of(self._read(answer)),
        )

    def _read(self, seq: int) -> _Fields:
        custom: Custom = self._session.payload(seq)
        fields = _fields_of(custom)
        assert fields is not None  # noqa: S101 - it could be read before
        return fields


def _result_of(fields: _Fields) -> ToolResult:
    return ToolResult(status=fields.status, result=fields.result, tool=fields.tool)


def _fields_of(custom: Custom) -> _Fields | None:
    if custom.name not in (HARNESS_CALL, HARNESS_RESULT) or not isinstance(custom.data, Raw):
        return None
    try:
        return _decode(custom.data)
    except msgspec.DecodeError:  # another framework's event of this name
        return None
