"""What an account refuses is never sent, and costs nothing."""

import json
from decimal import Decimal

import msgspec
import pytest

from redrive.app.trial_accounts import LedgerAccount, LedgerCharge, Question
from redrive.capture.ports import Outcome, SentRequest, ServedAnswer
from redrive.replay.ledger import Reserved
from redrive.replay.trial_plan import PlanModel
from redrive.replay.trial_values import Purpose
from tests.trials import MODEL, chat_request, reserved


class Noting:
    """A meter that admits all, and notes it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Purpose, Question, Decimal]] = []
        self.settled: list[ServedAnswer] = []

    def reserve(
        self, model: PlanModel, purpose: Purpose, question: Question, usd: Decimal
    ) -> LedgerCharge:
        self.asked.append((purpose, question, usd))
        return LedgerCharge(self, model, reserved("c", str(usd)))

    def settle(self, model: PlanModel, reserved: Reserved, answer: ServedAnswer) -> None:
        self.settled.append(answer)


@pytest.fixture
def meter() -> Noting:
    return Noting()


@pytest.fixture
def account(meter: Noting) -> LedgerAccount:
    return LedgerAccount(meter, "w@1 t #1", Purpose.REPLAY)


def test_equal_requests_are_counted_and_their_bound_is_that_of_bytes_and_tokens(
    meter: Noting, account: LedgerAccount
) -> None:
    first, other = chat_request("a"), chat_request("b", max_tokens=32)
    for request in (first, other, first):
        account.reserve(MODEL, request)
    assert [question.occurrence for _, question, _ in meter.asked] == [0, 0, 1]
    assert {(purpose, question.subject) for purpose, question, _ in meter.asked} == {
        (Purpose.REPLAY, "w@1 t #1")
    }
    usd = (Decimal(len(first.body)) + 160) / 10**6
    assert meter.asked[0][2] == usd
    assert meter.asked[1][2] == usd + Decimal("0.00016")


def test_equal_requests_to_two_models_are_two_questions(
    meter: Noting, account: LedgerAccount
) -> None:
    for name in ("a", "b"):
        account.reserve(msgspec.structs.replace(MODEL, name=name), chat_request("x"))
    assert [question.occurrence for _, question, _ in meter.asked] == [0, 0]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/models"), ("POST", "/v1/embeddings"), ("GET", "/v1/messages")]
)
def test_what_asks_no_model_is_refused(
    meter: Noting, account: LedgerAccount, method: str, path: str
) -> None:
    answer = account.reserve(MODEL, SentRequest(method, f"http://m{path}", (), b"{}", 0))
    assert isinstance(answer, ServedAnswer)
    assert (answer.status, answer.outcome) == (404, Outcome.COMPLETE)
    assert meter.asked == []


@pytest.mark.parametrize("bound", [{"max_tokens": None}, {"max_tokens": -1}, {"n": 0}])
def test_a_request_whose_answer_nothing_bounds_is_refused_by_the_name_of_the_field(
    meter: Noting, account: LedgerAccount, bound: dict[str, int | None]
) -> None:
    answer = account.reserve(MODEL, chat_request("x", **bound))
    assert isinstance(answer, ServedAnswer)
    assert answer.status == 400
    assert "max_completion_tokens or max_tokens" in json.loads(answer.body)["error"]["message"]
    assert meter.asked == []


def test_a_charge_has_a_key_and_tells_the_answer_on(meter: Noting, account: LedgerAccount) -> None:
    charge = account.reserve(MODEL, chat_request("x"))
    assert isinstance(charge, LedgerCharge)
    assert (charge.idempotency_key, charge.usd) == ("c", meter.asked[0][2])
    charge.settle(200, (("a", "b"),), b"{}", Outcome.CUT)
    assert meter.settled == [ServedAnswer(200, (("a", "b"),), b"{}", Outcome.CUT)]
