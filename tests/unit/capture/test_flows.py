import asyncio
import threading
from collections.abc import Callable

from redrive.capture.conversation import Conversation
from redrive.capture.flows import Flow, FlowTracker


def talk(*words: str, opening: str = "o") -> Conversation:
    return Conversation(opening.encode(), tuple(word.encode() for word in words))


class Tracked:
    """A tracker whose requests leave their conversation and a node, as the recorder's do."""

    def __init__(self, *, by_context: bool = True) -> None:
        self.tracker = FlowTracker(by_context=by_context)
        self.done: list[tuple[str, str]] = []
        self.n = 0

    def ask(self, conversation: Conversation, name: str | None = None) -> str:
        flow = self.tracker.of_request(conversation, name)
        self.n += 1
        flow.conversations.append((conversation, f"x{self.n}"))
        flow.last_node = f"x{self.n}"
        return flow.name

    def act(self, what: str) -> None:
        def held(flow: Flow) -> None:
            flow.last_node = what
            self.done.append((flow.name, what))

        self.tracker.act(held)


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_one_context_does_is_one_flow_whatever_its_requests_say() -> None:
    tracked = Tracked()
    assert tracked.ask(talk("a")) == "main"
    assert tracked.ask(talk("b", opening="other")) == "main"
    tracked.act("read")
    assert tracked.done == [("main", "read")]


def test_a_named_flow_lasts_until_it_is_left() -> None:
    tracked = Tracked()
    token = tracked.tracker.enter("helper")
    assert tracked.ask(talk("a")) == "helper"
    tracked.tracker.leave(token)
    assert tracked.ask(talk("b")) == "main"
    token = tracked.tracker.enter("helper")
    assert tracked.ask(talk("c")) == "helper"
    tracked.tracker.leave(token)


def test_a_task_within_a_named_flow_is_of_it_unless_another_one_is_at_work_there() -> None:
    """As LangChain has it, whose every async request is made in a task of its own."""
    tracked = Tracked()

    async def ask(word: str) -> str:
        return tracked.ask(talk(word))

    async def main() -> list[str]:
        tracked.tracker.enter("helper")
        names = [await asyncio.create_task(ask("a")), await asyncio.create_task(ask("b"))]
        helper = tracked.tracker.current()
        helper.in_flight += 1
        return [*names, await asyncio.create_task(ask("c"))]

    assert asyncio.run(main()) == ["helper", "helper", "flow-3"]


def test_a_named_flow_hangs_off_what_was_there_when_it_began() -> None:
    tracked = Tracked()
    tracked.ask(talk("a"))
    tracked.tracker.enter("helper")
    assert tracked.tracker.current().parent == "x1"


def test_two_flows_of_one_name_at_the_same_time_are_two() -> None:
    tracked = Tracked()
    names = []

    async def agent() -> None:
        token = tracked.tracker.enter("helper")
        await asyncio.sleep(0)
        names.append(tracked.ask(talk("a")))
        tracked.tracker.leave(token)

    async def main() -> None:
        await asyncio.gather(agent(), agent(), agent())

    asyncio.run(main())
    assert names == ["helper", "helper-2", "helper-3"]


def test_an_agent_that_runs_in_an_event_loop_of_its_own_is_main() -> None:
    tracked = Tracked()

    async def agent() -> None:
        tracked.act("read")
        tracked.ask(talk("a"))
        await asyncio.wait_for(step(), 60)

    async def step() -> None:
        assert tracked.ask(talk("a", "b")) == "main"

    asyncio.run(agent())
    assert tracked.done == [("main", "read")]


def test_three_tasks_at_once_are_three_flows_and_each_keeps_its_reads() -> None:
    tracked = Tracked()

    async def agent(name: str) -> None:
        tracked.act(f"{name} before")
        await asyncio.sleep(0)
        tracked.ask(talk(name))
        await asyncio.sleep(0)
        tracked.act(f"{name} after")

    async def main() -> None:
        await asyncio.gather(agent("a"), agent("b"), agent("c"))

    asyncio.run(main())
    flows = {what: flow for flow, what in tracked.done}
    assert {flows["a before"], flows["a after"]} == {"main"}
    assert {flows["b before"], flows["b after"]} == {"flow-2"}
    assert {flows["c before"], flows["c after"]} == {"flow-3"}


