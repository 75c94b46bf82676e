"""Says what one answer of a model cost, and keeps it for a run that has to be made again.

Knows the bytes of answers and the entries that settle a charge. Must not know where a ledger is
kept.

Source: DESIGN.md §6; docs/trial-ledger.md "Settlement".
"""

import hashlib
from typing import NamedTuple

import msgspec

from redrive.capture.exchanges import MAX_ANSWER_BYTES, decode_content, encodings_of
from redrive.capture.headers import keep_headers
from redrive.capture.ports import Headers, Outcome, ServedAnswer
from redrive.errors import TamperError
from redrive.replay.ledger import Basis, Reserved, Settled
from redrive.replay.money import ZERO, cost
from redrive.replay.token_usage import read_served, read_usage
from redrive.replay.trial_plan import PlanModel

_FRAMING = ("content-length", "transfer-encoding")


class Settlement(NamedTuple):
    """How a charge is settled, and the answer to keep under the digest that it names."""

    settled: Settled
    answer: bytes | None = None


class _Head(msgspec.Struct, frozen=True):
    status: int
    headers: Headers
    outcome: Outcome


def settle_by_answer(
    model: PlanModel, reserved: Reserved, answer: ServedAnswer, *, fingerprint: str | None = None
) -> Settlement | None:
    """Say what an answer cost.

    Args:
        model: who was asked.
        reserved: the charge.
        answer: what came back, as far as it came; status 0 where nothing did.
        fingerprint: of the engine, where who started it knows.

    Returns:
        `None` where the charge stays open: the answer did not come to its end, and this endpoint
        bills the same key once, so that asking again is free.
    """
    try:
        content = decode_content(answer.body, encodings_of(answer.headers))
    except ValueError:
        content = b""
    usage = read_usage(content) if 200 <= answer.status < 300 else None
    if usage is not None:
        # All that counts has come, however the exchange ended.
        answer = msgspec.structs.replace(answer, outcome=Outcome.COMPLETE)
        usd, basis = cost(model.price, usage), Basis.USAGE
    elif answer.status >= 300:
        usd, basis = ZERO, Basis.ERROR
    elif answer.outcome is not Outcome.COMPLETE and model.is_idempotent:
        return None
    else:
        usd, basis = reserved.usd, Basis.RESERVATION
    kept = dump_answer(answer) if is_repeatable(answer) else None
    settled = Settled(
        charge=reserved.charge,
        usd=usd,
        basis=basis,
        usage=usage,
        answer_sha256=None if kept is None else hashlib.sha256(kept).hexdigest(),
        fingerprint=fingerprint or read_served(content),
    )
    return Settlement(settled, kept)


def is_repeatable(answer: ServedAnswer) -> bool:
    """Say whether a run that is made again may be given this answer as it came.

    One that the agent itself broke off is not: the next execution may wait for the rest.
    """
    ended = (Outcome.COMPLETE, Outcome.CUT)
    return bool(answer.status) and answer.outcome in ended and len(answer.body) <= MAX_ANSWER_BYTES


def dump_answer(answer: ServedAnswer) -> bytes:
    """Write an answer: a line of JSON (status, headers, outcome), then its body as it came.

    Headers that may hold credentials are left out, and those about the length of the body.
    """
    kept = keep_headers(answer.headers).items()
    headers = tuple((name, value) for name, value in kept if name not in _FRAMING)
    head = _Head(answer.status, headers, answer.outcome)
    return msgspec.json.encode(head) + b"\n" + answer.body


def parse_answer(data: bytes) -> ServedAnswer:
    """Read what `dump_answer` wrote.

    Raises:
        TamperError: it is something else.
    """
    line, separator, body = data.partition(b"\n")
    try:
        head = msgspec.json.decode(line, type=_Head)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise TamperError(f"a stored answer is damaged: {error}") from error
    if not separator:
        raise TamperError("a stored answer is damaged: it has no body")
    return ServedAnswer(head.status, head.headers, body, head.outcome)
