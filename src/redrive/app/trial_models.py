"""Makes the models of a plan ready to be asked, each by its spec.

Knows specs, engines and keys. Must not know runs, ledgers or the sandbox. A key is read here from
the caller's environment, by the name that the plan gives, and is in nothing but the headers that
the broker adds outside.

Source: DESIGN.md §6 "Model endpoints are the plan's only", §8 "Specs".
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from urllib.parse import urlsplit

from msgspec.structs import replace

from redrive import canonical, plugins
from redrive.app.answering import ask_model, serve_reply
from redrive.app.trial_ports import OpenedModel
from redrive.capture.exchanges import find_api
from redrive.capture.ports import Headers, SentRequest, ServedAnswer
from redrive.errors import RedriveError, UsageError, quote
from redrive.models.anthropic import API_VERSION
from redrive.models.http import parse_endpoint
from redrive.models.local import EngineOptions, LocalEngine, parse_engine_options
from redrive.models.options import ModelOptions, ModelSpec, parse_spec
from redrive.models.script import open_model as open_script
from redrive.replay.body import replace_value
from redrive.replay.ports import Model, ModelQuery, ModelReply
from redrive.replay.rebuild import arguments_text
from redrive.replay.token_usage import add_bound, find_max_tokens
from redrive.replay.trial_plan import PlanModel

BYTES_PER_TOKEN = 4
"""How tokens are counted where a model in this process tells none: bytes by this, rounded up."""


@contextmanager
def open_models(
    models: Sequence[PlanModel], caller: Mapping[str, str]
) -> Iterator[tuple[OpenedModel, ...]]:
    """Open the models of a plan, in its order; what was started for them ends with this.

    Args:
        models: as planned; two with the same `local` options share one engine.
        caller: the caller's environment: where keys are.

    Raises:
        UsageError: a spec is wrong, names an unknown kind or a file that is not there, or a key is
            not in the environment.
        ModelError: the local engine did not start.
        PluginError: a Python model does not load.
    """
    with ExitStack() as stack:
        opening = _Opening(stack, caller)
        opened = tuple(opening.open(model) for model in models)
        check_models(opened, 0)
        yield opened


def check_models(models: Sequence[OpenedModel], number: int) -> None:
    """See that the models of this process have what a run asks for, which asks only later.

    Args:
        models: as opened.
        number: of the run in the plan's order, from 0.

    Raises:
        UsageError: a folder has too few scripts, or a script is malformed.
    """
    for model in models:
        if isinstance(model.answer, InProcess):
            model.answer.fresh(number, 0).open()


def fresh_models(
    models: Sequence[OpenedModel], number: int, n_answered: Mapping[str, int] | None = None
) -> tuple[OpenedModel, ...]:
    """Give the models to one run, or one judgement: each with what is its own at the beginning.

    A script begins anew for each: `script:FILE` from its first line, `script:FOLDER` with the file
    of that number. A run that is made again is given its earlier answers by the ledger, without
    asking, so that its script goes on behind them.

    Args:
        models: as opened.
        number: of the run in the plan's order, or of the judgement among judgements; from 0.
        n_answered: how many answers the ledger will give, by the plan's name of a model.
    """
    answered = n_answered or {}
    return tuple(
        replace(model, answer=model.answer.fresh(number, answered.get(model.plan.name, 0)))
        if isinstance(model.answer, InProcess)
        else model
        for model in models
    )


def prepare_request(model: OpenedModel, request: SentRequest) -> SentRequest:
    """Make a request ready to be sent: its answer bounded, the model under its endpoint's name.

    Args:
        model: who is asked.
        request: as the agent sent it; every byte but those of the two values stays. One that
            cannot be metered is given back as it is, for the ledger to refuse.

    Returns:
        The request; `added` names a field that was added.
    """
    api = find_api(request.method, request.url) or ""
    body, added = add_bound(api, request.body, model.plan.max_tokens)
    if find_max_tokens(api, body) is None:
        return request
    if model.asks:
        body = replace_value(body.decode(), "model", model.asks).encode()
    headers = tuple(
        (name, f"{len(body)}" if name == "content-length" else value)
        for name, value in request.headers
    )
    return replace(request, body=body, headers=headers, added=(*request.added, *added))


OpenAt = Callable[[int, int], Model]
"""Opens a model for the run of a number, of which so many questions were answered before."""


class InProcess:
    """A model of this process, as one run sees it; one question at a time, whatever thread asks.

    It is opened at the first question: a run need not ask all models of its plan.

    Args:
        open_at: opens the model for a run.
        number: of the run.
        n_before: how many questions of the run were answered before; numbering goes on behind.
    """

    def __init__(self, open_at: OpenAt, number: int = 0, n_before: int = 0) -> None:
        self._open_at = open_at
        self._number = number
        self._n_before = n_before
        self._lock = threading.Lock()
        self._model: Model | None = None
        self._n_asked = n_before

    def fresh(self, number: int, n_before: int) -> "InProcess":
        """Give the model to another run."""
        return InProcess(self._open_at, number, n_before)

    def open(self) -> Model:
        """Open the model, if it is not open.

        Raises:
            UsageError: a folder has too few scripts, or a script is malformed.
        """
        if self._model is None:
            self._model = self._open_at(self._number, self._n_before)
        return self._model

    def answer(self, request: SentRequest) -> ServedAnswer:
        """Answer in the bytes of the request's API; a fault of the model is a status 500."""
        with self._lock:
            self._n_asked += 1
            number = self._n_asked
            try:
                reply = ask_model(self.open(), request, number)
                return serve_reply(request, _counted(request, reply), number)
            except RedriveError as error:
                return _failure(error.message)
            except UnicodeDecodeError:
                return _failure("the request is no UTF-8 text")


