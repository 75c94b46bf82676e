"""A rerun as text: what it came to first, then on what it rests."""

from redrive.compare.rerun_decisions import compare_decision
from redrive.compare.rerun_document import AgentEnd, RerunDocument, Variant, with_proof
from redrive.replay.ports import CallAsked, ModelReply
from redrive.reports.rerun import rerun_lines
from tests.recorded import asks, chat_answer, chat_body, said
from tests.rerun_agents import Seams, record_agent
from tests.rerun_documents import document_of

CODE = {"code": {"digest": "a" * 64}, "time_zone": "UTC"}


def agent(seams: Seams, arguments: object = None, prompt: str = "x") -> None:
    seams.clock()
    seams.ask(chat_body(said("user", prompt)), chat_answer("", asks("c1", "look\x1bup", "{}")))
    seams.call("look\x1bup", arguments or {})


def text(document: RerunDocument) -> str:
    return "\n".join(rerun_lines(document))


SESSION = record_agent(agent)


def test_an_identical_rerun():
    shown = text(document_of(SESSION.rerun(agent)))
    assert shown.startswith("redrive:t  identical: the agent's code asked for the same again")
    assert "served: 1 request, 1 tool call, 1 read, 0 derived values, 0 other exchanges" in shown
    assert "live calls: 0" in shown
    assert "flow main: complete, 1 of 1 request\n" in shown
    assert "code: not compared, one of the digests is not known" in shown
    assert shown.endswith("head " + "0" * 64)


def test_a_difference_with_both_sides_and_the_nearest_call():
    again = SESSION.rerun(lambda seams: agent(seams, {"id": "y" * 400}))
    facts = {"recorded_environment": CODE, "environment": CODE | {"time_zone": "Asia/Tokyo"}}
    shown = text(document_of(again, **facts))
    assert "step 1 of main (x1): tool argument at /id" in shown
    assert 'expected: {"tool":"look\\x1bup","arguments":{}}' in shown or "expected:" in shown
    assert "nearest recorded call differs in /id" in shown
    assert "in the record and not asked for: 1" in shown
    assert "step 1 of main: tool.call" in shown
    assert "code: equal (recorded aaaaaaaaaaaa, now aaaaaaaaaaaa)" in shown
    assert 'environment time_zone: "UTC" → "Asia/Tokyo"' in shown
    assert "note: the code is equal" in shown
    assert "\x1b" not in shown


def test_a_gap_and_its_reason():
    lost = record_agent(lambda seams: seams.clock("time.time()", None))
    shown = text(document_of(lost.rerun(lambda seams: seams.clock("time.time()"))))
    assert "provenance gap: the record does not hold" in shown
    assert "not in the record [clock]" in shown
    assert "the record holds no value" in shown


def test_an_agent_that_did_not_simply_end_is_told_with_its_error():
    again = SESSION.rerun(agent)
    exited = AgentEnd("exited", "OSError: \x1bRead-only", 1)
    shown = text(document_of(again, agent=exited))
    assert "  the agent ended with exit 1: OSError: \\x1bRead-only\n" in shown
    assert "ended with exit 3\n" in text(document_of(again, agent=AgentEnd("exited", "exit 3", 3)))
    raised = AgentEnd("raised", "ValueError: no")
    assert "ended by an error: ValueError: no\n" in text(document_of(again, agent=raised))
    assert "the agent" not in text(document_of(again)).partition("\n")[2]


def test_a_live_model_and_its_decisions():
    events = [event for event in SESSION.sink.events if event.node_id == "x1"]
    replies = (
        (events, ModelReply(calls=(CallAsked("wipe"),))),
        (None, ModelReply("more")),
    )
    decisions = [compare_decision("main", 1, *pair) for pair in replies]
    shown = text(document_of(SESSION.rerun(agent), decisions, model="script:x"))
    assert "finished: the run came to its end with a live model" in shown
    assert "model script:x: 2 decisions, 2 not as recorded" in shown
    assert "found:    no call" in shown
    assert "expected: nothing" in shown


def test_a_proof_and_what_spoils_it():
    same = document_of(SESSION.rerun(agent), variant=Variant(1, "UTC", 2))
    other = document_of(SESSION.rerun(lambda seams: agent(seams, prompt="z")))
    assert "basis: proved_by_rerun" in text(with_proof(same, [same, same]))
    shown = text(with_proof(same, [same, other]))
    assert "under hash seed 1, UTC, 2 cpu: identical" in shown
    assert "prompt differs at /messages/0/content" in shown
    assert "basis: not proved by rerun" in shown


def test_reads_of_the_agents_own_are_said():
    shown = text(document_of(SESSION.rerun(agent), is_reading=False))
    assert "control flow not proved" in shown
