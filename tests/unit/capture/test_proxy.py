"""Who may ask the proxy, what goes through it, and what never does."""

import asyncio
import contextlib
import gzip
import json
import socket
from typing import Any

import pytest

from redrive.capture import agent_side
from redrive.capture.ports import Outcome, SentRequest, ServedAnswer
from redrive.capture.proxy import MAX_FLOW_CHARS, Proxy
from redrive.capture.token_evidence import CHAT_EVIDENCE
from redrive.errors import StoreError, UsageError
from tests.proxying import (
    Exchange,
    MemoryBackend,
    Talk,
    ask,
    authority_of,
    body_of,
    hang_up,
    proxying,
    request,
    until,
)


async def echo(talk: Talk) -> None:
    await talk.answer(talk.body)


def exchange_with(
    raw: Any, handler: Any = echo, backend: MemoryBackend | None = None, **further: Any
) -> tuple[bytes, MemoryBackend, list[Talk]]:
    """Send one raw request; give the raw answer, what was recorded, what the upstream saw."""
    backend = backend or MemoryBackend()

    async def run() -> tuple[bytes, list[Talk]]:
        async with proxying(backend, handler, **further) as (proxy, upstream):
            data = raw(proxy) if callable(raw) else raw
            return await ask(proxy, data), upstream.talks

    answer, talks = asyncio.run(run())
    return answer, backend, talks


def code_of(raw: bytes) -> str:
    return str(json.loads(body_of(raw))["error"]["code"])


# --- who may ask ------------------------------------------------------------------------------


def test_it_listens_on_loopback_alone_and_its_url_carries_a_secret() -> None:
    async def run() -> None:
        async with (
            proxying(MemoryBackend(), echo) as (proxy, _),
            proxying(MemoryBackend(), echo) as (other, _up),
        ):
            assert proxy.url_for("m").startswith("http://127.0.0.1:")
            tokens = [p.path_for("m").split("/")[1] for p in (proxy, other)]
            assert len(set(tokens)) == 2
            assert min(map(len, tokens)) >= 32, "192 bits in base64"
            sockets = proxy._server.sockets  # type: ignore[union-attr]
            assert {s.getsockname()[0] for s in sockets} == {"127.0.0.1"}

    asyncio.run(run())


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:80", "127.0.0.1", "127.0.0.1:1", "[::1]:80", ""]
)
def test_another_host_is_refused(host: str) -> None:
    def raw(proxy: Proxy) -> bytes:
        ours = b"Host: %s:%d" % (authority_of(proxy)[0].encode(), authority_of(proxy)[1])
        return request(proxy).replace(ours, b"Host: " + host.encode())

    answer, backend, talks = exchange_with(raw)
    assert answer.startswith(b"HTTP/1.1 421 ")
    assert not backend.exchanges
    assert not talks


def test_localhost_is_us_in_any_case() -> None:
    answer, _, talks = exchange_with(
        lambda p: request(p).replace(b"Host: 127.0.0.1", b"Host: LocalHost")
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(talks) == 1


@pytest.mark.parametrize("change", ["other", "shorter", "longer", "none", "absolute", "star", "é"])
def test_a_wrong_token_is_told_nothing(change: str) -> None:
    def raw(proxy: Proxy) -> bytes:
        path = proxy.path_for("m").encode()
        token = path.split(b"/")[1]
        paths = {
            "other": b"/" + b"A" * len(token) + b"/m",
            "shorter": b"/" + token[:-1] + b"/m",
            "longer": b"/" + token + b"A/m",
            "none": b"//m",
            "absolute": b"http://attacker.example" + path,
            "star": b"*",
            "é": b"/%C3%A9/m",
        }
        return request(proxy).replace(path + b"/v1/x", paths[change], 1)

    answer, backend, talks = exchange_with(raw)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert body_of(answer) == b""
    assert not backend.exchanges
    assert not talks


def test_a_stranger_cannot_make_it_take_a_body() -> None:
    def raw(proxy: Proxy) -> bytes:
        head = request(proxy, body=b"").replace(proxy.path_for("m").encode(), b"/wrong/m")
        return head.replace(
            b"\r\n\r\n", b"\r\nContent-Length: 999999\r\nExpect: 100-continue\r\n\r\n"
        )

    answer, _, _ = exchange_with(raw)
    assert answer.startswith(b"HTTP/1.1 404 "), "and no 100 before it"


@pytest.mark.parametrize(
    ("site", "status"),
    [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)],
)
def test_a_page_of_another_site_may_not_ask(site: str, status: int) -> None:
    headers = [b"Sec-Fetch-Site: " + site.encode()]
    answer, _, talks = exchange_with(lambda proxy: request(proxy, headers=headers))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert len(talks) == (status == 200)


