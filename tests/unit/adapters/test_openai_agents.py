"""The OpenAI Agents SDK, recorded against a scripted model and run again without one."""

import asyncio
import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from redrive.errors import UsageError
from redrive.models.local import LocalEngine
from redrive.record.event import Kind, payload_of
from tests.chat_server import Bench, answer_responses, answer_with, results_in

agents = pytest.importorskip("agents", reason="openai-agents is not installed")

import openai  # noqa: E402 - it comes with the library
from pydantic import BaseModel  # noqa: E402

from redrive.adapters.openai_agents import record_agents_sdk  # noqa: E402

SEEDED = agents.ModelSettings(temperature=0, top_p=1, extra_args={"seed": 7})
EFFECTS = {"lookup": "read_only", "add": "pure"}
Build = Callable[[], Any]


agents.set_tracing_disabled(True)  # it would export over a client of its own


class Weather(BaseModel):
    degrees: float


@agents.function_tool
def lookup(city: str, unit: str = "C") -> dict[str, str]:
    return {"unit": unit, "city": city}


@agents.function_tool
async def add(a: int, b: int) -> int:
    if a == 9:
        raise ValueError("nine")
    return a + b


@agents.function_tool
def weather() -> Weather:
    return Weather(degrees=0.1)


@agents.function_tool
def parts() -> list[Any]:
    return [agents.ToolOutputText(text="one"), agents.ToolOutputText(text="two")]


def an_agent(name: str, settings: Any = SEEDED, **options: Any) -> Any:
    return agents.Agent(name=name, instructions=name, model="m", model_settings=settings, **options)


def run_with(
    bench: Bench,
    build: Build,
    *,
    is_streamed: bool = False,
    use_responses: bool = False,
    prompt: str = "go",
    **options: Any,
) -> Callable[[Any], Any]:
    """Make the function that is recorded and run again."""

    async def run(session: Any) -> Any:
        async with record_agents_sdk(session, effects=EFFECTS) as sdk:
            return await run_sdk(sdk)

    async def run_sdk(sdk: Any) -> Any:
        client = openai.AsyncOpenAI(base_url=bench.url, api_key="none", max_retries=0)
        config = sdk.run_config(client=client, use_responses=use_responses, **options)
        agent = sdk.agent(build())
        if is_streamed:
            result = agents.Runner.run_streamed(agent, prompt, run_config=config)
            async for _ in result.stream_events():
                pass
        else:
            result = await agents.Runner.run(agent, prompt, run_config=config)
        return result.final_output, result.last_agent.name

    return lambda session: asyncio.run(run(session))


