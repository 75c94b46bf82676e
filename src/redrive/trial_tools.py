"""Tools as a workflow file declares them: a function, what it may do, what it may reach.

Outside a trial a `Tool` is the function it was made of, so that it can be tested as one. In a trial
the workflow's process holds handles: `Tool.bind` puts a call to the broker in the place of the
function and forgets it, and the tool's own worker alone takes the function.

Source: DESIGN.md §6; docs/workflows.md.
"""

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from redrive import canonical
from redrive.audit.workflow import NO_GRANTS, Grants, ToolSpec
from redrive.audit.workflow_checks import check_tool
from redrive.errors import EffectDenied, UsageError, quote

ANY_ARGUMENTS: Final = "*"
Call = Callable[[str, Mapping[str, Any]], Any]
"""Takes a tool's id and its arguments by name, and gives its result; how a bound tool is called."""


class FixtureMissError(LookupError):
    """A fixture holds no answer for these arguments; nothing is made up in its place."""


class Fixture:
    """Answers of a simulated tool, known beforehand.

    Args:
        answers: the arguments as the text of a JSON object → the result; `*` for any others. Or
            pairs of arguments and result. Arguments are compared as JSON values, `1` ≠ `true`.

    Raises:
        UsageError: arguments are no JSON object or stand there twice; a result has no JSON form.
    """

    def __init__(
        self, answers: Mapping[str, Any] | Iterable[tuple[Mapping[str, Any] | str, Any]]
    ) -> None:
        pairs = answers.items() if isinstance(answers, Mapping) else answers
        self._answers: dict[str, Raw] = {}
        for arguments, result in pairs:
            key = _fixture_key(arguments)
            if key in self._answers:
                raise UsageError(f"a fixture answers {quote(key)} twice", hint="once each")
            self._answers[key] = Raw(_encoded(result, f"a fixture's result for {quote(key)}"))

    def answer(self, arguments: Mapping[str, Any]) -> Any:
        """Give a fresh copy of the result.

        Raises:
            FixtureMissError: there is none for these arguments.
        """
        key = canonical.canonical(dict(arguments)).decode()
        found = self._answers.get(key, self._answers.get(ANY_ARGUMENTS))
        if found is None:
            raise FixtureMissError(f"the fixture has no answer for {quote(key)}")
        return canonical.decode_value(bytes(found))


