"""The gate before a run's models: what is asked of which model, metered and recorded.

Knows the plan's models, the account and the recording. A request that is not for a model of the
plan, or says another model's name, goes nowhere and is recorded as refused. What goes out carries
the endpoint's credentials, which no run and no record ever holds; a charge is settled exactly once,
whatever becomes of the exchange.

Source: DESIGN.md §6 "Model endpoints are the plan's only"; `redrive.app.trial_ports`.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec

from redrive import canonical
from redrive.app.trial_context import upstream_of
from redrive.app.trial_messages import PLACE_HEADER, parse_message
from redrive.app.trial_models import prepare_request
from redrive.app.trial_outcome import find_fault
from redrive.app.trial_ports import Account, CeilingReached, Charge, OpenedModel
from redrive.app.trial_state import RunState
from redrive.audit.references import (
    PROVIDER_FIELDS,
    field_references,
    part_references,
    tool_references,
)
from redrive.capture.exchanges import MAX_ANSWER_BYTES, find_api
from redrive.capture.ports import (
    ExchangeObserver,
    Headers,
    Outcome,
    Passing,
    SentRequest,
    ServedAnswer,
)
from redrive.capture.recording import RecordingBackend
from redrive.capture.remote_serving import RemoteServing
from redrive.capture.remote_wire import Place
from redrive.errors import UsageError
from redrive.replay.trial_values import Outcome as RunOutcome

IN_PROCESS_URL = "http://in-process.invalid/v1"
"""Stands in the record for the address of a model that has none."""
CREDENTIALS = frozenset(("authorization", "proxy-authorization", "x-api-key", "api-key", "cookie"))
"""What a run sends of these goes nowhere: it has none that are worth anything."""
IDEMPOTENCY_KEY = "idempotency-key"
_PATHS = frozenset(("/chat/completions", "/responses", "/messages"))
_VERSION = "/v1"
_CONTENTS = frozenset(("messages", "input", "system", "instructions"))
_TELLING = _CONTENTS.union(("tools",), PROVIDER_FIELDS)
_FIRST_ERROR = 400
_EVENT_BYTES = 1000  # of what is recorded beside a body, about
_JSON: Headers = (("content-type", "application/json"),)

Seams = Callable[[], tuple[RecordingBackend, RemoteServing]]


class ModelGate:
    """Decides on each request of one run; see `redrive.capture.ports.Gate`.

    Args:
        models: of the plan, the default first.
        account: meters this run.
        state: of the run.
        seams: gives the session's backend, and the places of the workflow's process.
        now_ns: the clock.
    """

    def __init__(
        self,
        models: tuple[OpenedModel, ...],
        account: Account,
        state: RunState,
        seams: Seams,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._models = {upstream_of(model.plan.name): model for model in models}
        self._account = account
        self._state = state
        self._seams = seams
        self._now_ns = now_ns
        self._open: set[_Settling] = set()

    @property
    def upstreams(self) -> Mapping[str, str]:
        """Name in the proxy's URLs → base URL."""
        return {name: model.url or IN_PROCESS_URL for name, model in self._models.items()}

    async def admit(
        self, name: str, request: SentRequest, fields: Mapping[bytes, bytes]
    ) -> Passing | ServedAnswer:
        """Take a request before it goes out; see the port."""
        model = self._models[name]
        place = _place_of(fields)
        return await asyncio.to_thread(self._admit, model, request, place)

    def close(self) -> None:
        """Settle what nobody has: an exchange whose end was never told."""
        for settling in tuple(self._open):
            settling.finish(Outcome.CUT)

    def _admit(
        self, model: OpenedModel, request: SentRequest, place: Place | None
    ) -> Passing | ServedAnswer:
        if not self._state.count_told(len(request.body) + _EVENT_BYTES):
            return _error(429, "limit", "the run has sent too much")
        if _asks_for_list(request, model):
            return self._serve(request, place, ServedAnswer(200, _JSON, self._dump_list()))
        reason = self._refusal(model, request)
        if reason is not None:
            return self._refuse(model, request, place, reason)
        if not self._state.count_model():
            return self._serve(request, place, _error(429, "limit", "no more model calls"))
        request = prepare_request(model, request)
        try:
            charge = self._account.reserve(model.plan, request)
        except CeilingReached as ceiling:
            self._state.refuse(RunOutcome.CEILING, str(ceiling) or "a ceiling was reached")
            return self._serve(request, place, _error(402, "ceiling", "the trial's ceiling"))
        if isinstance(charge, ServedAnswer):
            if charge.status < _FIRST_ERROR:
                self._state.model_fault = None
                self._state.note(
                    "answers that were paid for before an interruption were used again"
                )
            return self._serve(request, place, charge)
        settling = _Settling(charge, self._open)
        if model.answer is not None:
            return self._answer(model, request, place, settling)
        with settling.undone():
            observer = self._sent(request, place)
        metered = _Metered(observer, settling, partial(self._ended, model))
        headers = (*model.headers, (IDEMPOTENCY_KEY, charge.idempotency_key))
        return Passing(metered, request.body, headers, CREDENTIALS)

    def _ended(self, model: OpenedModel, status: int, outcome: Outcome) -> None:
        self._state.model_fault = find_fault(model.plan.name, status, outcome)

    def _answer(
        self,
        model: OpenedModel,
        request: SentRequest,
        place: Place | None,
        settling: "_Settling",
    ) -> ServedAnswer:
        """Let a model of this process answer, as its API would."""
        assert model.answer is not None  # noqa: S101 - the caller looked
        with settling.undone():
            observer = self._sent(request, place)
            metered = _Metered(observer, settling, partial(self._ended, model))
            try:
                answer = model.answer.answer(request)
            except Exception as error:  # noqa: BLE001 - a model's fault is an answer of its API
                answer = _error(500, "model_failed", f"{type(error).__name__}: {error}")
            self._tell(metered, answer)
        return answer

    def _serve(
        self, request: SentRequest, place: Place | None, answer: ServedAnswer
    ) -> ServedAnswer:
        """Record an answer that is not asked of anyone, and give it."""
        self._tell(self._sent(request, place), answer)
        return answer

    def _refuse(
        self, model: OpenedModel, request: SentRequest, place: Place | None, reason: str
    ) -> ServedAnswer:
        answer = _error(403, "denied", reason)
        is_recorded = self._state.deny(f"model:{model.plan.name}", reason)
        return self._serve(request, place, answer) if is_recorded else answer

    def _sent(self, request: SentRequest, place: Place | None) -> ExchangeObserver:
        backend, serving = self._seams()
        if place is None:
            return backend.sent(request)
        return serving.run_at(place, partial(backend.sent, request))

    def _tell(self, observer: ExchangeObserver, answer: ServedAnswer) -> None:
        if answer.status:
            observer.responded(answer.status, answer.headers, self._now_ns())
        if answer.body:
            observer.received(answer.body)
        observer.finished(answer.outcome, self._now_ns(), answer.message)

    def _refusal(self, model: OpenedModel, request: SentRequest) -> str | None:
        """Say why a request must not be sent to a model; `None` where it may be."""
        if self._state.is_over:
            return "the run has ended"
        if not _is_model_path(request, model):
            path = urlsplit(request.url).path
            return f"{request.method} {path[:200]} is no request to a model"
        said = _model_in(request)
        if said != model.plan.name:
            return f"the request is for {said!r}, and this is {model.plan.name!r}"
        for what in _done_by_provider(request):
            return f"the request lets the provider {what}, which no sandbox holds"
        return None

    def _dump_list(self) -> bytes:
        names = [model.plan.name for model in self._models.values()]
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "plan"} for name in names]
        return msgspec.json.encode({"object": "list", "data": data})


