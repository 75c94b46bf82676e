"""Asks a model of the plan for a grader: metered, settled once, tried again within bounds.

Knows the request forms of two APIs, HTTP and in-process models, and accounts. Must not know what is
asked, nor how spend is kept.

Source: DESIGN.md §6 "spend is reserved before and settled after"; the OpenAI API reference, "Chat";
the Anthropic API reference, "Messages".
"""

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from redrive import canonical
from redrive.app.trial_models import prepare_request
from redrive.app.trial_ports import Account, OpenedModel
from redrive.capture.exchanges import decode_content, encodings_of
from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer
from redrive.errors import ModelError
from redrive.grading import Question, Reply
from redrive.models.anthropic import API_VERSION
from redrive.models.http import MAX_ANSWER_BYTES, import_httpx, redact
from redrive.replay.answers import Answer, error_reason
from redrive.replay.anthropic_answers import parse_message
from redrive.replay.openai_answers import parse_chat

ANTHROPIC, OPENAI = "anthropic", "openai"
ANSWER_TIMEOUT_S = 300.0
MAX_ATTEMPTS = 4
_DELAYS_S = (1.0, 4.0, 16.0)
_MAX_DELAY_S = 60.0
_TOO_LONG = frozenset({"length", "max_tokens"})

Wait = Callable[[float], object]


def dump_question(question: Question, api: str) -> bytes:
    """Write the body of a request; equal questions give equal bytes."""
    if api == ANTHROPIC:
        return canonical.encode(
            {
                "model": question.model,
                "max_tokens": question.max_tokens,
                "temperature": 0,
                "system": question.system,
                "messages": [{"role": "user", "content": question.text}],
            }
        )
    schema = bytes(question.answer_schema)
    shape = {"name": "answer", "schema": question.answer_schema}
    messages = [
        {"role": "system", "content": question.system},
        {"role": "user", "content": question.text},
    ]
    return canonical.encode(
        {
            "model": question.model,
            "messages": messages,
            "max_tokens": question.max_tokens,
            "temperature": 0,
            "seed": question.seed,
            **(
                {"response_format": {"type": "json_schema", "json_schema": shape}} if schema else {}
            ),
        }
    )


def measure_question(question: Question) -> int:
    """Give the length in bytes of a question's body, in the longer form of the two."""
    return max(len(dump_question(question, api)) for api in (ANTHROPIC, OPENAI))


class Asking:
    """Asks for one judgement.

    Args:
        models: of the plan, by name.
        account: meters what this judgement asks.
        keep: stores bytes and gives their sha256.
        wait: waits so many seconds before a further attempt; what it raises ends the judgement.
    """

    def __init__(
        self,
        models: Mapping[str, OpenedModel],
        account: Account,
        keep: Callable[[bytes], str],
        wait: Wait = time.sleep,
    ) -> None:
        self._models = models
        self._account = account
        self._keep = keep
        self._wait = wait

    def ask(self, question: Question) -> Reply:
        """Ask; see `GradeContext.ask`.

        Raises:
            ModelError: refused, or failed in each of `MAX_ATTEMPTS` attempts.
            CeilingReached: the next attempt would pass the ceiling; nothing was sent.
        """
        model = self._models[question.model]
        request = prepare_request(model, _request_of(model, dump_question(question, model.api)))
        request_sha256 = self._keep(request.body)
        answer = self._answer(model, request)
        if answer.status != 200:
            raise _refused(model, answer)
        answer_sha256 = self._keep(answer.body)
        text, fault = _read(answer, model.api)
        return Reply(text, fault, request_sha256, answer_sha256)

    def _answer(self, model: OpenedModel, request: SentRequest) -> ServedAnswer:
        """Send until an answer is whole, or no further attempt is left.

        Answers that were paid before an interruption count for nothing: they are not sent again.
        """
        n_sent = 0
        while True:
            admitted = self._account.reserve(model.plan, request)
            if isinstance(admitted, ServedAnswer):
                answer = admitted
            else:
                n_sent += 1
                key = (("idempotency-key", admitted.idempotency_key),)
                sent = msgspec.structs.replace(request, headers=(*request.headers, *key))
                try:
                    answer = _send(model, sent)
                except BaseException as error:
                    was_cancelled = not isinstance(error, Exception)
                    outcome = Outcome.CANCELLED if was_cancelled else Outcome.FAILED
                    admitted.settle(0, (), b"", outcome)
                    raise
                admitted.settle(answer.status, answer.headers, answer.body, answer.outcome)
            if not _may_try_again(answer):
                return answer
            if n_sent >= MAX_ATTEMPTS:
                raise _refused(model, answer)
            if not isinstance(admitted, ServedAnswer):
                self._wait(_delay_s(answer, n_sent))


