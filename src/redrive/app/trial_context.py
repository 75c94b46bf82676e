"""What a workflow's code reaches the outside with: the context of its run, and its tools' handles.

Runs in the workflow's process. Knows the broker's line. Holds no tool's function and no credential.

Source: DESIGN.md §6; `redrive.trial.WorkflowContext`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from redrive import canonical
from redrive.app.trial_line import BrokerLine
from redrive.app.trial_messages import (
    CALL,
    PLACE_HEADER,
    CallAsked,
    CallTold,
    ChildSetup,
    dump_message,
    dump_place,
    dump_value,
    parse_message,
)
from redrive.capture.clock import Clock
from redrive.capture.remote import RemoteBackend
from redrive.capture.tools import rebuild_error
from redrive.errors import EffectDenied, ModelError, UsageError, quote
from redrive.record.event import Kind
from redrive.trial_tools import FixtureMissError

_CHAT = "chat/completions"
_FIRST_ERROR = 400
_DRAW = "context.random"


class RunContext:
    """See `redrive.trial.WorkflowContext`.

    Args:
        setup: of the run.
        line: to the broker.
        backend: takes reads and derived values.
    """

    def __init__(self, setup: ChildSetup, line: BrokerLine, backend: RemoteBackend) -> None:
        self._setup = setup
        self._line = line
        self._backend = backend
        self._clock = Clock(backend)
        self._draws = canonical.stream(str(setup.seed), _DRAW)

    @property
    def task_id(self) -> str:
        """Names the task: 16 hex digits."""
        return self._setup.task_id

    @property
    def attempt(self) -> int:
        """Which attempt at the task this is, from 1."""
        return self._setup.attempt

    @property
    def seed(self) -> int:
        """Of this run: the same for every variant of one attempt at a task."""
        return self._setup.seed

    def call(self, tool: str, /, **arguments: Any) -> Any:
        """Call a tool by name.

        Raises:
            EffectDenied: it is none of the workflow's tools.
            Exception: what the tool raised: of its class where that is a built-in one or
                `FixtureMissError`, else a `RecordedToolError` that names it.
        """
        return self.call_with(tool, arguments)

    def call_with(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Call a tool by name with a mapping of arguments; see `call`."""
        place, number = self._backend.here()
        asked = CallAsked(
            place=place,
            number=number,
            capability=self._setup.tools.get(tool, ""),
            tool=tool,
            arguments=dump_value(dict(arguments)),
        )
        told = parse_message(self._line.ask(CALL, dump_message(asked)), CallTold)
        if told.denied is not None:
            raise EffectDenied(told.denied)
        if told.error is not None:
            raise rebuild_error(*told.error, (FixtureMissError,))
        return canonical.decode_value(told.result or b"null")

    def complete(self, request: Mapping[str, Any], *, model: str | None = None) -> Any:
        """Ask a model by `chat/completions`; give its answer as a JSON value.

        `model` and the run's seed are filled in where the request does not state them.

        Raises:
            TypeError: a part of the request has no JSON form; nothing is sent.
            UsageError: it asks for a stream; nothing is sent.
            ModelError: the model refused or failed.
        """
        name = self._named(model)
        asked = {"model": name, "seed": self.seed, **request}
        if asked.get("stream"):
            raise UsageError("complete gives one whole answer, no stream", hint="post gives bytes")
        return canonical.decode_value(self.post(_CHAT, dump_value(asked), model=name))

    def post(self, path: str, body: bytes, *, model: str | None = None) -> bytes:
        """Ask a model in the bytes of its API; give the body of its answer.

        Raises:
            ModelError: the model refused or failed; its words are in the message.
        """
        name = self._named(model)
        place, _ = self._backend.here()
        headers = {"content-type": "application/json", PLACE_HEADER: dump_place(place)}
        status, data = self._line.post(f"/{upstream_of(name)}/{path.lstrip('/')}", body, headers)
        if status >= _FIRST_ERROR:
            words = " ".join(data[:500].decode("utf-8", "replace").split())
            raise ModelError(f"model {name}: {status} {words}")
        return data

    def clock(self) -> float:
        """Read the clock, in seconds since 1970."""
        return self._clock.time()

    def random(self) -> float:
        """Draw from 0 up to 1, from a stream that the run's seed determines."""
        draw: float = self._backend.read(
            Kind.PRNG_READ, _DRAW, lambda: (next(self._draws) >> 11) / 2**53
        )
        return draw

    def derive(self, function: str, version: str, inputs: Sequence[Any], value: Any) -> Any:
        """Note that a value was computed from others, and give it back."""
        told = Raw(dump_value(list(inputs)))
        return self._backend.derive(function, function, version, told, lambda: value)

    def _named(self, model: str | None) -> str:
        known = self._setup.models
        if model is None and not known:
            raise UsageError("the plan names no model")
        name = known[0] if model is None else model
        if name not in known:
            raise UsageError(f"the plan has no model {quote(name)}", hint=", ".join(known))
        return name


def upstream_of(model: str) -> str:
    """Name a model's upstream in the proxy's URLs; any name of a plan fits."""
    return "m-" + "".join(
        char if char.isascii() and (char.isdigit() or char.islower()) else f"_{ord(char):x}."
        for char in model
    )


def handle_of(context: RunContext) -> Callable[[str, Mapping[str, Any]], Any]:
    """Give what a bound `Tool` calls in place of its function."""
    return context.call_with
