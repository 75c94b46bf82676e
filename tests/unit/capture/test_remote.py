"""A backend in another process is as one here: what it is told, serves, and how it is lost."""

import asyncio
import contextvars
import gc
import json
import math
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec import UNSET, Raw

from redrive.capture import remote_line
from redrive.capture.ports import Outcome, SentRequest, ServedAnswer, ServedResult
from redrive.capture.proxy import Proxy
from redrive.capture.proxy_thread import ProxyThread
from redrive.capture.remote import RemoteBackend
from redrive.capture.remote_serving import serve_remote
from redrive.capture.tool_recording import ReportedResult
from redrive.errors import RerunStopped, StoreError, UsageError
from redrive.record.event import Event, Kind, ToolPermission, payload_of, raw_value
from tests.ports import held_port
from tests.recorded import Recorded, asks, chat_answer, chat_body, said
from tests.remote_backend import ControlServer, listening
from tests.small_http import SmallServer


@contextmanager
def recording(**options: Any) -> Iterator[tuple[Recorded, RemoteBackend, ControlServer]]:
    """Give a recorder, an agent's side of it over HTTP, and what carries it."""
    recorded = Recorded(**options)
    server = ControlServer(recorded.backend)
    with listening(server) as url:
        yield recorded, RemoteBackend(url), server
    assert recorded.faults == []
    assert set(server.statuses) <= {200}


@contextmanager
def served_by(backend: Any, **options: Any) -> Iterator[RemoteBackend]:
    with listening(ControlServer(backend)) as url:
        yield RemoteBackend(url, **options)


def brief(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.kind.value, event.actor) for event in events]


def exchange(backend: Any, body: bytes, answer: bytes) -> None:
    observer = backend.sent(
        SentRequest("POST", "https://api.example/v1/chat/completions", (), body, 1)
    )
    observer.responded(200, (("content-type", "application/json"),), 2)
    for place in range(0, len(answer), 7):
        observer.received(answer[place : place + 7])
    observer.finished(Outcome.COMPLETE, 3)


def session(backend: Any) -> None:
    """Do what an agent does: asks twice, calls a tool, reads clock and dice, derives."""
    question = said("user", "what?")
    call = asks("c1", "look", '{"at":1}')
    exchange(backend, chat_body(question), chat_answer("", call))
    observer = backend.begin_call("look", "read_only", Raw(b'{"at":1}'), is_unsafe=False)
    observer.returned(Raw(b'{"big":18446744073709551617,"x":"\\ud800"}'))
    backend.begin_call("own", "unsafe", Raw(b"{}"), is_unsafe=True).raised(
        "ValueError", "bad \ud800"
    )
    backend.begin_call("odd", "pure", Raw(b"[]"), is_unsafe=False).returned_unknown("set")
    failed = backend.begin_call("mcp", "pure", Raw(b"[]"), is_unsafe=False, seam="mcp")
    failed.returned(Raw(b'{"isError":true}'), is_error=True)
    backend.note("hook.Stop", {"input": Raw(b'{"a":1e400}'), "n": 1}, "c1", is_durable=True)
    backend.add_event(Kind.TOOL_PERMISSION, ToolPermission("denied", reason="\ud800"), "c1")
    backend.report_result(ReportedResult(None, "seen", Raw(b"{}"), Raw(b'"r"'), "error"), "hook")
    assert backend.derive("set", "g", "1", Raw(b"[]"), lambda: UNSET) is UNSET
    assert backend.read(Kind.CLOCK_READ, "time.time()", lambda: 0.30000000000000004) == (
        0.30000000000000004
    )
    assert backend.read(Kind.PRNG_READ, "random.choice(['\ud800'])", lambda: None) is None
    assert backend.derive("sum", "f", None, Raw(b"[1]"), lambda: 2**70) == 2**70
    more = (question, {"role": "assistant", "content": "", "tool_calls": [call]})
    exchange(backend, chat_body(*more, said("tool", "x", tool_call_id="c1")), chat_answer("done"))


