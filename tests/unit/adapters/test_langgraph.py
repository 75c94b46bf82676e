"""LangGraph, recorded against a scripted model and run again without one."""

import asyncio
import importlib
import json
import operator
import sys
import threading
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from redrive.errors import UsageError
from redrive.models.local import LocalEngine
from tests.chat_server import Bench, answer_with, results_in

pytest.importorskip("langgraph", reason="langgraph is not installed")
pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Send

from redrive.adapters.langgraph import LangGraph, record_langgraph

N_WORKERS = 4


class State(MessagesState):
    done: Annotated[list[str], operator.add]


@tool
def lookup(city: str, unit: str = "C") -> dict[str, str]:
    """Look a city up."""
    return {"unit": unit, "city": city}


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    if a == 9:
        raise ValueError("nine")
    return a + b


def open_model(bench_url: str, graph: LangGraph, **options: Any) -> tuple[Any, Any]:
    """Open a model on a session's clients; give it and what closes them."""
    clients = graph.clients()
    settings = {"model": "m", "temperature": 0, "top_p": 1, "seed": 7, "max_retries": 0}
    model = ChatOpenAI(base_url=bench_url, api_key="none", **settings | options, **clients)

    async def close() -> None:
        clients["http_client"].close()
        await clients["http_async_client"].aclose()

    return model, close


def run_with(url: str, talk: Callable[[LangGraph, Any], Any], **options: Any) -> Any:
    """Make the function that is recorded and run again; `talk` is given adapter and model."""

    async def run(session: Any) -> Any:
        graph = record_langgraph(session, effects={"lookup": "read_only", "add": "pure"})
        model, close = open_model(url, graph, **options)
        try:
            return await talk(graph, model)
        finally:
            await close()

    return lambda session: asyncio.run(run(session))


