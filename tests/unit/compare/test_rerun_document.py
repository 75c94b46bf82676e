"""The rerun document says what was served, what differs, and on what it rests."""

import contextlib
import threading

import pytest

from redrive.compare.rerun_decisions import compare_decision
from redrive.compare.rerun_document import Variant, with_proof
from redrive.compare.rerun_verdict import CodeState, Finding
from redrive.errors import RerunStopped
from redrive.replay.ports import CallAsked, ModelReply
from tests.recorded import asks, chat_answer, chat_body, said
from tests.rerun_agents import Seams, record_agent
from tests.rerun_documents import document_of

CODE = {"code": {"digest": "aa", "files": {}}}
OTHER = {"code": {"digest": "bb", "files": {}}}


def agent(seams: Seams, *, prompt: str = "x", is_short: bool = False) -> None:
    seams.clock()
    seams.ask(chat_body(said("user", prompt)), chat_answer("", asks("c1", "lookup", "{}")))
    if is_short:
        return
    seams.call("lookup", {})
    seams.derive("sum", max, 1, 2)
    seams.ask(b"a", b"b", url="https://api.example/v1/embeddings")
    seams.ask(chat_body(said("user", "x"), said("user", "y")), chat_answer("done"))


@pytest.fixture(scope="module")
def session():
    return record_agent(agent)


def test_an_identical_rerun_says_what_was_served(session):
    document = document_of(session.rerun(agent), recorded_environment=CODE, environment=CODE)
    assert (document.finding, document.identical, document.exit_code) == ("identical", True, 0)
    served = document.served
    assert (served.requests, served.reads, served.calls, served.values, served.others) == (
        *(2, 1, 1, 1, 1),
    )
    assert (document.live_calls, document.n_unserved) == (0, 0)
    assert [(flow.name, flow.state) for flow in document.flows] == [("main", "complete")]
    assert document.code.state is CodeState.EQUAL
    assert document.notes == ()


@pytest.mark.parametrize(
    ("now", "finding", "exit_code"),
    [
        (CODE, Finding.UNKNOWN_INPUT, 3),
        (OTHER, Finding.DIVERGENCE, 1),
        (None, Finding.DIVERGENCE, 1),
        ({"code": {"digest": "aa", "cut": ["files"]}}, Finding.DIVERGENCE, 1),
        ({"code": {"digest": 5}}, Finding.DIVERGENCE, 1),
        ({"code": "aa"}, Finding.DIVERGENCE, 1),
    ],
)
def test_a_changed_prompt_is_judged_by_what_is_known_of_the_code(session, now, finding, exit_code):
    again = session.rerun(lambda seams: agent(seams, prompt="z"))
    document = document_of(again, recorded_environment=CODE, environment=now)
    assert (document.finding, document.exit_code) == (finding, exit_code)
    assert document.divergence.where == "/messages/0/content"
    assert len(document.notes) == 1


def test_what_was_not_asked_for_is_listed_in_recorded_order(session):
    document = document_of(session.rerun(lambda seams: agent(seams, is_short=True)))
    assert [left.kind for left in document.unserved] == [
        "tool.call",
        "value.derived",
        "http.exchange",
        "model.request",
    ]
    assert document.n_unserved == 4
    assert document.flows[0].state == "stopped"
    never = document_of(session.rerun(lambda seams: None))
    assert [left.kind for left in never.unserved][:1] == ["clock.read"]
    assert never.flows[0].state == "not begun"


def test_a_flow_within_a_served_call_is_no_early_end():
    import threading

    def inner(seams: Seams) -> str:
        ask = (chat_body(said("user", "inner")), chat_answer("inner"))
        thread = threading.Thread(target=lambda: seams.ask(*ask))
        thread.start()
        thread.join()
        return "done"

    def outer(seams: Seams) -> None:
        seams.ask(chat_body(said("user", "x")), chat_answer("", asks("c1", "lookup", "{}")))
        seams.call("lookup", {}, lambda: inner(seams))

    session = record_agent(outer)
    document = document_of(session.rerun(outer))
    assert document.identical
    assert [flow.state for flow in document.flows] == ["complete", "within a call"]


def test_fields_of_the_environment_that_both_state_are_compared(session):
    recorded = CODE | {"time_zone": "UTC", "python": {"version": "3.11"}}
    now = OTHER | {"time_zone": "Asia/Tokyo", "cpu_count": 2}
    document = document_of(session.rerun(agent), recorded_environment=recorded, environment=now)
    assert [entry.field for entry in document.environment] == ["time_zone"]


def test_reads_that_were_not_served_prove_no_control_flow(session):
    again = session.rerun(agent, can_read=False)
    assert document_of(again, is_reading=False).control_flow == "not proved"
    ignored = session.rerun(lambda seams: None, can_read=False)
    assert [left.kind for left in document_of(ignored).unserved][:1] == ["model.request"]


def test_a_basis_is_proved_by_two_identical_reruns_and_not_by_less(session):
    same = document_of(session.rerun(agent), variant=Variant(1, "UTC", 1))
    other = document_of(session.rerun(lambda seams: agent(seams, prompt="z")))
    unread = document_of(session.rerun(agent), is_reading=False)
    proofs = [
        with_proof(same, runs).proof.basis
        for runs in ([same, same], [same, other], [same], [same, unread], [])
    ]
    assert proofs == ["proved_by_rerun", None, None, None, None]
    assert with_proof(same, [same, other]).exit_code == 1


def decision(reply: ModelReply, events=None):
    return compare_decision("main", 1, events, reply)


def test_live_decisions_are_compared_by_calls_and_texts_beside_them(session):
    events = [event for event in session.sink.events if event.node_id == "x1"]
    same = decision(ModelReply(calls=(CallAsked("lookup"),)), events)
    worded = decision(ModelReply("Well.", (CallAsked("lookup"),)), events)
    other = decision(ModelReply(calls=(CallAsked("wipe", arguments_text="{"),)), events)
    beyond = decision(ModelReply("more"))
    assert [(d.equal, d.text_equal) for d in (same, worded, other, beyond)] == [
        (True, True),
        (True, False),
        (False, True),
        (False, False),
    ]
    assert (other.found[0].arguments, beyond.expected) == ("{", None)
    again = session.rerun(agent)
    assert document_of(again, [same], model="m").exit_code == 0
    assert not document_of(again, [same], model="m").identical
    assert document_of(again, [same, other], model="m").exit_code == 1


def test_flows_that_nobody_named_are_named_as_doubtful_where_something_differs():
    def two(seams: Seams, prompt: str = "x") -> None:
        seams.ask(chat_body(said("user", "main")), chat_answer("a"))
        body = chat_body(said("user", prompt))
        thread = threading.Thread(target=lambda: quietly(seams, body))
        thread.start()
        thread.join()

    def quietly(seams: Seams, body: bytes) -> None:
        with contextlib.suppress(RerunStopped):
            seams.ask(body, chat_answer("b"))

    recorded = record_agent(two)
    assert document_of(recorded.rerun(two)).notes == ()
    changed = document_of(recorded.rerun(lambda seams: two(seams, "z")))
    assert "flow-2: told apart by their words; session.flow(NAME) is surer" in changed.notes
