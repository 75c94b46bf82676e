"""Tools of LangChain at a session's seam, recorded and served without any model."""

import asyncio
import importlib
import sys
from typing import Annotated, Any

import pytest

from redrive.errors import UsageError
from redrive.record.event import Kind, payload_of
from tests.chat_server import Bench

pytest.importorskip("langchain_core", reason="langchain-core is not installed")
pytest.importorskip("langgraph", reason="langgraph is not installed")

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import (
    BaseTool,
    InjectedToolArg,
    InjectedToolCallId,
    StructuredTool,
    Tool,
    ToolException,
    tool,
)
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command

from redrive.adapters.langgraph import record_langgraph


class Ran:
    """Counts what ran for real."""

    def __init__(self) -> None:
        self.calls: list[str] = []


def call_of(name: str, call_id: str = "c1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "args": arguments}


def record_and_rerun(bench: Bench, made: Any, use: Any, **options: Any) -> tuple[str, Any]:
    """Record `use(wrapped tool)`, run it again, and hold that both give the same."""
    agent = lambda session: use(record_langgraph(session, **options).tool(made))  # noqa: E731
    session_id, value = bench.record(agent)
    report = bench.rerun(agent, session_id)
    assert report.identical, report.document
    assert report.value == value
    return session_id, value


def harness_calls(bench: Bench, session_id: str) -> list[Any]:
    """Give what was called without a model asking: arguments, and result or error."""
    told: list[Any] = []
    for event in bench.events(session_id):
        if event.kind is Kind.CUSTOM and payload_of(event).name.startswith("harness."):
            data = bench.decode(payload_of(event).data)
            told.append(data["arguments"] if "arguments" in data else data["result"])
    return told


def test_the_copy_has_name_schema_and_class_of_the_tool(bench: Bench) -> None:
    @tool
    def lookup(city: str, owner: Annotated[str, InjectedToolArg] = "s", unit: str = "C") -> str:
        """Look a city up."""
        return city + owner + unit

    def look(session: Any) -> None:
        made = record_langgraph(session).tool(lookup)
        assert type(made) is type(lookup)
        assert made is not lookup
        assert convert_to_openai_tool(made) == convert_to_openai_tool(lookup)
        assert made.args == lookup.args
        assert set(vars(lookup)).isdisjoint({"run", "arun", "_run", "_arun"})
        assert made.model_dump(exclude={"args_schema"}) == lookup.model_dump(
            exclude={"args_schema"}
        )

    bench.record(look)


def test_defaults_and_what_the_graph_injects_are_no_arguments(bench: Bench) -> None:
    @tool
    def lookup(city: str, state: Annotated[dict[str, Any], InjectedState], unit: str = "C") -> str:
        """Look a city up."""
        return f"{city} {unit} {len(state['messages'])}"

    def use(made: Any) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("tools", ToolNode([made]))
        graph.add_edge(START, "tools")
        asked = AIMessage("", tool_calls=[call_of("lookup", city="A")])
        return graph.compile().invoke({"messages": [asked]})["messages"][-1].content

    session_id, value = record_and_rerun(bench, lookup, use)
    assert value == "A C 1"
    assert harness_calls(bench, session_id) == [{"city": "A"}, "A C 1"]


def test_a_function_a_subclass_and_a_tool_of_one_text_can_be_wrapped(bench: Bench) -> None:
    ran = Ran()

    class Doubling(BaseTool):
        name: str = "double"
        description: str = "Doubles."

        def _run(self, a: int, run_manager: Any = None) -> int:
            ran.calls.append("double")
            return 2 * a

    def shout(text: str) -> str:
        """Shout."""
        ran.calls.append("shout")
        return text.upper()

    echo = Tool(name="echo", func=lambda text: text, description="Echoes.")
    for made, given, value in (
        (Doubling(), {"a": 4}, 8),
        (shout, {"text": "x"}, "X"),
        (echo, "y", "y"),
    ):
        session_id, found = record_and_rerun(bench, made, lambda one, g=given: one.invoke(g))
        assert found == value
        assert harness_calls(bench, session_id)[1] == value
    assert ran.calls == ["double", "shout"]


def test_a_sync_tool_that_is_awaited_runs_once_and_is_recorded_once(bench: Bench) -> None:
    ran = Ran()

    @tool
    def lookup(city: str) -> str:
        """Look a city up."""
        ran.calls.append(city)
        return city

    class Slow(BaseTool):
        name: str = "slow"
        description: str = "Slow."

        def _run(self, city: str) -> str:
            ran.calls.append(city)
            return city

    for made in (lookup, Slow()):
        session_id, value = record_and_rerun(
            bench, made, lambda one: asyncio.run(one.ainvoke({"city": "A"}))
        )
        assert value == "A"
        assert harness_calls(bench, session_id) == [{"city": "A"}, "A"]
    assert ran.calls == ["A", "A"]


def test_content_and_artifact_come_back_as_they_were(bench: Bench) -> None:
    @tool(response_format="content_and_artifact")
    def draw(a: int) -> tuple[str, dict[str, int]]:
        """Draw."""
        return "a picture", {"a": a}

    def use(made: Any) -> Any:
        message = made.invoke(call_of("draw", a=5))
        return message.content, message.artifact

    session_id, value = record_and_rerun(bench, draw, use)
    assert value == ("a picture", {"a": 5})
    assert harness_calls(bench, session_id) == [{"a": 5}, ["a picture", {"a": 5}]]


class TeapotError(Exception):
    pass


@pytest.mark.parametrize("kind", [ToolException, TeapotError, ValueError])
def test_errors_are_raised_again_by_their_own_class(bench: Bench, kind: type[Exception]) -> None:
    def use(made: Any) -> Any:
        with pytest.raises(kind) as caught:
            made.invoke({"a": 1})
        return repr(caught.value)

    def fail(a: int) -> int:
        """Fail."""
        raise kind(f"no {a}")

    made = StructuredTool.from_function(fail)
    _, value = record_and_rerun(bench, made, use, raises=[TeapotError])
    assert value == f"{kind.__name__}('no 1')"


def test_arguments_that_are_refused_are_a_result_of_their_call(bench: Bench) -> None:
    @tool
    def half(a: int) -> float:
        """Halve."""
        return a / 2

    def use(made: Any) -> Any:
        with pytest.raises(ValueError, match="valid integer"):
            made.invoke(call_of("half", a="x"))

    async def use_async(made: Any) -> Any:
        with pytest.raises(ValueError, match="valid integer") as caught:
            await made.ainvoke(call_of("half", a="x"))
        return str(caught.traceback[-1].path)[-7:]

    session_id, _ = record_and_rerun(bench, half, use)
    arguments, error = harness_calls(bench, session_id)
    assert arguments == {"a": "x"}
    assert error["type"].endswith("ValidationError")
    record_and_rerun(bench, half, lambda made: asyncio.run(use_async(made)))


def test_a_refusal_that_langchain_makes_a_message_of_is_recorded_as_that(bench: Bench) -> None:
    @tool
    def half(a: int) -> float:
        """Halve."""
        return a / 2

    half.handle_validation_error = "say it with numbers"
    session_id, value = record_and_rerun(
        bench, half, lambda made: made.invoke(call_of("half", a="x")).content
    )
    assert value == "say it with numbers"
    assert harness_calls(bench, session_id) == [{"a": "x"}, "say it with numbers"]


def test_a_steering_tool_runs_again_and_what_the_model_sees_is_recorded(bench: Bench) -> None:
    ran = Ran()

    @tool
    def steer(where: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Steer."""
        ran.calls.append(where)
        message = ToolMessage(f"off to {where}", tool_call_id=tool_call_id)
        return Command(goto=where, update={"messages": [message]})

    def use(made: Any) -> Any:
        return made.invoke(call_of("steer", where="there")).goto

    @tool("steer")
    async def steer_async(where: str) -> Command[Any]:
        """Steer."""
        ran.calls.append(where)
        return Command(goto=where)

    async def use_async(made: Any) -> Any:
        return (await made.ainvoke({"where": "there"})).goto

    session_id, value = record_and_rerun(bench, steer, use, steering=["steer"])
    assert value == "there"
    assert harness_calls(bench, session_id) == [{"where": "there"}, "off to there"]
    record_and_rerun(
        bench, steer_async, lambda made: asyncio.run(use_async(made)), steering=["steer"]
    )
    assert ran.calls == ["there"] * 4


def test_a_command_without_a_message_is_recorded_as_null(bench: Bench) -> None:
    @tool
    def steer() -> Command[Any]:
        """Steer."""
        return Command(goto="there")

    session_id, _ = record_and_rerun(
        bench, steer, lambda made: made.invoke({}).goto, steering=["steer"]
    )
    assert harness_calls(bench, session_id) == [{}, None]


def test_callbacks_see_a_served_call_as_a_live_one(bench: Bench) -> None:
    class Watcher(BaseCallbackHandler):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def on_tool_start(self, serialized: Any, input_str: str, **_: Any) -> None:
            self.seen.append(f"start {input_str}")

        def on_tool_end(self, output: Any, **_: Any) -> None:
            self.seen.append(f"end {output}")

    @tool
    def lookup(city: str) -> str:
        """Look a city up."""
        return city.lower()

    def use(made: Any) -> Any:
        watcher = Watcher()
        made.invoke({"city": "A"}, config={"callbacks": [watcher]})
        return watcher.seen

    _, value = record_and_rerun(bench, lookup, use)
    assert value == ["start {'city': 'A'}", "end a"]


def test_a_function_that_is_called_past_langchain_has_no_arguments(bench: Bench) -> None:
    class Doubling(BaseTool):
        name: str = "double"
        description: str = "Doubles."

        def _run(self, a: int) -> int:
            return 2 * a

    session_id, value = record_and_rerun(bench, Doubling(), lambda made: made._run(4))
    assert value == 8
    assert harness_calls(bench, session_id) == [{}, 8]


def test_without_the_library_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "redrive.adapters.langchain_tools"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "langchain_core.tools", None)
    with pytest.raises(UsageError, match="langchain-core is not installed") as caught:
        importlib.import_module(name)
    assert "redrive[langgraph]" in caught.value.hint
