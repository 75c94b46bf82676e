"""The inferences that ship: whether an answer claims that the work is done, or wraps it up.

Knows texts and questions. Must not know models. Each question is short, since a small model on
one's own machine must be able to answer it: one text, one yes or no.

Source: DESIGN.md §7 "Modes".
"""

from types import MappingProxyType
from typing import Any

import msgspec

from redrive import canonical
from redrive.replay.inference import Inference, Question
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import State

_TEXT_CHARS = 1500
_SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": ["yes", "no"]}},
    "required": ["answer"],
    "additionalProperties": False,
}


class YesOrNo(msgspec.Struct, frozen=True):
    """An inference whose value is true or false.

    Attributes:
        name, version: see `Inference`.
        system: the instruction; its answer is `{"answer": "yes"}` or `{"answer": "no"}`.
    """

    name: str
    version: str
    system: str

    def ask(self, event: PolicyEvent, state: State) -> Question:
        """Ask about the end of what was said: a claim stands at the beginning or the end."""
        text = event.text or state.last_text
        if len(text) > _TEXT_CHARS:
            half = _TEXT_CHARS // 2
            text = f"{text[:half]}\n…\n{text[-half:]}"
        return Question(self.system, text, _SCHEMA)

    def read(self, answer: str) -> Any:
        """Read the answer.

        Raises:
            ValueError: it is neither yes nor no.
        """
        try:
            value = canonical.decode_value(answer)
        except ValueError:  # no JSON at all
            value = None
        word = value.get("answer") if isinstance(value, dict) else None
        if word not in ("yes", "no"):
            raise ValueError(f"neither yes nor no: {answer[:80]!r}")
        return word == "yes"


COMPLETION_CLAIM = YesOrNo(
    "completion_claim",
    "1",
    "You read the last message of a coding assistant. Does the message claim that the requested"
    ' work is finished, fixed or working? Answer {"answer": "yes"} or {"answer": "no"}.',
)
WRAP_UP = YesOrNo(
    "wrap_up",
    "1",
    "You read the last message of a coding assistant. Does the message end the work with a summary"
    ' and leave nothing more to do? Answer {"answer": "yes"} or {"answer": "no"}.',
)
INFERENCES: MappingProxyType[str, Inference] = MappingProxyType(
    {inference.name: inference for inference in (COMPLETION_CLAIM, WRAP_UP)}
)