class _Settling:
    """Settles one charge exactly once."""

    def __init__(self, charge: Charge, others: "set[_Settling]") -> None:
        self._charge = charge
        self._others = others
        self._lock = threading.Lock()
        self._is_done = False
        self.status = 0
        self.headers: Headers = ()
        self.body = bytearray()
        others.add(self)

    def finish(self, outcome: Outcome) -> None:
        with self._lock:
            is_first, self._is_done = not self._is_done, True
        if is_first:
            self._others.discard(self)
            self._charge.settle(self.status, self.headers, bytes(self.body), outcome)

    @contextlib.contextmanager
    def undone(self) -> Any:
        """Settle as failed what is not settled when an error comes out."""
        try:
            yield
        except BaseException:
            self.finish(Outcome.FAILED)
            raise


class _Metered:
    """Tells the record, then settles; see `ExchangeObserver`."""

    def __init__(
        self,
        observer: ExchangeObserver,
        settling: _Settling,
        ended: Callable[[int, Outcome], None],
    ) -> None:
        self._observer = observer
        self._settling = settling
        self._ended = ended

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:
        self._settling.status, self._settling.headers = status, headers
        self._observer.responded(status, headers, at_ns)

    def received(self, data: bytes) -> None:
        body = self._settling.body
        body += data[: MAX_ANSWER_BYTES - len(body)]
        self._observer.received(data)

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:
        self._ended(self._settling.status, outcome)
        try:
            self._observer.finished(outcome, at_ns, message)
        finally:
            self._settling.finish(outcome)


