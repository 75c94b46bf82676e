"""What goes out to a model is what was reserved for: bounded, and under its endpoint's name."""

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.app.trial_gate import ModelGate
from redrive.app.trial_ledger import TrialLedger
from redrive.app.trial_ports import OpenedModel
from redrive.app.trial_state import RunState
from redrive.capture.ports import Headers, Outcome, Passing, SentRequest, ServedAnswer
from redrive.replay.trial_plan import RunLimits
from redrive.replay.trial_values import Purpose
from tests.trials import MODEL, chat_answer, chat_request, key, planned

URL = "http://127.0.0.1:9/v1"
ENDPOINT = OpenedModel(MODEL, url=URL, headers=(("authorization", "Bearer k"),), asks="gpt")


class Record:
    """Takes what is recorded; an observer of every exchange."""

    def __init__(self) -> None:
        self.sent_requests: list[SentRequest] = []
        self.ends: list[tuple[int, Outcome]] = []
        self._status = 0

    def sent(self, request: SentRequest) -> "Record":
        self.sent_requests.append(request)
        return self

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:
        self._status = status

    def received(self, data: bytes) -> None:
        pass

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:
        self.ends.append((self._status, outcome))


class Bench:
    """A gate before one model, on a ledger."""

    def __init__(self, path: Path, model: OpenedModel = ENDPOINT, replay: str = "1") -> None:
        self.ledger = TrialLedger.begin(path, planned(replay=replay), b"")
        self.ledger.start_run(key())
        self.record, self.state = Record(), RunState(RunLimits())
        account = self.ledger.account(str(key()), Purpose.REPLAY)
        seams: Any = lambda: (self.record, None)  # noqa: E731 - no places are told here
        self.gate = ModelGate((model,), account, self.state, seams)
        (self._name,) = self.gate.upstreams

    def admit(self, request: SentRequest) -> Passing | ServedAnswer:
        sent = replace(request, url=f"{URL}/chat/completions")
        return asyncio.run(self.gate.admit(self._name, sent, {}))

    @property
    def money(self) -> tuple[Decimal, Decimal]:
        budget = self.ledger.ledger.budgets[Purpose.REPLAY]
        return budget.reserved, budget.spent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_what_is_sent_is_what_is_recorded_and_reserved_for(path: Path) -> None:
    bench = Bench(path)
    passing = bench.admit(chat_request("x", max_tokens=None))
    assert isinstance(passing, Passing)
    assert passing.body is not None
    fields = json.loads(passing.body)
    assert (fields["model"], fields["max_tokens"]) == ("gpt", 16)
    (recorded,) = bench.record.sent_requests
    assert (recorded.body, recorded.added) == (passing.body, ("max_tokens",))
    assert bench.money == (Decimal(len(passing.body) + 160) / 10**6, 0)
    (state,) = bench.ledger.ledger.open_charges
    assert dict(passing.headers) == {
        "authorization": "Bearer k",
        "idempotency-key": state.reserved.charge,
    }
    bench.ledger.close()


def test_the_end_of_an_exchange_settles_it(path: Path) -> None:
    bench = Bench(path)
    passing = bench.admit(chat_request("x"))
    assert isinstance(passing, Passing)
    assert passing.observer is not None
    passing.observer.responded(200, (), 0)
    passing.observer.received(chat_answer(40, 4))
    passing.observer.finished(Outcome.COMPLETE, 0)
    assert bench.money == (0, Decimal("0.00008"))
    bench.ledger.close()


def test_a_model_that_refuses_is_remembered_until_it_answers(path: Path) -> None:
    bench = Bench(path)
    seen = []
    for text, status in (("x", 429), ("x", 200), ("y", 400)):
        passing = bench.admit(chat_request(text))
        assert isinstance(passing, Passing)
        assert passing.observer is not None
        passing.observer.responded(status, (), 0)
        passing.observer.received(chat_answer(1, 1))
        passing.observer.finished(Outcome.COMPLETE, 0)
        seen.append(bench.state.model_fault)
    assert seen == ["the model small answered 429", None, None]
    # In the next execution the paid answer counts as an answer as well.
    state = RunState(RunLimits())
    state.model_fault = "the model small gave no answer"
    given = bench.ledger.account(str(key()), Purpose.REPLAY)
    bench.gate = ModelGate((ENDPOINT,), given, state, bench.gate._seams)
    for status in (429, 200):
        answer = bench.admit(chat_request("x"))
        assert isinstance(answer, ServedAnswer)
        assert answer.status == status
    assert state.model_fault is None
    bench.ledger.close()


def test_a_request_without_a_bound_that_holds_goes_nowhere(path: Path) -> None:
    bench = Bench(path)
    for request in (chat_request("x", max_tokens=-1), chat_request("x", n=0)):
        answer = bench.admit(request)
        assert isinstance(answer, ServedAnswer)
        assert answer.status == 400
    assert bench.money == (0, 0)
    assert bench.record.ends == [(400, Outcome.COMPLETE)] * 2
    bench.ledger.close()


def test_at_a_ceiling_nothing_goes_out_and_the_run_ends(path: Path) -> None:
    bench = Bench(path, replay="0.0001")
    answer = bench.admit(chat_request("x"))
    assert isinstance(answer, ServedAnswer)
    assert answer.status == 402
    assert bench.state.why is not None
    assert bench.state.why[0].value == "ceiling"
    assert bench.money == (0, 0)
    bench.ledger.close()


def test_an_answer_that_was_paid_for_is_given_and_nothing_goes_out(path: Path) -> None:
    first = Bench(path)
    passing = first.admit(chat_request("x", max_tokens=None))
    assert isinstance(passing, Passing)
    assert passing.observer is not None
    passing.observer.responded(200, (), 0)
    passing.observer.received(chat_answer(40, 4))
    passing.observer.finished(Outcome.COMPLETE, 0)
    given = first.ledger.account(str(key()), Purpose.REPLAY)
    gate = ModelGate((ENDPOINT,), given, RunState(RunLimits()), first.gate._seams)
    first.gate = gate
    answer = first.admit(chat_request("x", max_tokens=None))
    assert isinstance(answer, ServedAnswer)
    assert answer.body == chat_answer(40, 4)
    assert first.money == (0, Decimal("0.00008"))
    first.ledger.close()