def test_our_own_answers_allow_no_other_origin_and_show_no_trace() -> None:
    answer, _, _ = exchange_with(
        lambda p: request(p, headers=[b"Origin: http://x"]).replace(b"/m/", b"/n/")
    )
    assert code_of(answer) == "unknown_upstream"
    assert b"access-control" not in answer.lower()
    assert b"x-content-type-options: nosniff" in answer
    assert b"Traceback" not in answer
    assert b".py" not in answer


def test_a_websocket_is_refused_in_the_way_that_makes_clients_use_http() -> None:
    upgrade = [b"Upgrade: WebSocket", b"Sec-WebSocket-Version: 13"]
    answer, backend, talks = exchange_with(
        lambda proxy: request(proxy, method="GET", body=b"", headers=upgrade)
    )
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert code_of(answer) == "no_websocket"
    assert not backend.exchanges
    assert not talks


@pytest.mark.parametrize("name", ["redrive", "", "a/b", "A", "-x", "a b"])
def test_an_upstream_has_a_name_that_fits_a_url(name: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        Proxy(MemoryBackend(), {name: "http://127.0.0.1"})  # type: ignore[arg-type]


# --- what goes through ------------------------------------------------------------------------


def test_method_path_query_and_body_go_through_as_they_are() -> None:
    body = "é\x00".encode() + bytes(range(256))
    answer, backend, talks = exchange_with(
        lambda proxy: request(proxy, "/a%2Fb/../c?x=1&y=%20/z", "PUT", body), path="/base"
    )
    assert body_of(answer) == body
    (talk,) = talks
    assert talk.head.startswith(b"PUT /base/a%2Fb/../c?x=1&y=%20/z HTTP/1.1\r\n")
    assert talk.body == body
    sent = backend.only.request
    assert sent.method == "PUT"
    assert sent.url.endswith("/base/a%2Fb/../c?x=1&y=%20/z")
    assert proxy_token_absent(sent)
    assert sent.body == body


def proxy_token_absent(sent: SentRequest) -> bool:
    return len(max(sent.url.split("/"), key=len)) < 32


@pytest.mark.parametrize("target", ["", "?q=a/b"])
def test_the_root_of_an_upstream_can_be_asked(target: str) -> None:
    _, _, talks = exchange_with(lambda proxy: request(proxy, target, "GET", b""))
    assert talks[0].target == b"/" + target.encode()


def test_headers_keep_their_order_and_case_and_the_hop_by_hop_ones_end_here() -> None:
    sent = [
        b"X-Zeta: 1",
        b"authorization: Bearer k",
        b"x-Twice: a",
        b"x-twice: b",
        b"Keep-Alive: timeout=5",
        b"X-Hop: 1",
        b"TE: trailers",
        b"Proxy-Authorization: Basic x",
        b"Accept-Encoding: br;q=1.0, gzip;q=0.8, *;q=0.1",
        b"Connection: X-Hop, keep-alive",
    ]
    answer, backend, talks = exchange_with(
        lambda proxy: request(proxy, headers=sent),
        lambda talk: talk.answer(b"{}", b"200 Fine", b"X-Z: 1", b"Keep-Alive: 5", b"x-a: 2"),
    )
    (talk,) = talks
    assert talk.headers == [
        (b"Host", talk.header(b"host")),
        (b"X-Zeta", b"1"),
        (b"authorization", b"Bearer k"),
        (b"x-Twice", b"a"),
        (b"x-twice", b"b"),
        (b"Accept-Encoding", b"gzip;q=0.8"),
        (b"Content-Length", b"2"),
    ]
    assert (talk.header(b"host") or b"").startswith(b"127.0.0.1:")
    assert backend.only.request.headers == tuple(
        (name.lower().decode(), value.decode()) for name, value in talk.headers
    )
    head = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[:4] == [b"HTTP/1.1 200 Fine", b"Content-Length: 2", b"X-Z: 1", b"x-a: 2"]
    assert backend.only.headers == (
        ("content-length", "2"),
        ("x-z", "1"),
        ("keep-alive", "5"),
        ("x-a", "2"),
    )


def test_the_flow_is_taken_off_and_told() -> None:
    _, backend, talks = exchange_with(
        lambda proxy: request(proxy, headers=[b"X-Redrive-Flow:  reviewer \xc3\xa9 "])
    )
    assert backend.only.request.flow == "reviewer é"
    assert talks[0].header(b"x-redrive-flow") is None
    assert all("redrive" not in name for name, _ in backend.only.request.headers)


def test_a_flow_is_bounded_and_an_empty_one_is_none() -> None:
    _, backend, _ = exchange_with(lambda p: request(p, headers=[b"x-redrive-flow: " + b"f" * 999]))
    assert backend.only.request.flow == "f" * MAX_FLOW_CHARS
    _, backend, _ = exchange_with(lambda p: request(p, headers=[b"x-redrive-flow: "]))
    assert backend.only.request.flow is None


def test_what_another_recorder_records_is_passed_on_and_not_recorded_twice() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, echo) as (proxy, upstream):
            raw = await ask(proxy, request(proxy, headers=[b"X-Redrive-Recorded: 1"]))
            assert body_of(raw) == b"{}"
            assert upstream.talks[0].header(b"x-redrive-recorded") is None
            assert proxy.n_unrecorded == 1

    asyncio.run(run())
    assert not backend.exchanges