def _place_of(fields: Mapping[bytes, bytes]) -> Place | None:
    value = fields.get(PLACE_HEADER.encode())
    with suppress(UsageError):
        return None if value is None else parse_message(value, Place)
    return None


def _path_below(request: SentRequest, model: OpenedModel) -> str | None:
    """Give the path below a model's base URL; `None` where it is not plainly below it."""
    root = (model.url or IN_PROCESS_URL).rstrip("/")
    if not request.url.startswith(root):
        return None
    return urlsplit(request.url[len(root) :]).path.rstrip("/")


def _is_model_path(request: SentRequest, model: OpenedModel) -> bool:
    path = _path_below(request, model)
    if path is None or find_api(request.method, request.url) is None:
        return False
    return path in _PATHS or path.removeprefix(_VERSION) in _PATHS


def _asks_for_list(request: SentRequest, model: OpenedModel) -> bool:
    """Say whether an agent asks which models there are, as some do before the first request."""
    path = _path_below(request, model)
    return request.method == "GET" and path in ("/models", _VERSION + "/models")


def _model_in(request: SentRequest) -> str | None:
    """Read the model that a body names; `None` where it names none plainly, or twice."""
    if any(name == "content-encoding" for name, _ in request.headers):
        return None
    try:
        members = canonical.split_object(request.body)
        # Some servers take any case of a name.
        named = [(key, value) for key, value in members if key.lower() == "model"]
        said = canonical.decode_value(named[0][1]) if len(named) == 1 else None
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, str) and named[0][0] == "model" else None


def _done_by_provider(request: SentRequest) -> Iterator[str]:
    """Yield what a body lets the provider do by itself: run tools, ask servers, fetch files."""
    for key, value in canonical.split_object(request.body):
        name = key.casefold()  # some servers take any case of a name
        if name not in _TELLING:
            continue
        try:
            decoded = canonical.decode_value(value)
        except (ValueError, RecursionError):
            yield f"read {name} that cannot be read here"
            continue
        if name in _CONTENTS:
            parts = part_references(decoded)
            yield from (f"fetch {one.what}" for one in parts if "://" in one.what)
        else:
            found = (
                tool_references(decoded) if name == "tools" else field_references({name: decoded})
            )
            yield from (f"run {one.what}" for one in found if one.is_provider_side)


def _error(status: int, code: str, message: str) -> ServedAnswer:
    """Answer in the place of a model: as an API says it, and that asking again is pointless."""
    words = {"message": f"redrive: {message}", "type": "redrive", "code": code}
    headers = (*_JSON, ("x-should-retry", "false"))
    return ServedAnswer(status, headers, msgspec.json.encode({"error": words}))
