"""Connections to upstreams: which addresses, which certificates, which are used again."""

import asyncio
import ssl
from pathlib import Path

import pytest

from redrive.capture import upstream as module
from redrive.capture.ports import Outcome
from redrive.capture.proxy import Proxy
from redrive.capture.upstream import Upstream, UpstreamPool, failure_of, parse_upstream
from redrive.errors import UsageError
from tests.proxying import (
    MemoryBackend,
    Talk,
    ask,
    body_of,
    hang_up,
    proxying,
    request,
    serving,
    until,
)

# A certificate for 127.0.0.1, made for these tests and trusted by nobody else, and its key.
PEM = Path(__file__).parent / "loopback.pem"


async def echo(talk: Talk) -> None:
    await talk.answer(talk.body)


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        (
            "https://api.openai.com",
            Upstream("https://api.openai.com", "api.openai.com", 443, True, "api.openai.com", ""),
        ),
        (
            "http://[::1]:8080/v1/",
            Upstream("http://[::1]:8080/v1", "::1", 8080, False, "[::1]:8080", "/v1"),
        ),
    ],
)
def test_a_base_url_says_where_and_how(url: str, parsed: Upstream) -> None:
    assert parse_upstream(url) == parsed


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a",
        "a.example/v1",
        "http://",
        "http://a:port",
        "http://a:99999",
        "http://user:pass@a",
        "http://a/?key=x",
        "http://a/#x",
        "http://a/b c",
        "http://a/é",
        "http://a/\x00",
    ],
)
def test_a_url_that_is_none_or_says_too_much_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_upstream(url)
    assert "pass" not in str(caught.value)


def test_a_certificate_is_verified_and_one_that_is_not_trusted_refused() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(PEM)
    trusting = ssl.create_default_context(cafile=str(PEM))
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, echo, tls=server, ssl_context=trusting) as (proxy, upstream):
            for body in (b"one", b"two"):
                assert body_of(await ask(proxy, request(proxy, body=body))) == body
            assert upstream.n_connections == 1
        async with proxying(backend, echo, tls=server) as (proxy, upstream):
            raw = await ask(proxy, request(proxy))
            assert raw.startswith(b"HTTP/1.1 502 ")
            assert b"certificate not accepted" in raw
            assert not upstream.talks

    asyncio.run(run())
    outcomes = [exchange.outcome for exchange in backend.exchanges]
    assert outcomes == [Outcome.COMPLETE, Outcome.COMPLETE, Outcome.FAILED]


def test_ssl_cert_file_names_who_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(PEM)
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))

    async def run() -> None:
        async with proxying(MemoryBackend(), echo, tls=server) as (proxy, _):
            assert body_of(await ask(proxy, request(proxy))) == b"{}"

    asyncio.run(run())


def test_the_name_in_a_certificate_has_to_be_the_hosts() -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(PEM)
    trusting = ssl.create_default_context(cafile=str(PEM))

    async def run() -> None:
        async with serving(echo, server) as upstream:
            port = upstream.url.rpartition(":")[2]
            proxy = Proxy(MemoryBackend(), {"m": f"https://localhost:{port}"}, ssl_context=trusting)  # type: ignore[arg-type]
            await proxy.start()
            raw = await ask(proxy, request(proxy))
            assert raw.startswith(b"HTTP/1.1 502 ")
            await proxy.close()

    asyncio.run(run())


def test_a_server_that_speaks_no_tls_is_named_as_such() -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await hang_up(writer)

    async def run() -> None:
        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        proxy = Proxy(MemoryBackend(), {"m": f"https://127.0.0.1:{port}"})  # type: ignore[arg-type]
        await proxy.start()
        raw = await ask(proxy, request(proxy))
        assert b"TLS failed: " in raw
        await proxy.close()
        server.close()

    asyncio.run(run())


def test_a_kept_connection_that_its_server_closed_is_not_used() -> None:
    async def once(talk: Talk) -> None:
        await talk.answer(talk.body)
        talk.writer.close()

    async def run() -> None:
        async with proxying(MemoryBackend(), once) as (proxy, upstream):
            for body in (b"one", b"two"):
                assert body_of(await ask(proxy, request(proxy, body=body))) == body
                await asyncio.sleep(0.02)
            assert upstream.n_connections == 2

    asyncio.run(run())


def test_a_connection_that_lay_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with proxying(MemoryBackend(), echo) as (proxy, upstream):
            await ask(proxy, request(proxy))
            monkeypatch.setattr(module, "MAX_IDLE_S", -1.0)
            await ask(proxy, request(proxy))
            assert upstream.n_connections == 2

    asyncio.run(run())


def test_no_more_connections_are_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IDLE", 2)

    all_are_there = asyncio.Barrier(4)

    async def slow(talk: Talk) -> None:
        await all_are_there.wait()
        await talk.answer(talk.body)

    async def run() -> None:
        async with proxying(MemoryBackend(), slow) as (proxy, upstream):
            await asyncio.gather(*(ask(proxy, request(proxy)) for _ in range(4)))
            assert upstream.n_connections == 4
            await until(lambda: upstream.n_open == 2)

    asyncio.run(run())


def test_a_connection_lost_just_before_its_use_is_a_failure_and_not_tried_again() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, echo) as (proxy, upstream):
            await ask(proxy, request(proxy))
            (idle,) = proxy._pool._idle.values()
            acquire = UpstreamPool.acquire

            async def losing(pool: UpstreamPool, target: Upstream) -> object:
                connection = await acquire(pool, target)
                connection.wire.abort()
                return connection

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(UpstreamPool, "acquire", losing)
                assert await ask(proxy, request(proxy)) == b""
            assert len(upstream.talks) == 1
            assert not idle

    asyncio.run(run())
    assert backend.exchanges[1].outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (TimeoutError(), "TimeoutError"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version"), "TLS failed: SSLError"),
    ],
)
def test_a_failure_is_said_in_a_few_words(error: OSError, words: str) -> None:
    assert failure_of(error) == words
