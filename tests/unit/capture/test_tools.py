import asyncio
import functools
import inspect
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Raw

from redrive.capture.ports import ServedResult
from redrive.capture.session import AgentSession, RecordedToolError
from redrive.capture.tools import rebuild_error
from redrive.errors import RecordError, UsageError
from tests.fake_backend import FakeBackend


class NotFoundError(Exception):
    def __init__(self, what: str) -> None:
        super().__init__(f"{what} not found")


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@dataclass
class Point:
    x: int


def serve(backend: FakeBackend, *results: ServedResult) -> None:
    backend.is_serving = True
    backend.results = list(results)


# --- recording -----------------------------------------------------------------------------------


def test_a_bare_decorator_records_arguments_and_result_of_an_unsafe_tool(
    session: AgentSession, backend: FakeBackend
) -> None:
    @session.tool
    def lookup(city: str, units: str = "C") -> dict[str, Any]:
        """Look it up."""
        (call,) = backend.calls
        assert not call.ends, "the call is told before it runs"
        return {"city": city, "t": 0.30000000000000004, "units": units}

    result = lookup("Köln")
    assert result == {"city": "Köln", "t": 0.30000000000000004, "units": "C"}
    (call,) = backend.calls
    assert (call.tool, call.effect, call.is_unsafe) == ("lookup", "unsafe", True)
    assert call.arguments == '{"city":"Köln"}'.encode()
    assert call.end == (
        "returned",
        '{"city":"Köln","t":0.30000000000000004,"units":"C"}'.encode(),
    )
    assert session.tools == {"lookup": "unsafe"}


def test_signature_name_and_docstring_stay(session: AgentSession) -> None:
    def bare(a: int, *, b: str = "x") -> list[int]:
        """Do it."""
        return [a]

    async def bare_async(a: int) -> None:
        """Do it later."""

    for fn in (bare, bare_async):
        wrapped = session.tool(effect="pure", name="other")(fn)
        assert inspect.signature(wrapped) == inspect.signature(fn)
        assert (wrapped.__name__, wrapped.__doc__) == (fn.__name__, fn.__doc__)
        assert inspect.iscoroutinefunction(wrapped) == inspect.iscoroutinefunction(fn)
        assert inspect.unwrap(wrapped) is fn


@pytest.mark.parametrize("effect", ["pure", "read_only", "idempotent", "unsafe"])
def test_a_declared_effect_and_name_reach_the_backend(
    session: AgentSession, backend: FakeBackend, effect: str
) -> None:
    @session.tool(effect=effect, name="files.read")
    def read() -> None:
        return None

    assert read() is None  # type: ignore[func-returns-value]
    (call,) = backend.calls
    assert (call.tool, call.effect, call.is_unsafe) == (
        "files.read",
        effect,
        effect == "unsafe",
    )
    assert (call.arguments, call.end) == (b"{}", ("returned", b"null"))


def test_an_async_tool_is_recorded_and_runs_beside_others(
    session: AgentSession, backend: FakeBackend
) -> None:
    @session.tool(effect="read_only")
    async def wait(n: int) -> int:
        await asyncio.sleep(0.01 * (3 - n))
        return n

    async def main() -> list[int]:
        return list(await asyncio.gather(*(wait(n) for n in range(3))))

    assert asyncio.run(main()) == [0, 1, 2]
    assert [call.arguments for call in backend.calls] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    assert [call.end for call in backend.calls] == [("returned", b"%d" % n) for n in range(3)]


