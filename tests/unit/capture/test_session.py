import asyncio
import functools
import hashlib
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec import UNSET

from redrive.capture.session import AgentSession
from redrive.errors import UsageError
from tests.fake_backend import FakeBackend


def join(first: list[str], second: str) -> str:
    return " ".join([*first, second])


# --- the session itself --------------------------------------------------------------------------


def test_a_session_has_the_id_that_it_was_given(session: AgentSession) -> None:
    assert session.id == "redrive:test"


def test_the_end_is_handed_on(backend: FakeBackend) -> None:
    ends: list[str] = []
    AgentSession(backend, on_end=ends.append).end("success")
    AgentSession(backend).end("failure")
    assert ends == ["success"]


def test_declared_tools_are_listed_and_the_list_cannot_be_changed(session: AgentSession) -> None:
    session.tool(effect="pure")(join)
    assert session.tools == {"join": "pure"}
    with pytest.raises(TypeError):
        session.tools["join"] = "unsafe"  # type: ignore[index]


def test_the_route_comes_from_the_environment(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDRIVE_PROXY_URL", "http://127.0.0.1:4000/t0ken")
    transport = AgentSession(backend).transport()
    assert transport._route.proxy_url == "http://127.0.0.1:4000/t0ken"
    transport.close()


# --- clock and dice ------------------------------------------------------------------------------


def test_clock_and_dice_are_those_of_the_session_and_served_in_a_rerun(
    session: AgentSession, backend: FakeBackend
) -> None:
    def read() -> list[Any]:
        return [
            session.clock.time(),
            session.random.uniform(0.1, 0.5),
            session.uuid4(),
            session.token_bytes(4),
            session.token_hex(4),
            session.token_urlsafe(),
            session.randbelow(2**70),
            session.urandom(4),
        ]

    live = read()
    assert [(kind.value, name) for kind, name, _ in backend.reads] == [
        ("clock.read", "time.time"),
        ("prng.read", "random.uniform(0.1, 0.5)"),
        ("prng.read", "uuid.uuid4"),
        ("prng.read", "secrets.token_bytes(4)"),
        ("prng.read", "secrets.token_hex(4)"),
        ("prng.read", "secrets.token_urlsafe"),
        ("prng.read", f"secrets.randbelow({2**70})"),
        ("prng.read", "os.urandom(4)"),
    ]
    backend.is_serving = True
    backend.values = [value for _, _, value in backend.reads]
    assert read() == live
    assert (session.clock, session.random) == (session.clock, session.random)


# --- derive --------------------------------------------------------------------------------------


def test_a_derived_value_is_told_with_its_function_version_and_ordered_inputs(
    session: AgentSession, backend: FakeBackend
) -> None:
    assert session.derive(join, [["b", "a"], "c"]) == "b a c"
    (seen,) = backend.derived
    source = inspect.getsource(join)
    assert (seen.name, seen.function) == ("join", f"{__name__}.join")
    assert seen.version == hashlib.sha256(source.encode()).hexdigest()[:16]
    assert seen.inputs == b'[["b","a"],"c"]'
    assert seen.value == "b a c"


def test_name_and_version_can_be_given(session: AgentSession, backend: FakeBackend) -> None:
    session.derive(join, ([], "x"), name="summary", version="7")
    assert (backend.derived[0].name, backend.derived[0].version) == ("summary", "7")


class _Summing:
    def __call__(self, *numbers: int) -> int:
        return sum(numbers)


def _made_without_a_file() -> Any:
    names: dict[str, Any] = {"__name__": "nowhere"}
    exec(compile("def made(*numbers): return 1", "<nowhere>", "exec"), names)  # noqa: S102
    return names["made"]


@pytest.mark.parametrize(
    ("fn", "name", "function"),
    [
        (max, "max", "builtins.max"),
        (_Summing(), "_Summing", f"{__name__}._Summing"),
        (functools.partial(max, 0), "max", "builtins.max"),
        (_made_without_a_file(), "made", "nowhere.made"),
    ],
)
def test_a_function_without_a_source_has_no_version(
    session: AgentSession, backend: FakeBackend, fn: Any, name: str, function: str
) -> None:
    session.derive(fn, [1, 2])
    (seen,) = backend.derived
    assert (seen.name, seen.function, seen.version) == (name, function, None)


def test_a_derived_object_without_a_json_form_reaches_the_agent_and_the_record_lacks_it(
    session: AgentSession, backend: FakeBackend
) -> None:
    pair = (1, 2)
    assert session.derive(lambda: pair, []) is pair
    assert backend.derived[0].value is UNSET


def test_a_derived_value_is_served_and_not_computed(
    session: AgentSession, backend: FakeBackend
) -> None:
    def fail(*_: object) -> Any:
        raise AssertionError("it ran")

    backend.is_serving = True
    backend.values = ["recorded", [1, 2]]
    assert session.derive(fail, [{1}]) == "recorded"
    assert session.derive(fail, [], encode=list, decode=tuple) == (1, 2)
    assert backend.derived[0].inputs == b'[{"redrive.unrepresentable":"set"}]'


def test_encode_makes_a_derived_value_recordable(
    session: AgentSession, backend: FakeBackend
) -> None:
    pair = (1, 2)
    assert session.derive(lambda: pair, [], encode=list, decode=tuple) is pair
    assert backend.derived[0].value == [1, 2]


def test_a_backend_that_computes_and_serves_all_the_same_is_believed(
    session: AgentSession, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(*args: Any) -> Any:
        assert args[-1]() == "now"
        return "then"

    monkeypatch.setattr(backend, "derive", check)
    assert session.derive(lambda: "now", []) == "then"


def test_an_error_while_deriving_reaches_the_agent(session: AgentSession) -> None:
    with pytest.raises(ZeroDivisionError):
        session.derive(lambda: 1 // 0, [])


async def _later() -> None:
    pass


def _many() -> Iterator[int]:
    yield 1


async def _many_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (_later, "_later is async"),
        (_many, "is a generator"),
        (_many_later, "is a generator"),
        (list, "a function, not a type"),
    ],
)
def test_only_plain_functions_derive(
    session: AgentSession, backend: FakeBackend, fn: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        session.derive(fn, [])
    assert backend.derived == []


# --- flows ---------------------------------------------------------------------------------------


def test_flows_nest_and_end_with_their_block(session: AgentSession, backend: FakeBackend) -> None:
    seen = [backend.flow]
    with session.flow("outer"):
        with session.flow("inner"):
            seen.append(backend.flow)
        seen.append(backend.flow)
        with pytest.raises(ValueError, match="x"), session.flow("failing"):
            raise ValueError("x")
        seen.append(backend.flow)
    assert [*seen, backend.flow] == ["main", "inner", "outer", "outer", "main"]


def test_threads_tasks_and_their_children_each_keep_their_flow(
    session: AgentSession, backend: FakeBackend
) -> None:
    @session.tool(effect="pure")
    async def note(who: str) -> None:
        await asyncio.sleep(0)

    @session.tool(effect="pure")
    def note_now(who: str) -> None:
        pass

    async def sub_agent(name: str) -> None:
        async with session.flow(name):
            await note(name)
            await asyncio.create_task(note(name))
            await asyncio.to_thread(note_now, name)
            await note(name)

    def worker(name: str) -> None:
        note_now("main")
        with session.flow(name):
            note_now(name)

    async def main() -> None:
        await asyncio.gather(*(sub_agent(f"task-{n}") for n in range(3)), note("main"))

    threads = [threading.Thread(target=worker, args=(f"thread-{n}",)) for n in range(3)]
    with session.flow("elsewhere"):
        for thread in threads:
            thread.start()
    asyncio.run(main())
    for thread in threads:
        thread.join()
    assert len(backend.calls) == 3 * 4 + 1 + 3 * 2
    for call in backend.calls:
        assert call.arguments == f'{{"who":"{call.flow}"}}'.encode()


def test_a_flow_without_a_name_is_refused(session: AgentSession) -> None:
    with pytest.raises(UsageError, match="a flow needs a name"):
        session.flow("")
