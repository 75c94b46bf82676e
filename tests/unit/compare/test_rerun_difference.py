"""Where two bodies, calls or values part, shown as people read them."""

import pytest

from redrive.audit.gaps import InputClass
from redrive.compare.rerun_difference import ABSENT, find_path, find_spot
from redrive.replay.rerun_exchange import What
from redrive.replay.rerun_items import Lack
from tests.recorded import asks, chat_answer, chat_body, said
from tests.rerun_agents import Seams, record_agent

DONE = chat_answer("done")


@pytest.mark.parametrize(
    ("expected", "found", "path"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 2}, ("/a", 1, 2)),
        ({"a": 1}, {}, ("/a", 1, ABSENT)),
        ({}, {"b": 1}, ("/b", ABSENT, 1)),
        ([1, [2]], [1, [3]], ("/1/0", 2, 3)),
        ([1], [1, 2], ("/1", ABSENT, 2)),
        ([1, 2], [1], ("/1", 2, ABSENT)),
        (1, True, ("", 1, True)),
        (1, 1.0, ("", 1, 1.0)),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, ("/a", 0.30000000000000004, 0.3)),
        ([], {}, ("", [], {})),
        ({"a": [1], "b": 1}, {"a": [1], "b": 2}, ("/b", 1, 2)),
    ],
)
def test_the_first_value_that_differs_has_a_path(expected, found, path):
    assert find_path(expected, found) == path


def test_what_is_nested_too_deeply_is_compared_whole():
    def nest(value: object, depth: int) -> object:
        for _ in range(depth):
            value = [value]
        return value

    path = find_path(nest(1, 150), nest(2, 150))
    assert path is not None
    assert path[0] == "/0" * 100


@pytest.mark.parametrize(
    ("expected", "found", "where", "offset"),
    [
        (b'{"a": 1}', b'{"a": 2}', "/a", 6),
        (b'{"a": 1}', b'{"a":1}', "byte 5", 5),
        (b"plain", b"plane", "byte 3", 3),
        (b"[1]", b"{}", "/", 0),
        (b"\xff\x00", b"\xff\x01", "byte 1", 1),
    ],
)
def test_bodies_part_at_a_value_or_at_a_byte(expected, found, where, offset):
    spot = find_spot(expected, found)
    assert spot is not None
    assert (spot.where, spot.offset) == (where, offset)
    assert find_spot(expected, expected) is None


def test_long_texts_are_shown_around_the_first_difference():
    spot = find_spot(b'["' + b"x" * 900 + b'a"]', b'["' + b"x" * 900 + b'b"]')
    assert spot is not None
    assert (spot.expected, spot.found) == ("…" + "x" * 40 + "a", "…" + "x" * 40 + "b")
    long = find_spot(b'{"a": [' + b"1," * 400 + b"1]}", b'{"a": null}')
    assert long is not None
    assert len(long.expected) == 301
    assert long.found is None


def ask(seams: Seams, *words: str, answer: bytes = DONE) -> None:
    seams.ask(chat_body(*(said("user", word) for word in words)), answer)


def test_a_call_with_nothing_left_is_laid_beside_every_recorded_call():
    def agent(seams: Seams) -> None:
        ask(seams, "x", answer=chat_answer("", asks("c1", "lookup", '{"a": 1}')))
        seams.call("lookup", {"a": 1})
        seams.call("own", {"b": {"c": 2}})

    session = record_agent(agent)

    def more(seams: Seams) -> None:
        agent(seams)
        seams.call("own", {"b": {"c": 3}})

    again = session.rerun(more)
    assert again.found.what is What.CALL
    assert (again.found.where, again.found.node_id) == ("/b/c", "c1")
    assert again.found.expected == {"tool": "own", "arguments": {"b": {"c": 2}}}


def test_a_call_in_a_session_without_calls_has_no_neighbour():
    session = record_agent(lambda seams: ask(seams, "x"))
    found = session.rerun(lambda seams: seams.call("lookup", {})).found
    assert (found.what, found.nearest, found.expected) == (What.CALL, None, "nothing")


def test_a_call_that_is_left_over_is_shown_with_what_it_was_run_with():
    def agent(seams: Seams) -> None:
        ask(seams, "x", answer=chat_answer("", asks("c1", "read", '{"path": "x"}')))
        seams.call("read", {"path": "/srv/x"})

    session = record_agent(agent)
    found = session.rerun(lambda seams: ask(seams, "x")).found
    assert found.expected == {"tool": "read", "arguments": {"path": "/srv/x"}}
    assert found.found == "the end"


def test_a_masked_request_is_a_gap_and_no_difference():
    def agent(seams: Seams, secret: str) -> None:
        ask(seams, f"the key is {secret}")

    session = record_agent(lambda seams: agent(seams, "[redacted:key:0011aabb]"))
    found = session.rerun(lambda seams: agent(seams, "real")).found
    assert (found.what, found.reason) == (What.PROMPT, Lack.MASKED.value)


@pytest.mark.parametrize(
    ("agent", "input_class"),
    [
        (lambda seams: seams.clock("time.time()", None), InputClass.CLOCK),
        (lambda seams: seams.draw("random.random()", None), InputClass.PRNG),
    ],
)
def test_a_recorded_read_without_a_value_is_a_gap_of_its_class(agent, input_class):
    found = record_agent(agent).rerun(agent).found
    assert (found.what, found.input_class) == (What.UNSERVABLE, input_class)


def test_what_cannot_be_served_has_the_class_of_what_was_asked():
    def masked_tool(seams: Seams) -> None:
        ask(seams, "x", answer=chat_answer("", asks("c1", "lookup", "{}")))
        seams.call("lookup", {}, lambda: "[redacted:key:0011aabb]")

    found = record_agent(masked_tool).rerun(masked_tool).found
    assert (found.what, found.input_class) == (What.UNSERVABLE, InputClass.ENVIRONMENT)

    def masked_value(seams: Seams) -> None:
        seams.derive("d", lambda: "[redacted:key:0011aabb]")

    found = record_agent(masked_value).rerun(masked_value).found
    assert (found.what, found.input_class) == (What.UNSERVABLE, InputClass.ENVIRONMENT)

    def unanswered(seams: Seams) -> None:
        seams.ask(chat_body(said("user", "x")), b"x" * 10)

    session = record_agent(unanswered)
    exchange = session.recorded.flows["main"].exchanges[0]
    assert exchange.lack is None


def test_an_order_of_reads_has_the_class_of_the_read_that_came_too_early():
    def agent(seams: Seams, *, swapped: bool = False) -> None:
        reads = [seams.clock, seams.draw]
        for read in reversed(reads) if swapped else reads:
            read()

    found = record_agent(agent).rerun(lambda seams: agent(seams, swapped=True)).found
    assert (found.what, found.input_class) == (What.ORDER, InputClass.PRNG)


def test_a_read_of_another_kind_and_name_is_known_where_it_was_ever_made():
    def agent(seams: Seams, *, first: str = "time.time()") -> None:
        seams.clock(first)
        ask(seams, "x")
        seams.clock("time.monotonic()")

    again = record_agent(agent).rerun(lambda seams: agent(seams, first="time.monotonic()"))
    assert again.line == "main 1: clock read: time.time() → time.monotonic()"
    assert not again.miss.is_unrecorded
