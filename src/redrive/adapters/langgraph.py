"""LangGraph at a session's seams: its chat models' HTTP, its tools, its nodes.

The session tells from threads, tasks and conversations which flow a node belongs to. What it cannot
know is what the graph means: `branch` names a node that runs beside others, `step` keeps one that
runs in line in the flow of the whole.

Source: langgraph 1.2 (`get_config`: `langgraph_node`, `langgraph_path`).
"""

import functools
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from redrive.adapters.seam import Effects, missing
from redrive.capture.session import AgentSession
from redrive.record.event import MAIN_ACTOR

try:
    from langgraph.config import get_config
except ImportError as error:
    raise missing("langgraph", "langgraph") from error

from redrive.adapters.langchain_tools import ToolWrapper

_place: ContextVar[str] = ContextVar("redrive_langgraph_flow", default="")


class LangGraph:
    """What a graph uses of a session; made by `record_langgraph`.

    Args:
        session: records or serves.
        tools: wraps tools.
    """

    def __init__(self, session: AgentSession, tools: ToolWrapper) -> None:
        self._session = session
        self._tools = tools

    def clients(self, **options: Any) -> dict[str, Any]:
        """Open the HTTP clients of a chat model: `ChatOpenAI(…, **clients())`.

        Args:
            options: of both clients; see `AgentSession.http_client`.
        """
        return {
            "http_client": self._session.http_client(**options),
            "http_async_client": self._session.async_http_client(**options),
        }

    def tool(self, tool: Any) -> Any:
        """Copy a tool (or make one of a function) so that its calls are at the seam.

        Name, schema, validation, errors and callbacks stay LangChain's own, in a rerun as well.
        """
        return self._tools.wrap(tool)

    def branch(self, node: Any) -> Any:
        """Wrap a function that is a node beside others: a flow of its own, named as the node.

        Of several at once by `Send`, the name says the place in the list: `worker#0`.
        """
        return _wrap_node(node, self._flow_of_node)

    def step(self, node: Any) -> Any:
        """Wrap a function that is a node in line with others: it stays in the flow of the whole.

        An async graph runs each node in a task of its own. One whose prompt does not go on from
        what was asked before would be taken for another agent.
        """
        return _wrap_node(node, self._flow_of_whole)

    @contextmanager
    def _flow_of_node(self) -> Iterator[None]:
        fields = get_config().get("metadata", {})
        kind, place = (*fields.get("langgraph_path", ()), None, None)[:2]
        is_one_of_many = kind == "__pregel_push" and isinstance(place, int)
        name = f"{fields.get('langgraph_node')}" + (f"#{place}" if is_one_of_many else "")
        outer = _place.get()
        with self._enter(name if outer in ("", MAIN_ACTOR) else f"{outer}/{name}"):
            yield

    @contextmanager
    def _flow_of_whole(self) -> Iterator[None]:
        if _place.get():  # of a graph within a branch or a step, which is in its flow already
            yield
        else:
            with self._enter(MAIN_ACTOR):
                yield

    @contextmanager
    def _enter(self, name: str) -> Iterator[None]:
        token = _place.set(name)
        try:
            with self._session.flow(name):
                yield
        finally:
            _place.reset(token)


def _wrap_node(node: Any, flow: Callable[[], AbstractContextManager[None]]) -> Any:
    @functools.wraps(node)
    def run(*args: Any, **kwargs: Any) -> Any:
        with flow():
            return node(*args, **kwargs)

    @functools.wraps(node)
    async def run_async(*args: Any, **kwargs: Any) -> Any:
        with flow():
            return await node(*args, **kwargs)

    return run_async if inspect.iscoroutinefunction(node) else run


def record_langgraph(
    session: AgentSession,
    *,
    effects: Effects | None = None,
    steering: Collection[str] = (),
    raises: Sequence[type[Exception]] = (),
) -> LangGraph:
    """Put a graph at a session's seams.

    Args:
        session: what `redrive.record` or `redrive.rerun` gave.
        effects: of the tools, by name; a tool without one counts as unsafe.
        steering: names of tools that only steer the graph: they return a `Command` or a message of
            their own, and run again in a rerun. Each must be pure.
        raises: error classes of the tools, beside Python's own, that a rerun may raise again.
    """
    return LangGraph(session, ToolWrapper(session, effects or {}, steering, raises))
