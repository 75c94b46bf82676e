"""Reruns of an agent's own code, changed in one place each, and the first difference they name."""

from typing import Any

import pytest

from redrive.capture.ports import Outcome
from redrive.replay.rerun_exchange import What
from tests.recorded import asks, chat_answer, chat_body, said
from tests.rerun_agents import BrokenError, Seams, record_agent

ASKED = chat_answer("", asks("c1", "lookup", '{"id": 7}'), asks("c2", "mail", '{"to": "a"}'))
DONE = chat_answer("Refunded.")
BUSY = b'{"error": {"message": "slow down"}}'


def total(*items: float) -> float:
    return sum(items)


def agent(
    seams: Seams,
    *,
    prompt: str = "Refund order 7.",
    clock: str = "time.monotonic()",
    draws: tuple[str, ...] = ("random.uniform(0.1, 0.5)", "random.random()"),
    tools: tuple[tuple[str, Any], ...] = (("lookup", {"id": 7}), ("mail", {"to": "a"})),
    items: tuple[float, ...] = (0.1, 0.2, 0.3),
    function: Any = total,
    extra: tuple[str, ...] = (),
    early: bool = False,
    again: bool = False,
    path: str = "/v1/chat/completions",
) -> str:
    """Retry with jitter, check a clock, run two tools, derive a value, and answer."""
    seams.clock(clock, 10.0)
    for name in extra:
        seams.clock(name, 11.0)
    first = chat_body(said("user", prompt))
    url = f"https://api.example{path}"
    status, _ = seams.ask(first, BUSY, 429, url=url)
    assert status == 429
    for number, name in enumerate(draws):
        seams.draw(name, 0.25 + number)
    seams.ask(first, ASKED, url=url)
    results = [seams.call(name, arguments, lambda: {"ok": 1}) for name, arguments in tools]
    derived = seams.derive("sum", function, *items)
    if early:
        return "early"
    body = chat_body(said("user", prompt), said("tool", f"{results} {derived}"))
    seams.ask(body, DONE, url=url)
    if again:
        seams.ask(chat_body(said("user", "Once more.")), DONE, url=url)
    return "done"


@pytest.fixture(scope="module")
def session():
    return record_agent(agent)


def changed(session: Any, **fields: Any) -> str:
    return session.rerun(lambda seams: agent(seams, **fields)).line


def test_the_same_code_runs_again_from_the_record_alone(session):
    again = session.rerun(agent)
    assert (again.line, again.value) == ("identical", "done")
    served = again.backend.state.served
    assert (served.requests, served.reads, served.calls, served.values) == (3, 3, 2, 1)


def test_a_changed_prompt_is_named_by_its_path(session):
    assert changed(session, prompt="Refund order 8.") == (
        "main 1: prompt differs at /messages/0/content: Refund order 7. → Refund order 8."
    )


def test_a_changed_url_is_another_request(session):
    assert changed(session, path="/v2/chat/completions") == (
        "main 1: request differs: POST /v1/chat/completions → POST /v2/chat/completions"
    )


def test_a_changed_tool_argument_names_the_nearest_recorded_call(session):
    again = session.rerun(lambda s: agent(s, tools=(("lookup", {"id": 8}), ("mail", {"to": "a"}))))
    assert again.found.what is What.ARGUMENT
    assert (again.found.step, again.found.node_id, again.found.where) == (1, "x2", "/id")
    assert again.found.expected == {"tool": "lookup", "arguments": {"id": 7}}
    assert again.found.found == {"tool": "lookup", "arguments": {"id": 8}}


def test_another_tool_is_another_call(session):
    line = changed(session, tools=(("wipe", {}), ("mail", {"to": "a"})))
    assert line.startswith("main 1: tool call at tool: {'tool': 'lookup'")


def test_calls_of_one_answer_may_run_in_any_order(session):
    assert changed(session, tools=(("mail", {"to": "a"}), ("lookup", {"id": 7}))) == "identical"


def test_a_call_that_is_not_made_is_missed_at_the_next_request(session):
    line = changed(session, tools=(("lookup", {"id": 7}),))
    assert line == (
        "main 1: tool call: {'tool': 'mail', 'arguments': {'to': 'a'}} → POST /v1/chat/completions"
    )


def test_a_recorded_answer_is_served_once(session):
    line = changed(session, tools=(("lookup", {"id": 7}), ("lookup", {"id": 7})))
    assert line.startswith("main 1: tool call at tool: {'tool': 'mail'")


