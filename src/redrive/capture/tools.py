"""The tool seam inside an agent: a function that tells a backend of each call and its end.

Knows Python functions, JSON and the ports. Must not know how a call is recorded or where a served
result comes from. The wrapped function behaves as the bare one: same signature, same result object,
same exception with its traceback.

Source: DESIGN.md §6 (effect classes), §10; issue 4 §2.
"""

import ast
import asyncio
import builtins
import functools
import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.audit.effects import Effect
from redrive.capture.json_values import comparable, exact_json, type_name
from redrive.capture.ports import Backend, CallObserver, ServedResult
from redrive.errors import RecordError, UsageError

Codec = Callable[[Any], Any]


class RecordedToolError(Exception):
    """Stands in a rerun for a recorded error that cannot be made again.

    Args:
        message: the text of the recorded error.
        type_name: its class, as `module.qualname`.
    """

    def __init__(self, message: str, type_name: str) -> None:
        super().__init__(message)
        self.type_name = type_name


class ToolSpec(msgspec.Struct, frozen=True):
    """What is declared of a tool.

    Attributes:
        name: as the model calls it.
        effect: what running it may do.
        encode: turns a result that is not plain JSON into JSON; comes with `decode`.
        decode: turns that JSON into the result again, in a rerun.
        raises: error classes beyond the built-in ones that a rerun may raise again.
        omit: parameters that the harness fills in and that are no arguments, such as `ctx`.
    """

    name: str
    effect: Effect
    encode: Codec | None = None
    decode: Codec | None = None
    raises: tuple[type[Exception], ...] = ()
    omit: tuple[str, ...] = ()


def declare(
    fn: Callable[..., Any],
    *,
    effect: str | None,
    name: str | None,
    encode: Codec | None,
    decode: Codec | None,
    raises: tuple[Any, ...],
    omit: tuple[str, ...],
) -> ToolSpec:
    """Check what the decorator was given.

    Raises:
        UsageError: not a function, a generator, an unknown effect, half a codec, or a class in
            `raises` that is no `Exception`.
    """
    own = _name_of(fn)
    shown = name or own
    _refuse_generators(fn, shown)
    if effect is not None and effect not in list(Effect):
        hint = f"one of {', '.join(Effect)}; without one a tool counts as {Effect.UNSAFE}"
        raise UsageError(f"tool {shown}: no effect {effect!r}", hint=hint)
    if (encode is None) != (decode is None):
        raise UsageError(
            f"tool {shown}: encode and decode come together",
            hint="a rerun must give the agent what the live tool gave it",
        )
    for kind in raises:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise UsageError(f"tool {shown}: raises holds {kind!r}, which is no Exception class")
    chosen = Effect.UNSAFE if effect is None else Effect(effect)
    return ToolSpec(shown, chosen, encode, decode, raises, omit)


def _name_of(fn: Any) -> str:
    if isinstance(fn, type | staticmethod | classmethod) or not callable(fn):
        raise UsageError(
            f"a tool is a function, not a {type(fn).__name__}",
            hint="in a class, put @session.tool below @staticmethod and @classmethod",
        )
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def _refuse_generators(fn: Any, name: str) -> None:
    for target in (fn, getattr(fn, "__call__", None)):  # noqa: B004 - its code, not whether it is
        if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
            raise UsageError(
                f"tool {name} is a generator, and its results come one by one",
                hint="let the tool return a list, and yield outside of it",
            )


def is_async(fn: Any) -> bool:
    """Say whether calling a function gives a coroutine; also of an object with such a call."""
    call = getattr(fn, "__call__", None)  # noqa: B004 - its code, not whether it is
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def wrap(backend: Backend, fn: Callable[..., Any], spec: ToolSpec) -> Callable[..., Any]:
    """Make the function that the agent calls in place of `fn`; async if `fn` is."""
    call = _Call(backend, fn, spec)
    if is_async(fn):

        @functools.wraps(fn)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            observer = call.begin(args, kwargs)
            if isinstance(observer, ServedResult):
                if observer.error is not None and observer.error[0] == _CANCELLED:
                    # It never came back: the agent's own time-out or task group ends this too.
                    await asyncio.get_running_loop().create_future()
                return call.serve(observer)
            try:
                result = await fn(*args, **kwargs)
            except BaseException as error:
                observer.raised(type_name(type(error)), text_of(error))
                raise
            call.tell(observer, result)
            return result

        return run_async

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        observer = call.begin(args, kwargs)
        if isinstance(observer, ServedResult):
            return call.serve(observer)
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:
            observer.raised(type_name(type(error)), text_of(error))
            raise
        call.tell(observer, result)
        return result

    return run


