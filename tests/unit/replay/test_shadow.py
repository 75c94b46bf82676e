import msgspec
import pytest
from msgspec import Raw

from redrive.errors import UsageError
from redrive.record.evidence import Gap
from redrive.record.pairing import pair_path
from redrive.replay.exchange import (
    AskModel,
    Done,
    Evidence,
    Nearest,
    ServeEvidence,
    ShadowOptions,
    Stop,
)
from redrive.replay.ports import CallAsked, ModelFingerprint, ModelReply
from redrive.replay.rebuild import read_messages, read_turns
from redrive.replay.run import drive, reply_from
from redrive.replay.shadow import start, step
from tests.recordings import answering, call, decide, end, record, replay, result, script, user

POLL = {"tool_calls": [{"name": "poll", "args": {"id": 1}}]}
DONE = {"text": "done", "final": True}


def served(run):
    return [bytes(call.result).decode() for call in run.served]


@pytest.fixture
def polled():
    return record(
        decide(call("poll", {"id": 1}, "c1")),
        result("c1", "STARTING"),
        decide(call("poll", {"id": 1}, "c2")),
        result("c2", "RUNNING"),
        decide(text="done"),
        end(),
    )


# --- the eight probes -------------------------------------------------------------------------


def test_a_repeated_identical_call_gets_the_first_then_the_second_answer(polled):
    run = replay(polled, [POLL, POLL, DONE])
    assert served(run) == ['"STARTING"', '"RUNNING"']
    assert (run.stop, run.unused) == (Stop.TERMINAL, ())


def test_key_order_never_matters():
    recording = record(decide(call("t", {"a": 1, "b": {"c": 2, "d": 3}}, "c1")), result("c1", 1))
    text = '{ "b": {"d": 3, "c": 2}, "a": 1 }'
    run = replay(recording, [{"tool_calls": [{"name": "t", "args_json": text}]}])
    assert served(run) == ["1"]
    assert run.decisions[0].reply is None


def test_a_changed_argument_stops_the_run_and_names_the_nearest_call(polled):
    run = replay(polled, [{"tool_calls": [{"name": "poll", "args": {"id": 2}}]}, DONE])
    assert run.stop is Stop.NO_ANSWER
    assert (run.missing.decision, run.missing.tool, run.missing.why) == (1, "poll", "not_recorded")
    assert run.missing.arguments == {"id": 2}
    assert (run.nearest.call_id, run.nearest.differs) == ("c1", ("/id",))
    assert (served(run), len(run.unused)) == ([], 2)


def test_one_call_more_than_recorded_is_not_answered_again(polled):
    run = replay(polled, [POLL, POLL, POLL, DONE])
    assert served(run) == ['"STARTING"', '"RUNNING"']
    assert (run.missing.decision, run.missing.why, run.missing.recorded) == (3, Gap.USED_UP, 2)


def test_an_extra_parallel_call_stops_after_those_before_it(polled):
    both = {"tool_calls": [*POLL["tool_calls"], {"name": "rm", "args": {}}, *POLL["tool_calls"]]}
    run = replay(polled, [both, DONE])
    assert served(run) == ['"STARTING"']
    assert run.missing.tool == "rm"


def test_a_model_that_stops_early_ends_the_run(polled):
    run = replay(polled, [POLL, DONE])
    assert (run.stop, len(run.decisions), len(run.unused)) == (Stop.TERMINAL, 2, 1)
    assert run.decisions[1].reply is not None


def test_swapped_parallel_calls_get_their_own_answers():
    calls = (call("a", {}, "c1"), call("b", {}, "c2"))
    recording = record(decide(*calls), result("c1", 1), result("c2", 2), decide(text="x"))
    swapped = {"tool_calls": [{"name": "b"}, {"name": "a"}]}
    run = replay(recording, [swapped, {"text": "x", "final": True}])
    assert served(run) == ["2", "1"]
    assert run.decisions[0].reply is not None


@pytest.mark.parametrize("extra", [0, 1, 3])
def test_a_model_that_keeps_going_is_stopped_a_few_decisions_beyond_the_record(polled, extra):
    lines = [POLL, POLL, *({"text": "hm"} for _ in range(9))]
    run = replay(polled, lines, extra=extra)
    assert (run.stop, len(run.decisions)) == (Stop.EXTRA_LIMIT, 3 + extra)


def test_a_recorded_error_is_served_as_that_error_and_null_as_null():
    recording = record(
        decide(call("t", {}, "c1")),
        result("c1", "no such file", status="error"),
        decide(call("t", {}, "c2")),
        result("c2", None),
        decide(text="x"),
    )
    line = {"tool_calls": [{"name": "t"}]}
    run = replay(recording, [line, line, {"text": "x", "final": True}])
    assert [(c.status, bytes(c.result)) for c in run.served] == [
        ("error", b'"no such file"'),
        ("ok", b"null"),
    ]