class Tool:
    """One declared tool; made by `tool`, called like the function.

    Args:
        spec: what is declared of it.
        function: what runs outside a trial, and in the tool's own worker.
        simulator: `simulator(state, **arguments)`, or a fixture; stands in for an unsafe function.
    """

    def __init__(
        self,
        spec: ToolSpec,
        function: Callable[..., Any],
        simulator: Callable[..., Any] | Fixture | None = None,
    ) -> None:
        self.spec = spec
        self.__name__ = getattr(function, "__name__", spec.id)
        self.__doc__ = function.__doc__
        self.__signature__ = _bare(inspect.signature(function))
        self._function: Callable[..., Any] | None = function
        self._simulator = simulator
        self._call: Call | None = None

    @property
    def id(self) -> str:
        """The name under which it is called."""
        return self.spec.id

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or in a trial the broker.

        Raises:
            EffectDenied: it was unbound, or the broker refuses the call.
        """
        if self._call is not None:
            bound = self.__signature__.bind(*args, **kwargs)
            return self._call(self.id, _by_name(self.__signature__, bound.arguments))
        if self._function is None:
            raise EffectDenied(f"tool {self.id} cannot be called here")
        return self._function(*args, **kwargs)

    def bind(self, call: Call) -> None:
        """Hand each call to the broker from now on, and forget function and simulator."""
        self._call = call
        self._function = self._simulator = None

    def unbind(self) -> None:
        """Forget function, simulator and broker: whoever calls it now is denied."""
        self._call = self._function = self._simulator = None

    def take_function(self) -> Callable[..., Any]:
        """Take the function out, for the tool's own worker; the tool holds it no longer.

        Raises:
            EffectDenied: it was taken, bound or unbound before.
        """
        taken, self._function = self._function, None
        if taken is None:
            raise EffectDenied(f"tool {self.id} holds no function here")
        return taken

    def take_simulator(self) -> Callable[..., Any] | Fixture:
        """Take the simulator out, for the tool's own worker, and forget the function with it.

        Raises:
            EffectDenied: there is none, or it was taken, bound or unbound before.
        """
        taken, self._simulator, self._function = self._simulator, None, None
        if taken is None:
            raise EffectDenied(f"tool {self.id} holds no simulator here")
        return taken

    def __repr__(self) -> str:
        return f"Tool({self.id!r}, effect={self.spec.effect!r})"


def tool(
    id: str,
    *,
    effect: str = "",
    grants: Grants = NO_GRANTS,
    simulate: Callable[..., Any] | Fixture | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Tool]:
    """Declare a function as a tool.

    Args:
        id: the name under which it is called.
        effect: `pure`, `read_only`, `idempotent` or `unsafe`; any other word counts as unsafe, and
            none at all as undeclared.
        grants: what its worker may reach; nothing else exists for it.
        simulate: what may stand in for an unsafe tool: `simulate(state, **arguments)`, where
            `state` is one dict of JSON values for all simulators of a run, or a `Fixture`.
        description: for the model; else the docstring's first paragraph.
        parameters: JSON Schema of its arguments; else read from the signature.

    Raises:
        UsageError: the declaration is malformed, or the function cannot be called by names alone.
    """
    _check_texts(id, effect)
    if not isinstance(grants, Grants):
        raise UsageError(f"tool {quote(id)}: grants are a Grants, not {type(grants).__name__}")

    def declare(function: Callable[..., Any]) -> Tool:
        signature = _signature(id, function)
        schema = _schema(function, signature) if parameters is None else parameters
        spec = ToolSpec(
            id=id,
            effect=str(effect),
            grants=_frozen(grants, id),
            simulator=_kind_of(id, simulate),
            description=_first_paragraph(function) if description is None else description,
            parameters=Raw(_encoded(schema, f"tool {quote(id)}: the schema of its parameters")),
        )
        check_tool(spec)
        return Tool(spec, function, simulate)

    return declare


def _check_texts(tool_id: object, effect: object) -> None:
    if not isinstance(tool_id, str):
        raise UsageError(
            f"a tool's id is a text, not {type(tool_id).__name__}", hint='@tool("read_file", …)'
        )
    if not isinstance(effect, str):
        raise UsageError(
            f"tool {quote(tool_id)}: an effect is a word, not {type(effect).__name__}",
            hint="pure, read_only, idempotent or unsafe",
        )


def _frozen(grants: Grants, tool_id: str) -> Grants:
    return freeze_grants(grants, f"tool {quote(tool_id)}")


def freeze_grants(grants: Grants, where: str) -> Grants:
    """Make each grant a tuple of texts; a lone text is none, as its letters would be granted.

    Raises:
        UsageError: something else stands there.
    """
    fixed = {}
    for name in Grants.__struct_fields__:
        value = getattr(grants, name)
        is_list = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        if not is_list or not all(isinstance(item, str) for item in value):
            raise UsageError(
                f"{where}: the grant {name} is a list of texts, not {type(value).__name__}",
                hint=f'Grants({name}=("…",))',
            )
        fixed[name] = tuple(value)
    return replace(grants, **fixed)


def _kind_of(tool_id: str, simulate: object) -> str | None:
    if simulate is None:
        return None
    if isinstance(simulate, Fixture):
        return "fixture"
    if callable(simulate) and not isinstance(simulate, Tool):
        return "function"
    raise UsageError(
        f"tool {quote(tool_id)}: it cannot be simulated by {type(simulate).__name__}",
        hint="a function (state, **arguments), or a Fixture",
    )


def _signature(tool_id: str, function: Callable[..., Any]) -> inspect.Signature:
    """Read a signature whose every argument has a name.

    Raises:
        UsageError: it has others, or is no plain function.
    """
    where = f"tool {quote(tool_id)}"
    is_late = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    if not inspect.isroutine(function) or is_late:
        raise UsageError(f"{where}: a tool is a plain function, that returns its result")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: its signature cannot be read: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise UsageError(
                f"{where}: the argument {parameter.name} has no name for a caller",
                hint="arguments come by name: no * and no /",
            )
    return signature


def _schema(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """Write the JSON Schema of a function's arguments; what has no plain type may be anything."""
    try:
        types = typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations are code, and may fail in any way
        types = {}
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    required: list[str] = []
    is_open = False
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
            continue
        properties[name] = _schema_of(types.get(name, Any), definitions)
        if parameter.default is parameter.empty:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    schema["additionalProperties"] = is_open
    return schema | ({"$defs": definitions} if definitions else {})


def _schema_of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    try:
        (schema,), found = msgspec.json.schema_components((kind,), ref_template="#/$defs/{name}")
    except (TypeError, RecursionError):
        return {}
    definitions.update(found)
    return schema


def _bare(signature: inspect.Signature) -> inspect.Signature:
    """Drop annotations and defaults: they could hold on to what the function reaches."""
    return signature.replace(
        parameters=[
            parameter.replace(
                annotation=inspect.Parameter.empty,
                default=parameter.empty if parameter.default is parameter.empty else None,
            )
            for parameter in signature.parameters.values()
        ],
        return_annotation=inspect.Signature.empty,
    )


def _by_name(signature: inspect.Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a caller wrote, by name; defaults are filled in where the function runs."""
    named: dict[str, Any] = {}
    for name, value in arguments.items():
        is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        named |= value if is_rest else {name: value}
    return named


def _first_paragraph(function: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def _fixture_key(arguments: Mapping[str, Any] | str) -> str:
    if arguments == ANY_ARGUMENTS:
        return ANY_ARGUMENTS
    try:
        value = canonical.decode_value(arguments) if isinstance(arguments, str) else arguments
        if isinstance(value, Mapping):
            return canonical.canonical(dict(value)).decode()
    except (TypeError, ValueError):
        pass
    raise UsageError(
        f"a fixture is asked by a JSON object of arguments, not {quote(str(arguments))}",
        hint='Fixture({\'{"to": "a@example.com"}\': {"sent": true}}), or "*" for any',
    )


def _encoded(value: Any, what: str) -> bytes:
    try:
        canonical.canonical(value)  # which takes JSON alone, where the encoder takes a set
        return canonical.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} has no JSON form: {error}") from error