def everything(recorded: Recorded) -> list[tuple[Any, ...]]:
    return [
        (
            e.id,
            e.kind,
            e.node_id,
            e.parent_id,
            e.actor,
            e.call_id,
            e.group,
            e.source,
            bytes(e.payload),
        )
        for e in recorded.sink.events
    ]


# --- recording ---------------------------------------------------------------------------------
def test_a_session_is_recorded_as_if_the_recorder_were_here():
    here = Recorded()
    session(here.backend)
    with recording() as (there, backend, server):
        assert not backend.is_serving
        session(backend)
    assert everything(there) == everything(here)
    assert there.sink.artefacts == here.sink.artefacts
    assert server.n_connections == 1


def test_a_session_is_recorded_through_the_recording_proxy():
    here, there = Recorded(), Recorded()
    session(here.backend)
    proxy = Proxy(there.backend, control=serve_remote(there.backend))
    with ProxyThread(proxy) as running:
        session(RemoteBackend(running.url_for("redrive")))
    assert everything(there) == everything(here)


def test_a_message_that_is_larger_than_the_proxy_takes_is_told_and_the_rest_goes_on(monkeypatch):
    monkeypatch.setattr("redrive.capture.remote.MAX_MESSAGE_BYTES", 1000)
    told: list[str] = []
    with recording() as (recorded, backend, _):
        backend = RemoteBackend(backend._line.url, fails_open=True, on_fault=told.append)
        assert backend.read(Kind.CLOCK_READ, "now", lambda: "x" * 2000) == "x" * 2000
        assert backend.read(Kind.CLOCK_READ, "now", lambda: 5) == 5
    assert len(told) == 1
    assert "bytes is too large for read" in told[0]
    assert [raw_value(payload_of(e).value) for e in recorded.sink.of_kind(Kind.CLOCK_READ)] == [5]


def test_an_unsafe_call_is_durable_before_it_runs():
    with recording() as (recorded, backend, _):
        observer = backend.begin_call("drop", "unsafe", Raw(b"{}"), is_unsafe=True)
        assert recorded.sink.n_flushed == len(recorded.sink.events) > 1
        observer.returned(Raw(b"null"))


def test_a_large_answer_is_told_in_pieces_and_kept_whole():
    answer = chat_answer("x" * 1_500_000)
    with recording() as (recorded, backend, server):
        exchange_whole(backend, chat_body(said("user", "q")), answer)
    assert answer in recorded.sink.artefacts
    n_pieces = sum(path.endswith("/response") for _, path, _ in server.seen)
    assert len(answer) // (256 * 1024) <= n_pieces <= 16


def exchange_whole(backend: Any, body: bytes, answer: bytes) -> None:
    observer = backend.sent(
        SentRequest("POST", "https://api.example/v1/chat/completions", (), body, 1)
    )
    observer.responded(200, (), 2)
    for place in range(0, len(answer), 65_536):
        observer.received(answer[place : place + 65_536])
    observer.finished(Outcome.COMPLETE, 3)


def test_an_exchange_that_failed_is_recorded_as_that():
    with recording() as (recorded, backend, _):
        request = SentRequest("POST", "https://api.example/v1/chat/completions", (), chat_body(), 1)
        observer = backend.sent(request)
        observer.finished(Outcome.FAILED, 3, "ConnectError")
        observer.finished(Outcome.COMPLETE, 4)
    (error,) = recorded.sink.of_kind(Kind.MODEL_ERROR)
    assert payload_of(error).wire.outcome == "failed"


# --- flows -------------------------------------------------------------------------------------
def ask(backend: Any, who: str) -> None:
    body = chat_body(said("system", f"you are {who}"), said("user", who))
    exchange(backend, body, chat_answer(f"{who} answers"))


def flows_of(work: Any) -> list[list[tuple[str, str]]]:
    """Do the same work with a recorder here and one there; give what each recorded."""
    here = Recorded()
    # In a context of its own, as the agent there has one.
    contextvars.copy_context().run(work, here.backend)
    with recording() as (there, backend, _):
        contextvars.copy_context().run(work, backend)
    return [sorted(brief(recorded.sink.events)) for recorded in (here, there)]


