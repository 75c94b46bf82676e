import asyncio
import gzip
import hashlib
import importlib
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redrive.capture import transports
from redrive.capture.ports import Outcome, ServedAnswer
from redrive.capture.route import Route
from redrive.capture.session import AgentSession
from redrive.errors import UsageError
from tests.fake_backend import FakeBackend
from tests.loopback_server import Answer, LoopbackServer
from tests.proxying import cancel_when

SSE = (("content-type", "text/event-stream"),)
# Two characters of several bytes, one of them outside the BMP, and three JSON escapes.
EVENTS = 'data: {"text":"é😀\\u00e9\\n\\ud83d\\ude00"}\n\n'.encode()
SECRET = "sk-live-9f8e7d6c5b4a"

both = pytest.mark.parametrize("library", ["httpx2", "httpx"])


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def module_of(library: str) -> Any:
    return importlib.import_module(library)


def refuse_network(library: str) -> Any:
    """Give an inner transport that fails the test when it is used."""

    def fail(_: object) -> Any:
        raise AssertionError("the network was touched")

    return module_of(library).MockTransport(fail)


def slices(library: str, chunks: list[bytes], *, is_async: bool = False) -> Any:
    """Give an inner transport whose answer's stream consists of exactly these chunks."""
    module = module_of(library)

    class Sync(module.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            yield from chunks

    class Async(module.AsyncByteStream):  # type: ignore[misc]
        async def __aiter__(self) -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

    stream = Async() if is_async else Sync()
    return module.MockTransport(lambda _: module.Response(200, headers=SSE, stream=stream))


# --- what the backend is told --------------------------------------------------------------------


@both
def test_request_and_answer_are_told_exactly(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    loopback.answers = [
        Answer((b'{"a"', b":1}"), 201, (("X-Served-By", "é"), ("x-n", "1"), ("x-n", "2")))
    ]
    body = '{ "a" : 0.30000000000000004,\n "b":"é \\ud83d" }'.encode()
    with session.http_client(library=library) as client:
        answer = client.post(
            f"{loopback.url}/v1/x?q=1", content=body, headers={"Authorization": SECRET}
        )
    assert (answer.status_code, answer.content) == (201, b'{"a":1}')
    (seen,) = backend.exchanges
    assert (seen.request.method, seen.request.url) == ("POST", f"{loopback.url}/v1/x?q=1")
    assert seen.request.body == loopback.received[0].body == body
    assert ("authorization", SECRET) in seen.request.headers
    assert transports.RECORDED_HEADER not in loopback.received[0].headers
    assert (seen.status, seen.body, seen.ends) == (201, b'{"a":1}', [(Outcome.COMPLETE, "")])
    assert [value for name, value in seen.headers if name == "x-n"] == ["1", "2"]


@both
def test_the_async_client_is_told_alike(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    loopback.answers = [Answer((b"{", b"}"))]

    async def main() -> Any:
        async with session.async_http_client(library=library) as client:
            return await client.post(f"{loopback.url}/v1/x", json={"a": 1})

    assert asyncio.run(main()).content == b"{}"
    (seen,) = backend.exchanges
    assert seen.request.body == loopback.received[0].body
    assert (seen.status, seen.body, seen.outcome) == (200, b"{}", Outcome.COMPLETE)


@both
def test_a_streamed_request_is_told_and_sent_in_full(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    def parts() -> Iterator[bytes]:
        yield b"one "
        yield b"two"

    async def async_parts() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    async def main() -> None:
        async with session.async_http_client(library=library) as client:
            await client.post(loopback.url, content=async_parts())

    loopback.answers = [Answer(), Answer()]
    with session.http_client(library=library) as client:
        client.post(loopback.url, content=parts())
    asyncio.run(main())
    assert [one.body for one in loopback.received] == [b"one two"] * 2
    assert [one.request.body for one in backend.exchanges] == [b"one two"] * 2
    assert loopback.received[0].headers["transfer-encoding"] == "chunked"


@both
def test_compressed_answers_are_told_as_they_came_and_decoded_for_the_agent(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    data = gzip.compress(b"{}" * 50)
    loopback.answers = [Answer((data,), headers=(("content-encoding", "gzip"),), length=len(data))]
    with session.http_client(library=library) as client:
        assert client.get(loopback.url).content == b"{}" * 50
    assert backend.exchanges[0].body == data
    assert ("content-encoding", "gzip") in backend.exchanges[0].headers
    serve(backend, ServedAnswer(200, backend.exchanges[0].headers, data))
    with session.http_client(library=library) as client:
        assert client.get(loopback.url).content == b"{}" * 50


@both
def test_each_hop_of_a_redirect_is_an_exchange(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    loopback.answers = [Answer((), 307, (("location", "/there"),), length=0), Answer()]
    with session.http_client(library=library) as client:
        assert client.post(f"{loopback.url}/here", content=b"x").status_code == 200
    assert [one.request.url for one in backend.exchanges] == [
        f"{loopback.url}/here",
        f"{loopback.url}/there",
    ]
    assert [one.outcome for one in backend.exchanges] == [Outcome.COMPLETE] * 2


@both
def test_sse_is_told_byte_for_byte_wherever_a_chunk_ends(
    session: AgentSession, backend: FakeBackend, library: str
) -> None:
    for position in range(len(EVENTS) + 1):
        chunks = [EVENTS[:position], EVENTS[position:]]
        transport = session.transport(slices(library, chunks), library=library)
        with (
            module_of(library).Client(transport=transport) as client,
            client.stream("POST", "http://x/") as answer,
        ):
            assert sha256(b"".join(answer.iter_raw())) == sha256(EVENTS)
        seen = backend.exchanges[-1]
        assert sha256(seen.body) == sha256(EVENTS)
        assert (seen.chunks, seen.outcome) == (chunks, Outcome.COMPLETE)


@both
def test_async_sse_is_told_byte_for_byte_wherever_a_chunk_ends(
    session: AgentSession, backend: FakeBackend, library: str
) -> None:
    async def main() -> None:
        for position in range(len(EVENTS) + 1):
            chunks = [EVENTS[:position], EVENTS[position:]]
            inner = slices(library, chunks, is_async=True)
            transport = session.async_transport(inner, library=library)
            async with (
                module_of(library).AsyncClient(transport=transport) as client,
                client.stream("POST", "http://x/") as answer,
            ):
                assert b"".join([part async for part in answer.aiter_raw()]) == EVENTS
            seen = backend.exchanges[-1]
            assert sha256(seen.body) == sha256(EVENTS)
            assert (seen.chunks, seen.outcome) == (chunks, Outcome.COMPLETE)

    asyncio.run(main())


@both
def test_an_answer_that_an_inner_transport_has_read_is_told_in_full(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    module = module_of(library)

    class Reading(module.BaseTransport):  # type: ignore[misc]
        def __init__(self) -> None:
            self.inner = module.HTTPTransport()

        def handle_request(self, request: Any) -> Any:
            answer = self.inner.handle_request(request)
            answer.read()
            return answer

        def close(self) -> None:
            self.inner.close()

    loopback.answers = [Answer((b"[1,", b"2]"))]
    with module.Client(transport=session.transport(Reading(), library=library)) as client:
        assert client.get(loopback.url).json() == [1, 2]
    made = module.MockTransport(lambda _: module.Response(200, json=[3]))
    with module.Client(transport=session.transport(made, library=library)) as client:
        assert client.get(loopback.url).json() == [3]
    assert [one.body for one in backend.exchanges] == [b"[1,2]", b"[3]"]
    assert [one.outcome for one in backend.exchanges] == [Outcome.COMPLETE] * 2


# --- how an exchange ends ------------------------------------------------------------------------


@both
def test_no_connection_is_a_failure_told_by_the_errors_class_alone(
    session: AgentSession, backend: FakeBackend, library: str
) -> None:
    module = module_of(library)

    async def main() -> None:
        async with session.async_http_client(library=library) as client:
            await client.get(f"http://user:{SECRET}@127.0.0.1:1/")

    with session.http_client(library=library) as client, pytest.raises(module.ConnectError):
        client.get(f"http://user:{SECRET}@127.0.0.1:1/")
    with pytest.raises(module.ConnectError):
        asyncio.run(main())
    for seen in backend.exchanges:
        assert (seen.status, seen.ends) == (None, [(Outcome.FAILED, "ConnectError")])


@both
def test_an_answer_that_the_server_cuts_is_told_as_far_as_it_came(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    module = module_of(library)

    async def main() -> None:
        async with session.async_http_client(library=library) as client:
            await client.get(loopback.url)

    loopback.answers = [Answer((b"half",), is_cut=True), Answer((b"half",), length=9)]
    with (
        session.http_client(library=library) as client,
        pytest.raises(module.RemoteProtocolError),
    ):
        client.get(loopback.url)
    with pytest.raises(module.RemoteProtocolError):
        asyncio.run(main())
    for seen in backend.exchanges:
        assert seen.body == b"half"
        assert seen.ends == [(Outcome.CUT, "RemoteProtocolError")]


@both
def test_the_agents_own_time_out_is_told_by_its_name(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    module = module_of(library)

    def ask(timeout_s: float) -> None:
        with session.http_client(library=library, timeout=timeout_s) as client:
            client.get(loopback.url)

    def ask_async(timeout_s: float) -> None:
        async def main() -> None:
            async with session.async_http_client(library=library, timeout=timeout_s) as client:
                await client.get(loopback.url)

        asyncio.run(main())

    for asked in (ask, ask_async):
        for timeout_s in (0.1, 1, 10):  # more, where the machine takes that long to begin
            loopback.answers = [Answer((b"a", b"b"), n_before=1)]
            with pytest.raises(module.TimeoutException) as caught:
                asked(timeout_s)
            if backend.exchanges[-1].body:
                break
        assert caught.type is module.ReadTimeout
        seen = backend.exchanges[-1]
        assert (seen.body, seen.ends) == (b"a", [(Outcome.CANCELLED, "ReadTimeout")])


@both
@pytest.mark.parametrize("n_read", [0, 1])
def test_an_answer_closed_before_its_end_is_cancelled(
    session: AgentSession,
    backend: FakeBackend,
    loopback: LoopbackServer,
    library: str,
    n_read: int,
) -> None:
    loopback.answers = [Answer((b"a", b"b"), headers=SSE, n_before=1)] * 2

    async def main() -> None:
        async with (
            session.async_http_client(library=library) as client,
            client.stream("GET", loopback.url) as answer,
        ):
            if n_read:
                assert [await anext(answer.aiter_raw())] == [b"a"]

    with (
        session.http_client(library=library) as client,
        client.stream("GET", loopback.url) as answer,
    ):
        if n_read:
            assert next(answer.iter_raw()) == b"a"
    asyncio.run(main())
    for seen in backend.exchanges:
        assert (seen.chunks, seen.ends) == ([b"a"] * n_read, [(Outcome.CANCELLED, "")])


@both
def test_a_cancelled_task_cancels_its_exchange_before_and_within_the_answer(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    loopback.answers = [Answer((b"a", b"b"), n_before=1), Answer((b"a", b"b"), n_before=1)]

    async def hang(request: Any) -> Any:
        await asyncio.sleep(60)

    async def main() -> None:
        async with session.async_http_client(library=library) as client:
            begun = lambda: backend.exchanges and backend.exchanges[0].status  # noqa: E731
            await cancel_when(begun, client.get(loopback.url))
        transport = session.async_transport(module_of(library).MockTransport(hang), library=library)
        async with module_of(library).AsyncClient(transport=transport) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.get(loopback.url)

    asyncio.run(main())
    within, before = backend.exchanges
    assert (within.status, within.ends) == (200, [(Outcome.CANCELLED, "CancelledError")])
    assert (before.status, before.ends) == (None, [(Outcome.CANCELLED, "CancelledError")])


@both
def test_a_stream_closed_by_another_thread_ends_once(
    session: AgentSession, backend: FakeBackend, library: str
) -> None:
    inner = slices(library, [b"a"] * 200)
    with (
        module_of(library).Client(transport=session.transport(inner, library=library)) as client,
        client.stream("GET", "http://x/") as answer,
    ):
        threads = [threading.Thread(target=answer.stream.close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(backend.exchanges[0].ends) == 1


@both
@pytest.mark.parametrize(
    ("tail", "outcome"),
    [
        (b"data: [DONE]\n\n", Outcome.COMPLETE),
        (b"data:[DONE]\r\n\r\n", Outcome.COMPLETE),
        (b"data: [DONE]", Outcome.CANCELLED),
        (b'data: {"x":"data: [DONE]\n\n', Outcome.CANCELLED),
        (b"data: [DONE]\n\ndata: more\n\n", Outcome.CANCELLED),
    ],
)
def test_closed_after_the_last_event_is_complete(
    session: AgentSession, backend: FakeBackend, library: str, tail: bytes, outcome: Outcome
) -> None:
    body = b"data: {}\n\n" + tail
    inner = slices(library, [body[index : index + 1] for index in range(len(body))] + [b"never"])
    with (
        module_of(library).Client(transport=session.transport(inner, library=library)) as client,
        client.stream("POST", "http://x/") as answer,
    ):
        raw = answer.iter_raw()
        for _ in body:
            next(raw)
    assert (backend.exchanges[0].body, backend.exchanges[0].outcome) == (body, outcome)


@both
@pytest.mark.parametrize(
    ("method", "status", "length", "n_read", "outcome"),
    [
        ("GET", 200, "3", 3, Outcome.COMPLETE),
        ("GET", 200, "4", 3, Outcome.CANCELLED),
        ("GET", 200, "²", 3, Outcome.CANCELLED),
        ("GET", 200, "0", 0, Outcome.COMPLETE),
        ("GET", 204, "", 0, Outcome.COMPLETE),
        ("GET", 304, "9", 0, Outcome.COMPLETE),
        ("HEAD", 200, "9", 0, Outcome.COMPLETE),
    ],
)
def test_closed_when_the_announced_length_is_there_is_complete(
    session: AgentSession,
    backend: FakeBackend,
    library: str,
    method: str,
    status: int,
    length: str,
    n_read: int,
    outcome: Outcome,
) -> None:
    module = module_of(library)
    headers = [(b"content-length", length.encode())] if length else []

    class Endless(module.SyncByteStream):  # type: ignore[misc]
        def __iter__(self) -> Iterator[bytes]:
            while True:
                yield b"a"

    def answer_to(_: object) -> Any:
        return module.Response(status, headers=headers, stream=Endless())

    transport = session.transport(module.MockTransport(answer_to), library=library)
    with module.Client(transport=transport) as client, client.stream(method, "http://x/") as answer:
        raw = answer.iter_raw()
        for _ in range(n_read):
            next(raw)
    assert backend.exchanges[0].outcome is outcome


# --- through our proxy ---------------------------------------------------------------------------


@both
def test_what_goes_through_our_proxy_is_marked_for_it_and_told_by_its_real_url(
    backend: FakeBackend, loopback: LoopbackServer, library: str
) -> None:
    route = Route(
        f"{loopback.url}/t0ken", ((f"{loopback.url}/t0ken/openai", "https://api.openai.com"),)
    )
    session = AgentSession(backend, route=route)
    loopback.answers = [Answer()] * 3

    async def main() -> None:
        async with session.async_http_client(library=library) as client:
            await client.post(f"{loopback.url}/t0ken/openai/v1", content=b"x")

    with session.http_client(library=library) as client:
        proxied = client.post(f"{loopback.url}/t0ken/openai/v1", content=b"x")
        client.post(f"{loopback.url}/elsewhere", content=b"x")
    asyncio.run(main())
    name = transports.RECORDED_HEADER
    assert [one.headers.get(name) for one in loopback.received] == ["1", None, "1"]
    assert [one.body for one in loopback.received] == [b"x"] * 3
    assert name not in proxied.request.headers, "the agent looks at its own request"
    assert [one.request.url for one in backend.exchanges] == [
        "https://api.openai.com/v1",
        f"{loopback.url}/elsewhere",
        "https://api.openai.com/v1",
    ]
    for seen in backend.exchanges:
        assert name not in dict(seen.request.headers)


# --- serving -------------------------------------------------------------------------------------


def serve(backend: FakeBackend, *answers: ServedAnswer) -> None:
    backend.is_serving = True
    backend.answers = list(answers)


@both
def test_a_served_answer_does_not_touch_the_network(
    session: AgentSession, backend: FakeBackend, library: str
) -> None:
    module = module_of(library)
    inner = refuse_network(library)
    answer = ServedAnswer(201, (("content-type", "application/json"), ("x-é", "é")), b'{"a":1}')
    serve(backend, answer, answer)

    async def main() -> Any:
        transport = session.async_transport(inner, library=library)
        async with module.AsyncClient(transport=transport) as client:
            return await client.post("http://x/", json=1)

    with module.Client(transport=session.transport(inner, library=library)) as client:
        served = client.post("http://x/", json=1)
    for got in (served, asyncio.run(main())):
        assert (got.status_code, got.json(), got.headers["x-é"]) == (201, {"a": 1}, "é")
    assert [one.body for one in backend.asked] == [b"1", b"1"]


@both
@pytest.mark.parametrize(
    ("name", "raised"),
    [
        ("ConnectError", "ConnectError"),
        ("ReadTimeout", "ReadTimeout"),
        ("SSLError", "RemoteProtocolError"),
        ("Client", "RemoteProtocolError"),
        ("", "RemoteProtocolError"),
    ],
)
def test_a_recorded_failure_fails_again_in_the_librarys_own_way(
    session: AgentSession, backend: FakeBackend, library: str, name: str, raised: str
) -> None:
    module = module_of(library)
    inner = refuse_network(library)
    failed = ServedAnswer(0, (), b"", Outcome.FAILED, name)
    serve(backend, failed, failed)

    async def main() -> None:
        transport = session.async_transport(inner, library=library)
        async with module.AsyncClient(transport=transport) as client:
            await client.get("http://x/")

    with (
        module.Client(transport=session.transport(inner, library=library)) as client,
        pytest.raises(getattr(module, raised)),
    ):
        client.get("http://x/")
    with pytest.raises(getattr(module, raised)):
        asyncio.run(main())


@both
@pytest.mark.parametrize("outcome", [Outcome.CUT, Outcome.CANCELLED])
def test_half_an_answer_is_served_as_half_and_ends_in_an_error(
    session: AgentSession, backend: FakeBackend, library: str, outcome: Outcome
) -> None:
    module = module_of(library)
    inner = refuse_network(library)
    half = ServedAnswer(200, SSE, b"half", outcome, "ReadError")
    serve(backend, half, half, half)

    async def main() -> None:
        transport = session.async_transport(inner, library=library)
        async with (
            module.AsyncClient(transport=transport) as client,
            client.stream("GET", "http://x/") as answer,
        ):
            parts = answer.aiter_raw()
            assert await anext(parts) == b"half"
            with pytest.raises(module.ReadError):
                await anext(parts)

    with module.Client(transport=session.transport(inner, library=library)) as client:
        with client.stream("GET", "http://x/") as answer:
            parts = answer.iter_raw()
            assert next(parts) == b"half"
            with pytest.raises(module.ReadError):
                next(parts)
        with client.stream("GET", "http://x/") as answer:
            assert next(answer.iter_raw()) == b"half", "an agent that closes again sees no error"
    asyncio.run(main())


@both
@pytest.mark.parametrize("status", [0, 200])
def test_an_await_that_was_cancelled_waits_in_a_rerun_for_the_agents_own_time_out(
    session: AgentSession, backend: FakeBackend, library: str, status: int
) -> None:
    module = module_of(library)
    serve(backend, ServedAnswer(status, (), b"a", Outcome.CANCELLED, "CancelledError"))

    async def main() -> str:
        transport = session.async_transport(refuse_network(library), library=library)
        async with module.AsyncClient(transport=transport) as client:
            try:
                async with asyncio.timeout(0.05):
                    await client.get("http://x/")
            except TimeoutError:
                return "timed out"
        return "went on"

    assert asyncio.run(main()) == "timed out"


def test_a_stop_of_the_backend_passes_through_before_anything_is_sent(
    session: AgentSession, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(BaseException):
        pass

    def stop(_: object) -> Any:
        raise Stopped

    monkeypatch.setattr(backend, "sent", stop)
    module = module_of("httpx2")
    with (
        module.Client(transport=session.transport(refuse_network("httpx2"))) as client,
        pytest.raises(Stopped),
    ):
        client.get("http://x/")


# --- refusals and options ------------------------------------------------------------------------


def test_unknown_and_missing_libraries_are_refused(
    session: AgentSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="no transport for 'requests'") as caught:
        session.transport(library="requests")
    assert caught.value.hint == "one of httpx2, httpx"
    transports._get_library.cache_clear()

    def fail(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(transports.importlib, "import_module", fail)
    with pytest.raises(UsageError, match="httpx2 is not installed") as caught:
        session.http_client()
    assert caught.value.hint == "pip install 'redrive[http]'"


def test_an_inner_transport_of_the_other_library_is_refused(session: AgentSession) -> None:
    inner = refuse_network("httpx")
    with pytest.raises(UsageError, match=r"MockTransport is no httpx2\.BaseTransport"):
        session.transport(inner)
    with pytest.raises(UsageError, match=r"is no httpx2\.AsyncBaseTransport"):
        session.async_transport(inner)


@both
def test_a_clients_own_options_and_the_proxies_of_the_environment_hold(
    session: AgentSession,
    backend: FakeBackend,
    loopback: LoopbackServer,
    library: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", loopback.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    loopback.answers = [Answer(), Answer(), Answer()]

    async def main() -> None:
        async with session.async_http_client(library=library) as client:
            await client.get("http://model.invalid/v1")

    with session.http_client(library=library, timeout=7.0, follow_redirects=False) as client:
        assert client.timeout.read == 7.0
        assert not client.follow_redirects
        client.get("http://model.invalid/v1")
        client.get(f"{loopback.url}/direct")
    asyncio.run(main())
    assert [one.path for one in loopback.received] == [
        "http://model.invalid/v1",
        "/direct",
        "http://model.invalid/v1",
    ]
    assert [one.request.url for one in backend.exchanges] == [
        "http://model.invalid/v1",
        f"{loopback.url}/direct",
        "http://model.invalid/v1",
    ]


@both
def test_a_transport_opens_and_closes_the_one_inside(session: AgentSession, library: str) -> None:
    module = module_of(library)
    seen: list[str] = []

    class Noting(module.BaseTransport, module.AsyncBaseTransport):  # type: ignore[misc]
        def close(self) -> None:
            seen.append("close")

        async def aclose(self) -> None:
            seen.append("aclose")

    module.Client(transport=session.transport(Noting(), library=library)).close()
    with module.Client(transport=session.transport(Noting(), library=library)):
        pass

    async def main() -> None:
        transport = session.async_transport(Noting(), library=library)
        await module.AsyncClient(transport=transport).aclose()
        async with module.AsyncClient(transport=session.async_transport(Noting(), library=library)):
            pass

    asyncio.run(main())
    assert seen == ["close", "close", "aclose", "aclose"]
    with module.Client(transport=session.transport(library=library)):
        pass


def test_importing_the_transports_imports_no_http_library() -> None:
    code = "import sys, redrive.capture.session; print({'httpx','httpx2'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "set()\n"
