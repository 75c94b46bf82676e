"""What every kind of model is opened with.

Knows settings only. Must not know any model, file or socket.

Source: DESIGN.md §8 "Specs".
"""

from collections.abc import Mapping

import msgspec

from redrive.record.decisions import TOOL_CALLS

DEFAULT_TIMEOUT_S = 300.0


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
