"""Reruns of agents that do several things at once, and of what surrounds their requests."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from redrive.capture.ports import Outcome
from redrive.replay.rerun import start, step
from redrive.replay.rerun_exchange import AskExchange, Differs, What
from redrive.replay.rerun_items import Lack, RecordedFlow, RerunRecord
from tests.recorded import asks, chat_answer, chat_body, said
from tests.rerun_agents import BrokenError, Seams, record_agent

DONE = chat_answer("done")


def ask(seams: Seams, *words: str, answer: bytes = DONE) -> None:
    seams.ask(chat_body(*(said("user", word) for word in words)), answer)


# --- several flows -----------------------------------------------------------------------------


def worker(seams: Seams, name: str, *, question: str = "{}?") -> None:
    """Read the clock, ask, run a tool, ask again."""
    seams.clock("time.time()", name)
    first, second = question.format(name), f"{name} again"
    call = asks(f"c-{name}", "lookup", f'{{"of": "{name}"}}')
    ask(seams, first, answer=chat_answer("", call))
    seams.call("lookup", {"of": name})
    ask(seams, first, second)


def with_threads(seams: Seams, **fields: Any) -> None:
    ask(seams, "plan")
    threads = [threading.Thread(target=worker, args=(seams, name), kwargs=fields) for name in "abc"]
    for thread in threads:
        thread.start()
        thread.join()
    ask(seams, "plan", "sum up")


def with_tasks(seams: Seams, *, pauses: tuple[float, ...] = (0, 0, 0), **fields: Any) -> None:
    async def work(name: str, pause_s: float) -> None:
        seams.clock("time.time()", name)
        await asyncio.sleep(pause_s)
        first = f"{name}?"
        call = asks(f"c-{name}", "lookup", f'{{"of": "{name}"}}')
        ask(seams, first, answer=chat_answer("", call))
        await asyncio.sleep(pause_s)
        seams.call("lookup", {"of": name})
        ask(seams, first, f"{name} again")

    async def main() -> None:
        ask(seams, "plan")
        await asyncio.gather(
            *(work(name, pause) for name, pause in zip("abc", pauses, strict=True))
        )
        ask(seams, "plan", "sum up")

    asyncio.run(main())


def with_names(seams: Seams) -> None:
    ask(seams, "plan")
    for name in ("researcher", "writer"):
        token = seams.backend.enter_flow(name)
        worker(seams, name)
        seams.backend.leave_flow(token)
    ask(seams, "plan", "sum up")


@pytest.mark.parametrize("agent", [with_threads, with_tasks, with_names], ids=lambda f: f.__name__)
def test_three_flows_run_again_each_from_its_own_record(agent):
    session = record_agent(agent)
    assert len(session.recorded.flows) in (3, 4)
    again = session.rerun(agent)
    assert again.line == "identical"
    assert again.backend.state.served.requests in (6, 8)


def test_flows_that_begin_in_another_order_keep_their_records():
    session = record_agent(lambda seams: with_tasks(seams, pauses=(0.02, 0.01, 0)))
    assert session.rerun(with_tasks).line == "identical"
    assert session.rerun(lambda seams: with_tasks(seams, pauses=(0, 0.01, 0.02))).line == (
        "identical"
    )


def test_a_difference_in_one_flow_is_named_with_it_and_stops_all():
    session = record_agent(with_names)
    again = session.rerun(
        lambda seams: [
            ask(seams, "plan"),
            seams.backend.enter_flow("researcher"),
            worker(seams, "researcher", question="what of {}?"),
        ]
    )
    assert again.line == (
        "researcher 1: prompt differs at /messages/0/content: researcher? → what of researcher?"
    )


def test_a_flow_that_never_begins_is_an_early_end():
    session = record_agent(with_names)

    def alone(seams: Seams) -> None:
        ask(seams, "plan")
        ask(seams, "plan", "sum up")

    assert session.rerun(alone).line == "researcher 1: clock read: time.time() → the end"


def test_a_proxy_tells_flows_by_what_the_record_expects_next():
    def two(seams: Seams) -> None:
        ask(seams, "a?")
        ask(seams, "b?")
        ask(seams, "a?", "more a")
        ask(seams, "b?", "more b")

    session = record_agent(two, by_context=False)
    assert session.rerun(two, by_context=False).line == "identical"


# --- tools -------------------------------------------------------------------------------------


def test_what_a_tool_does_in_its_own_code_is_served_with_its_result():
    def tool(seams: Seams) -> dict[str, Any]:
        seams.draw("random.random()", 0.5)
        ask(seams, "a question of the tool's own")
        seams.call("inner", {})
        seams.derive("inner", len, [1])
        seams.ask(b"x", b"y", url="https://api.example/files")
        return {"at": seams.clock("time.time()", 7.0)}

    def agent(seams: Seams) -> None:
        ask(seams, "x", answer=chat_answer("", asks("c1", "lookup", "{}")))
        seams.call("lookup", {}, lambda: tool(seams))
        ask(seams, "x", "y")

    session = record_agent(agent)
    flow = session.recorded.flows["main"]
    assert (len(flow.exchanges), len(flow.reads), len(flow.calls)) == (2, 0, 1)
    assert session.rerun(agent).line == "identical"


def test_the_calls_of_a_flow_may_run_in_a_pool_of_threads():
    def agent(seams: Seams) -> None:
        calls = [asks(f"c{n}", "lookup", f'{{"n": {n}}}') for n in range(3)]
        ask(seams, "x", answer=chat_answer("", *calls))
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda n: seams.call("lookup", {"n": n}), (2, 0, 1)))
        ask(seams, "x", "y")

    session = record_agent(agent)
    assert session.rerun(agent).line == "identical"


def test_a_call_may_wait_beyond_the_next_request():
    def agent(seams: Seams) -> None:
        calls = [asks("c1", "lookup", '{"n": 1}'), asks("c2", "lookup", '{"n": 2}')]
        ask(seams, "x", answer=chat_answer("", *calls))
        seams.call("lookup", {"n": 1})
        ask(seams, "sum up the first")
        seams.call("lookup", {"n": 2})
        ask(seams, "x", "y")

    session = record_agent(agent)
    assert session.rerun(agent).line == "identical"


def test_one_key_is_served_in_recorded_order_each_answer_once():
    def agent(seams: Seams) -> list[Any]:
        calls = [asks(f"c{n}", "poll", "{}") for n in range(3)]
        ask(seams, "x", answer=chat_answer("", *calls))
        answers = iter(("queued", "running", "done"))
        return [seams.call("poll", {}, lambda: next(answers)) for _ in range(3)]

    session = record_agent(agent)
    again = session.rerun(agent)
    assert (again.line, again.value) == ("identical", ["queued", "running", "done"])
    fourth = session.rerun(lambda seams: [*agent(seams), seams.call("poll", {})])
    assert fourth.found.what is What.CALL


def test_arguments_that_the_harness_changed_are_what_is_found_again():
    def agent(seams: Seams, path: str = "/srv/x") -> None:
        ask(seams, "x", answer=chat_answer("", asks("c1", "read", '{"path": "x"}')))
        seams.call("read", {"path": path})

    session = record_agent(agent)
    assert session.rerun(agent).line == "identical"
    again = session.rerun(lambda seams: agent(seams, "/srv/y"))
    assert (again.found.where, again.found.expected["arguments"]) == ("/path", {"path": "/srv/x"})


def test_a_call_that_never_ended_is_a_gap_where_it_is_made_again():
    def agent(seams: Seams) -> None:
        ask(seams, "x", answer=chat_answer("", asks("c1", "lookup", "{}")))
        seams.backend.begin_call("lookup", "pure", Raw(b"{}"), is_unsafe=False)

    def own(seams: Seams) -> None:
        seams.backend.begin_call("own", "pure", Raw(b'{"a": 1}'), is_unsafe=False)

    for killed in (agent, own):
        session = record_agent(killed, is_ended=False)
        again = session.rerun(killed)
        assert (again.found.what, again.found.reason) == (What.UNSERVABLE, Lack.NO_RESULT.value)
    session = record_agent(agent, is_ended=False)
    assert session.rerun(lambda seams: ask(seams, "x")).line == "identical"


def test_a_result_without_a_json_form_is_a_gap():
    def agent(seams: Seams) -> None:
        ask(seams, "x", answer=chat_answer("", asks("c1", "lookup", "{}")))
        for tool in ("lookup", "own"):
            observer = seams.backend.begin_call(tool, "pure", Raw(b"{}"), is_unsafe=False)
            observer.returned_unknown("DataFrame")

    session = record_agent(agent)
    assert session.rerun(agent).miss.lack is Lack.NO_RESULT


def test_a_tool_that_says_itself_that_it_failed_is_served_with_its_words():
    told = b'{"isError": true, "content": []}'

    def agent(seams: Seams) -> Any:
        ask(seams, "x", answer=chat_answer("", asks("c1", "lookup", "{}")))
        observer = seams.backend.begin_call("lookup", "pure", Raw(b"{}"), is_unsafe=False)
        if hasattr(observer, "returned"):
            observer.returned(Raw(told), is_error=True)
            return None
        return bytes(observer.result)

    session = record_agent(agent)
    assert session.rerun(agent).value == told


# --- other HTTP --------------------------------------------------------------------------------

EMBED = "https://api.example/v1/embeddings?key=1"


def test_other_http_is_served_by_what_was_sent_in_any_order():
    def agent(seams: Seams, texts: tuple[bytes, ...] = (b"a", b"b")) -> list[bytes]:
        ask(seams, "x")
        seams.ask(b"", b"[models]", method="GET", url="https://api.example/v1/models")
        answers = [seams.ask(text, b"vector of " + text, url=EMBED)[1] for text in texts]
        ask(seams, "x", "y")
        return answers

    session = record_agent(agent)
    again = session.rerun(lambda seams: agent(seams, (b"b", b"a")))
    assert (again.line, again.value) == ("identical", [b"vector of b", b"vector of a"])
    missed = session.rerun(lambda seams: agent(seams, (b"a", b"c")))
    assert missed.line == "main 1: request differs at byte 0: b → c"
    left = session.rerun(lambda seams: agent(seams, (b"a",)))
    assert left.line == ("main 1: request differs: POST /v1/embeddings → POST /v1/chat/completions")
    never = session.rerun(lambda seams: seams.ask(b"q", url="https://api.example/v1/files"))
    assert never.line == "main 1: request differs: nothing → POST /v1/files"


def test_other_http_that_failed_fails_again():
    def agent(seams: Seams) -> None:
        with pytest.raises(BrokenError, match="failed"):
            seams.ask(b"a", outcome=Outcome.FAILED, url=EMBED)

    session = record_agent(agent)
    assert session.rerun(agent).line == "identical"


def test_other_http_that_the_recorder_cut_cannot_be_served():
    session = record_agent(lambda seams: seams.ask(b"a", b"b", url=EMBED))
    (other,) = session.recorded.flows["main"].others
    cut = msgspec.structs.replace(other, lack=Lack.TRUNCATED)
    record = RerunRecord("s", {"main": RecordedFlow("main", others=(cut,))}, is_ended=True)
    asked = AskExchange("main", "POST", "/v1/embeddings", b"a", is_model=False)
    _, command = step(start(record), asked)
    assert isinstance(command, Differs)
    assert (command.miss.what, command.miss.lack) == (What.UNSERVABLE, Lack.TRUNCATED)


# --- where the record stops --------------------------------------------------------------------


def test_a_record_that_stops_cannot_answer_what_comes_after():
    session = record_agent(lambda seams: ask(seams, "x"), is_ended=False)

    def longer(seams: Seams) -> None:
        ask(seams, "x")
        ask(seams, "x", "y")

    again = session.rerun(longer)
    assert (again.found.what, again.found.reason) == (What.BEYOND, Lack.STOPPED.value)


def test_a_request_whose_answer_never_came_is_a_gap():
    def killed(seams: Seams) -> None:
        from redrive.capture.ports import SentRequest
        from tests.recorded import CHAT_URL

        seams.backend.sent(SentRequest("POST", CHAT_URL, (), chat_body(said("user", "x")), 1))

    session = record_agent(killed, is_ended=False)
    again = session.rerun(killed)
    assert (again.found.what, again.found.reason) == (What.UNSERVABLE, Lack.NO_ANSWER.value)


def test_what_the_recorder_added_to_a_body_is_no_difference():
    body = chat_body(said("user", "x"))
    added = body[:-1] + b', "logprobs": true}'

    def agent(seams: Seams, **fields: Any) -> None:
        seams.ask(added if fields else body, DONE, **fields)

    session = record_agent(lambda seams: agent(seams, added=("logprobs",)))
    assert session.rerun(agent).line == "identical"
    assert session.rerun(lambda seams: agent(seams, added=("logprobs",))).line == "identical"


# --- derived values ----------------------------------------------------------------------------


def test_a_function_may_derive_from_what_it_derived():
    def agent(seams: Seams) -> Any:
        def outer(x: int) -> int:
            seams.clock("time.time()")
            return x + int(seams.derive("inner", len, [1, 2]))

        return seams.derive("outer", outer, 3)

    session = record_agent(agent)
    again = session.rerun(agent)
    assert (again.line, again.value) == ("identical", 5)


def test_a_derivation_that_the_record_does_not_hold_is_a_gap():
    session = record_agent(lambda seams: ask(seams, "x"))
    again = session.rerun(lambda seams: seams.derive("sum", len, [1]))
    assert again.line == "main 1: derived value: nothing → sum = len(…)"
    assert again.miss.is_unrecorded


def test_another_derivation_than_the_recorded_one_names_both():
    session = record_agent(lambda seams: seams.derive("sum", len, [1]))
    again = session.rerun(lambda seams: seams.derive("total", len, [1]))
    assert again.line == "main 1: derived value: sum = len(…) → total = len(…)"
    assert session.rerun(lambda seams: None).line == (
        "main 1: derived value: sum = len(…) → the end"
    )


def test_another_version_of_a_function_is_judged_by_what_it_gives():
    def agent(seams: Seams, version: str, size: int = 1) -> Any:
        def count(items: list[int]) -> int:
            return len(items) * size

        return seams.derive("count", count, [1, 2], version=version)

    session = record_agent(lambda seams: agent(seams, "v1"))
    assert session.rerun(lambda seams: agent(seams, "v2")).line == "identical"
    other = session.rerun(lambda seams: agent(seams, "v2", 2))
    assert other.line == "main 1: derivation not reproducible at count: 2 → 4"
    assert other.found.reason == "the function is another version: v2, recorded v1"
    unknown = session.rerun(lambda seams: agent(seams, "v2"), recompute=False)
    assert unknown.line == "main 1: derived value at count version: v1 → v2"


def test_a_value_that_differs_inside_is_named_by_its_path():
    def agent(seams: Seams, latency: float) -> Any:
        def summarise(items: list[float]) -> Any:
            return {"rows": [{"latency_ms": latency}]}

        return seams.derive("summary", summarise, [0.1, 0.2])

    session = record_agent(lambda seams: agent(seams, 0.1 + 0.2))
    assert session.rerun(lambda seams: agent(seams, 0.3)).line == (
        "main 1: derivation not reproducible at summarise /rows/0/latency_ms:"
        " 0.30000000000000004 → 0.3"
    )


# --- a live model ------------------------------------------------------------------------------


def answering(*answers: bytes):
    from redrive.capture.ports import ServedAnswer

    left = iter(answers)
    return lambda request, live: ServedAnswer(200, (), next(left))


def polite(seams: Seams) -> bytes:
    """Retry once after an error, then run what the model asks for."""
    body = chat_body(said("user", "x"))
    status, data = seams.ask(body, b"{}", 500)
    if status == 500:
        seams.draw("random.random()")
        _, data = seams.ask(body, chat_answer("", asks("c1", "lookup", "{}")))
    seams.clock("time.time()")
    if b"lookup" in data:
        seams.call("lookup", {})
    if b"wipe" in data:
        seams.call("wipe", {})
    return seams.ask(chat_body(said("user", "x"), said("user", "y")), DONE)[1]


def test_a_live_model_is_asked_while_the_rest_is_served():
    session = record_agent(polite)
    model = answering(chat_answer("", asks("n1", "lookup", "{}")), b"the end")
    again = session.rerun(polite, is_live=True, ask_model=model)
    assert (again.line, again.value) == ("identical", b"the end")
    served = again.backend.state.served
    assert (served.live, served.requests, served.calls, served.reads) == (2, 0, 1, 1)


def test_a_live_model_that_asks_for_another_tool_stops_the_rerun():
    session = record_agent(polite)
    model = answering(chat_answer("", asks("n1", "wipe", "{}")))
    again = session.rerun(polite, is_live=True, ask_model=model)
    assert again.found.what is What.CALL


def test_a_live_model_may_go_on_beyond_the_record():
    session = record_agent(lambda seams: ask(seams, "x"))

    def longer(seams: Seams) -> None:
        for number in range(3):
            ask(seams, "x", str(number))

    again = session.rerun(longer, is_live=True, ask_model=answering(b"1", b"2", b"3"))
    assert again.line == "identical"
    assert again.backend.state.served.live == 3


def test_without_a_model_nothing_is_asked_live():
    session = record_agent(lambda seams: ask(seams, "x"))
    again = session.rerun(lambda seams: ask(seams, "x"), is_live=True)
    assert again.backend.state.served.live == 1
