"""pydantic-ai at a session's seams: its models' HTTP, all its toolsets, its output tools.

A capability wraps the toolset that an agent has put together, so that whatever is in it is at the
seam, MCP servers included. Not at a seam: tools that the provider runs, and the listing of an MCP
server's tools.

Source: pydantic-ai 2.68 (`WrapperToolset.call_tool`, `AbstractCapability`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from redrive.adapters.seam import (
    AsyncClients,
    Effects,
    Shown,
    call_async,
    missing,
    parse_arguments,
    tell,
)
from redrive.capture.json_values import exact_json
from redrive.capture.session import AgentSession

try:
    from openai import AsyncOpenAI
    from pydantic_ai import ModelRetry, ToolFailed, ToolReturn
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.toolsets import WrapperToolset
    from pydantic_core import to_jsonable_python
except ImportError as error:
    raise missing("pydantic-ai", "pydantic-ai") from error

OWN_ID = "pyd_ai_"
"""What ids of calls begin with that pydantic-ai makes up."""
PROCESSED = "Final result processed."
"""What pydantic-ai itself answers the call of an output tool with."""


@dataclass
class _Toolset(WrapperToolset[Any]):  # type: ignore[misc] # the library is optional
    """A toolset whose calls are at the seam.

    Attributes:
        session: records or serves.
        effects: of the tools, by name.
        shown: how results are written down.
    """

    session: AgentSession
    effects: Effects
    shown: Shown

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: Any) -> Any:
        """Call a tool, or get what is recorded of it."""
        return await call_async(
            self.session,
            name,
            _arguments_of(ctx, tool_args),
            lambda: super(_Toolset, self).call_tool(name, tool_args, ctx, tool),
            effect=self.effects.get(name),
            shown=self.shown,
        )


@dataclass
class PydanticAi(AbstractCapability[Any]):  # type: ignore[misc] # the library is optional
    """What an agent of pydantic-ai uses of a session: a capability; see `record_pydantic_ai`.

    An async context manager, which closes the HTTP clients of its providers.

    Attributes:
        session: records or serves.
        effects: of the tools, by name.
        shown: how results are written down.
        clients: those of the providers.
    """

    session: AgentSession
    effects: Effects
    shown: Shown
    clients: AsyncClients

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.clients.close()

    def provider(self, client: Any = None) -> Any:
        """Make the provider of a model: `OpenAIChatModel(NAME, provider=….provider())`.

        Args:
            client: an `AsyncOpenAI`; absent, one as the environment says. It goes on through the
                session's HTTP client.
        """
        return OpenAIProvider(openai_client=self.clients.put_into(client, AsyncOpenAI))

    def toolset(self, toolset: Any) -> Any:
        """Wrap one toolset; the capability does so with all that an agent has."""
        return _Toolset(toolset, self.session, self.effects, self.shown)

    def get_wrapper_toolset(self, toolset: Any) -> Any:
        """Wrap what the agent has put together."""
        return self.toolset(toolset)

    async def after_model_request(self, ctx: Any, *, request_context: Any, response: Any) -> Any:
        """Draw from the session the ids that pydantic-ai makes where the model gave none."""
        for part in response.parts:
            if isinstance(part, ToolCallPart) and part.tool_call_id.startswith(OWN_ID):
                part.tool_call_id = f"{OWN_ID}{self.session.uuid4().hex}"
        return response

    async def on_tool_validate_error(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Any
    ) -> Any:
        """Tell of arguments that pydantic-ai refuses: that is the result of this call."""
        self._tell(call, error=error)
        raise error

    async def on_output_validate_error(
        self, ctx: Any, *, output_context: Any, output: Any, error: Any
    ) -> Any:
        """Tell of an output tool's arguments that pydantic-ai refuses."""
        if output_context.tool_call is not None and not ctx.partial_output:
            self._tell(output_context.tool_call, error=error)
        raise error

    async def wrap_output_process(
        self, ctx: Any, *, output_context: Any, output: Any, handler: Any
    ) -> Any:
        """Tell that an output tool was called, and how that ended."""
        call = None if ctx.partial_output else output_context.tool_call
        try:
            value = await handler(output)
        except Exception as error:
            if call is not None:
                self._tell(call, error=error)
            raise
        if call is not None:
            self._tell(call, PROCESSED)
        return value

    def _tell(self, call: Any, result: Any = None, error: Exception | None = None) -> None:
        arguments = parse_arguments(call.args_as_json_str())
        tell(self.session, call.tool_name, arguments, result, error=error)


def record_pydantic_ai(
    session: AgentSession,
    *,
    effects: Effects | None = None,
    raises: Sequence[type[Exception]] = (),
) -> PydanticAi:
    """Make the capability that puts an agent's tools at a session's seams.

    Args:
        session: what `redrive.record` or `redrive.rerun` gave.
        effects: of the tools, by name; a tool without one counts as unsafe.
        raises: error classes of the tools, beside Python's own, that a rerun may raise again.
    """
    shown = Shown(encode=_encode, raises=(ModelRetry, ToolFailed, *raises))
    return PydanticAi(session, effects or {}, shown, AsyncClients(session))


def _arguments_of(ctx: Any, validated: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments as the model wrote them: the newest call of this id in the history."""
    for message in reversed(ctx.messages):
        for part in message.parts if isinstance(message, ModelResponse) else ():
            if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id:
                return parse_arguments(part.args_as_json_str())
    plain = to_jsonable_python(validated, serialize_unknown=True)
    return plain if isinstance(plain, dict) else {}


def _encode(value: Any) -> Any:
    """Give plain JSON of which pydantic-ai makes the same for the model.

    Raises:
        ValueError: there is none, as of files and of a `ToolReturn`.
    """
    if not isinstance(exact_json(value), str):
        return value
    plain = to_jsonable_python(value)
    if isinstance(value, ToolReturn) or _seen(plain) != _seen(value):
        raise ValueError("the model would see something else")
    return plain


def _seen(value: Any) -> Any:
    part = ToolReturnPart(tool_name="", content=value, tool_call_id="")
    return part.model_response_str(), part.files