def script(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
    """Call everything at once; of workers, let the last one be the first to be answered."""
    found = results_in(messages)
    if messages[0]["content"] == "worker":
        item = messages[-1]["content"]
        threading.Event().wait(0.03 * (N_WORKERS - int(item[-1])))
        return f"did {item}"
    if messages[0]["content"] == "report":
        return f"reported {messages[-1]['content']}"
    if found:
        return f"got {json.dumps(found)}"
    return [
        ("c1", "lookup", {"city": "A"}),
        ("c2", "lookup", {"city": "B", "unit": "F"}),
        ("c3", "add", {"a": 1, "b": 2}),
        ("c4", "add", {"a": 9, "b": 2}),
        ("c5", "add", {"a": "x", "b": 2}),
    ]


def build(graph: LangGraph, model: Any, *, is_named: bool) -> Any:
    """An agent with tools; then workers beside each other; then a report."""
    tools = [graph.tool(one) for one in (lookup, add)]
    bound = model.bind_tools(tools)

    async def agent(state: State) -> Any:
        return {"messages": [await bound.ainvoke(state["messages"])]}

    def worker(state: Any) -> Any:
        asked = [SystemMessage("worker"), HumanMessage(f"item {state['item']}")]
        return {"done": [model.invoke(asked).content]}

    async def report(state: State) -> Any:
        asked = [SystemMessage("report"), HumanMessage(json.dumps(state["done"]))]
        return {"messages": [await model.ainvoke(asked)]}

    def after(state: State) -> Any:
        if state["messages"][-1].tool_calls:
            return "tools"
        return [Send("worker", {"item": item}) for item in range(N_WORKERS)]

    made = StateGraph(State)
    made.add_node("agent", agent)
    made.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    made.add_node("worker", graph.branch(worker) if is_named else worker)
    made.add_node("report", graph.step(report))
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", after, ["tools", "worker"])
    made.add_edge("tools", "agent")
    made.add_edge("worker", "report")
    made.add_edge("report", END)
    return made.compile()


async def run_graph(compiled: Any, *, is_streamed: bool) -> Any:
    given = {"messages": [("user", "go")], "done": []}
    if not is_streamed:
        return (await compiled.ainvoke(given))["messages"][-1].content
    last: Any = None
    async for mode, part in compiled.astream(given, stream_mode=["messages", "values"]):
        last = part if mode == "values" else last
    return last["messages"][-1].content


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("is_named", [False, True])
def test_tools_at_once_errors_and_parallel_branches_are_closed_and_run_again(
    bench: Bench, is_streamed: bool, is_named: bool
) -> None:
    async def talk(graph: LangGraph, model: Any) -> Any:
        compiled = build(graph, model, is_named=is_named)
        return await run_graph(compiled, is_streamed=is_streamed)

    bench.server.answer = answer_with(script)
    agent = run_with(bench.url, talk)
    session_id, value = bench.record(agent)
    assert value.startswith("reported")
    results = bench.results(session_id)
    assert {seam for _, seam, _ in results} == {"tool"}
    assert [result for name, _, result in results if name == "lookup"] == [
        {"unit": "C", "city": "A"},
        {"unit": "F", "city": "B"},
    ]
    added = [result for name, _, result in results if name == "add"]
    kinds = [one["type"] if isinstance(one, dict) else one for one in added]
    expected = ["3", "ValueError", "pydantic_core._pydantic_core.ValidationError"]
    assert sorted(map(str, kinds)) == expected
    assert bench.executed(session_id) == []  # no default was added
    statuses = bench.statuses(session_id)
    assert set(statuses.values()) == {"closed"}
    assert len(statuses) == 1 + N_WORKERS
    if is_named:
        assert set(statuses) == {"main", *(f"worker#{item}" for item in range(N_WORKERS))}
    for _ in range(2):
        report = bench.rerun(agent, session_id)
        assert report.identical, report.document
        assert report.value == value


def test_a_graph_in_threads_is_recorded_and_run_again(bench: Bench) -> None:
    """`invoke` runs branches, and the tools of a `ToolNode`, in threads."""

    async def talk(graph: LangGraph, model: Any) -> Any:
        tools = [graph.tool(lookup)]
        bound = model.bind_tools(tools)

        def ask(state: State) -> Any:
            return {"messages": [bound.invoke(state["messages"])]}

        inner = StateGraph(State)
        inner.add_node("ask", ask)
        inner.add_node("tools", ToolNode(tools))
        inner.add_edge(START, "ask")
        inner.add_conditional_edges("ask", tools_condition)
        inner.add_edge("tools", "ask")
        compiled = inner.compile()

        def branch(name: str) -> Any:
            def run(state: State) -> Any:
                given = {"messages": [SystemMessage(f"branch {name}"), HumanMessage("go")]}
                return {"done": [compiled.invoke(given)["messages"][-1].content]}

            return run

        made = StateGraph(State)
        for name in ("a", "b"):
            made.add_node(name, graph.branch(branch(name)))
            made.add_edge(START, name)
        return made.compile().invoke({"messages": [], "done": []})["done"]

    def twins(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
        found = results_in(messages)
        city = messages[0]["content"][-1]
        return f"got {found['c1']}" if found else [("c1", "lookup", {"city": city})]

    bench.server.answer = answer_with(twins)
    agent = run_with(bench.url, talk)
    session_id, value = bench.record(agent)
    assert sorted(seam for _, seam, _ in bench.results(session_id)) == ["tool", "tool"]
    statuses = bench.statuses(session_id)
    assert statuses["a"] == statuses["b"] == "closed"
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value


@pytest.mark.parametrize("is_step", [False, True])
def test_a_step_with_a_prompt_of_its_own_stays_in_the_flow_of_the_whole(
    bench: Bench, is_step: bool
) -> None:
    async def talk(graph: LangGraph, model: Any) -> Any:
        wrap = graph.step if is_step else lambda node: node

        def ask(prompt: str) -> Any:
            async def node(state: State) -> Any:
                return {"done": [(await model.ainvoke(prompt)).content]}

            return wrap(node)

        inner = StateGraph(State)
        inner.add_node("draft", ask("draft"))
        inner.add_edge(START, "draft")
        compiled = inner.compile()

        async def write(state: State) -> Any:
            return {"done": (await compiled.ainvoke({"messages": [], "done": []}))["done"]}

        made = StateGraph(State)
        made.add_sequence([("plan", ask("plan")), ("write", wrap(write)), ("read", ask("read"))])
        made.add_edge(START, "plan")
        return (await made.compile().ainvoke({"messages": [], "done": []}))["done"]

    bench.server.answer = answer_with(lambda messages, request: messages[0]["content"])
    agent = run_with(bench.url, talk)
    session_id, value = bench.record(agent)
    assert value == ["plan", "draft", "read"]
    statuses = bench.statuses(session_id)
    assert set(statuses.values()) == {"closed"}
    assert len(statuses) == (1 if is_step else 3)
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document


def test_branches_within_branches_have_names_of_their_own(bench: Bench) -> None:
    async def talk(graph: LangGraph, model: Any) -> Any:
        def leaf(state: Any) -> Any:
            asked = [SystemMessage("leaf"), HumanMessage(state["who"])]
            return {"done": [model.invoke(asked).content]}

        inner = StateGraph(State)
        inner.add_node("leaf", graph.branch(leaf))
        inner.add_conditional_edges(
            START,
            lambda state: [Send("leaf", {"who": f"{state['done'][0]}{i}"}) for i in range(2)],
            ["leaf"],
        )
        compiled = inner.compile()

        async def team(state: Any) -> Any:
            found = await compiled.ainvoke({"messages": [], "done": [state["who"]]})
            return {"done": found["done"][1:]}

        outer = StateGraph(State)
        outer.add_node("team", graph.branch(team))
        outer.add_conditional_edges(
            START, lambda state: [Send("team", {"who": who}) for who in "ab"], ["team"]
        )
        return (await outer.compile().ainvoke({"messages": [], "done": []}))["done"]

    bench.server.answer = answer_with(lambda messages, request: messages[-1]["content"])
    agent = run_with(bench.url, talk)
    session_id, value = bench.record(agent)
    assert value == ["a0", "a1", "b0", "b1"]
    flows = {f"team#{one}/leaf#{other}" for one in range(2) for other in range(2)}
    assert set(bench.statuses(session_id)) == {"main", *flows}
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value


def test_a_changed_prompt_is_where_the_rerun_stops(bench: Bench) -> None:
    def ask(text: str) -> Any:
        async def talk(graph: LangGraph, model: Any) -> Any:
            return (await model.ainvoke(text)).content

        return run_with(bench.url, talk)

    bench.server.answer = answer_with(lambda messages, request: "hello")
    session_id, _ = bench.record(ask("go"))
    report = bench.rerun(ask("stop"), session_id)
    assert not report.identical
    assert report.document.divergence.where == "/messages/0/content"


def test_without_the_library_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "redrive.adapters.langgraph"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "langgraph.config", None)
    with pytest.raises(UsageError, match="langgraph is not installed") as caught:
        importlib.import_module(name)
    assert "redrive[langgraph]" in caught.value.hint


@pytest.mark.local_model
def test_a_graph_of_the_local_model_is_closed_and_runs_again(
    bench: Bench, engine: LocalEngine
) -> None:
    async def talk(graph: LangGraph, model: Any) -> Any:
        def say(state: State) -> Any:
            return {"messages": [model.invoke(state["messages"])]}

        def again(state: State) -> Any:
            return {"messages": [model.invoke([*state["messages"], HumanMessage("Another one.")])]}

        made = StateGraph(State)
        made.add_node("say", say)
        made.add_node("again", again)
        made.add_edge(START, "say")
        made.add_edge("say", "again")
        found = made.compile().invoke({"messages": [("user", "Name a colour.")], "done": []})
        return [one.content for one in found["messages"]]

    options = {"max_tokens": 24, "extra_body": {"top_k": 0, "min_p": 0}}
    agent = run_with(f"{engine.url}/v1", talk, **options)
    session_id, value = bench.record(agent, engine={"fingerprint": engine.fingerprint})
    assert all(value)
    assert bench.statuses(session_id) == {"main": "closed"}
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value