@pytest.mark.parametrize("body", [b"", b"x" * 70_000])
def test_a_chunked_request_goes_on_as_one_of_a_length(body: bytes) -> None:
    def raw(proxy: Proxy) -> bytes:
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:9], body[9:]) if p)
        head = request(proxy, body=b"").replace(
            b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        return head + chunks + b"0\r\nX-Trailer: lost\r\n\r\n"

    _, backend, talks = exchange_with(raw)
    assert talks[0].body == body == backend.only.request.body
    assert talks[0].header(b"content-length") == b"%d" % len(body)
    assert talks[0].header(b"transfer-encoding") is None


def test_a_compressed_request_body_is_recorded_as_it_was_sent() -> None:
    body = gzip.compress(b'{"model": "m"}')
    _, backend, talks = exchange_with(
        lambda proxy: request(proxy, body=body, headers=[b"Content-Encoding: gzip"])
    )
    assert talks[0].body == body == backend.only.request.body
    assert ("content-encoding", "gzip") in backend.only.request.headers


def test_an_agent_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, echo) as (proxy, upstream):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            raw = request(proxy, headers=[b"Expect: 100-continue"])
            head, _, body = raw.partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            line = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
            assert line.startswith(b"HTTP/1.1 100 ")
            assert not upstream.talks
            writer.write(body)
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            await hang_up(writer)
            assert upstream.talks[0].header(b"expect") is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        (b"{root}/v2?x=1", b"{base}/v2?x=1"),
        (b"{root}", b"{base}"),
        (b"/base/v2", b"{base}/v2"),
        (b"/elsewhere", b"/elsewhere"),
        (b"//other.example/base/x", b"//other.example/base/x"),
        (b"https://other.example/x", b"https://other.example/x"),
        (b"relative", b"relative"),
        (b"{root}x/y", b"{root}x/y"),
    ],
)
def test_a_redirect_on_the_upstream_stays_on_the_proxy(location: bytes, seen: bytes) -> None:
    async def run() -> None:
        async def handler(talk: Talk) -> None:
            root = b"http://" + (talk.header(b"host") or b"") + b"/base"
            value = location.replace(b"{root}", root)
            await talk.answer(b"", b"308 Permanent Redirect", b"Location: " + value)

        async with proxying(MemoryBackend(), handler, path="/base") as (proxy, upstream):
            raw = await ask(proxy, request(proxy))
            wanted = seen.replace(b"{base}", proxy.url_for("m").encode())
            wanted = wanted.replace(b"{root}", upstream.url.encode() + b"/base")
            assert b"\r\nLocation: " + wanted + b"\r\n" in raw

    asyncio.run(run())