def test_threads_record_each_their_own_call(session: AgentSession, backend: FakeBackend) -> None:
    barrier = threading.Barrier(8)

    @session.tool(effect="pure")
    def double(n: int) -> int:
        barrier.wait(60)
        return 2 * n

    threads = [threading.Thread(target=double, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends = {call.arguments: call.end for call in backend.calls}
    assert ends == {b'{"n":%d}' % n: ("returned", b"%d" % (2 * n)) for n in range(8)}


class _Service:
    def read(self, path: str) -> str:
        return path

    def __call__(self, path: str) -> str:
        return path


class _AsyncService:
    async def __call__(self, path: str) -> str:
        return path


def _spread(*paths: str, **more: str) -> str:
    return paths[0] if paths else next(iter(more.values()))


def _mixed(path: str, /, mode: str = "r", **more: str) -> str:
    return path


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "arguments"),
    [
        (_Service().read, ("a",), {}, b'{"path":"a"}'),
        (_Service(), (), {"path": "a"}, b'{"path":"a"}'),
        (_spread, ("a", "b"), {}, b'{"paths":["a","b"]}'),
        (_spread, (), {"x": "a"}, b'{"x":"a"}'),
        (_spread, ("a",), {"x": "b"}, b'{"paths":["a"],"x":"b"}'),
        (_spread, ("a",), {"paths": "b"}, b'{"paths":["a"],"more":{"paths":"b"}}'),
        (_mixed, ("a",), {"path": "b"}, b'{"path":"a","more":{"path":"b"}}'),
        (_mixed, ("a", "w"), {"x": "b"}, b'{"path":"a","mode":"w","x":"b"}'),
        (functools.partial(_mixed, "a"), (), {"mode": "w"}, b'{"mode":"w"}'),
        (max, ("a", "b"), {}, b'{"args":["a","b"]}'),
        (dict, (), {}, None),
    ],
)
def test_arguments_are_recorded_by_parameter_name(
    session: AgentSession,
    backend: FakeBackend,
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arguments: bytes | None,
) -> None:
    if arguments is None:
        with pytest.raises(UsageError, match="a tool is a function, not a type"):
            session.tool(fn)
        return
    assert session.tool(fn)(*args, **kwargs) == fn(*args, **kwargs)
    assert backend.calls[0].arguments == arguments


def test_an_object_with_an_async_call_is_an_async_tool(
    session: AgentSession, backend: FakeBackend
) -> None:
    tool = session.tool(_AsyncService())
    assert asyncio.run(tool("a")) == "a"
    assert backend.calls[0].tool == "_AsyncService"
    assert backend.calls[0].end == ("returned", b'"a"')


def test_parameters_that_the_harness_fills_in_can_be_left_out(
    session: AgentSession, backend: FakeBackend
) -> None:
    class Toolbox:
        @session.tool(omit=["self", "ctx"])
        def read(self, ctx: object, path: str, **more: str) -> str:
            return path

    assert Toolbox().read(object(), "a", x="b") == "a"
    assert backend.calls[0].arguments == b'{"path":"a","x":"b"}'


def test_an_argument_without_a_json_form_is_marked_by_its_type(
    session: AgentSession, backend: FakeBackend
) -> None:
    @session.tool
    def plot(at: Point, tags: set[str]) -> None:
        pass

    plot(Point(1), {"a"})
    assert backend.calls[0].arguments == b'{"at":{"x":1},"tags":{"redrive.unrepresentable":"set"}}'


