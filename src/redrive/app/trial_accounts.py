"""Meters the model calls of one run or judgement: each is reserved, then settled by its answer.

Knows requests, their bounds and what a charge is. Must not know where the ledger is kept.

Source: DESIGN.md §6; docs/trial-ledger.md.
"""

import hashlib
import threading
from collections import Counter
from decimal import Decimal
from typing import NamedTuple, Protocol

from redrive import canonical
from redrive.capture.exchanges import find_api
from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer
from redrive.replay.ledger import Reserved
from redrive.replay.money import bound
from redrive.replay.token_usage import BOUND_FIELDS, find_max_tokens
from redrive.replay.trial_plan import PlanModel
from redrive.replay.trial_values import Purpose


class Question(NamedTuple):
    """What one execution asks: equal requests of one subject are told apart by their order."""

    subject: str
    request_sha256: str
    occurrence: int


class Meter(Protocol):
    """The ledger, as accounts see it; from any thread."""

    def reserve(
        self, model: PlanModel, purpose: Purpose, question: Question, usd: Decimal
    ) -> "LedgerCharge | ServedAnswer":
        """Reserve an amount, durably, or give the answer that was paid for."""
        ...

    def settle(self, model: PlanModel, reserved: Reserved, answer: ServedAnswer) -> None:
        """Settle a charge by its answer, unless it is settled already."""
        ...


class LedgerAccount:
    """An `Account` of one execution of one subject; from any thread."""

    def __init__(self, ledger: Meter, subject: str, purpose: Purpose) -> None:
        self._ledger = ledger
        self._subject = subject
        self._purpose = purpose
        self._lock = threading.Lock()
        self._asked: Counter[tuple[str, str]] = Counter()

    def reserve(self, model: PlanModel, request: SentRequest) -> "LedgerCharge | ServedAnswer":
        """Reserve the bound of a call, durably, before it is sent.

        Returns:
            A charge; or the answer that was paid for already; or a refusal (404, 400) of a request
            that asks no model's API or whose answer nothing bounds: it must not be sent, and costs
            nothing.

        Raises:
            CeilingReached: the ceiling of this purpose does not admit it; nothing was reserved.
            StoreError: the ledger cannot be written.
        """
        api = find_api(request.method, request.url)
        if api is None:
            return _refusal(404, "only chat completions, responses and messages can be asked")
        max_tokens = find_max_tokens(api, request.body)
        if max_tokens is None:
            names = " or ".join(BOUND_FIELDS[api])
            return _refusal(
                400, f"{names} alone must bound the answer: a number above 0, stated once"
            )
        sha256 = hashlib.sha256(request.body).hexdigest()
        usd = bound(model.price, len(request.body), max_tokens)
        with self._lock:
            occurrence = self._asked[model.name, sha256]
            self._asked[model.name, sha256] += 1
        question = Question(self._subject, sha256, occurrence)
        return self._ledger.reserve(model, self._purpose, question, usd)


class LedgerCharge:
    """A `Charge` of a `TrialLedger`."""

    def __init__(self, ledger: Meter, model: PlanModel, reserved: Reserved) -> None:
        self._ledger = ledger
        self._model = model
        self._reserved = reserved

    @property
    def idempotency_key(self) -> str:
        """Sent with the request; the same one again after an interruption."""
        return self._reserved.charge

    @property
    def usd(self) -> Decimal:
        """What is held back."""
        return self._reserved.usd

    def settle(self, status: int, headers: Headers, body: bytes, outcome: Outcome) -> None:
        """Settle by what came back, as far as it came; only the first time counts.

        An answer that did not come to its end leaves the charge open where the endpoint bills a
        repeated key once: the next execution asks again, the end of the run settles it.

        Raises:
            StoreError: the ledger cannot be written.
        """
        answer = ServedAnswer(status, headers, body, outcome)
        self._ledger.settle(self._model, self._reserved, answer)


def _refusal(status: int, message: str) -> ServedAnswer:
    error = {"type": "invalid_request_error", "code": "redrive", "message": f"redrive: {message}"}
    headers = (("content-type", "application/json"), ("x-should-retry", "false"))
    return ServedAnswer(status, headers, canonical.encode({"type": "error", "error": error}))