# --- limits and malformed requests ------------------------------------------------------------


def test_a_body_over_the_cap_is_refused_whether_announced_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert agent_side.MAX_BODY_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr(agent_side, "MAX_BODY_BYTES", 1000)
    announced, backend, talks = exchange_with(lambda proxy: request(proxy, body=b"x" * 1001))
    assert announced.startswith(b"HTTP/1.1 413 ")
    assert code_of(announced) == "body_too_large"

    def chunked(proxy: Proxy) -> bytes:
        head = request(proxy, body=b"").replace(
            b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        return head + (b"200\r\n" + b"x" * 512 + b"\r\n") * 3

    unannounced, _, _ = exchange_with(chunked)
    assert unannounced.startswith(b"HTTP/1.1 413 ")
    assert not backend.exchanges
    assert not talks
    allowed, _, _ = exchange_with(lambda proxy: request(proxy, body=b"x" * 1000))
    assert allowed.startswith(b"HTTP/1.1 200 ")


def test_an_agent_still_sending_sees_why_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_side, "MAX_BODY_BYTES", 1000)
    answer, _, _ = exchange_with(lambda proxy: request(proxy, body=b"x" * (4 << 20)))
    assert answer.startswith(b"HTTP/1.1 413 ")


async def keep_sending(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(60):
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)


def test_a_refused_agent_that_never_stops_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_side, "LINGER_S", 0.05)

    async def run() -> None:
        async with proxying(MemoryBackend(), echo) as (proxy, _):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy, body=b"", is_last=False).replace(b"/m/", b"/n/"))
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404 ")
            await keep_sending(writer)
            await hang_up(writer)

    asyncio.run(run())


@pytest.mark.parametrize("is_plain", [True, False])
def test_headers_over_the_cap_are_refused(is_plain: bool) -> None:
    def raw(proxy: Proxy) -> bytes:
        return request(proxy, headers=[b"X-Big: " + b"x" * 70_000], is_last=not is_plain)

    answer, backend, _ = exchange_with(raw)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert code_of(answer) == "headers_too_large"
    assert not backend.exchanges
    endless, _, _ = exchange_with(lambda p: request(p)[:-6] + b"\r\nX-Big: " + b"x" * 70_000)
    assert endless.startswith(b"HTTP/1.1 431 ")
    fine, _, _ = exchange_with(lambda p: request(p, headers=[b"X-Big: " + b"x" * 60_000]))
    assert fine.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "line",
    [
        b"X-A: 1\rX-B: 2",
        b"X-A: 1\x00",
        b"X A: 1",
        b": 1",
        b"no colon",
        b"Content-Length: 2\r\nContent-Length: 3",
        b"Content-Length: +2",
        b"Transfer-Encoding: gzip, chunked",
        b"Host: again",
    ],
)
def test_a_request_that_could_mean_two_things_means_none(line: bytes) -> None:
    answer, backend, talks = exchange_with(lambda p: request(p, body=b"", headers=[line]))
    assert answer[:13] in (b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")
    assert code_of(answer) == "malformed_request"
    assert b"X-A" not in answer
    assert not backend.exchanges
    assert not talks


def test_a_line_break_in_an_answers_header_reaches_no_agent() -> None:
    async def handler(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 200 OK\r\nX-A: 1\rSet-Cookie: x\r\nContent-Length: 0\r\n\r\n")

    answer, backend, _ = exchange_with(request, handler)
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"Set-Cookie" not in answer
    assert backend.only.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "raw", [b"", b"\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\nHos"]
)
def test_what_is_no_request_ends_the_connection_quietly(raw: bytes) -> None:
    async def run() -> bytes:
        async with proxying(MemoryBackend(), echo) as (proxy, _):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(raw)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 60)
            await hang_up(writer)
            return answer

    answer = asyncio.run(run())
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "sent", [b"Content-Length: 9\r\n\r\nhal", b"Transfer-Encoding: chunked\r\n\r\n9\r\nhal"]
)
def test_a_request_that_breaks_off_reaches_nobody(sent: bytes) -> None:
    def head(proxy: Proxy) -> bytes:
        return request(proxy, body=b"", is_last=False)[:-2] + sent

    async def run() -> None:
        async with proxying(backend, echo) as (proxy, upstream):
            _, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(head(proxy))
            await writer.drain()
            await hang_up(writer)
            await until(lambda: not proxy._connections)
            assert not upstream.talks

    backend = MemoryBackend()
    asyncio.run(run())
    assert not backend.exchanges


