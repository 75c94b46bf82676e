import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw

from redrive import canonical
from redrive.app.trial_asking import (
    MAX_ATTEMPTS,
    Asking,
    dump_question,
    measure_question,
)
from redrive.app.trial_ports import CeilingReached, OpenedModel
from redrive.capture.ports import Outcome, SentRequest, ServedAnswer
from redrive.errors import ModelError
from redrive.grading import Question
from tests.grading import MODEL, FakeAccount, ScriptedJudge
from tests.loopback_server import Answer, LoopbackServer, run_server

QUESTION = Question("small", "You judge.", "Which?", 3, 64, Raw(b'{"type":"object"}'))
JSON = (("content-type", "application/json"),)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with run_server() as fake:
        yield fake


def _chat(text: str = "2 > 1", finish: str = "stop") -> bytes:
    message = {"role": "assistant", "content": text}
    return canonical.encode({"choices": [{"finish_reason": finish, "message": message}]})


class Bench:
    """Asks one question of a loopback server."""

    def __init__(self, model: OpenedModel, account: FakeAccount | None = None) -> None:
        self.account = account or FakeAccount()
        self.kept: dict[str, bytes] = {}
        self.waited: list[float] = []
        self._asking = Asking({"small": model}, self.account, self._keep, self.waited.append)

    def _keep(self, data: bytes) -> str:
        self.kept[canonical.digest(data)] = data
        return canonical.digest(data)

    def ask(self, question: Question = QUESTION):  # type: ignore[no-untyped-def]
        return self._asking.ask(question)

    @property
    def outcomes(self) -> list[tuple[int, Outcome]]:
        return [(one.status, one.outcome) for one in self.account.settled.values()]


def test_a_question_is_sent_in_the_chat_form_with_the_charges_key(server: LoopbackServer) -> None:
    server.answers.append(Answer((_chat(),)))
    headers = (("authorization", "Bearer sk-secret"), ("user-agent", "other"))
    bench = Bench(OpenedModel(MODEL, url=f"{server.url}/v1", headers=headers))
    reply = bench.ask()
    assert (reply.text, reply.fault) == ("2 > 1", "")
    [received] = server.received
    assert received.path == "/v1/chat/completions"
    assert received.headers["idempotency-key"] == "charge-1"
    assert received.headers["authorization"] == "Bearer sk-secret"
    assert received.headers["user-agent"] == "other"
    body = json.loads(received.body)
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0, 3, 64)
    assert [m["role"] for m in body["messages"]] == ["system", "user"]
    assert bench.kept[reply.request_sha256] == received.body
    assert bench.kept[reply.answer_sha256] == _chat()
    assert bench.outcomes == [(200, Outcome.COMPLETE)]
    [reserved] = bench.account.reserved
    assert b"sk-secret" not in str(reserved).encode()


def test_a_question_is_sent_in_the_messages_form(server: LoopbackServer) -> None:
    message = {"type": "message", "role": "assistant", "stop_reason": "end_turn"}
    content = [{"type": "text", "text": "1 > 2"}]
    server.answers.append(Answer((canonical.encode(message | {"content": content}),)))
    bench = Bench(
        OpenedModel(MODEL, url=server.url, headers=(("x-api-key", "k"),), api="anthropic")
    )
    assert bench.ask().text == "1 > 2"
    [received] = server.received
    assert received.path == "/v1/messages"
    assert received.headers["anthropic-version"]
    assert received.headers["x-api-key"] == "k"
    body = json.loads(received.body)
    assert body["system"] == "You judge."
    assert body["messages"] == [{"role": "user", "content": "Which?"}]
    assert "seed" not in body
    assert "response_format" not in body


def test_a_model_in_this_process_is_asked_without_a_network() -> None:
    judge = ScriptedJudge(lambda text: f"{text}!")
    bench = Bench(OpenedModel(MODEL, answer=judge))
    assert bench.ask().text == "Which?!"
    assert bench.outcomes == [(200, Outcome.COMPLETE)]


def test_without_a_schema_no_format_is_asked_for() -> None:
    body = json.loads(dump_question(Question("small", "s", "t", 1, 9), "openai"))
    assert "response_format" not in body
    assert measure_question(QUESTION) == len(dump_question(QUESTION, "openai"))


def test_busy_servers_are_asked_again_within_bounds_and_each_charge_is_settled(
    server: LoopbackServer,
) -> None:
    busy = Answer((b"{}",), status=429, headers=(*JSON, ("retry-after", "7")))
    server.answers += [busy, Answer((b"{}",), status=503), Answer((_chat(),))]
    bench = Bench(OpenedModel(MODEL, url=server.url))
    assert bench.ask().text == "2 > 1"
    assert bench.waited == [7, 4]
    assert bench.outcomes == [(status, Outcome.COMPLETE) for status in (429, 503, 200)]
    keys = {received.headers["idempotency-key"] for received in server.received}
    assert len(keys) == 3
    assert {received.body for received in server.received} == {server.received[0].body}


