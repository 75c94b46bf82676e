"""The line types of the interchange format, as structs.

Knows what each line may carry (docs/interchange.md). Must not know what it becomes; that is
`interchange`.

`Any` fields are looked at when their line is read, since each of their types means something.
`Raw` fields are evidence: they keep the bytes as they were written, so that `1.0` stays `1.0` and
a key that stands twice stands twice. Where one is absent it is `UNSET`; `null` is a value.

Source: DESIGN.md §8 "Interchange".
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive.importers.typed_lines import Shapes


class Line(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What every line may carry."""

    id: str | None = None
    parent: str | None = None
    ts: str | None = None
    actor: str | None = None

    def evidence(self, data: bytes) -> Sequence[Raw]:  # noqa: ARG002 - one kind of line needs it
        """List the values that are kept as they were written; `data` is the whole line."""
        return ()


class OtherLine(Line, frozen=True, gc=False):
    """A line of a type that this version does not know."""

    type: Any = ""


class SessionLine(Line, frozen=True, gc=False, tag_field="type", tag="session"):
    """The first line: what is known of the whole session."""

    task: Any = None
    tools: dict[str, Any] | None = None
    captures: Any = None
    renderer: str | None = None
    environment: Raw | UnsetType = UNSET
    decisions: str | None = None
    agent: str | None = None
    cwd: str | None = None
    parent_session: str | None = None
    thread: str | None = None

    def evidence(self, data: bytes) -> Sequence[Raw]:  # noqa: ARG002 - see `Line`
        """Give the environment."""
        return _recorded(self.environment)


class ModelNames(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The model of a decision."""

    requested: str | None = None
    served: str | None = None
    fingerprint: str | None = None


class Request(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The exact string that was sent to an API."""

    api: str | None = None
    body: str | None = None


class Counts(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The usage of a decision; `prompt_tokens` and `completion_tokens` are further names."""

    input_tokens: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: str | int | float | None = None


class Call(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool call of an answer: `args` is any JSON, `args_json` the text that the model wrote."""

    call_id: str | None = None
    name: str | None = None
    args: Raw | UnsetType = UNSET
    args_json: str | None = None
    redactions: Any = None


class Output(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the model answered."""

    text: str | None = None
    stop_reason: str | None = None
    tool_calls: list[Call] | None = None
    redactions: Any = None


class DecisionLine(Line, frozen=True, gc=False, tag_field="type", tag="decision"):
    """One model call; `sampling` holds further parameters by name."""

    step: int | None = None
    model: ModelNames | None = None
    sampling: dict[str, Any] | None = None
    context: str | None = None
    context_truncated: Any = None
    request: Request | None = None
    usage: Counts | None = None
    redactions: Any = None
    output: Output | None = None

    @property
    def is_answered(self) -> bool:
        """Whether it holds what the model answered: a text, or at least one call."""
        output = self.output
        return output is not None and (output.text is not None or bool(output.tool_calls))

    def evidence(self, data: bytes) -> Sequence[Raw]:  # noqa: ARG002 - see `Line`
        """Give the arguments of the calls."""
        calls = None if self.output is None else self.output.tool_calls
        return [call.args for call in calls if call.args is not UNSET] if calls else ()


class ResultLine(Line, frozen=True, gc=False, tag_field="type", tag="tool_result"):
    """A tool's answer."""

    call_id: str | None = None
    name: str | None = None
    status: str | None = None
    result: Raw | UnsetType = UNSET
    result_truncated: Any = None
    original_chars: int | None = None
    redactions: Any = None

    def evidence(self, data: bytes) -> Sequence[Raw]:  # noqa: ARG002 - see `Line`
        """Give the result."""
        return _recorded(self.result)


class ReadLine(Line, frozen=True, gc=False, tag_field="type", tag="read"):
    """A clock or PRNG read."""

    kind: str | None = None
    name: str | None = None
    value: Raw | UnsetType = UNSET
    step: int | None = None
    redactions: Any = None

    def evidence(self, data: bytes) -> Sequence[Raw]:  # noqa: ARG002 - see `Line`
        """Give the value."""
        return _recorded(self.value)


class DerivedLine(Line, frozen=True, gc=False, tag_field="type", tag="derived"):
    """A value that the harness computed."""

    name: str | None = None
    function: str | None = None
    version: Any = None
    inputs: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    step: int | None = None
    redactions: Any = None

    def evidence(self, data: bytes) -> Sequence[Raw]:  # noqa: ARG002 - see `Line`
        """Give inputs and value."""
        return _recorded(self.inputs, self.value)


class EventLine(Line, frozen=True, gc=False, tag_field="type", tag="event"):
    """A framework's own kind of event; its further fields are read from the line's bytes."""

    kind: Any = ""
    call_id: str | None = None
    text: Any = None
    tool: Any = ""
    args: Raw | UnsetType = UNSET
    command: Raw | UnsetType = UNSET
    redactions: Any = None

    def evidence(self, data: bytes) -> Sequence[Raw]:
        """Give the whole line: any field may be kept."""
        return (Raw(data),)


class PermissionLine(Line, frozen=True, gc=False, tag_field="type", tag="permission"):
    """A permission decision on a call."""

    call_id: str | None = None
    decision: str | None = None
    by: str | None = None
    name: str | None = None


class ModelErrorLine(Line, frozen=True, gc=False, tag_field="type", tag="model_error"):
    """A model call that failed."""

    status: int | None = None
    attempt: int | None = None
    delay_s: int | float | None = None
    message: str | None = None
    step: int | None = None


class ContextReplacedLine(Line, frozen=True, gc=False, tag_field="type", tag="context_replaced"):
    """A compaction."""

    before: Raw | UnsetType = msgspec.field(default=UNSET, name="from")
    after: Raw | UnsetType = msgspec.field(default=UNSET, name="to")

    def evidence(self, data: bytes) -> Sequence[Raw]:  # noqa: ARG002 - see `Line`
        """Give what was before and after."""
        return _recorded(self.before, self.after)


class EndLine(Line, frozen=True, gc=False, tag_field="type", tag="end"):
    """How the run ended."""

    status: str | None = None


def _recorded(*values: Raw | UnsetType) -> Sequence[Raw]:
    return [value for value in values if not isinstance(value, UnsetType)]


PLACING = frozenset({"id", "parent", "actor", "call_id"})
"""What places a line in the history: ids, of which an integer is its decimal text."""

SHAPES: Shapes[Line] = Shapes(
    OtherLine,
    SessionLine,
    DecisionLine,
    ResultLine,
    ReadLine,
    DerivedLine,
    EventLine,
    PermissionLine,
    ModelErrorLine,
    ContextReplacedLine,
    EndLine,
    evidence=lambda line, data: line.evidence(data),
    ids=PLACING,
)
