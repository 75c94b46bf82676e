"""The founding incident and its second case, as recordings: the record is at fault, not the model.

A telemetry summariser's sum stood in the context as 0.30000000000000004; computed again it was 0.3,
and the model chose another tool at step 41.
"""

import json

import pytest
from msgspec import UNSET

from redrive.audit.closure import close
from redrive.errors import ReplayClosureError
from redrive.record.event import Kind
from tests.helpers_sessions import RENDERERS, SessionBuilder, gaps_of

STEPS = 42
SUM = 0.1 + 0.2


def incident(*, inputs: object = UNSET, jitter: object = UNSET) -> SessionBuilder:
    """Give 42 steps; the summary is the result that step 41's context ends with."""
    built = SessionBuilder(renderer="json@1")
    for step in range(1, STEPS):
        built.decision((f"c{step}", "telemetry.summary", {"window": step}))
        if step == 12:
            built.read("prng", "retry.jitter", jitter, step=12)
        if step == 40:
            built.derived("latency_ms", inputs, function="summariser", step=41)
        built.result(f"c{step}", {"latency_ms": SUM})
    return built.decision(("drop", "db.execute", {"sql": "DROP TABLE t"})).result("drop", "ok")


def complete() -> SessionBuilder:
    return incident(inputs=[0.1, 0.2], jitter=0)


def test_with_everything_recorded_the_incident_is_closed() -> None:
    assert complete().audit().is_closed


@pytest.mark.parametrize("rendered", ["0.3", "0.300000000000000044", "3.0000000000000004e-01"])
def test_a_float_written_otherwise_in_a_context_is_a_mismatch_at_its_step(rendered: str) -> None:
    built = complete()
    seq = built.seqs(Kind.MODEL_REQUEST)[40]
    context = json.dumps(built.messages[:81])
    assert context.endswith("0.30000000000000004}}]")
    changed = context.removesuffix("0.30000000000000004}}]") + rendered + "}}]"
    report = built.replace(seq, context=changed).audit()
    assert gaps_of(report) == [(41, "input", "context_mismatch")]
    assert "serialisation layer" in report.steps[40].missing[0].reason


def test_a_summary_without_its_ordered_inputs_is_an_environment_gap_that_names_it() -> None:
    report = incident(jitter=0).audit()
    assert gaps_of(report) == [(41, "environment", "missing_inputs")]
    assert "summariser" in report.steps[40].missing[0].reason
    assert report.closed_until == 40


def test_a_missing_jitter_seed_is_a_prng_gap_at_step_12() -> None:
    report = incident(inputs=[0.1, 0.2]).audit()
    assert gaps_of(report) == [(12, "prng", "missing_prng_value")]
    assert report.steps[11].missing[0].what == "retry.jitter"


def test_attribution_is_refused_before_anything_is_compared() -> None:
    built = incident()
    with pytest.raises(ReplayClosureError, match="provenance gap at step 12: prng") as caught:
        close(*built.build(), session_started=built.started, renderers=RENDERERS)
    assert [(step, input_class) for step, input_class, _ in caught.value.gaps] == [
        (12, "prng"),
        (41, "environment"),
    ]
