"""Take one recorded input from a closed session: exactly its step and class must open."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import UNSET

from redrive.record.event import Kind, ModelRequest, Redaction, Sampling
from tests.helpers_sessions import SessionBuilder

STEPS = 4
BODY = '{"model":"m-1","messages":[],"temperature":0.7,"seed":%d}'


def closed_session() -> SessionBuilder:
    """Give four steps, each with a call, a result, a clock and a PRNG read and a derived value."""
    built = SessionBuilder()
    for step in range(1, STEPS + 1):
        built.decision((f"c{step}", "t", {"n": step})).result(f"c{step}", step)
        built.read("clock", "now", 0.0).read("prng", "jitter", 0)
        built.derived("mean", [1, 2], function="summary")
    return built


def body_session() -> SessionBuilder:
    """Give four steps whose request bodies are stored."""
    built = SessionBuilder()
    for step in range(1, STEPS + 1):
        built.decision((f"c{step}", "t", {}), request=ModelRequest(body=BODY % step))
        built.result(f"c{step}", step)
    return built


Mutant = tuple[Callable[[], SessionBuilder], Kind, dict[str, Any], str]
MUTANTS: dict[str, Mutant] = {
    "context": (closed_session, Kind.MODEL_REQUEST, {"context": None}, "input"),
    "context cut": (closed_session, Kind.MODEL_REQUEST, {"truncated": True}, "input"),
    "context masked": (
        closed_session,
        Kind.MODEL_REQUEST,
        {"redactions": (Redaction("context"),)},
        "input",
    ),
    "temperature": (closed_session, Kind.MODEL_REQUEST, {"sampling": Sampling(seed=7)}, "sampling"),
    "seed": (closed_session, Kind.MODEL_REQUEST, {"sampling": Sampling(temperature=0)}, "sampling"),
    "result": (closed_session, Kind.TOOL_RESULT, {"result": UNSET}, "environment"),
    "result cut": (closed_session, Kind.TOOL_RESULT, {"truncated": True}, "environment"),
    "clock value": (closed_session, Kind.CLOCK_READ, {"value": UNSET}, "clock"),
    "prng value": (closed_session, Kind.PRNG_READ, {"value": UNSET}, "prng"),
    "derived inputs": (closed_session, Kind.VALUE_DERIVED, {"inputs": UNSET}, "environment"),
    "body seed": (
        body_session,
        Kind.MODEL_REQUEST,
        {"body": '{"model":"m-1","temperature":0.7}'},
        "sampling",
    ),
    "answer cut": (body_session, Kind.MODEL_RESPONSE, {"truncated": True}, "input"),
}


@pytest.mark.parametrize("make", [closed_session, body_session])
def test_the_whole_session_is_closed(make: Callable[[], SessionBuilder]) -> None:
    assert make().audit().is_closed


@pytest.mark.parametrize("step", range(1, STEPS + 1))
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_opens_exactly_one_step_and_one_class(name: str, step: int) -> None:
    make, kind, changes, input_class = MUTANTS[name]
    built = make()
    report = built.replace(built.seqs(kind)[step - 1], **changes).audit()
    assert {(s.step, g.input_class) for s in report.steps for g in s.missing} == {
        (step, input_class)
    }
    assert report.closed_until == step - 1
    assert sum(report.by_class.values()) == 1


@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_result_line_that_is_gone_opens_the_step_that_called(step: int) -> None:
    built = SessionBuilder(renderer="json@1")
    for number in range(1, STEPS + 1):
        built.decision((f"c{number}", "t", {}))
        if number != step:
            built.result(f"c{number}", number)
        else:
            built.messages.append({"role": "tool", "call_id": f"c{number}", "content": number})
    report = built.audit()
    assert [(s.step, g.what) for s in report.steps for g in s.missing] == [
        (step, f"tool_result:c{step}")
    ]