def _may_try_again(answer: ServedAnswer) -> bool:
    is_whole = answer.outcome is Outcome.COMPLETE
    return not is_whole or answer.status == 429 or answer.status >= 500


def _delay_s(answer: ServedAnswer, n_sent: int) -> float:
    """Give the wait before the next attempt: what the server says, within bounds, or ours."""
    said = next((value for name, value in answer.headers if name == "retry-after"), "")
    if said.isascii() and said.isdigit() and len(said) < 6:
        return min(float(said), _MAX_DELAY_S)
    return _DELAYS_S[min(n_sent, len(_DELAYS_S)) - 1]


def _refused(model: OpenedModel, answer: ServedAnswer) -> ModelError:
    what = f"answered {answer.status}"
    if answer.outcome is not Outcome.COMPLETE:
        what = f"gave {'half an' if answer.status else 'no'} answer"
    secret = next((v for n, v in model.headers if n in ("authorization", "x-api-key")), "")
    said = answer.message or error_reason(answer.body)
    reason = redact(said, secret.removeprefix("Bearer "))
    return ModelError(
        f"the judge's model {model.plan.name} {what}" + (f": {reason}" if reason else "")
    )


def _request_of(model: OpenedModel, body: bytes) -> SentRequest:
    headers = (
        ("content-type", "application/json"),
        ("accept-encoding", "identity"),
        ("user-agent", "redrive"),
        *((("anthropic-version", API_VERSION),) if model.api == ANTHROPIC else ()),
    )
    return SentRequest("POST", _url_of(model), headers, body, time.time_ns())


def _url_of(model: OpenedModel) -> str:
    base = model.url.rstrip("/")
    if model.api == ANTHROPIC:
        return f"{base.removesuffix('/v1')}/v1/messages"
    return f"{base if urlsplit(base).path or not base else base + '/v1'}/chat/completions"


def _send(model: OpenedModel, request: SentRequest) -> ServedAnswer:
    if model.answer is not None:
        return model.answer.answer(request)
    replaced = {name for name, _ in model.headers}
    kept = (pair for pair in request.headers if pair[0] not in replaced)
    return _post(request.url, (*kept, *model.headers), request.body)


def _post(url: str, headers: Headers, body: bytes) -> ServedAnswer:
    """Post once and take what comes over the wire; a failure is an answer as well."""
    httpx = import_httpx()
    client = httpx.Client(trust_env=False, follow_redirects=False, timeout=ANSWER_TIMEOUT_S)
    found: Headers = ()
    status, taken = 0, bytearray()
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    try:
        with client, client.stream("POST", url, content=body, headers=list(headers)) as response:
            status = response.status_code
            found = tuple((name.lower(), value) for name, value in response.headers.multi_items())
            for chunk in response.iter_raw():
                taken += chunk
                if len(taken) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
                    return ServedAnswer(status, found, bytes(taken), Outcome.CUT, "too long")
    except httpx.HTTPError as error:
        outcome = Outcome.CUT if status else Outcome.FAILED
        return ServedAnswer(status, found, bytes(taken), outcome, type(error).__name__)
    return ServedAnswer(status, found, bytes(taken))


def _read(answer: ServedAnswer, api: str) -> tuple[str | None, str]:
    """Read the text of an answer, and why it cannot be judged by."""
    try:
        content = decode_content(answer.body, encodings_of(answer.headers))
        read: Answer = _PARSERS[api](content)
    except ValueError as error:
        return None, f"the answer has no form of its API: {error}"[:300]
    if read.stop_reason in _TOO_LONG:
        return read.text, "the answer was cut at max_tokens"
    return read.text, ""


_PARSERS: Mapping[str, Callable[[bytes], Any]] = {OPENAI: parse_chat, ANTHROPIC: parse_message}