def calling(*calls: tuple[str, str, Any]) -> Any:
    """Script a model that makes calls, and then says what came back."""

    def script(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
        found = results_in(messages)
        return f"got {found[calls[-1][0]]}" if found else list(calls)

    return answer_with(script)


def two_desks() -> Any:
    """A desk with tools and an expert as a tool, and another one that it hands off to, and back."""
    expert, billing = an_agent("expert"), an_agent("billing", tools=[add])
    expert_tool = expert.as_tool("ask_expert", "Asks an expert.")
    desk = an_agent("desk", tools=[lookup, add, expert_tool], handoffs=[billing])
    billing.handoffs = [desk]
    return desk


def desks_script(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
    who, found = messages[0]["content"], results_in(messages)
    if who == "expert":
        return "an expert answer"
    if not found:
        return [
            ("c1", "lookup", {"city": "A"}),
            ("c2", "lookup", {"city": "B", "unit": "F"}),
            ("c3", "add", {"a": 1, "b": 2}),
            ("c4", "ask_expert", {"input": "why?"}),
        ]
    if who == "desk":
        return [("c5", "transfer_to_billing", {})]
    return "done" if "c6" in found else [("c6", "add", {"a": 5, "b": 5})]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_tools_at_once_a_sub_agent_and_a_hand_off_are_closed_and_run_again(
    bench: Bench, is_streamed: bool
) -> None:
    bench.server.answer = answer_with(desks_script)
    agent = run_with(bench, two_desks, is_streamed=is_streamed)
    session_id, value = bench.record(agent)
    assert value == ("done", "billing")
    assert sorted(bench.results(session_id), key=str) == [
        ("add", "tool", 10),
        ("add", "tool", 3),
        ("ask_expert", "tool", "an expert answer"),
        ("lookup", "tool", {"unit": "C", "city": "A"}),
        ("lookup", "tool", {"unit": "F", "city": "B"}),
        ("transfer_to_billing", "tool", '{"assistant": "billing"}'),
    ]
    assert bench.statuses(session_id) == {"main": "closed", "ask_expert": "closed"}
    for _ in range(2):
        report = bench.rerun(agent, session_id)
        assert report.identical, report.document
        assert report.value == value


def test_results_and_arguments_are_recorded_as_the_model_gave_and_got_them(bench: Bench) -> None:
    bench.server.answer = answer_with(desks_script)
    session_id, _ = bench.record(run_with(bench, two_desks))
    assert bench.executed(session_id) == []  # no default was added


def test_a_changed_prompt_is_where_the_rerun_stops(bench: Bench) -> None:
    bench.server.answer = calling(("c1", "add", {"a": 1, "b": 2}))
    build = lambda: an_agent("adder", tools=[add])  # noqa: E731 - the agent's builder
    session_id, _ = bench.record(run_with(bench, build))
    report = bench.rerun(run_with(bench, build, prompt="stop"), session_id)
    assert not report.identical
    assert report.document.divergence.where == "/messages/1/content"


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        (weather, {}, "degrees=0.1"),
        (parts, {}, [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
        (add, {"a": 9, "b": 1}, "An error occurred while running the tool."),
        (add, "no json", "An error occurred while"),
    ],
)
def test_a_result_is_recorded_as_the_model_sees_it(
    bench: Bench, tool: Any, arguments: Any, told: Any
) -> None:
    bench.server.answer = calling(("c1", tool.name, arguments))
    agent = run_with(bench, lambda: an_agent("a", tools=[tool]))
    session_id, value = bench.record(agent)
    ((_, seam, result),) = bench.results(session_id)
    assert seam == "tool"
    assert result[: len(told)] == told if isinstance(told, str) else result == told
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value


def test_one_part_alone_is_recorded_as_the_model_sees_it(bench: Bench) -> None:
    @agents.function_tool
    def part() -> Any:
        return agents.ToolOutputText(text="one")

    bench.server.answer = calling(("c1", "part", {}))
    agent = run_with(bench, lambda: an_agent("a", tools=[part]))
    session_id, _ = bench.record(agent)
    assert bench.results(session_id) == [("part", "tool", {"type": "text", "text": "one"})]
    assert bench.rerun(agent, session_id).identical


def test_a_tool_whose_effect_is_not_declared_is_unsafe(bench: Bench) -> None:
    bench.server.answer = calling(("c1", "weather", {}))
    session_id, _ = bench.record(run_with(bench, lambda: an_agent("a", tools=[weather])))
    names = [payload_of(e).name for e in bench.events(session_id) if e.kind is Kind.CUSTOM]
    assert names == ["tool.intent"]


def test_the_responses_api_is_recorded_and_run_again(bench: Bench) -> None:
    bench.server.answer = answer_responses([("c1", "add", {"a": 1, "b": 2})], "three")
    settings = agents.ModelSettings(temperature=0, top_p=1)  # this API knows no seed
    agent = run_with(bench, lambda: an_agent("a", settings, tools=[add]), use_responses=True)
    session_id, value = bench.record(agent)
    assert value == ("three", "a")
    assert bench.results(session_id) == [("add", "tool", 3)]
    assert bench.rerun(agent, session_id).identical


def test_tools_of_an_mcp_server_are_at_the_seam(bench: Bench) -> None:
    from mcp import types

    class Server(agents.mcp.MCPServer):
        name = "calculator"
        n_calls = 0

        async def list_tools(self, *_: Any) -> Any:
            schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
            return [types.Tool(name="double", input_schema=schema)]

        async def call_tool(self, name: str, arguments: Any, meta: Any = None) -> Any:
            self.n_calls += 1
            text = types.TextContent(type="text", text=str(2 * arguments["a"]))
            return types.CallToolResult(content=[text])

        async def connect(self) -> None: ...
        async def cleanup(self) -> None: ...
        async def list_prompts(self) -> Any: ...
        async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...

    server = Server()
    bench.server.answer = calling(("c1", "double", {"a": 4}))
    agent = run_with(bench, lambda: an_agent("a", mcp_servers=[server]))
    session_id, value = bench.record(agent)
    (result,) = bench.results(session_id)
    assert result[:2] == ("double", "tool")
    assert "8" in str(result[2])
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value
    assert server.n_calls == 1


def test_the_cache_key_that_the_sdk_makes_up_is_the_same_in_a_rerun(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents.models.chatcmpl_helpers import ChatCmplHelpers

    monkeypatch.setattr(ChatCmplHelpers, "is_openai", lambda client: True)
    bench.server.answer = answer_with(lambda messages, request: "hello")
    agent = run_with(bench, lambda: an_agent("a"))
    session_id, _ = bench.record(agent)
    assert json.loads(bench.server.received[-1].body)["prompt_cache_key"].startswith("agents-sdk:")
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document


def test_the_agents_that_were_given_stay_as_they_were(bench: Bench) -> None:
    desk = two_desks()
    search = agents.WebSearchTool()
    desk.tools.append(search)
    before = list(desk.tools), list(desk.handoffs), lookup.on_invoke_tool

    def look(session: Any) -> Any:
        sdk = record_agents_sdk(session)
        made = sdk.agent(desk)
        assert made is not desk
        assert sdk.agent(desk) is made
        assert sdk.agent(made) is made
        assert made.tools[-1] is search  # the provider runs it
        for one, own in zip(made.tools, desk.tools, strict=True):
            assert (one.name, type(one)) == (own.name, type(own))
        assert made.tools[0].params_json_schema == lookup.params_json_schema

    bench.record(look)
    assert (list(desk.tools), list(desk.handoffs), lookup.on_invoke_tool) == before


def test_without_the_library_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "redrive.adapters.openai_agents"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "agents", None)
    with pytest.raises(UsageError, match="openai-agents is not installed") as caught:
        importlib.import_module(name)
    assert "redrive[openai-agents]" in caught.value.hint


@pytest.mark.local_model
def test_an_agent_of_the_local_model_is_closed_and_runs_again(
    bench: Bench, engine: LocalEngine
) -> None:
    async def run(session: Any) -> Any:
        async with record_agents_sdk(session) as sdk:
            return await talk(sdk)

    async def talk(sdk: Any) -> Any:
        client = openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)
        body = {"extra_body": {"top_k": 0, "min_p": 0}, "extra_args": {"seed": 7}}
        settings = agents.ModelSettings(temperature=0, top_p=1, max_tokens=24, **body)
        agent = agents.Agent(
            name="a", instructions="Be brief.", model="smollm2", model_settings=settings
        )
        config = sdk.run_config(client=client, use_responses=False)
        first = await agents.Runner.run(sdk.agent(agent), "Name a colour.", run_config=config)
        asked = [*first.to_input_list(), {"role": "user", "content": "Another one."}]
        second = await agents.Runner.run(sdk.agent(agent), asked, run_config=config)
        return first.final_output, second.final_output

    agent = lambda session: asyncio.run(run(session))  # noqa: E731 - the agent
    session_id, value = bench.record(agent, engine={"fingerprint": engine.fingerprint})
    assert all(value)
    assert bench.statuses(session_id) == {"main": "closed"}
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value
