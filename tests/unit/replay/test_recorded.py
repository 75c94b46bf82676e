from redrive.record.signature import EMPTY_TEXT, text_digest
from redrive.replay.ports import ModelFingerprint
from redrive.replay.recorded import holds_mark, read_results
from tests.recordings import call, decide, record, result, user


def test_a_path_is_read_as_one_signature_per_decision():
    recording = record(
        user("hi"),
        decide(call("t", {"a": 1}, "c1"), text="look"),
        result("c1", 1),
        decide(text="done"),
    )
    run = recording.run()
    first, last = run.decisions
    assert (first.step, first.node_id, last.step) == (1, "e2", 2)
    assert first.signature.text == text_digest("look")
    assert [c.tool for c in first.signature.calls] == ["t"]
    assert (first.signature.is_final, last.signature.is_final, run.is_ended) == (False, True, True)
    assert first.form.call_ids == ("c1",)
    assert len(first.users) == 1
    assert run.get(2) == last
    assert run.get(3) is None


def test_decisions_of_one_model_share_its_fingerprint():
    run = record(decide(text="a"), decide(text="b"), decide(text="c", model={})).run()
    first, second, third = (decision.model for decision in run.decisions)
    assert first is second
    assert third == ModelFingerprint()


def test_a_record_that_ends_with_a_call_has_no_end():
    assert not record(decide(call("t", {}, "c1"))).run().is_ended
    assert not record(user("hi")).run().is_ended


def test_under_json_content_a_call_that_has_no_event_of_its_own_is_read_from_the_text():
    recording = record(decide(text='{"tool":"t","arguments":{"a":1}}'), decide(text="x"))
    asked, _ = recording.run(mode="json_content").decisions
    assert [c.tool for c in asked.signature.calls] == ["t"]
    assert asked.signature.text == EMPTY_TEXT
    assert asked.form.text != EMPTY_TEXT
    assert asked.form.call_ids == (None,)


def test_results_are_read_for_comparing_two_records():
    recording = record(
        decide(call("t", {}, "c1"), call("t", {}, "c2")), result("c2", 5, status="error")
    )
    run = recording.run()
    (decision,) = read_results(run, recording.reader)
    assert [r.status for r in decision.results] == ["", "error"]
    assert run.decisions[0].signature.results == ()


def test_a_mark_is_looked_for_in_the_stored_bytes():
    assert holds_mark(b'{"result":"[REDACTED]"}')
    assert not holds_mark(b'{"result":"unREDACTEDly"}')
    assert not holds_mark(b'{"result":"plain"}')