def test_a_named_flow_is_entered_and_left():
    def work(backend):
        ask(backend, "main")
        token = backend.enter_flow("researcher")
        ask(backend, "researcher")
        backend.read(Kind.CLOCK_READ, "now", lambda: 1)
        inner = backend.enter_flow("writer")
        ask(backend, "writer")
        backend.leave_flow(inner)
        backend.read(Kind.CLOCK_READ, "now", lambda: 2)
        backend.leave_flow(token)
        backend.read(Kind.CLOCK_READ, "now", lambda: 3)

    here, there = flows_of(work)
    assert here == there
    assert ("clock.read", "main") in there
    assert there.count(("clock.read", "researcher")) == 2
    assert ("model.request", "writer") in there


def test_three_threads_at_once_are_three_flows():
    def work(backend):
        ask(backend, "main")
        barrier = threading.Barrier(3)

        def one(name):
            barrier.wait()
            backend.read(Kind.CLOCK_READ, name, lambda: name)
            ask(backend, name)
            barrier.wait()
            ask(backend, f"{name} again")

        threads = [threading.Thread(target=one, args=(f"t{n}",)) for n in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    here, there = flows_of(work)
    assert here == there
    assert len({actor for _, actor in there}) == 4


def test_tasks_inherit_the_flow_that_they_were_started_in():
    def work(backend):
        async def sub(name):
            await asyncio.sleep(0)
            ask(backend, name)
            await asyncio.sleep(0)
            backend.read(Kind.PRNG_READ, name, lambda: 1)

        async def main():
            ask(backend, "main")
            token = backend.enter_flow("team")
            ask(backend, "lead")
            await asyncio.gather(*(sub(f"s{n}") for n in range(3)))
            backend.leave_flow(token)
            await asyncio.create_task(sub("late"))

        asyncio.run(main())

    here, there = flows_of(work)
    assert here == there
    assert ("model.request", "team") in there


def test_another_process_is_a_flow_of_its_own():
    child = """
        import sys
        from redrive.capture.remote import RemoteBackend
        from tests.unit.capture.test_remote import ask
        ask(RemoteBackend(sys.argv[1]), "child")
    """
    with recording() as (recorded, backend, _):
        ask(backend, "main")
        command = [sys.executable, "-c", textwrap.dedent(child)]
        subprocess.run([*command, backend._line.url], check=True, cwd=os.getcwd())
        ask(backend, "main")
    actors = [event.actor for event in recorded.sink.of_kind(Kind.MODEL_REQUEST)]
    assert actors[0] == actors[2] == "main"
    assert actors[1] != "main"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_use_its_parents_connection():
    with recording() as (recorded, backend, server):
        backend.read(Kind.CLOCK_READ, "parent", lambda: 1)
        child = os.fork()
        if child == 0:
            try:
                backend.read(Kind.CLOCK_READ, "child", lambda: 2)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        backend.read(Kind.CLOCK_READ, "parent", lambda: 3)
        recorded.backend.end(None)
    assert server.n_connections == 2
    assert len(recorded.sink.of_kind(Kind.CLOCK_READ)) == 3


# --- serving -----------------------------------------------------------------------------------
class Serving:
    """Serves what a test puts there; fails where the real thing would be asked."""

    is_serving = True

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.value: Any = None
        self.call = ServedResult(Raw(b"[1]"))
        self.stop: BaseException | None = None
        self.computed: list[Any] = []

    def _meet(self, *asked: Any) -> None:
        self.asked.append(asked)
        if self.stop is not None:
            raise self.stop

    def sent(self, request):
        self._meet(request)
        return ServedAnswer(200, (("a", "b"), ("a", "c")), b"\x00\xff")

    def read(self, kind, name, take):
        self._meet(kind, name)
        return self.value

    def derive(self, name, function, version, inputs, compute):
        self._meet(name, function, version, inputs)
        try:
            self.computed.append(compute())
        except Exception as error:  # noqa: BLE001 - as the backend that serves does
            self.computed.append((type(error).__name__, str(error)))
        return self.value

    def begin_call(self, tool, effect, arguments, *, is_unsafe, seam="tool"):
        self._meet(tool, effect, arguments, is_unsafe, seam)
        return self.call

    def enter_flow(self, name):
        self._meet(name)

    def leave_flow(self, token):
        self._meet(token)


def refuse() -> Any:
    raise AssertionError("the real thing was asked")


@pytest.mark.parametrize("value", [None, 0, "", "\ud800", 2**64, 0.1, [1, {"a": None}], True])
def test_a_served_value_comes_as_it_was_and_nothing_real_is_asked(value):
    serving = Serving()
    serving.value = value
    with served_by(serving) as backend:
        assert backend.is_serving
        for got in (
            backend.read(Kind.PRNG_READ, "random()", refuse),
            backend.derive("n", "f", "1", Raw(b"[]"), lambda: 1),
        ):
            assert (got, type(got)) == (value, type(value))
    assert serving.asked == [
        (Kind.PRNG_READ, "random()"),
        ("n", "f", "1", Raw(b"[]")),
    ]


def test_an_answer_is_served():
    serving = Serving()
    request = SentRequest("POST", "https://x/?q=1", (("h", "v"),), b"\xff{}", 5, "flow", ("seed",))
    with served_by(serving) as backend:
        assert backend.sent(request) == ServedAnswer(200, (("a", "b"), ("a", "c")), b"\x00\xff")
    assert serving.asked == [(request,)]


@pytest.mark.parametrize(
    "result",
    [ServedResult(Raw(b"null")), ServedResult(error=("KeyError", "'\ud800'")), ServedResult()],
)
def test_a_result_is_served(result):
    serving = Serving()
    serving.call = result
    with served_by(serving) as backend:
        got = backend.begin_call(
            "t", "pure", Raw(b'{"a":1e999}'[:5] + b"1}"), is_unsafe=True, seam="mcp"
        )
    assert got == result
    assert serving.asked == [("t", "pure", Raw(b'{"a":1}'), True, "mcp")]


class RudeError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("compute", "computed"),
    [
        (lambda: 2**64, 2**64),
        (lambda: None, None),
        (lambda: UNSET, UNSET),
        (lambda: {}["\ud800"], ("KeyError", "'\ud800'" if False else "'\\ud800'")),
        (lambda: (_ for _ in ()).throw(RudeError), ("RudeError", "")),
    ],
)
def test_a_rerun_is_told_what_was_computed_again(compute, computed):
    serving = Serving()
    serving.value = "recorded"
    with served_by(serving) as backend:
        assert backend.derive("n", "f", "1", Raw(b"[]"), compute) == "recorded"
    assert serving.computed == [computed]


