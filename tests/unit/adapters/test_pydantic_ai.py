"""pydantic-ai, recorded against a scripted model and run again without one."""

import asyncio
import datetime
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import UsageError
from redrive.models.local import LocalEngine
from redrive.record.event import Kind, payload_of
from tests.chat_server import Bench, answer_with, results_in

pydantic_ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")

import openai  # noqa: E402 - it comes with the library
from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent, BinaryContent, ModelRetry, RunContext, ToolReturn  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel  # noqa: E402

from redrive.adapters.pydantic_ai import record_pydantic_ai  # noqa: E402

SEEDED: Any = {"temperature": 0, "top_p": 1, "seed": 7}
EFFECTS = {"lookup": "read_only", "add": "pure"}


class Total(BaseModel):
    total: int


class Row(BaseModel):
    day: datetime.date
    share: float


def lookup(city: str, unit: str = "C") -> dict[str, str]:
    return {"unit": unit, "city": city}


async def add(a: int, b: int) -> int:
    if a == 9:
        raise ModelRetry("no nine")
    return a + b


def rows() -> list[Row]:
    return [Row(day=datetime.date(2024, 1, 2), share=0.1)]


def run_with(bench: Bench, talk: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Make the function that is recorded and run again; `talk` is given capability and model."""

    async def run(session: Any) -> Any:
        async with record_pydantic_ai(session, effects=EFFECTS) as recorded:
            client = openai.AsyncOpenAI(base_url=bench.url, api_key="none", max_retries=0)
            model = OpenAIChatModel("m", provider=recorded.provider(client), settings=SEEDED)
            return await talk(recorded, model)

    return lambda session: asyncio.run(run(session))


def ask_with(*tools: Any, prompt: str = "go", **options: Any) -> Callable[[Any, Any], Any]:
    """Make a talk of one run."""

    async def talk(recorded: Any, model: Any) -> Any:
        agent: Any = Agent(model, tools=tools, capabilities=[recorded], **options)
        return (await agent.run(prompt)).output

    return talk


def calling(*calls: tuple[str, str, Any]) -> Any:
    """Script a model that makes calls, and then says what came back."""

    def script(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
        found = list(results_in(messages).values())
        return f"got {found[-1]}" if found else list(calls)

    return answer_with(script)


def team_script(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
    """Ask for everything at once, give a wrong answer where there is a second try, then one."""
    who, found = messages[0]["content"], results_in(messages)
    if who == "expert":
        return "an expert answer"
    if not found:
        return [
            ("c1", "lookup", {"city": "A"}),
            ("c2", "lookup", {"city": "B", "unit": "F"}),
            ("c3", "add", {"a": 1, "b": 2}),
            ("c4", "add", {"a": "x", "b": 2}),
            ("c5", "add", {"a": 9, "b": 2}),
            ("c6", "ask_expert", {"question": "why?"}),
            ("c7", "rows", {}),
        ]
    if "c8" not in found and not request.get("stream"):
        return [("c8", "final_result", {"total": "many"})]
    return [("c9", "final_result", {"total": len(found)})]


def team(is_streamed: bool) -> Callable[[Any, Any], Any]:
    async def talk(recorded: Any, model: Any) -> Any:
        expert = Agent(model, system_prompt="expert")

        async def ask_expert(context: RunContext[None], question: str) -> str:
            return (await expert.run(question)).output

        agent = Agent(
            model,
            system_prompt="lead",
            output_type=Total,
            tools=[lookup, add, rows, ask_expert],
            capabilities=[recorded],
        )
        if is_streamed:
            async with agent.run_stream("go") as streamed:
                async for _ in streamed.stream_output():
                    pass
                return (await streamed.get_output()).total
        first = await agent.run("go")
        second = await agent.run("again", message_history=first.all_messages())
        return first.output.total, second.output.total

    return talk


@pytest.mark.parametrize("is_streamed", [False, True])
def test_tools_at_once_refusals_a_sub_agent_and_an_output_tool_are_closed_and_run_again(
    bench: Bench, is_streamed: bool
) -> None:
    bench.server.answer = answer_with(team_script)
    agent = run_with(bench, team(is_streamed))
    session_id, value = bench.record(agent)
    assert value == (7 if is_streamed else (8, 9))
    results = bench.results(session_id)
    assert {seam for _, seam, _ in results} == {"tool"}
    found = [result for name, _, result in results if name == "lookup"]
    assert sorted(found, key=lambda one: one["city"]) == [  # they run at the same time
        {"unit": "C", "city": "A"},
        {"unit": "F", "city": "B"},
    ]
    added = [result for name, _, result in results if name == "add"]
    kinds = [one.get("type") if isinstance(one, dict) else one for one in added]
    assert sorted(map(str, kinds)) == [
        "3",
        "pydantic_ai.exceptions.ModelRetry",
        "pydantic_core._pydantic_core.ValidationError",
    ]
    assert ("rows", "tool", [{"day": "2024-01-02", "share": 0.1}]) in results
    assert ("ask_expert", "tool", "an expert answer") in results
    assert results[-1] == ("final_result", "tool", "Final result processed.")
    assert bench.executed(session_id) == []  # no default was added
    assert bench.statuses(session_id) == {"main": "closed", "ask_expert": "closed"}
    for _ in range(2):
        report = bench.rerun(agent, session_id)
        assert report.identical, report.document
        assert report.value == value


def test_a_changed_prompt_is_where_the_rerun_stops(bench: Bench) -> None:
    bench.server.answer = calling(("c1", "add", {"a": 1, "b": 2}))
    session_id, _ = bench.record(run_with(bench, ask_with(add)))
    report = bench.rerun(run_with(bench, ask_with(add, prompt="stop")), session_id)
    assert not report.identical
    assert report.document.divergence.where == "/messages/0/content"


def test_ids_that_pydantic_ai_makes_up_are_the_same_in_a_rerun(bench: Bench) -> None:
    bench.server.answer = calling(("", "add", {"a": 1, "b": 2}), ("", "add", {"a": 3, "b": 4}))
    agent = run_with(bench, ask_with(add))
    session_id, _ = bench.record(agent)
    sent = json.loads(bench.server.received[-1].body)["messages"]
    ids = [one["tool_call_id"] for one in sent if one["role"] == "tool"]
    assert len(set(ids)) == 2
    assert all(one.startswith("pyd_ai_") for one in ids)
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document


@pytest.mark.parametrize(
    "result",
    [ToolReturn("a", content="b"), BinaryContent(b"x", media_type="image/png"), object()],
    ids=["ToolReturn", "BinaryContent", "object"],
)
def test_a_result_that_the_model_would_see_otherwise_is_lacking_by_name(
    bench: Bench, result: Any
) -> None:
    bench.server.answer = calling(("c1", "odd", {}))

    def odd() -> Any:
        return result

    async def talk(recorded: Any, model: Any) -> Any:
        try:
            return await ask_with(odd)(recorded, model)
        except Exception as error:  # noqa: BLE001 - whichever the library raises
            return type(error).__name__  # what the library itself cannot write

    session_id, _ = bench.record(run_with(bench, talk))
    named = [payload_of(e) for e in bench.events(session_id) if e.kind is Kind.CUSTOM]
    assert [one.name for one in named] == ["tool.intent", "tool.unrepresentable"]
    assert bench.statuses(session_id) == {"main": "open"}


def test_an_output_function_that_refuses_is_the_result_of_its_call(bench: Bench) -> None:
    def half(total: int) -> float:
        if total % 2:
            raise ModelRetry("even ones only")
        return total / 2

    def script(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
        count = len(results_in(messages))
        return [(f"c{count}", "final_result", {"total": 3 + count})]

    bench.server.answer = answer_with(script)
    agent = run_with(bench, ask_with(output_type=half))
    session_id, value = bench.record(agent)
    assert value == 2
    refused, taken = bench.results(session_id)
    assert refused[2]["message"].startswith("even ones only")
    assert taken == ("final_result", "tool", "Final result processed.")
    assert bench.statuses(session_id) == {"main": "closed"}
    assert bench.rerun(agent, session_id).identical


def test_an_answer_in_plain_text_is_no_call(bench: Bench) -> None:
    def script(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
        return "no json" if len(messages) == 1 else '{"total": 3}'

    bench.server.answer = answer_with(script)
    agent = run_with(bench, ask_with(output_type=pydantic_ai.PromptedOutput(Total)))
    session_id, value = bench.record(agent)
    assert value == Total(total=3)
    assert bench.results(session_id) == []
    assert bench.rerun(agent, session_id).identical


def test_one_toolset_alone_can_be_wrapped(bench: Bench) -> None:
    bench.server.answer = calling(("c1", "add", {"a": 1, "b": 2}))

    async def talk(recorded: Any, model: Any) -> Any:
        toolset = recorded.toolset(pydantic_ai.FunctionToolset([add]))
        return (await Agent(model, toolsets=[toolset]).run("go")).output

    agent = run_with(bench, talk)
    session_id, value = bench.record(agent)
    assert bench.results(session_id) == [("add", "tool", 3)]
    assert bench.rerun(agent, session_id).value == value == "got 3"


def test_a_call_that_no_model_made_is_recorded_with_plain_arguments(bench: Bench) -> None:
    async def talk(recorded: Any, model: Any) -> Any:
        toolset = recorded.toolset(pydantic_ai.FunctionToolset([rows]))
        context: Any = RunContext(deps=None, model=model, usage=pydantic_ai.RunUsage())
        tool = (await toolset.get_tools(context))["rows"]
        return len(await toolset.call_tool("rows", {}, context, tool))

    session_id, value = bench.record(run_with(bench, talk))
    assert value == 1
    named = [payload_of(e) for e in bench.events(session_id) if e.kind is Kind.CUSTOM]
    assert [one.name for one in named] == ["harness.call", "harness.result"]


def test_a_provider_of_ones_own_environment_goes_through_the_session(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", bench.url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    bench.server.answer = answer_with(lambda messages, request: "hello")

    async def run(session: Any) -> Any:
        async with record_pydantic_ai(session) as recorded:
            model = OpenAIChatModel("m", provider=recorded.provider(), settings=SEEDED)
            return (await Agent(model).run("go")).output

    session_id, _ = bench.record(lambda session: asyncio.run(run(session)))
    assert bench.statuses(session_id) == {"main": "closed"}


MCP_SERVER = """
import sys
from mcp.server import MCPServer

server = MCPServer("calculator")

@server.tool()
def double(a: int) -> int:
    with open(sys.argv[1], "a") as file:
        file.write("ran")
    return 2 * a

server.run()
"""


def test_tools_of_an_mcp_server_are_at_the_seam(bench: Bench, tmp_path: Path) -> None:
    pytest.importorskip("fastmcp", reason="pydantic-ai's extra mcp is not installed")
    pytest.importorskip("mcp", reason="mcp is not installed")
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    program, log = tmp_path / "server.py", tmp_path / "log"
    program.write_text(MCP_SERVER, encoding="utf-8")

    async def talk(recorded: Any, model: Any) -> Any:
        transport = StdioTransport(sys.executable, [str(program), str(log)], keep_alive=False)
        agent = Agent(model, toolsets=[MCPToolset(transport)], capabilities=[recorded])
        return (await agent.run("go")).output

    bench.server.answer = calling(("c1", "double", {"a": 4}))
    agent = run_with(bench, talk)
    session_id, value = bench.record(agent)
    ((name, seam, _),) = bench.results(session_id)
    assert (name, seam) == ("double", "tool")
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value
    assert log.read_text(encoding="utf-8") == "ran"


def test_without_the_library_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "redrive.adapters.pydantic_ai"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(UsageError, match="pydantic-ai is not installed") as caught:
        importlib.import_module(name)
    assert "redrive[pydantic-ai]" in caught.value.hint


@pytest.mark.local_model
def test_an_agent_of_the_local_model_is_closed_and_runs_again(
    bench: Bench, engine: LocalEngine
) -> None:
    class Colour(BaseModel):
        is_warm: bool

    async def run(session: Any) -> Any:
        async with record_pydantic_ai(session) as recorded:
            client = openai.AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0)
            settings: Any = {**SEEDED, "max_tokens": 64, "extra_body": {"top_k": 0, "min_p": 0}}
            model = OpenAIChatModel(
                "smollm2", provider=recorded.provider(client), settings=settings
            )
            form = pydantic_ai.NativeOutput(Colour)
            agent = Agent(model, output_type=form, capabilities=[recorded])
            return (await agent.run("Is red a warm colour? Answer as JSON.")).output.is_warm

    agent = lambda session: asyncio.run(run(session))  # noqa: E731 - the agent
    session_id, value = bench.record(agent, engine={"fingerprint": engine.fingerprint})
    assert bench.statuses(session_id) == {"main": "closed"}
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value