class _Shared:
    """A model that several runs ask: its code need not know of threads."""

    def __init__(self, model: Model) -> None:
        self.spec, self.reads_context, self.apis = model.spec, model.reads_context, model.apis
        self._model = model
        self._lock = threading.Lock()

    def decide(self, query: ModelQuery) -> ModelReply:
        with self._lock:
            return self._model.decide(query)

    def close(self) -> None:
        """Whoever opened the model closes it."""


class _Opening:
    """Opens the models of one plan; what it starts is released with the stack."""

    def __init__(self, stack: ExitStack, caller: Mapping[str, str]) -> None:
        self._stack = stack
        self._caller = caller
        self._engines: dict[EngineOptions, LocalEngine] = {}

    def open(self, model: PlanModel) -> OpenedModel:
        spec = parse_spec(model.spec)
        match spec.kind:
            case "local":
                return self._open_local(model, spec)
            case "openai" | "anthropic":
                return self._open_endpoint(model, spec)
            case "script":
                return OpenedModel(model, answer=InProcess(partial(_script_at, spec.argument)))
            case _:
                return self._open_plugin(model, spec)

    def _open_local(self, model: PlanModel, spec: ModelSpec) -> OpenedModel:
        options = parse_engine_options(spec.argument)
        engine = self._engines.get(options)
        if engine is None:
            engine = self._stack.enter_context(LocalEngine(options))
            self._engines[options] = engine
        return OpenedModel(model, url=f"{engine.url}/v1", fingerprint=engine.fingerprint)

    def _open_endpoint(self, model: PlanModel, spec: ModelSpec) -> OpenedModel:
        endpoint = parse_endpoint(spec.kind, spec.argument)
        asks = "" if endpoint.name == model.name else endpoint.name
        key = self._key_of(model)
        if spec.kind == "anthropic":
            keys: Headers = (("x-api-key", key),) if key else ()
            headers = (*keys, ("anthropic-version", API_VERSION))
            url = endpoint.url.removesuffix("/v1")
        else:
            headers = (("authorization", f"Bearer {key}"),) if key else ()
            url = endpoint.url if urlsplit(endpoint.url).path else f"{endpoint.url}/v1"
        return OpenedModel(model, url=url, headers=headers, api=spec.kind, asks=asks)

    def _key_of(self, model: PlanModel) -> str:
        if model.key_env is None:
            return ""
        key = self._caller.get(model.key_env, "")
        if not key:
            raise UsageError(
                f"model {quote(model.name)} needs the key in {model.key_env}, which is not set",
                hint="set it in the environment, or leave `key_env` out",
            )
        if not (key.isascii() and key.isprintable()):
            raise UsageError(f"the key in {model.key_env} cannot stand in a header")
        return key

    def _open_plugin(self, model: PlanModel, spec: ModelSpec) -> OpenedModel:
        load = plugins.load(plugins.MODELS, spec.kind)
        opened: Model = self._stack.enter_context(closing(load(spec.argument, ModelOptions())))
        shared = _Shared(opened)
        return OpenedModel(model, answer=InProcess(lambda *_: shared))


def _script_at(argument: str, number: int, n_before: int) -> Model:
    """Open a script for one run, behind the lines that it gave before."""
    model = open_script(argument, ModelOptions(run=number))
    with suppress(UsageError):  # one that has run out says so when it is asked
        for _ in range(n_before):
            model.decide(ModelQuery(decision=1))
    return model


def _counted(request: SentRequest, reply: ModelReply) -> ModelReply:
    """Count tokens where a reply tells none: bytes, and no more output than the request allows."""
    if reply.usage:
        return reply
    said = [reply.text, *map(arguments_text, reply.calls)]
    n_output = _tokens(sum(len(text.encode("utf-8", "surrogatepass")) for text in said))
    most = find_max_tokens(find_api(request.method, request.url) or "", request.body)
    usage = {
        "input_tokens": _tokens(len(request.body)),
        "output_tokens": n_output if most is None else min(n_output, most),
    }
    return replace(reply, usage=usage)


def _tokens(n_bytes: int) -> int:
    return -(-n_bytes // BYTES_PER_TOKEN)


def _failure(message: str) -> ServedAnswer:
    """Say that the model failed, as its API would, and that asking again is pointless."""
    error = {"type": "api_error", "code": "model_failed", "message": message}
    headers = (("content-type", "application/json"), ("x-should-retry", "false"))
    return ServedAnswer(500, headers, canonical.encode({"type": "error", "error": error}))