_CANCELLED = type_name(asyncio.CancelledError)


class _Call:
    """What a call tells the backend, and what it gets in place of running."""

    def __init__(self, backend: Backend, fn: Callable[..., Any], spec: ToolSpec) -> None:
        self._backend = backend
        self._spec = spec
        self._signature = _signature_of(fn)

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallObserver | ServedResult:
        """Tell of a call before it runs."""
        spec = self._spec
        arguments = bind(self._signature, args, kwargs, omit=spec.omit)
        return self._backend.begin_call(
            spec.name,
            spec.effect.value,
            Raw(canonical.encode(arguments)),
            is_unsafe=spec.effect is Effect.UNSAFE,
        )

    def tell(self, observer: CallObserver, result: Any) -> None:
        """Tell of a result; its JSON is written now, before the agent can change the object."""
        form = encode_exact(result, self._spec.encode)
        if isinstance(form, Raw):
            observer.returned(form)
        else:
            observer.returned_unknown(form)

    def serve(self, served: ServedResult) -> Any:
        """Give the recorded result, made anew, or raise the recorded error."""
        if served.error is not None:
            raise rebuild_error(*served.error, self._spec.raises)
        if not isinstance(served.result, Raw):
            raise RecordError(f"the record holds no result of this call of {self._spec.name}")
        return decode_exact(served.result, self._spec.decode)


def _signature_of(fn: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # some built-ins have none
        return None


def encode_exact(value: Any, encode: Codec | None) -> Raw | str:
    """Write a value as JSON, through `encode` if there is one; else name the type that has none."""
    try:
        return exact_json(value if encode is None else encode(value))
    except Exception:  # noqa: BLE001 - user's code that serves the record must not stop the agent
        return type_name(type(value))


def decode_exact(data: Raw, decode: Codec | None) -> Any:
    """Make a recorded value anew, through `decode` if there is one."""
    value = canonical.decode_value(bytes(data))
    return value if decode is None else decode(value)


def bind(
    signature: inspect.Signature | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    omit: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Give the arguments of a call by parameter name, as JSON values.

    Defaults are left out: what was not passed was not asked for. The keywords of `**kwargs` stand
    beside the others unless a name is taken; `*args` is a list. Where there is no signature, or
    the call does not fit it (the function itself will say so), positional ones are under `args`.
    """
    bound, rest = _bind(signature, args, kwargs)
    named = {name: value for name, value in bound.items() if name not in omit}
    extra = named.pop(rest, {})
    more = {name: value for name, value in extra.items() if name not in omit}
    fields = {**named, rest: more} if more.keys() & named.keys() else {**named, **more}
    return {name: comparable(value) for name, value in fields.items()}


def _bind(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Give the arguments by parameter, and the name of the parameter that takes other keywords."""
    if signature is not None:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError:
            pass
        else:
            kinds = signature.parameters.items()
            rest = next((name for name, one in kinds if one.kind is one.VAR_KEYWORD), "")
            return bound, rest
    return {**({"args": args} if args else {}), "kwargs": kwargs}, "kwargs"


def text_of(error: BaseException) -> str:
    """Give an error's text; an error that cannot be written has none."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever its __str__ raises
        return ""


def rebuild_error(name: str, message: str, raises: tuple[type[Exception], ...]) -> Exception:
    """Make a recorded error again.

    Args:
        name: its class as `type_name` wrote it.
        message: its text.
        raises: classes that may be made beside the built-in ones.

    Returns:
        An error of that class whose text is the message wherever its class lets it be; else a
        `RecordedToolError`.
    """
    kind = next((one for one in raises if type_name(one) == name), None)
    if kind is None and "." not in name:
        kind = getattr(builtins, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return RecordedToolError(message, name)
    try:
        error = kind(_key_of(message) if issubclass(kind, KeyError) else message)
    except Exception:  # noqa: BLE001 - a constructor that takes something else than a message
        return RecordedToolError(message, name)
    if text_of(error) != message:
        error.args = (message,)
    return error


def _key_of(message: str) -> Any:
    """Undo the quotes that `KeyError` puts around its key."""
    try:
        return ast.literal_eval(message)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return message
