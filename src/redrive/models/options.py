"""What every kind of model is opened with.

Knows settings only. Must not know any model, file or socket.

Source: DESIGN.md §8 "Specs".
"""

from collections.abc import Mapping

import msgspec

from redrive.errors import UsageError
from redrive.record.decisions import TOOL_CALLS

DEFAULT_TIMEOUT_S = 300.0
SPEC_HINT = (
    "script:FILE, openai:NAME@URL, anthropic:NAME@URL, python:PATH.py:NAME or local[:KEY=VALUE,…]"
)


class ModelOptions(msgspec.Struct, frozen=True):
    """Settings beside the spec; each module's `open_model(argument, options)` takes them.

    Attributes:
        run: 0-based run; `script:FOLDER` has one file per run.
        seed: default seed for a model that draws and is told none by a query.
        timeout_s: wall time that one answer may take, from the connection to its last byte.
        decisions: `tool_calls` or `json_content`: where in an answer a decision stands.
        environment: where API keys are looked up, by the names that the vendors use.
    """

    run: int = 0
    seed: int | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    decisions: str = TOOL_CALLS
    environment: Mapping[str, str] = {}


class ModelSpec(msgspec.Struct, frozen=True):
    """A model spec in its two parts: `openai` and `NAME@URL`, or `local` and the empty text."""

    kind: str
    argument: str


def parse_spec(spec: str) -> ModelSpec:
    """Split `KIND[:ARGUMENT]`; the kind is an entry point of the group `redrive.models`.

    Raises:
        UsageError: there is no kind.
    """
    kind, _, argument = spec.partition(":")
    if not kind:
        raise UsageError("a model spec without a kind", hint=SPEC_HINT)
    return ModelSpec(kind, argument)