def test_mutating_what_is_handed_out_changes_neither_the_record_nor_a_later_run(polled):
    recorded, pairing = polled.run(), pair_path(polled.index, polled.trajectory, polled.reader)
    before = msgspec.json.encode(polled.events)

    def destroy(answer):
        def decide_(command):
            turns = read_turns(command.turns, polled.reader)
            history = read_messages(
                polled.trajectory, pairing, polled.reader, command.decision, turns
            )
            for message in history:
                for part in message.get("tool_calls", ()):
                    part["arguments"].clear()
                message.clear()
            return answer(command)

        return decide_

    runs = [
        drive(
            recorded,
            reply_from(
                polled.reader, destroy(answering(script([POLL, POLL, {"text": "x"}, DONE])))
            ),
        )
        for _ in "ab"
    ]
    clean = replay(polled, [POLL, POLL, {"text": "x"}, DONE])
    assert runs == [clean, clean]
    assert msgspec.json.encode(polled.events) == before


# --- what is asked ----------------------------------------------------------------------------


def asked_by(recording, replies, **options):
    """Give what the model was asked."""
    asked = []
    answer = answering(replies)

    def decide_(command):
        asked.append(command)
        return answer(command)

    drive(recording.run(), reply_from(recording.reader, decide_), ShadowOptions(**options))
    return asked


def requests(recording):
    return [s.request for s in recording.trajectory.steps]


def test_on_the_recorded_path_each_recorded_request_is_asked_as_it_is(polled):
    asked = asked_by(polled, script([POLL, POLL, DONE]))
    assert [a.request for a in asked] == requests(polled)
    assert not any(a.is_rebuilt or a.turns for a in asked)
    assert asked[0].recorded_model == ModelFingerprint(served="m-1", fingerprint="fp")


def test_after_a_difference_requests_are_rebuilt_from_the_last_recorded_one(polled):
    asked = asked_by(polled, script([{**POLL, "text": "hm"}, POLL, {"text": "x"}, DONE]))
    first = requests(polled)[0]
    assert [(a.request, a.base, a.is_rebuilt, len(a.turns)) for a in asked] == [
        (first, first, False, 0),
        (None, first, True, 1),
        (None, first, True, 2),
        (None, first, True, 3),
    ]
    turn = next(iter(asked[1].turns))
    assert (turn.text, turn.calls[0].tool, bytes(turn.results[0].result)) == (
        "hm",
        "poll",
        b'"STARTING"',
    )
    assert asked[3].recorded_model is None


def test_a_rebuilt_request_holds_the_user_messages_of_its_place():
    recording = record(decide(text="a"), user("go on"), decide(text="b"))
    asked = asked_by(recording, script([{"text": "A"}, {"text": "b", "final": True}]))
    (turn,) = asked[1].turns
    (message,) = recording.reader.read_events(turn.users)
    assert bytes(message.payload) == b'{"text":"go on"}'


# --- where a run ends -------------------------------------------------------------------------


def test_a_recorded_decision_without_calls_that_others_follow_goes_on():
    recording = record(decide(text="thinking"), decide(text="done"))
    run = replay(recording, [{"text": "thinking"}, DONE])
    assert [d.reply for d in run.decisions] == [None, None]
    early = replay(recording, [{"text": "thinking", "final": True}])
    assert early.decisions[0].reply is not None


def test_an_api_answer_without_calls_only_ends_its_turn():
    recording = record(decide(text="hello"), user("more"), decide(text="done"))
    replies = [ModelReply("hello", is_final=True), ModelReply("done", is_final=True)]
    run = replay(recording, replies, is_end_stated=False)
    assert [d.reply for d in run.decisions] == [None, None]
    assert run.stop is Stop.TERMINAL


def test_an_api_answer_without_calls_ends_the_run_where_the_record_calls_a_tool(polled):
    run = replay(polled, [ModelReply("done", is_final=True)], is_end_stated=False)
    assert (run.stop, len(run.decisions)) == (Stop.TERMINAL, 1)


def test_where_the_record_stops_without_an_end_the_run_stops_too():
    recording = record(decide(call("t", {}, "c1")), result("c1", 1))
    line = {"tool_calls": [{"name": "t"}]}
    for final in ({}, {"final": True}):
        run = replay(recording, [{**line, **final}])
        assert len(run.decisions) == 1
        assert run.decisions[0].reply is None
    assert replay(recording, [line]).stop is Stop.RECORD_END


def test_a_prefix_of_a_path_ends_with_its_last_decision(polled):
    run = replay(polled, [POLL], until=1)
    assert (run.stop, len(run.served), run.unused) == (Stop.RECORD_END, 1, ())
    text_only = record(decide(text="a"), decide(text="b"))
    assert replay(text_only, [{"text": "a"}], until=1).decisions[0].reply is None


def test_a_decision_with_calls_may_end_the_run_and_is_then_a_difference(polled):
    run = replay(polled, [{**POLL, "final": True}])
    assert (run.stop, len(run.served)) == (Stop.TERMINAL, 1)
    assert run.decisions[0].signature.is_final


