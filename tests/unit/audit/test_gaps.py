from string import Formatter

import pytest

from redrive import canonical
from redrive.audit.gaps import CAUSES, CLASS_ORDER, InputClass, make_gap

NAMED = {
    name: {field for _, field, _, _ in Formatter().parse(row.reason) if field}
    for name, row in CAUSES.items()
}


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_makes_a_gap_with_a_reason_and_a_hint(cause: str) -> None:
    details = {name.split("!")[0]: "D" for name in NAMED[cause]}
    gap = make_gap(cause, "what", **details)
    assert gap.reason
    assert gap.hint
    assert "{" not in gap.reason
    assert gap.input_class is CAUSES[cause].input_class


def test_braces_of_a_recording_are_not_read_as_a_format() -> None:
    assert "{0.__class__}" in make_gap("missing_result", "c", tool="{0.__class__}").reason


def test_a_gap_is_written_with_the_key_class() -> None:
    written = canonical.decode_value(canonical.encode(make_gap("no_seed", "seed")))
    assert written["class"] == "sampling"
    assert set(written) == {"class", "what", "reason", "hint", "cause"}


def test_the_classes_are_ordered_as_reports_list_them() -> None:
    assert sorted(InputClass, key=CLASS_ORDER.__getitem__) == [
        "input",
        "environment",
        "sampling",
        "clock",
        "prng",
    ]