def test_what_raises_while_it_is_recorded_is_raised_and_not_recorded():
    with recording() as (recorded, backend, _):
        for act in (
            lambda: backend.derive("n", "f", None, Raw(b"[]"), lambda: 1 / 0),
            lambda: backend.read(Kind.CLOCK_READ, "now", lambda: 1 / 0),
        ):
            with pytest.raises(ZeroDivisionError):
                act()
    assert {event.kind for event in recorded.sink.events} <= {Kind.SESSION_STARTED}


def test_a_rerun_never_becomes_a_real_run_however_it_was_opened():
    serving = Serving()
    serving.value = 1
    with served_by(serving, fails_open=True) as backend:
        assert backend.read(Kind.CLOCK_READ, "now", refuse) == 1
    for _ in range(2):
        with pytest.raises(RerunStopped, match="the recorder is lost"):
            backend.begin_call("t", "unsafe", Raw(b"{}"), is_unsafe=True)


def test_a_served_session_is_not_written_to():
    with served_by(Serving()) as backend:
        backend.note("n", {})
        backend.add_event(Kind.TOOL_PERMISSION, ToolPermission("allowed"), "c")
        backend.report_result(ReportedResult(None, "t", Raw(b"{}"), Raw(b"1")), "hook")


def test_a_stop_of_the_rerun_reaches_the_agent_past_its_except():
    serving = Serving()
    serving.stop = RerunStopped("at step 3: expected \ud800")
    with served_by(serving) as backend:
        for act in (
            lambda: backend.read(Kind.CLOCK_READ, "now", refuse),
            lambda: backend.derive("n", "f", None, Raw(b"[]"), lambda: 1),
            lambda: backend.begin_call("t", "pure", Raw(b"{}"), is_unsafe=False),
            lambda: backend.sent(SentRequest("GET", "u", (), b"", 1)),
            lambda: backend.enter_flow("f"),
        ):
            with pytest.raises(RerunStopped, match="at step 3: expected \ud800") as caught:
                act()
            assert not isinstance(caught.value, Exception)