def test_arguments_that_do_not_fit_raise_what_the_bare_function_raises(
    session: AgentSession, backend: FakeBackend
) -> None:
    def read(path: str) -> str:
        return path

    with pytest.raises(TypeError) as bare:
        read(pth="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError) as wrapped:
        session.tool(read)("b", pth="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError) as asked:
        session.tool(read)(pth="a")  # type: ignore[call-arg]
    assert str(asked.value) == str(bare.value)
    assert [call.arguments for call in backend.calls] == [
        b'{"args":["b"],"pth":"a"}',
        b'{"pth":"a"}',
    ]
    assert backend.calls[0].end == ("raised", ("TypeError", str(wrapped.value)))


# --- results without a JSON form, errors ---------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "name"),
    [
        ((1, 2), "tuple"),
        ({"at": Point(1)}, f"{__name__}.Point in dict"),
        (float("nan"), "float that is not finite in float"),
        (iter([1]), "list_iterator"),
    ],
)
def test_a_result_without_a_json_form_is_named_and_the_agent_gets_the_very_object(
    session: AgentSession, backend: FakeBackend, result: Any, name: str
) -> None:
    assert session.tool(lambda: result)() is result
    assert backend.calls[0].end == ("unknown", name)


def test_encode_makes_it_recordable_and_the_agent_still_gets_the_very_object(
    session: AgentSession, backend: FakeBackend
) -> None:
    point = Point(3)

    @session.tool(encode=lambda value: {"x": value.x}, decode=lambda value: Point(value["x"]))
    def locate() -> Point:
        return point

    assert locate() is point
    assert backend.calls[0].end == ("returned", b'{"x":3}')
    serve(backend, ServedResult(Raw(b'{"x":4}')))
    assert locate() == Point(4)


@pytest.mark.parametrize("encode", [lambda value: value.nothing, lambda value: (value.x,)])
def test_an_encode_that_fails_costs_the_record_and_not_the_agent(
    session: AgentSession, backend: FakeBackend, encode: Callable[[Any], Any]
) -> None:
    tool = session.tool(encode=encode, decode=Point)(lambda: Point(3))
    assert tool() == Point(3)
    kind, name = backend.calls[0].end
    assert kind == "unknown"
    assert name in ("tuple", f"{__name__}.Point")


def test_a_result_that_the_agent_changes_later_was_recorded_as_it_was(
    session: AgentSession, backend: FakeBackend
) -> None:
    rows = session.tool(lambda: [1])()
    rows.append(2)
    assert backend.calls[0].end == ("returned", b"[1]")


def test_an_error_is_recorded_and_reaches_the_agent_with_its_traceback(
    session: AgentSession, backend: FakeBackend
) -> None:
    error = KeyError("name")

    @session.tool
    def fail() -> None:
        raise error

    @session.tool
    async def fail_later() -> None:
        raise NotFoundError("it")

    with pytest.raises(KeyError) as caught:
        fail()
    assert caught.value is error
    assert error.__cause__ is None
    assert error.__context__ is None
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fail"
    with pytest.raises(NotFoundError):
        asyncio.run(fail_later())
    assert backend.calls[0].end == ("raised", ("KeyError", "'name'"))
    assert backend.calls[1].end == ("raised", (f"{__name__}.NotFoundError", "it not found"))


def test_an_error_without_a_text_and_an_interrupt_are_recorded_too(
    session: AgentSession, backend: FakeBackend
) -> None:
    @session.tool
    def fail(kind: type[BaseException]) -> None:
        raise kind

    with pytest.raises(UnprintableError):
        fail(UnprintableError)
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt)
    assert backend.calls[0].end == ("raised", (f"{__name__}.UnprintableError", ""))
    assert backend.calls[1].end == ("raised", ("KeyboardInterrupt", ""))


def test_a_cancelled_tool_is_recorded_as_cancelled(
    session: AgentSession, backend: FakeBackend
) -> None:
    @session.tool
    async def forever() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        async with asyncio.timeout(0.01):
            await forever()

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert backend.calls[0].end == ("raised", ("asyncio.exceptions.CancelledError", ""))


# --- refusals ------------------------------------------------------------------------------------


def _generator() -> Iterator[int]:
    yield 1


async def _async_generator() -> AsyncIterator[int]:
    yield 1


class _GeneratorCall:
    def __call__(self) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "fn",
    [_generator, _async_generator, functools.partial(_generator), _GeneratorCall()],
)
def test_a_generator_is_refused_by_name(
    session: AgentSession, backend: FakeBackend, fn: Any
) -> None:
    with pytest.raises(UsageError, match="is a generator") as caught:
        session.tool(fn)
    assert "return a list" in caught.value.hint
    assert (backend.calls, session.tools) == ([], {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"effect": "readonly"}, "tool fn: no effect 'readonly'"),
        ({"encode": list}, "encode and decode come together"),
        ({"decode": tuple}, "encode and decode come together"),
        ({"raises": [KeyboardInterrupt]}, "is no Exception class"),
        ({"raises": ["ValueError"]}, "is no Exception class"),
    ],
)
def test_a_wrong_declaration_is_refused(
    session: AgentSession, options: dict[str, Any], message: str
) -> None:
    def fn() -> None:
        pass

    with pytest.raises(UsageError, match=message):
        session.tool(**options)(fn)
    assert session.tools == {}