def test_three_threads_are_three_flows_unless_they_go_on_where_another_ended() -> None:
    tracked = Tracked()
    tracked.ask(talk("a"))
    names: list[str] = []

    def agent(*words: str) -> Callable[[], None]:
        def work() -> None:
            tracked.act(f"read of {words[0]}")
            names.append(tracked.ask(talk(*words)))
            names.append(tracked.ask(talk(*words, "more")))

        return work

    in_thread(agent("b"))
    in_thread(agent("c"))
    in_thread(agent("a", "b"))
    assert names == ["flow-2", "flow-2", "flow-3", "flow-3", "main", "main"]
    assert tracked.done == [
        ("flow-2", "read of b"),
        ("flow-3", "read of c"),
        ("main", "read of a"),
    ]


def test_a_task_below_an_undecided_task_shares_its_flow() -> None:
    tracked = Tracked()
    tracked.ask(talk("a"))

    async def agent(name: str) -> None:
        tracked.act(f"{name} read")
        await asyncio.create_task(asked(name))
        tracked.act(f"{name} later")

    async def asked(name: str) -> None:
        tracked.ask(talk(name))

    async def main() -> None:
        await asyncio.gather(agent("b"), agent("c"))

    asyncio.run(main())
    assert ("flow-2", "b read") in tracked.done
    assert ("flow-2", "b later") in tracked.done
    assert ("flow-3", "c later") in tracked.done


def test_what_is_held_happens_at_the_latest_when_all_is_settled() -> None:
    tracked = Tracked()
    tracked.ask(talk("a"))
    in_thread(lambda: tracked.act("read"))
    assert not tracked.done
    tracked.tracker.settle_all()
    assert tracked.done == [("main", "read")]


def test_what_must_be_durable_now_is_settled_in_the_inherited_flow() -> None:
    tracked = Tracked()
    tracked.ask(talk("a"))
    names: list[str] = []

    def work() -> None:
        tracked.act("read")
        assert tracked.tracker.current().name == "main"
        names.append(tracked.tracker.settled().name)

    in_thread(work)
    assert names == ["main"]
    assert tracked.done == [("main", "read")]


def test_a_bound_thread_acts_in_the_flow_of_its_call_and_then_no_longer() -> None:
    tracked = Tracked()
    token = tracked.tracker.enter("helper")
    tracked.ask(talk("a"))
    helper = tracked.tracker.current()
    tracked.tracker.leave(token)
    tracked.ask(talk("b"))

    def work() -> None:
        bound = tracked.tracker.bind(helper)
        tracked.act("inside")
        tracked.tracker.unbind(bound)
        tracked.act("outside")

    in_thread(work)
    tracked.tracker.settle_all()
    assert tracked.done == [("helper", "inside"), ("main", "outside")]


def test_unbinding_in_another_context_undoes_nothing() -> None:
    tracked = Tracked()
    tokens = [tracked.tracker.bind(tracked.tracker.main)]
    in_thread(lambda: tracked.tracker.unbind(tokens[0]))
    assert tracked.ask(talk("a")) == "main"


def test_at_a_proxy_the_conversation_tells_the_flow() -> None:
    tracked = Tracked(by_context=False)
    assert tracked.ask(talk("a")) == "main"
    assert tracked.ask(talk("x", opening="p")) == "flow-2"
    assert tracked.ask(talk("a", "b")) == "main"
    assert tracked.ask(talk("x", "y", opening="p")) == "flow-2"
    assert tracked.ask(talk("new turn")) == "main"
    tracked.act("seen")
    assert tracked.done == [("main", "seen")]
    assert tracked.tracker.settled() is tracked.tracker.current()


def test_at_a_proxy_equal_openings_at_the_same_time_are_two_flows() -> None:
    tracked = Tracked(by_context=False)
    tracked.ask(talk("a"))
    tracked.tracker.main.in_flight = 1
    assert tracked.ask(talk("b")) == "flow-2"
    assert [flow.name for flow in tracked.tracker.flows()] == ["main", "flow-2"]


def test_at_a_proxy_a_header_names_the_flow() -> None:
    tracked = Tracked(by_context=False)
    tracked.ask(talk("a"))
    assert tracked.ask(talk("b"), "planner") == "planner"
    assert tracked.ask(talk("c"), "planner") == "planner"
