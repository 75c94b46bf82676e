"""Tools of LangChain at a session's seam, in whatever runs them: a `ToolNode`, an agent, `invoke`.

The seam is the tool's own function (`_run`, `_arun`), so that validation, formatting, callbacks and
what is made of errors stay LangChain's, in a rerun as well. The arguments are those that the model
gave, before defaults, so that two calls of one answer stay apart.

Source: langchain-core 1.8 (`BaseTool.run`, `BaseTool._run`).
"""

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from redrive.adapters.seam import Effects, Shown, call, call_async, missing, tell
from redrive.capture.session import AgentSession

try:
    from langchain_core.messages import ToolMessage
    from langchain_core.tools import BaseTool, ToolException
    from langchain_core.tools import tool as make_tool
except ImportError as error:
    raise missing("langchain-core", "langgraph") from error


@dataclass(eq=False, slots=True)
class _Given:
    """A call of a tool: what the model gave, whether its function took it, and what came out."""

    arguments: dict[str, Any]
    is_taken: bool = False
    result: Any = None


_given: ContextVar[_Given | None] = ContextVar("redrive_langchain_call", default=None)


class ToolWrapper:
    """Copies tools so that their calls are at the seam.

    Args:
        session: records or serves.
        effects: of the tools, by name.
        steering: names of tools whose result is for the graph and no JSON, such as a `Command`.
        raises: error classes, beside Python's own, that a rerun may raise again.
    """

    def __init__(
        self,
        session: AgentSession,
        effects: Effects,
        steering: Collection[str],
        raises: Sequence[type[Exception]],
    ) -> None:
        self._session = session
        self._effects = effects
        self._steering = steering
        self._raises = (ToolException, *raises)

    def wrap(self, tool: Any) -> Any:
        """Copy a tool (or make one of a function) so that its calls are at the seam.

        Name, schema, validation, errors and callbacks stay LangChain's own, in a rerun as well.
        """
        original: Any = tool if isinstance(tool, BaseTool) else make_tool(tool)
        made, kind = original.model_copy(), type(original)
        run, arun = self._functions(original)
        # Attributes of the copy: a subclass would have to repeat the signatures of each class.
        object.__setattr__(made, "_run", run)
        object.__setattr__(made, "_arun", arun)
        object.__setattr__(made, "run", self._keep_input(made, kind.run))
        object.__setattr__(made, "arun", self._keep_input_async(made, kind.arun))
        return made

    def _functions(self, tool: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Give what stands in for a tool's `_run` and `_arun`."""
        named: dict[str, Any] = {
            "effect": self._effects.get(tool.name),
            "shown": _shown_by(tool, self._raises),
        }
        is_steering = tool.name in self._steering

        @functools.wraps(tool._run)
        def run(*args: Any, **kwargs: Any) -> Any:
            work, arguments = functools.partial(tool._run, *args, **kwargs), _take()
            if is_steering:
                return self._steered(tool, arguments, work())
            return call(self._session, tool.name, arguments, work, **named)

        @functools.wraps(tool._arun)
        async def arun(*args: Any, **kwargs: Any) -> Any:
            work, arguments = functools.partial(tool._arun, *args, **kwargs), _take()
            if is_steering:
                return self._steered(tool, arguments, await work())
            return await call_async(self._session, tool.name, arguments, work, **named)

        return run, arun

    def _steered(self, tool: Any, arguments: dict[str, Any], result: Any) -> Any:
        tell(self._session, tool.name, arguments, _text_of(result))
        return result

    def _keep_input(self, tool: Any, run: Any) -> Any:
        @functools.wraps(run)
        def keeping(tool_input: Any, *args: Any, **kwargs: Any) -> Any:
            with self._given_to(tool, tool_input) as given:
                given.result = run(tool, tool_input, *args, **kwargs)
            return given.result

        return keeping

    def _keep_input_async(self, tool: Any, run: Any) -> Any:
        @functools.wraps(run)
        async def keeping(tool_input: Any, *args: Any, **kwargs: Any) -> Any:
            with self._given_to(tool, tool_input) as given:
                given.result = await run(tool, tool_input, *args, **kwargs)
            return given.result

        return keeping

    @contextmanager
    def _given_to(self, tool: Any, tool_input: Any) -> Iterator["_Given"]:
        """Let a tool's function know what the model gave; tell of what never gets that far."""
        given = _Given(_arguments_of(tool, tool_input))
        token = _given.set(given)
        try:
            yield given
        except Exception as error:
            if not given.is_taken:
                tell(self._session, tool.name, given.arguments, error=error)
            raise
        else:
            if not given.is_taken:
                tell(self._session, tool.name, given.arguments, _text_of(given.result))
        finally:
            _given.reset(token)


def _arguments_of(tool: Any, given: Any) -> dict[str, Any]:
    """Give the model's arguments of a call, before defaults; what the graph injects is none."""
    if isinstance(given, dict):
        return {name: value for name, value in given.items() if name in tool.args}
    return {next(iter(tool.args), "input"): given}


def _take() -> dict[str, Any]:
    """Give the arguments of the call whose function now runs; without `run` there are none."""
    given = _given.get()
    if given is None:
        return {}
    given.is_taken = True
    return given.arguments


def _shown_by(tool: Any, raises: Sequence[type[Exception]]) -> Shown:
    """Content and artifact come as a tuple, which JSON has not."""
    if tool.response_format == "content_and_artifact":
        return Shown(encode=list, decode=tuple, raises=raises)
    return Shown(raises=raises)


def _text_of(result: Any) -> Any:
    """Give what a model sees of a result that is not recorded itself."""
    update = getattr(result, "update", None)  # of a `Command`
    if isinstance(update, dict):
        told = [one for one in update.get("messages", ()) if isinstance(one, ToolMessage)]
        result = told[-1] if told else None
    return result.content if isinstance(result, ToolMessage) else None