# --- served, stopped, failed ------------------------------------------------------------------

SSE = ServedAnswer(
    200,
    (
        ("content-type", "text/event-stream"),
        ("transfer-encoding", "chunked"),
        ("content-length", "1"),
        ("x-request-id", "r1"),
    ),
    b"data: [DONE]\n\n",
)


@pytest.mark.parametrize("is_last", [True, False])
def test_a_served_answer_comes_from_the_record_and_asks_no_upstream(is_last: bool) -> None:
    backend = MemoryBackend(serve=lambda _: SSE, is_serving=True)

    async def run() -> None:
        async with proxying(backend, echo) as (proxy, upstream):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy, is_last=is_last))
            raw = await asyncio.wait_for(reader.readuntil(SSE.body), 60)
            assert b"content-length: 14\r\n" in raw
            assert b"x-request-id: r1" in raw
            assert b"chunked" not in raw
            await hang_up(writer)
            assert not upstream.talks

    asyncio.run(run())


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204)])
def test_a_served_answer_without_a_body_has_none(method: str, status: int) -> None:
    served = ServedAnswer(status, (("content-length", "9"),) if method == "HEAD" else (), b"")
    answer, _, _ = exchange_with(
        lambda p: request(p, method=method, body=b""), backend=MemoryBackend(serve=lambda _: served)
    )
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (b"content-length: 9" in answer) == (method == "HEAD")
    assert body_of(answer) == b""