@pytest.mark.parametrize("fn", [Point, 3, staticmethod(_mixed), classmethod(_mixed)])
def test_what_is_no_function_is_refused(session: AgentSession, fn: Any) -> None:
    with pytest.raises(UsageError, match="a tool is a function, not a "):
        session.tool()(fn)


# --- serving -------------------------------------------------------------------------------------


def test_a_served_result_is_made_anew_each_time_and_nothing_runs(
    session: AgentSession, backend: FakeBackend
) -> None:
    @session.tool(effect="unsafe")
    def drop(table: str) -> Any:
        raise AssertionError("it ran")

    @session.tool(effect="unsafe")
    async def drop_later(table: str) -> Any:
        raise AssertionError("it ran")

    data = Raw(b'{"n":18446744073709551616}')
    serve(backend, ServedResult(data), ServedResult(data), ServedResult(data))
    first, second = drop("a"), drop("a")
    assert first == second == asyncio.run(drop_later("a")) == {"n": 2**64}
    assert first is not second
    assert [call.arguments for call in backend.calls] == [b'{"table":"a"}'] * 3


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        ("ValueError", "bad", ValueError),
        ("KeyError", "'name'", KeyError),
        ("KeyError", "('a', 1)", KeyError),
        ("KeyError", "<object>", KeyError),
        (
            "FileNotFoundError",
            "[Errno 2] No such file or directory: 'x'",
            FileNotFoundError,
        ),
        (f"{__name__}.NotFoundError", "it not found", NotFoundError),
        (f"{__name__}.Other", "x", RecordedToolError),
        ("UnicodeDecodeError", "cannot decode", RecordedToolError),
        ("KeyboardInterrupt", "", RecordedToolError),
        ("print", "x", RecordedToolError),
        ("NoSuchError", "x", RecordedToolError),
    ],
)
def test_a_recorded_error_is_raised_again(
    session: AgentSession, backend: FakeBackend, name: str, message: str, kind: type[Exception]
) -> None:
    tool = session.tool(raises=[NotFoundError])(lambda: 1)
    serve(backend, ServedResult(error=(name, message)))
    with pytest.raises(kind) as caught:
        tool()
    assert type(caught.value) is kind
    if message != "<object>":
        assert str(caught.value) == message
    if isinstance(caught.value, RecordedToolError):
        assert caught.value.type_name == name


def test_only_builtin_and_declared_classes_are_made() -> None:
    assert type(rebuild_error(f"{__name__}.NotFoundError", "x", ())) is RecordedToolError
    assert type(rebuild_error("subprocess.SubprocessError", "x", ())) is RecordedToolError


def test_a_tool_that_was_cancelled_never_comes_back_in_a_rerun_either(
    session: AgentSession, backend: FakeBackend
) -> None:
    @session.tool
    async def forever() -> None:
        raise AssertionError("it ran")

    async def main() -> str:
        try:
            async with asyncio.timeout(0.01):
                await forever()
        except TimeoutError:
            return "timed out"
        return "went on"

    serve(backend, ServedResult(error=("asyncio.exceptions.CancelledError", "")))
    assert asyncio.run(main()) == "timed out"


def test_a_call_whose_result_is_not_recorded_cannot_be_served(
    session: AgentSession, backend: FakeBackend
) -> None:
    serve(backend, ServedResult())
    with pytest.raises(RecordError, match="no result of this call of <lambda>"):
        session.tool(lambda: 1)()