def test_a_run_that_begins_later_counts_earlier_answers_as_consumed(polled):
    run = replay(polled, [POLL, DONE], from_decision=2)
    assert served(run) == ['"RUNNING"']
    assert [d.decision for d in run.decisions] == [2, 3]


@pytest.mark.parametrize("first", [0, 4])
def test_a_run_cannot_begin_outside_the_record(polled, first):
    with pytest.raises(UsageError, match=f"3 decisions, and the replay is to begin at {first}"):
        start(polled.run(), ShadowOptions(from_decision=first))


def test_a_record_without_decisions_cannot_be_replayed():
    with pytest.raises(UsageError, match="0 decisions"):
        start(record(user("hi")).run())


# --- evidence that may not be served -----------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "stop", "why"),
    [
        ([], Stop.NO_ANSWER, Gap.NO_RESULT),
        ([result("c1", 1), result("c1", 2)], Stop.NO_ANSWER, Gap.CONFLICTING),
        ([result("c1", "cut", result_truncated=True)], Stop.UNFAITHFUL, Gap.TRUNCATED),
        ([result("c1", "key [REDACTED]")], Stop.UNFAITHFUL, Gap.MASKED),
    ],
)
def test_evidence_that_is_missing_or_not_faithful_stops_the_run(lines, stop, why):
    recording = record(decide(call("t", {}, "c1")), *lines, decide(text="x"))
    run = replay(recording, [{"tool_calls": [{"name": "t"}]}])
    assert (run.stop, run.missing.why, run.served) == (stop, why, ())
    assert (run.nearest.call_id, run.nearest.differs) == ("c1", ())


def test_evidence_whose_bytes_changed_is_not_served(polled):
    state, _ = start(polled.run())
    state, command = step(state, script([POLL])[0])
    event = polled.events[command.cell.result]
    altered = msgspec.structs.replace(event, payload=Raw(b'{"result":"X"}'))
    state, command = step(state, Evidence(altered))
    assert (command.missing.why, command.missing.recorded) == (Gap.ALTERED, 2)
    _, command = step(state, Nearest(None))
    assert command.run.stop is Stop.UNFAITHFUL
    assert command.run.served == ()


# --- json content -----------------------------------------------------------------------------


def test_under_json_content_the_answer_text_is_the_decision():
    lines = [decide(text='{"tool":"t","arguments":{"x":1}}'), result("e1", 5), decide(text="x")]
    recording = record(*lines, decisions="json_content")
    spaced = {"text": '{ "tool": "t",\n "arguments": {"x": 1} }'}
    run = replay(recording, [spaced, {"text": "x", "final": True}], mode="json_content")
    assert served(run) == ["5"]
    assert [d.reply for d in run.decisions] == [None, None]


def test_under_json_content_calls_that_a_model_gives_itself_are_taken():
    recording = record(
        decide(call("t", {"x": 1}, "c1"), text='{"tool":"t","arguments":{"x":1}}'),
        result("c1", 5),
        decisions="json_content",
    )
    reply = ModelReply(
        '{"tool":"t","arguments":{"x":1}}', (CallAsked("t", Raw(b'{"x":1}')),), is_final=False
    )
    run = replay(recording, [reply], mode="json_content")
    assert run.decisions[0].reply is None
    assert served(run) == ["5"]


# --- the machine ------------------------------------------------------------------------------


def test_a_reply_that_does_not_fit_is_refused_and_leaves_the_state_usable(polled):
    decided = script([POLL, DONE])
    state, command = start(polled.run())
    for _ in range(2):
        with pytest.raises(UsageError, match="Evidence is no reply to AskModel"):
            step(state, Evidence(None))
    serving, command = step(state, decided[0])
    with pytest.raises(UsageError, match="ModelReply is no reply to ServeEvidence"):
        step(serving, decided[0])
    assert isinstance(command, ServeEvidence)
    missed, command = step(serving, Evidence(None))
    with pytest.raises(UsageError, match="Evidence is no reply to FindNearest"):
        step(missed, Evidence(None))
    finished, command = step(missed, Nearest(None))
    assert isinstance(command, Done)
    with pytest.raises(UsageError, match="Nearest is no reply to Done"):
        step(finished, Nearest(None))
    again, command = step(serving, Evidence(polled.events[serving.command.cell.result]))
    assert isinstance(command, AskModel)
    assert len(serving.served) == 0
    assert len(again.served) == 1


def test_a_state_can_be_stepped_twice_with_equal_results(polled):
    state, _ = start(polled.run())
    reply = script([POLL])[0]
    assert step(state, reply) == step(state, reply)
    other, command = step(state, script([DONE])[0])
    assert isinstance(command, Done)
    assert other != state


def test_two_runs_are_equal(polled):
    assert replay(polled, [POLL, POLL, DONE]) == replay(polled, [POLL, POLL, DONE])
