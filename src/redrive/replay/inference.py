"""L2 inferences: the question about an event that a model answers, and the key of its answer.

Knows questions. Must not know models, caches, nor which policy asks.

Source: DESIGN.md §7 "Modes".
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from redrive import canonical
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import State

MAX_PER_TURN = 2
BUDGET_FACT = f"inference budget: {MAX_PER_TURN} per turn"


class Question(msgspec.Struct, frozen=True):
    """What a model is asked: an instruction, the text to judge, and the JSON Schema of the answer.

    `max_tokens` bounds the answer.
    """

    system: str
    text: str
    answer_schema: dict[str, Any]
    max_tokens: int = 64


class Inference(Protocol):
    """One kind of inference. `version` changes whenever the question or its reading does."""

    @property
    def name(self) -> str:
        """What policies call it."""
        ...

    @property
    def version(self) -> str:
        """Which question it asks, and how it reads the answer."""
        ...

    def ask(self, event: PolicyEvent, state: State) -> Question:
        """Write the question about an event; pure."""
        ...

    def read(self, answer: str) -> Any:
        """Read the answer as a JSON value.

        Raises:
            ValueError: it is no answer to the question.
        """
        ...


def inference_key(request: Mapping[str, Any]) -> str:
    """Give the key of an inference: a digest of everything that can change its answer.

    Args:
        request: model, version, all sampling parameters, tool settings and the exact texts, as
            JSON. A parameter that is missing differs from one that is 0. The order of the keys
            does not count; every byte inside a text does.

    Returns:
        sha256, hex, of the request's canonical form.
    """
    return canonical.value_digest(dict(request))
