"""The OpenAI Agents SDK at a session's seams: models' HTTP, function and MCP tools, hand-offs.

A hand-off goes on with the same conversation, so it stays in its flow; an agent that is used as a
tool is a flow of its own. Not at a seam: tools that the provider runs, and the SDK's tracing.

Source: openai-agents 0.24 (`FunctionTool.on_invoke_tool`, `Handoff.on_invoke_handoff`).
"""

import copy
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
    import agents
    from openai import AsyncOpenAI
except ImportError as error:
    raise missing("openai-agents", "openai-agents") from error


class AgentsSdk:
    """What an agent of the SDK uses of a session; made by `record_agents_sdk`.

    An async context manager, which closes the HTTP clients of its `run_config`s.

    Args:
        session: records or serves.
        effects: of the tools, by name.
    """

    def __init__(self, session: AgentSession, effects: Effects) -> None:
        self._session = session
        self._effects = effects
        self._agents: dict[int, tuple[Any, Any]] = {}
        self._clients = AsyncClients(session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._clients.close()

    def run_config(
        self, *, use_responses: bool | None = None, client: Any = None, **options: Any
    ) -> Any:
        """Make the `RunConfig` of a run whose model is asked through the session.

        Args:
            use_responses: whether the Responses API is asked, or Chat Completions; else as the SDK
                is set.
            client: an `AsyncOpenAI`; absent, one as the environment says. It goes on through the
                session's HTTP client.
            options: of `RunConfig`. `group_id` is drawn from the session if it is not given: the
                SDK derives the request's `prompt_cache_key` from it, else from a UUID of its own.
        """
        recorded = self._clients.put_into(client, AsyncOpenAI)
        provider = agents.OpenAIProvider(openai_client=recorded, use_responses=use_responses)
        group_id = options.pop("group_id", None) or self._session.uuid4().hex
        return agents.RunConfig(model_provider=provider, group_id=group_id, **options)

    def agent(self, agent: Any) -> Any:
        """Copy an agent, and those that it hands off to, with its tools at the seam."""
        known = self._agents.get(id(agent))
        if known is not None:
            return known[1]
        made = agent.clone(
            tools=[self.tool(tool) for tool in agent.tools],
            handoffs=[self.handoff(handoff) for handoff in agent.handoffs],
        )
        for one in (agent, made):
            self._agents[id(one)] = (one, made)
        list_tools = agent.get_mcp_tools

        async def get_mcp_tools(context: Any) -> list[Any]:
            return [self.tool(tool) for tool in await list_tools(context)]

        made.get_mcp_tools = get_mcp_tools
        return made

    def tool(self, tool: Any) -> Any:
        """Copy a function tool so that its calls are at the seam; others run at the provider."""
        if not isinstance(tool, agents.FunctionTool):
            return tool
        made, invoke = copy.copy(tool), tool.on_invoke_tool
        # A declared output schema makes other text of a value than `str` does.
        shown = Shown() if getattr(tool, "output_json_schema", None) else _AS_TEXT

        async def on_invoke_tool(context: Any, arguments: str) -> Any:
            return await call_async(
                self._session,
                tool.name,
                parse_arguments(arguments),
                lambda: invoke(context, arguments),
                effect=self._effects.get(tool.name),
                shown=shown,
            )

        made.on_invoke_tool = on_invoke_tool
        return made

    def handoff(self, handoff: Any) -> Any:
        """Copy a hand-off so that the next agent's tools are at the seam as well.

        Which agent comes next is decided by the agent's own code, in a rerun again.
        """
        made = agents.handoff(handoff) if isinstance(handoff, agents.Agent) else copy.copy(handoff)
        invoke = made.on_invoke_handoff

        async def on_invoke_handoff(context: Any, arguments: str) -> Any:
            following = await invoke(context, arguments)
            message = made.get_transfer_message(following)
            tell(self._session, made.tool_name, parse_arguments(arguments), message)
            return self.agent(following)

        made.on_invoke_handoff = on_invoke_handoff
        return made


def record_agents_sdk(session: AgentSession, *, effects: Effects | None = None) -> AgentsSdk:
    """Put agents of the OpenAI Agents SDK at a session's seams.

    Args:
        session: what `redrive.record` or `redrive.rerun` gave.
        effects: of the tools, by name; a tool without one counts as unsafe.
    """
    return AgentsSdk(session, effects or {})


_PARTS = (agents.ToolOutputText, agents.ToolOutputImage, agents.ToolOutputFileContent)


def _encode(value: Any) -> Any:
    """Give plain JSON of which the SDK makes the same for the model: parts as objects, or text."""
    if not isinstance(exact_json(value), str):
        return value
    if isinstance(value, _PARTS):
        return value.model_dump(exclude_none=True)
    if isinstance(value, list | tuple) and all(isinstance(part, _PARTS) for part in value):
        return [part.model_dump(exclude_none=True) for part in value]
    return str(value)


_AS_TEXT = Shown(encode=_encode)