def test_another_clock_is_a_read_that_the_record_does_not_hold(session):
    again = session.rerun(lambda seams: agent(seams, clock="time.time()"))
    assert again.line == "main 1: clock read: time.monotonic() → time.time()"
    assert again.miss.is_unrecorded


def test_the_same_dice_thrown_otherwise_are_a_difference(session):
    draws = ("random.uniform(0.2, 0.9)", "random.random()")
    again = session.rerun(lambda seams: agent(seams, draws=draws))
    assert again.line == ("main 1: prng read: random.uniform(0.1, 0.5) → random.uniform(0.2, 0.9)")
    assert not again.miss.is_unrecorded


def test_swapped_jitter_draws_are_named_as_their_order(session):
    draws = ("random.random()", "random.uniform(0.1, 0.5)")
    assert changed(session, draws=draws) == (
        "main 1: order of reads: random.uniform(0.1, 0.5) → random.random()"
    )


def test_an_extra_read_takes_no_other_reads_value(session):
    again = session.rerun(lambda seams: agent(seams, extra=("time.time()",)))
    assert again.line == "main 1: clock read: nothing → time.time()"
    assert again.miss.is_unrecorded


def test_a_read_that_is_left_over_is_missed_at_the_next_request(session):
    assert changed(session, draws=("random.uniform(0.1, 0.5)",)) == (
        "main 1: prng read: random.random() → POST /v1/chat/completions"
    )


def test_an_early_end_names_the_request_that_did_not_come(session):
    assert changed(session, early=True) == (
        "main 2: ended early: POST /v1/chat/completions → the end"
    )


def test_a_request_more_goes_on_beyond_the_record(session):
    assert changed(session, again=True) == (
        "main 3: goes on beyond the record: nothing → POST /v1/chat/completions"
    )


def test_inputs_in_another_order_are_named_with_their_function(session):
    assert changed(session, items=(0.3, 0.2, 0.1)) == (
        "main 1: derived input at total inputs /0: 0.1 → 0.3"
    )


def test_a_derivation_that_gives_another_value_is_not_reproducible(session):
    def backwards(*items: float) -> float:
        return sum(reversed(items))

    backwards.__name__ = "total"
    assert changed(session, function=backwards) == (
        "main 1: derivation not reproducible at total: 0.6000000000000001 → 0.6"
    )


def test_a_derivation_that_raises_is_not_reproducible(session):
    def total(*items: float) -> float:
        raise ZeroDivisionError("no")

    assert changed(session, function=total) == (
        "main 1: derivation not reproducible at total: 0.6000000000000001"
        " → raised ZeroDivisionError: no"
    )


def test_without_recomputing_the_recorded_value_is_served(session):
    def total(*items: float) -> float:
        raise ZeroDivisionError("never run")

    again = session.rerun(lambda seams: agent(seams, function=total), recompute=False)
    assert again.line == "identical"


def test_everything_after_the_first_difference_is_refused(session):
    backend = session.serve()
    seams = Seams(backend)
    with pytest.raises(BaseException, match="clock read, recorded at k1"):
        seams.clock("time.time()")
    with pytest.raises(BaseException, match="stopped at step 1 of main"):
        seams.clock("time.monotonic()")
    assert backend.finish() is backend.miss


def test_a_broken_and_a_failed_answer_are_served_as_what_they_were():
    def shaky(seams: Seams) -> list[bytes]:
        seen = []
        for outcome in (Outcome.CUT, Outcome.FAILED, Outcome.CANCELLED):
            with pytest.raises(BrokenError, match=outcome.value) as caught:
                seams.ask(chat_body(said("user", "x")), b"data: half", outcome=outcome)
            seen.append(caught.value.body)
        seams.ask(chat_body(said("user", "x")), DONE)
        return seen

    session = record_agent(shaky)
    again = session.rerun(shaky)
    assert (again.line, again.value) == ("identical", [b"data: half", b"", b"data: half"])


def test_a_recorded_error_of_a_tool_is_served_as_that_error():
    def denied() -> None:
        raise RuntimeError("no rights")

    def failing(seams: Seams) -> str:
        seams.ask(chat_body(said("user", "x")), ASKED)
        with pytest.raises(RuntimeError, match="Denied: no rights"):
            seams.call("lookup", {"id": 7}, denied)
        with pytest.raises(RuntimeError, match="Denied: no rights"):
            seams.call("harness_tool", {"own": True}, denied)
        return str(seams.call("harness_tool", {"own": True}, lambda: [1]))

    session = record_agent(failing)
    again = session.rerun(failing)
    assert (again.line, again.value) == ("identical", "[1]")