def test_a_server_that_stays_busy_is_an_error_and_no_judgement(server: LoopbackServer) -> None:
    server.answers += [Answer((b'{"error":{"message":"full"}}',), status=529)] * 9
    bench = Bench(OpenedModel(MODEL, url=server.url))
    with pytest.raises(ModelError, match="answered 529: full"):
        bench.ask()
    assert len(server.received) == MAX_ATTEMPTS == len(bench.account.settled)
    assert bench.waited == [1, 4, 16]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_not_asked_again_and_shows_no_key(server: LoopbackServer, status: int) -> None:
    body = b'{"error":{"message":"bad key sk-secret-1234"}}'
    server.answers.append(Answer((body,), status=status))
    headers = (("authorization", "Bearer sk-secret-1234"),)
    bench = Bench(OpenedModel(MODEL, url=server.url, headers=headers))
    with pytest.raises(ModelError, match=f"answered {status}") as caught:
        bench.ask()
    assert "secret" not in caught.value.message
    assert bench.outcomes == [(status, Outcome.COMPLETE)]


def test_half_an_answer_is_settled_as_cut_and_asked_again(server: LoopbackServer) -> None:
    server.answers += [Answer((_chat()[:20],), is_cut=True), Answer((_chat(),))]
    bench = Bench(OpenedModel(MODEL, url=server.url))
    assert bench.ask().text == "2 > 1"
    assert bench.outcomes == [(200, Outcome.CUT), (200, Outcome.COMPLETE)]
    assert next(iter(bench.account.settled.values())).body == _chat()[:20]


def test_a_server_that_is_not_there_is_an_error_and_settled() -> None:
    with run_server() as gone:
        url = gone.url
    bench = Bench(OpenedModel(MODEL, url=url))
    with pytest.raises(ModelError, match="gave no answer"):
        bench.ask()
    assert bench.outcomes == [(0, Outcome.FAILED)] * MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("body", "text", "fault"),
    [
        (b"not json", None, "no form of its API"),
        (b"{}", None, "no form of its API"),
        (_chat("half", "length"), "half", "cut at max_tokens"),
    ],
)
def test_an_answer_that_cannot_be_judged_by_is_paid_and_unreadable(
    server: LoopbackServer, body: bytes, text: str | None, fault: str
) -> None:
    server.answers.append(Answer((body,)))
    bench = Bench(OpenedModel(MODEL, url=server.url))
    reply = bench.ask()
    assert reply.text == text
    assert fault in reply.fault
    assert bench.outcomes == [(200, Outcome.COMPLETE)]


def test_a_compressed_answer_is_read_and_kept_as_it_came(server: LoopbackServer) -> None:
    packed = gzip.compress(_chat())
    server.answers.append(Answer((packed,), headers=(*JSON, ("content-encoding", "gzip"))))
    bench = Bench(OpenedModel(MODEL, url=server.url))
    reply = bench.ask()
    assert reply.text == "2 > 1"
    assert bench.kept[reply.answer_sha256] == packed


def test_what_was_paid_before_is_neither_sent_nor_settled_again(server: LoopbackServer) -> None:
    paid = [ServedAnswer(500, JSON, b"{}")] * 9 + [ServedAnswer(200, JSON, _chat())]
    bench = Bench(OpenedModel(MODEL, url=server.url), FakeAccount(paid=paid))
    assert bench.ask().text == "2 > 1"
    assert (server.received, bench.account.settled, bench.waited) == ([], {}, [])


def test_at_the_ceiling_nothing_is_sent(server: LoopbackServer) -> None:
    bench = Bench(OpenedModel(MODEL, url=server.url), FakeAccount(n_admitted=0))
    with pytest.raises(CeilingReached):
        bench.ask()
    assert server.received == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(KeyboardInterrupt(), Outcome.CANCELLED), (RuntimeError("no"), Outcome.FAILED)],
)
def test_a_charge_is_settled_whatever_becomes_of_the_call(
    error: BaseException, outcome: Outcome
) -> None:
    class Broken:
        def answer(self, request: SentRequest) -> Any:
            raise error

    bench = Bench(OpenedModel(MODEL, answer=Broken()))
    with pytest.raises(type(error)):
        bench.ask()
    assert bench.outcomes == [(0, outcome)]
