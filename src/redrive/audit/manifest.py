"""The provenance manifest: per step, which input classes the record holds.

Knows gaps. Must not know how a gap is found. A manifest says *what* is there; its `basis`
(intercepted, vouched, proved by a rerun) stands beside it in the step's report.

Source: DESIGN.md §3 "Provenance manifest".
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from redrive.audit.gaps import InputClass, ProvenanceGap

State = Literal["captured", "not_captured", "unknown"]

CLASSES = ("context", "tool_results", "sampling", "clock", "prng", "environment")

_CLASS_OF: Mapping[InputClass, str] = {
    InputClass.INPUT: "context",
    InputClass.ENVIRONMENT: "tool_results",
    InputClass.SAMPLING: "sampling",
    InputClass.CLOCK: "clock",
    InputClass.PRNG: "prng",
}
_ENVIRONMENT_CAUSES = frozenset(
    {"environment_not_captured", "environment_differs", "environment_unknown"}
)
_DECLARED = "_not_captured"


class Manifest(msgspec.Struct, frozen=True):
    """What the record holds of each input class."""

    context: State = "captured"
    tool_results: State = "captured"
    sampling: State = "captured"
    clock: State = "captured"
    prng: State = "captured"
    environment: State = "unknown"


def fill_manifest(whole: Manifest, missing: Iterable[ProvenanceGap]) -> Manifest:
    """Give a step's manifest: that of the session, less what the step's gaps say.

    Args:
        whole: what holds for every step without a gap.
        missing: the step's gaps.
    """
    states: dict[str, State] = {}
    for gap in missing:
        name = _CLASS_OF[gap.input_class]
        if gap.cause in _ENVIRONMENT_CAUSES:
            name = "environment"
        is_unknown = gap.cause.endswith(_DECLARED) and gap.reason.endswith("unknown")
        if is_unknown:
            states.setdefault(name, "unknown")
        elif gap.cause != "environment_unknown":
            states[name] = "not_captured"
    return msgspec.structs.replace(whole, **states) if states else whole


def sum_manifests(manifests: Iterable[Manifest]) -> dict[str, dict[str, int]]:
    """Count, per input class, the steps in each state."""
    counts: dict[str, dict[str, int]] = {
        name: {"captured": 0, "not_captured": 0, "unknown": 0} for name in CLASSES
    }
    for manifest in manifests:
        for name in CLASSES:
            counts[name][getattr(manifest, name)] += 1
    return counts
