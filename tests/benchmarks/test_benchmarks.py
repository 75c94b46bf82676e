"""What `make bench` prints, and what it rests on; the figures themselves are no tests."""

import itertools
import json
import sys

import msgspec
import pytest

from benchmarks import __main__ as program
from benchmarks import data, relaying
from benchmarks.paired import Figure, line_of, measure
from benchmarks.process import run
from benchmarks.replaying import load, replay
from redrive.record.event import Event
from redrive.testing import MemorySource


def test_a_figure_at_its_goal_passes_and_one_above_it_is_missed() -> None:
    assert line_of(Figure("P5", "a / b", 3.0, 3.0, "basis")).split()[1] == "pass"
    missed = line_of(Figure("P5", "a / b", 3.01, 3.0, "basis"))
    assert missed.split() == ["P5", "MISS", "3.01x", "goal", "3.00x", "a", "/", "b", "[basis]"]


def test_work_that_does_the_floors_work_three_times_is_measured_above_it() -> None:
    def floor() -> None:
        sum(range(100_000))

    def work() -> None:
        for _ in range(3):
            floor()

    figure = measure("row", "three / one", work, floor, goal=2, floor_bytes=1000, inner=3)
    assert figure.value > 1.5
    assert "MB/s" in figure.basis


def test_a_process_is_charged_with_its_own_memory_and_not_with_its_parents() -> None:
    held = bytearray(200_000_000)
    small = run((sys.executable, "-c", "pass"))
    large = run((sys.executable, "-c", "held = bytearray(100_000_000)"))
    assert len(held)
    assert small.code == large.code == 0
    assert small.peak_mb < 60 < 100 < large.peak_mb


def test_the_same_recordings_are_made_each_time() -> None:
    assert data.interchange_session(40) == data.interchange_session(40)
    assert list(data.claude_lines(120)) == list(data.claude_lines(120))


def test_stored_sessions_are_as_their_goal_says() -> None:
    lines = list(data.event_lines("bench:0", 2000, 1))
    events = [msgspec.json.decode(line, type=Event) for line in lines]
    assert [event.seq for event in events] == list(range(2000))
    assert 530 < len(b"".join(lines)) / 2000 < 620
    nodes = list({event.node_id: event for event in events}.values())
    rewinds = sum(after.parent_id != before.node_id for before, after in itertools.pairwise(nodes))
    assert 0.02 < rewinds / len(nodes) < 0.04
    assert list(data.event_lines("bench:0", 50, 1)) == list(data.event_lines("bench:0", 50, 1))


def test_the_replayed_session_is_as_its_goal_says() -> None:
    lines, script = data.interchange_session(400)
    values = [json.loads(line) for line in lines.splitlines()]
    kinds = [value["type"] for value in values]
    assert kinds.count("decision") == kinds.count("tool_result") == 200
    calls = [json.dumps(v["output"]["tool_calls"][0]["args"]) for v in values if "output" in v]
    assert 0.05 < 1 - len(set(calls)) / len(calls) < 0.15, "a tenth of the calls repeat"
    found = replay(load(MemorySource("bench.jsonl", lines)), lambda: script)
    assert found.first_divergence is None


def test_the_replay_that_is_measured_finds_an_edited_decision() -> None:
    lines, script = data.interchange_session(40)
    edited = script.replace(b"src/m_7.py", b"src/other.py")
    assert edited != script
    found = replay(load(MemorySource("bench.jsonl", lines)), lambda: edited)
    assert found.first_divergence is not None
    assert found.first_divergence.decision == 7


def test_the_relay_and_the_proxy_are_asked_the_same_and_answer_the_same() -> None:
    with relaying.servers() as urls:
        answers = [relaying.exchange_once(*relaying.request_to(url)) for url in urls]
    assert answers[0] == answers[1] == relaying.RAW_ANSWER


def test_an_unknown_name_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        program.main(["nothing"])
    assert caught.value.code == 2
    assert "divergence" in capsys.readouterr().err