def test_a_recorder_that_is_fail_closed_stops_the_agent():
    with recording() as (recorded, backend, _):
        recorded.sink.error = StoreError("the disk is full")
        with pytest.raises(StoreError, match="the disk is full"):
            backend.read(Kind.CLOCK_READ, "now", lambda: 1)


def test_a_line_in_a_cycle_is_closed_without_a_warning_whatever_is_collected_first():
    with socket.create_server(("127.0.0.1", 0)) as server:
        older = [socket.create_connection(server.getsockname())]
        accepted, _ = server.accept()
        with accepted, pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "create_connection", lambda *_: older.pop())
            connection: Any = remote_line._Connection("127.0.0.1", server.getsockname()[1])
            connection.connect()
            connection.itself = connection
            patch.undo()
            del connection
            gc.collect()
            assert accepted.recv(1) == b""


# --- how it is lost ----------------------------------------------------------------------------
@pytest.fixture
def closed_url() -> Iterator[str]:
    with held_port() as port:
        yield f"http://127.0.0.1:{port}/t/redrive"


def test_a_recorder_that_is_lost_raises_what_its_user_asked_for(closed_url):
    backend = RemoteBackend(closed_url, lost=StoreError)
    with pytest.raises(StoreError, match="the recorder is lost: ConnectionRefusedError"):
        backend.begin_call("t", "unsafe", Raw(b"{}"), is_unsafe=True)


def test_a_rerun_whose_server_is_lost_does_not_become_a_real_run(closed_url):
    backend = RemoteBackend(closed_url)
    for act in (
        lambda: backend.is_serving,
        lambda: backend.read(Kind.CLOCK_READ, "now", refuse),
        lambda: backend.begin_call("t", "unsafe", Raw(b"{}"), is_unsafe=True),
        lambda: backend.sent(SentRequest("GET", "u", (), b"", 1)),
    ):
        with pytest.raises(RerunStopped, match="the recorder is lost: ConnectionRefusedError"):
            act()


def test_an_agent_whose_recorder_is_lost_goes_on_and_is_told_once(closed_url):
    told: list[str] = []
    backend = RemoteBackend(closed_url, fails_open=True, on_fault=told.append)
    assert backend.read(Kind.CLOCK_READ, "now", lambda: 7) == 7
    assert backend.derive("n", "f", None, Raw(b"[]"), lambda: 8) == 8
    exchange(backend, b"{}", b"{}")
    call = backend.begin_call("t", "unsafe", Raw(b"{}"), is_unsafe=True)
    call.returned(Raw(b"1"))
    backend.leave_flow(backend.enter_flow("f"))
    assert len(told) == 1
    assert backend.fault == told[0]
    assert told[0].startswith("the recorder is lost: ConnectionRefusedError")


def test_a_lost_recorder_is_told_on_stderr(capsys, closed_url):
    RemoteBackend(closed_url, fails_open=True).enter_flow("f")
    assert capsys.readouterr().err.startswith("redrive: the recorder is lost")


