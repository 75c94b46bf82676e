import json
from pathlib import Path

import pytest
from msgspec import UNSET

from redrive.audit.gaps import InputClass, ProvenanceGap
from redrive.audit.reads import ReadLedger, ServedRead, find_read_gap, read_numbers
from redrive.importers.interchange import IMPORTER
from redrive.record.event import ModelResponse, Read, raw_of
from redrive.record.session import MemoryReader
from redrive.record.trajectory import build_trajectory
from tests.helpers import events_from, index_of
from tests.helpers_sessions import SessionBuilder

CLOCK, PRNG = InputClass.CLOCK, InputClass.PRNG


def test_an_extra_read_is_a_gap_and_takes_no_other_reads_value(cases: Path) -> None:
    folder = cases / "35-extra-random-read"
    events = events_from(IMPORTER, folder / "session.jsonl")
    index = index_of(events)
    ledger = ReadLedger(index, build_trajectory(index), MemoryReader(events))
    asked = json.loads((folder / "reads_requested.json").read_text())
    expected = json.loads((folder / "expected.json").read_text())["expect"]["reads_requested.json"]
    for request, wanted in zip(asked, expected, strict=True):
        served = ledger.serve(request["step"], InputClass(request["kind"]), request["name"])
        if wanted["outcome"] == "served":
            assert served == ServedRead(wanted["value"])
        else:
            assert isinstance(served, ProvenanceGap)
            assert (served.input_class, served.what) == (wanted["class"], request["name"])


def test_reads_of_one_key_are_served_in_recorded_order_each_once() -> None:
    built = SessionBuilder().decision().read("prng", "jitter", 1).read("prng", "jitter", 2)
    ledger = ReadLedger(*built.build())
    assert ledger.list_unserved() == ((1, PRNG, "jitter"),) * 2
    assert ledger.serve(1, PRNG, "jitter") == ServedRead(1)
    assert ledger.serve(1, PRNG, "jitter") == ServedRead(2)
    assert isinstance(ledger.serve(1, PRNG, "jitter"), ProvenanceGap)
    assert ledger.list_unserved() == ()


def test_changing_a_served_value_changes_no_later_one() -> None:
    built = SessionBuilder().decision().read("clock", "now", [1]).read("clock", "now", [1])
    ledger = ReadLedger(*built.build())
    first = ledger.serve(1, CLOCK, "now")
    assert isinstance(first, ServedRead)
    first.value.append(2)
    assert ledger.serve(1, CLOCK, "now") == ServedRead([1])


def test_a_read_belongs_to_the_step_that_it_names() -> None:
    built = SessionBuilder().decision().read("clock", "now", 0.0, step=2).decision().decision()
    built.read("clock", "now", 1.0, step=9)
    ledger = ReadLedger(*built.build())
    assert ledger.list_unserved() == ((2, CLOCK, "now"), (3, CLOCK, "now"))


def test_a_step_number_is_the_records_own_and_may_stand_on_the_response() -> None:
    built = SessionBuilder()
    built.decision(request=None, response=ModelResponse(step=40)).read("prng", "x", 1, step=41)
    built.decision(request=None, response=ModelResponse(step=41)).decision(
        request=None, response=ModelResponse()
    )
    _, trajectory, reader = built.build()
    assert read_numbers(trajectory, reader) == {40: 1, 41: 2, 3: 3}
    assert ReadLedger(*built.build()).list_unserved() == ((2, PRNG, "x"),)


def test_a_read_above_the_first_decision_is_the_first_steps() -> None:
    built = SessionBuilder().read("clock", "start", 5).decision()
    assert ReadLedger(*built.build()).serve(1, CLOCK, "start") == ServedRead(5)


@pytest.mark.parametrize("value", [0, 0.0, "", False, []])
def test_a_falsy_value_is_a_value(value: object) -> None:
    assert find_read_gap(PRNG, Read("jitter", raw_of(value))) is None


@pytest.mark.parametrize("value", [UNSET, raw_of(None)])
def test_a_read_without_value_is_a_gap_and_serves_nothing(value: object) -> None:
    gap = find_read_gap(CLOCK, Read("now", value))  # type: ignore[arg-type]
    assert gap is not None
    assert (gap.cause, gap.what) == ("missing_clock_value", "now")
    ledger = ReadLedger(*SessionBuilder().decision().read("clock", "now", None).build())
    assert isinstance(ledger.serve(1, CLOCK, "now"), ProvenanceGap)


def test_a_masked_value_is_a_gap() -> None:
    gap = find_read_gap(PRNG, Read("seed", raw_of("[REDACTED]")))
    assert gap is not None
    assert gap.cause == "masked_prng_value"