@pytest.mark.parametrize("is_last", [True, False])
def test_a_recorded_answer_that_was_cut_is_cut_again_where_it_was(is_last: bool) -> None:
    served = ServedAnswer(200, (("content-length", "99"),), b"hal", outcome=Outcome.CUT)
    answer, _, _ = exchange_with(
        lambda p: request(p, is_last=is_last), backend=MemoryBackend(serve=lambda _: served)
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert body == b"hal"
    assert b"content-length: 4" in head


def test_where_no_answer_was_recorded_the_connection_ends_without_one() -> None:
    served = ServedAnswer(0, (), b"", outcome=Outcome.FAILED)
    answer, _, _ = exchange_with(request, backend=MemoryBackend(serve=lambda _: served))
    assert answer == b""


@pytest.mark.parametrize("headers", [[], [b"X-Redrive-Recorded: 1"]])
def test_a_rerun_never_asks_an_upstream(headers: list[bytes]) -> None:
    answer, backend, talks = exchange_with(
        lambda proxy: request(proxy, headers=headers), backend=MemoryBackend(is_serving=True)
    )
    assert code_of(answer) == "no_upstream"
    assert b"x-should-retry: false" in answer
    assert not talks
    assert backend.only.outcome is Outcome.FAILED


class Stop(BaseException):
    """As a rerun ends."""


def test_a_backend_that_stops_the_run_stops_the_agent_and_its_retries() -> None:
    answer, _, talks = exchange_with(request, backend=MemoryBackend(fault=Stop("expected: secret")))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert code_of(answer) == "run_stopped"
    assert b"x-should-retry: false" in answer
    assert b"secret" not in answer
    assert not talks


def test_a_backend_that_is_interrupted_ends_the_connection() -> None:
    answer, _, talks = exchange_with(request, backend=MemoryBackend(fault=asyncio.CancelledError()))
    assert answer == b""
    assert not talks


def test_a_backend_that_fails_does_not_stop_the_agent() -> None:
    faults: list[str] = []
    answer, _, talks = exchange_with(
        request, backend=MemoryBackend(fault=ValueError("bug")), on_fault=faults.append
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert len(talks) == 1
    assert faults == ["a request is not recorded: ValueError: bug"]


def test_faults_are_said_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    exchange_with(request, backend=MemoryBackend(fault=ValueError("bug")))
    assert capsys.readouterr().err == "redrive: a request is not recorded: ValueError: bug\n"


def test_a_recorder_that_is_fail_closed_stops_the_agent() -> None:
    faults: list[str] = []
    answer, _, talks = exchange_with(
        request, backend=MemoryBackend(fault=StoreError("disk full")), on_fault=faults.append
    )
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert code_of(answer) == "recorder_failed"
    assert not talks
    assert faults == ["a request is refused: disk full"]


@pytest.mark.parametrize("where", ["responded", "received", "finished"])
@pytest.mark.parametrize("fault", [StoreError("disk full"), ValueError("bug")])
def test_an_observer_that_fails_in_the_middle_stops_only_who_asked_for_that(
    where: str, fault: Exception
) -> None:
    faults: list[str] = []

    def fail(*_: object) -> None:
        raise fault

    def serve(asked: SentRequest) -> Any:
        exchange = Exchange(asked)
        setattr(exchange, where, fail)
        return exchange

    async def handler(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
        await asyncio.sleep(0.02)
        await talk.write(b"ab")
        await asyncio.sleep(0.02)
        await talk.write(b"cd")

    answer, _, _ = exchange_with(
        request, handler, MemoryBackend(serve=serve), on_fault=faults.append
    )
    assert len(faults) == 1
    if isinstance(fault, ValueError):
        assert body_of(answer) == b"abcd"
        return
    assert body_of(answer) != b"abcd"
    if where == "responded":
        assert code_of(answer) == "recorder_failed"
    else:
        assert answer.startswith(b"HTTP/1.1 200 OK")


def test_a_fault_of_ours_ends_one_connection_with_a_line_and_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faults: list[str] = []

    def break_down(*_: object) -> None:
        raise RuntimeError("bug")

    monkeypatch.setattr(Proxy, "_route", break_down)

    async def run() -> None:
        async with proxying(MemoryBackend(), echo, on_fault=faults.append) as (proxy, _):
            with pytest.raises(ConnectionResetError):
                await ask(proxy, request(proxy))

    asyncio.run(run())
    assert faults == ["a connection failed: RuntimeError: bug"]


# --- routes of our own ------------------------------------------------------------------------


async def double(body: bytes) -> bytes:
    return body * 2


async def fail(body: bytes) -> bytes:
    raise ValueError("secret detail")


async def refuse(body: bytes) -> bytes:
    raise UsageError("no such message")


@pytest.mark.parametrize(
    ("path", "method", "status", "body"),
    [
        ("/mcp/call", "POST", 200, b"{}{}"),
        ("/mcp/call", "GET", 405, None),
        ("/mcp", "POST", 404, None),
        ("", "POST", 404, None),
        ("/fail", "POST", 500, None),
        ("/refuse", "POST", 400, None),
    ],
)
def test_control_routes_take_posts_below_the_token(
    path: str, method: str, status: int, body: bytes | None
) -> None:
    faults: list[str] = []
    control = {"mcp/call": double, "fail": fail, "refuse": refuse}

    def raw(proxy: Proxy) -> bytes:
        ours = proxy.path_for("redrive") + path
        return request(proxy, "", method).replace(proxy.path_for("m").encode(), ours.encode())

    answer, backend, talks = exchange_with(raw, control=control, on_fault=faults.append)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert body is None or body_of(answer) == body
    assert b"secret" not in answer
    assert len(faults) == (status == 500)
    assert not backend.exchanges
    assert not talks


def test_control_routes_need_the_token_too() -> None:
    def raw(proxy: Proxy) -> bytes:
        return request(proxy, "").replace(proxy.path_for("m").encode(), b"/redrive/mcp/call")

    answer, _, _ = exchange_with(raw, control={"mcp/call": double})
    assert answer.startswith(b"HTTP/1.1 404 ")


def test_an_agent_that_left_before_its_turn_reaches_no_upstream() -> None:
    backend = MemoryBackend()

    async def slow(body: bytes) -> bytes:
        await asyncio.sleep(0.05)
        return body

    async def run() -> None:
        async with proxying(backend, echo, control={"slow": slow}) as (proxy, upstream):
            _, writer = await asyncio.open_connection(*authority_of(proxy))
            ours = (proxy.path_for("redrive") + "/slow").encode()
            first = request(proxy, "", is_last=False)
            writer.write(first.replace(proxy.path_for("m").encode(), ours) + request(proxy))
            writer.write_eof()
            await until(lambda: backend.exchanges)
            await hang_up(writer)
            assert not upstream.talks

    asyncio.run(run())
    assert backend.only.outcome is Outcome.CANCELLED


# --- token evidence ---------------------------------------------------------------------------


@pytest.mark.parametrize("evidence", [(), CHAT_EVIDENCE])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_token_evidence_is_asked_for_where_it_is_allowed_and_recorded(
    evidence: tuple[str, ...], path: str
) -> None:
    body = b'{"model": "m",  "n": 1e0}'
    _, backend, talks = exchange_with(
        lambda proxy: request(proxy, path, body=body), token_evidence=evidence
    )
    is_added = bool(evidence) and path.endswith("completions")
    sent = backend.only.request
    assert sent.added == (("logprobs",) if is_added else ())
    assert sent.body == talks[0].body == (body[:-1] + b',"logprobs":true}' if is_added else body)
    assert talks[0].header(b"content-length") == b"%d" % len(sent.body)
    assert ("content-length", str(len(sent.body))) in sent.headers


# --- sockets from elsewhere, and the end ------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"), [(b"127.0.0.1:9", 200), (b"localhost", 200), (b"a", 421)]
)
def test_a_connected_socket_is_served_whatever_its_port(host: bytes, status: int) -> None:
    async def run() -> None:
        async with proxying(MemoryBackend(), echo) as (proxy, _):
            ours, theirs = socket.socketpair()
            await proxy.serve_connection(theirs)
            reader, writer = await asyncio.open_connection(sock=ours)
            named = b"Host: %s:%d" % (authority_of(proxy)[0].encode(), authority_of(proxy)[1])
            writer.write(request(proxy).replace(named, b"Host: " + host))
            raw = await asyncio.wait_for(reader.read(), 60)
            assert raw.startswith(b"HTTP/1.1 %d " % status)
            await hang_up(writer)

    asyncio.run(run())


def test_a_proxy_that_does_not_listen_serves_passed_sockets() -> None:
    async def run() -> None:
        proxy = Proxy(MemoryBackend(serve=lambda _: SSE), {"m": "http://127.0.0.1:1"})  # type: ignore[arg-type]
        ours, theirs = socket.socketpair()
        await proxy.serve_connection(theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        path = proxy.path_for("m").encode()
        writer.write(b"POST %s/x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path)
        assert (await reader.readuntil(SSE.body)).startswith(b"HTTP/1.1 200 ")
        await proxy.close()
        assert await reader.read() == b""
        await hang_up(writer)

    asyncio.run(run())


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_closing_tells_every_open_exchange_that_it_was_cut(version: str) -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.begin()
        await talk.chunk(b"first")
        await talk.reader.read()

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy, version=version, is_last=False))
            await reader.readuntil(b"first")
            await proxy.close()
            await proxy.close()
            if version == "1.1":
                assert b"0\r\n\r\n" not in await asyncio.wait_for(reader.read(), 60)
            else:
                with pytest.raises(ConnectionResetError):
                    await asyncio.wait_for(reader.read(), 60)
            await hang_up(writer)
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(*authority_of(proxy))

    asyncio.run(run())
    assert (backend.only.outcome, backend.only.ends) == (Outcome.CUT, 1)
    assert "stopped" in backend.only.message


def test_an_agent_that_just_left_is_told_of_as_what_it_did_even_while_closing() -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.begin()
        await talk.chunk(b"first")
        await talk.reader.read()

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy))
            await reader.readuntil(b"first")
            writer.transport.abort()
            await proxy.close()
            await hang_up(writer)

    asyncio.run(run())
    assert backend.only.outcome is Outcome.CANCELLED
