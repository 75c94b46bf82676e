"""An answer settles its charge by what it tells, and is kept for a run that is made again."""

import gzip
from decimal import Decimal

import pytest

from redrive.app.trial_answers import dump_answer, is_repeatable, parse_answer, settle_by_answer
from redrive.capture.ports import Headers, Outcome, ServedAnswer
from redrive.errors import TamperError
from redrive.replay.ledger import Basis
from redrive.replay.trial_values import Usage
from tests.trials import KEYED, MODEL, chat_answer, reserved

HELD = reserved("c", "0.50")
ANSWER = chat_answer(100, 10)


def test_an_answer_that_tells_its_usage_costs_what_it_took() -> None:
    settlement = settle_by_answer(MODEL, HELD, ServedAnswer(200, (), ANSWER))
    assert settlement is not None
    settled = settlement.settled
    assert (settled.charge, settled.usd, settled.basis) == ("c", Decimal("0.0002"), Basis.USAGE)
    assert (settled.usage, settled.fingerprint) == (Usage(100, 10), "served")
    assert settlement.answer is not None
    assert parse_answer(settlement.answer).body == ANSWER


def test_a_compressed_answer_is_read_and_kept_as_it_came() -> None:
    headers: Headers = (("content-encoding", "gzip"), ("content-length", "9"), ("x-api-key", "k"))
    settlement = settle_by_answer(MODEL, HELD, ServedAnswer(200, headers, gzip.compress(ANSWER)))
    assert settlement is not None
    assert settlement.settled.basis == Basis.USAGE
    assert settlement.answer is not None
    kept = parse_answer(settlement.answer)
    assert (kept.headers, gzip.decompress(kept.body)) == ((("content-encoding", "gzip"),), ANSWER)


@pytest.mark.parametrize("body", [b"{}", b"data: {}\n\n", b"", b"\x1f\x8b"])
def test_a_whole_answer_that_tells_no_usage_costs_all_that_was_held(body: bytes) -> None:
    headers: Headers = (("content-encoding", "gzip"),) if body[:1] == b"\x1f" else ()
    for model in (MODEL, KEYED):
        settlement = settle_by_answer(model, HELD, ServedAnswer(200, headers, body))
        assert settlement is not None
        assert settlement.settled.usd == HELD.usd
        assert settlement.settled.basis == Basis.RESERVATION
        assert settlement.answer is not None


@pytest.mark.parametrize("status", [302, 400, 401, 429, 500, 503])
def test_a_status_that_is_no_answer_costs_nothing_and_is_kept(status: int) -> None:
    settlement = settle_by_answer(MODEL, HELD, ServedAnswer(status, (), b'{"error":"no"}'))
    assert settlement is not None
    assert (settlement.settled.usd, settlement.settled.basis) == (Decimal(0), Basis.ERROR)
    assert settlement.answer is not None


@pytest.mark.parametrize(
    ("status", "outcome", "is_kept"),
    [
        (200, Outcome.CUT, True),
        (200, Outcome.CANCELLED, False),
        (0, Outcome.FAILED, False),
        (0, Outcome.CANCELLED, False),
    ],
)
def test_half_an_answer_costs_all_that_was_held_or_is_asked_for_again(
    status: int, outcome: Outcome, *, is_kept: bool
) -> None:
    answer = ServedAnswer(status, (), ANSWER[:20], outcome)
    settlement = settle_by_answer(MODEL, HELD, answer)
    assert settlement is not None
    assert (settlement.settled.usd, settlement.settled.basis) == (HELD.usd, Basis.RESERVATION)
    assert (settlement.answer is not None) == is_kept
    assert settle_by_answer(KEYED, HELD, answer) is None


def test_an_answer_of_which_all_that_counts_came_is_whole_however_it_ended() -> None:
    answer = ServedAnswer(200, (), ANSWER, Outcome.CANCELLED)
    settlement = settle_by_answer(KEYED, HELD, answer)
    assert settlement is not None
    assert settlement.answer is not None
    assert parse_answer(settlement.answer).outcome is Outcome.COMPLETE


def test_who_started_the_engine_knows_it_better_than_its_answers() -> None:
    answer = ServedAnswer(200, (), ANSWER)
    settlement = settle_by_answer(MODEL, HELD, answer, fingerprint="sha256:1f2e")
    assert settlement is not None
    assert settlement.settled.fingerprint == "sha256:1f2e"


@pytest.mark.parametrize("body", [b"", b"\n", b"\x00\xff\n\n", b'{"a":1}'])
def test_a_kept_answer_comes_back_as_it_was(body: bytes) -> None:
    answer = ServedAnswer(429, (("content-type", "text/plain"), ("retry-after", "1")), body)
    assert parse_answer(dump_answer(answer)) == answer


@pytest.mark.parametrize("data", [b"", b"{}\n", b"nonsense\nbody"])
def test_what_is_no_kept_answer_is_refused(data: bytes) -> None:
    with pytest.raises(TamperError, match="a stored answer is damaged"):
        parse_answer(data)


def test_a_kept_answer_without_its_body_is_refused() -> None:
    data = dump_answer(ServedAnswer(200, (), b""))
    with pytest.raises(TamperError, match="it has no body"):
        parse_answer(data.rstrip(b"\n"))


def test_an_answer_too_large_to_keep_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_repeatable(ServedAnswer(200, (), b"1234"))
    monkeypatch.setattr("redrive.app.trial_answers.MAX_ANSWER_BYTES", 3)
    assert not is_repeatable(ServedAnswer(200, (), b"1234"))
