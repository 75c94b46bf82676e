"""What a shadow replay asks of the world, as values: a question to a model, and its reply.

Knows the shape of questions and answers. Must not know who answers (models), nor files or sockets.

Source: DESIGN.md §2, §5.
"""

from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive.record.event import Sampling


class ModelFingerprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """Identity of a model: what was asked for, what served, and the engine. Absent = not stated."""

    requested: str | None = None
    served: str | None = None
    fingerprint: str | None = None
    engine: str | None = None


class Override(msgspec.Struct, frozen=True):
    """A value that a replay sets (sampling, or `model`): it replaces that one value in the body."""

    name: str
    value: int | float | str


class CallAsked(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A tool call as a model (or the record) wrote it: JSON value, or text, or neither."""

    tool: str
    arguments: Raw | UnsetType = UNSET
    arguments_text: str | None = None
    call_id: str | None = None


class ModelQuery(msgspec.Struct, frozen=True):
    """One question to a model.

    Attributes:
        decision: 1-based ordinal of the decision asked for.
        api: `openai.chat`, `openai.responses`, `anthropic.messages`, or absent.
        body: the exact request body to send; recorded bytes unless `is_rebuilt` or overridden.
        prompt: the recorded context text, for models that read text.
        messages: neutral history, oldest first: {role, content, tool_calls?, call_id?}. A copy.
        overrides: what was changed in `body`, in order; also what a text model should use.
        is_rebuilt: true after the first difference, when no recorded request exists.
        recorded_model: the model that the record names, for a model that states none itself.
        sampling: the recorded sampling parameters, for models that read text.
    """

    decision: int
    api: str | None = None
    body: str | None = None
    prompt: str | None = None
    messages: tuple[dict[str, Any], ...] = ()
    overrides: tuple[Override, ...] = ()
    is_rebuilt: bool = False
    recorded_model: ModelFingerprint | None = None
    sampling: Sampling | None = None


class ModelReply(msgspec.Struct, frozen=True, gc=False):
    """What a model answered.

    Attributes:
        text: answer text; the empty text where it gave none.
        calls: tool calls in the order the model gave them.
        is_final: whether the answer ends the run. An API answer without tool calls is final; a
            script says so itself.
        model: who answered, as far as it says.
        usage: token counts by the API's own names.
        latency_s: wall time of the call, in seconds; for people, never compared.
        overrides: what the model itself changed in the body, such as the `model` of its spec.
    """

    text: str = ""
    calls: tuple[CallAsked, ...] = ()
    is_final: bool = False
    model: ModelFingerprint | None = None
    usage: dict[str, int] = {}
    latency_s: float | None = None
    overrides: tuple[Override, ...] = ()


class Model(Protocol):
    """Who answers model queries.

    `reads_context` is false for a model that ignores what it is asked (a script); only such a
    model may answer where a request is missing. `apis` lists the bodies it can send; empty: none
    is needed.
    """

    spec: str
    reads_context: bool
    apis: tuple[str, ...]

    def decide(self, query: ModelQuery) -> ModelReply:
        """Answer one query.

        Raises:
            ModelError: refused, failed, or gave half an answer.
            UsageError: the query lacks what this model needs (names it).
        """
        ...

    def close(self) -> None:
        """Release what the model holds (a child process, a connection)."""
        ...