@pytest.mark.parametrize(
    ("status", "answer", "why"),
    [
        (500, b"no\nroom", "status 500: no room"),
        (404, b"", "status 404"),
        (200, b"garbage", "malformed"),
        (200, b'{"value": 5}', "Expected `bytes"),
        (200, b"{}", "answered without a value"),
    ],
)
def test_an_answer_that_is_none_is_no_answer(status, answer, why):
    async def respond(method, path, body):
        if path.endswith("hello"):
            return 200, b'{"is_serving":true}'
        return status, answer

    with listening(SmallServer(respond)) as url, pytest.raises(RerunStopped, match=why):
        RemoteBackend(url).read(Kind.CLOCK_READ, "now", refuse)


def test_a_value_without_json_form_is_given_to_the_agent_and_told():
    told: list[str] = []
    with recording() as (recorded, backend, _):
        backend._on_fault = told.append
        assert backend.read(Kind.CLOCK_READ, "now", lambda: math.inf) == math.inf
        backend.note("n", {"a": object()})
        assert backend.read(Kind.CLOCK_READ, "now", lambda: 5) == 5
    assert told == ["not recorded: read of what has no JSON form: inf is not JSON"]
    assert [raw_value(payload_of(e).value) for e in recorded.sink.of_kind(Kind.CLOCK_READ)] == [5]


def test_a_connection_that_the_server_ended_is_made_anew():
    serving = Serving()
    serving.value = 1
    server = ControlServer(serving)
    original = server._answer_one

    async def answer_one_only(reader, writer):
        await original(reader, writer)
        return False

    server._answer_one = answer_one_only
    with listening(server) as url:
        backend = RemoteBackend(url)
        assert [backend.read(Kind.CLOCK_READ, "now", refuse) for _ in range(20)] == 20 * [1]
    assert len(serving.asked) == 20


def test_a_message_that_comes_again_is_done_once():
    with recording() as (recorded, backend, server):
        original, n = server._control, [0]

        async def lose_answer(method, path, body):
            n[0] += 1
            answer = await original(method, path, body)
            if n[0] == 3:
                raise ConnectionResetError
            return answer

        server._respond = lose_answer
        for value in range(5):
            backend.read(Kind.CLOCK_READ, "now", lambda value=value: value)
    values = [raw_value(payload_of(e).value) for e in recorded.sink.of_kind(Kind.CLOCK_READ)]
    assert values == [0, 1, 2, 3, 4]
    assert server.n_connections == 2


def test_each_thread_has_one_connection():
    with recording() as (_, backend, server):

        def work():
            for _ in range(10):
                backend.read(Kind.CLOCK_READ, "now", lambda: 1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert server.n_connections == 4


def test_a_proxy_of_the_environment_is_not_used(monkeypatch, closed_url):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, closed_url)
    with recording() as (_, backend, _server):
        assert backend.read(Kind.CLOCK_READ, "now", lambda: 1) == 1


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:1/x",
        "http://example.org:80/x",
        "http://127.0.0.1/x",
        "http://10.0.0.1:80/x",
        "ftp://127.0.0.1:1/x",
        "",
    ],
)
def test_a_url_that_leads_elsewhere_is_refused(url):
    with pytest.raises(UsageError, match="loopback"):
        RemoteBackend(url)


def test_the_port_of_backends_is_kept():
    with recording() as (_, backend, _server):
        answer: Any = backend.begin_call("t", "pure", Raw(b"{}"), is_unsafe=False)
        assert not isinstance(answer, ServedResult)
        answer.returned(Raw(json.dumps([1]).encode()))
    assert ServedResult().result is UNSET


def test_a_recorder_that_has_no_address_is_reached_by_what_connects_to_it() -> None:
    recorded = Recorded()
    server = ControlServer(recorded.backend)
    opened: list[socket.socket] = []
    with listening(server) as url:
        parts = urlsplit(url)
        there = (parts.hostname or "", parts.port or 0)

        def connect() -> socket.socket:
            opened.append(socket.create_connection(there))
            return opened[-1]

        remote = RemoteBackend(f"http://127.0.0.1:1{parts.path}", connect=connect)
        assert remote.read(Kind.CLOCK_READ, "now", lambda: 5) == 5
        assert remote.here()[0].thread == remote.here()[0].thread
        opened[0].close()
    assert [event.kind for event in recorded.sink.events][-1] is Kind.CLOCK_READ
