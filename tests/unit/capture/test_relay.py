"""What the agent sees and what is recorded are the bytes that the upstream sent."""

import asyncio
import contextlib
import gzip
import hashlib
import json
import socket
import struct
from typing import Any

import pytest
import zstandard

from redrive.capture.ports import Outcome
from redrive.capture.wire import HIGH_BYTES
from tests.proxying import (
    Exchange,
    MemoryBackend,
    Talk,
    ask,
    authority_of,
    body_of,
    chunk,
    hang_up,
    proxying,
    request,
    until,
)

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
# Two, three and four bytes; escapes of one and two code units, a short one, a quoted quote.
SPELLED = 'é€😀 \\u00e9\\ud83d\\ude00\\n\\"'
TEXT = json.loads(f'"{SPELLED}"')


def openai_stream() -> bytes:
    begin = (
        '{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
    )
    pieces = [
        begin + f'"delta":{{"role":"assistant","content":"{SPELLED}"}},"finish_reason":null}}]}}',
        begin + '"delta":{},"finish_reason":"stop"}]}',
        "[DONE]",
    ]
    return "".join(f"data: {piece}\n\n" for piece in pieces).encode()


def anthropic_stream() -> bytes:
    message = (
        '{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],'
        '"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1}}'
    )
    pieces = {
        "message_start": f'{{"type":"message_start","message":{message}}}',
        "content_block_start": '{"type":"content_block_start","index":0,'
        '"content_block":{"type":"text","text":""}}',
        "content_block_delta": '{"type":"content_block_delta","index":0,'
        f'"delta":{{"type":"text_delta","text":"{SPELLED}"}}}}',
        "content_block_stop": '{"type":"content_block_stop","index":0}',
        "message_delta": '{"type":"message_delta","delta":{"stop_reason":"end_turn",'
        '"stop_sequence":null},"usage":{"output_tokens":9}}',
        "message_stop": '{"type":"message_stop"}',
    }
    return "".join(f"event: {name}\ndata: {data}\n\n" for name, data in pieces.items()).encode()


STREAMS = {CHAT: openai_stream(), MESSAGES: anthropic_stream()}


def positions(stream: bytes) -> range:
    """Every boundary from before the spelled text's first byte to behind its last."""
    spelled = SPELLED.encode()
    start = stream.index(spelled)
    return range(start, start + len(spelled) + 1)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def splitting(backend: MemoryBackend, ats: list[int], *, framing: str) -> Any:
    """Answer each request with its stream, in two pieces that the proxy must see one by one."""

    async def handler(talk: Talk) -> None:
        stream = STREAMS[talk.target.decode()]
        at = ats.pop(0)
        exchange = backend.exchanges[-1]
        if framing == "one chunk":
            await talk.begin(b"Content-Type: text/event-stream")
            whole = chunk(stream)
            ahead = whole.index(b"\r\n") + 2 + at
            first, second = whole[:ahead], whole[ahead:] + b"0\r\n\r\n"
        elif framing == "two chunks":
            await talk.begin(b"Content-Type: text/event-stream")
            first, second = chunk(stream[:at]), chunk(stream[at:]) + b"0\r\n\r\n"
        else:
            length = b"Content-Length: %d" % len(stream)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + length
            first, second = head + b"\r\n\r\n" + stream[:at], stream[at:]
        await talk.write(first)
        await until(lambda: len(exchange.body) >= at)
        await talk.write(second)

    return handler


FRAMINGS = ("one chunk", "two chunks", "a length")


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("path", STREAMS)
def test_a_stream_is_passed_and_recorded_as_sent_wherever_it_is_cut(
    path: str, framing: str
) -> None:
    stream, backend = STREAMS[path], MemoryBackend()
    ats = list(positions(stream))

    async def run() -> None:
        async with proxying(backend, splitting(backend, list(ats), framing=framing)) as (proxy, _):
            for _at in ats:
                raw = await ask(proxy, request(proxy, path))
                assert sha(body_of(raw)) == sha(stream)

    asyncio.run(run())
    assert len(backend.exchanges) == len(ats) > 30
    for exchange, at in zip(backend.exchanges, ats, strict=True):
        assert sha(exchange.body) == sha(stream)
        assert b"".join(exchange.chunks[:-1]) == stream[:at], "the boundary was there"
        assert (exchange.outcome, exchange.ends) == (Outcome.COMPLETE, 1)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_openai_sdk_reads_a_stream_through_the_proxy_wherever_it_is_cut(framing: str) -> None:
    openai = pytest.importorskip("openai")
    stream, backend = STREAMS[CHAT], MemoryBackend()
    ats = list(positions(stream))

    async def run() -> None:
        handler = splitting(backend, list(ats), framing=framing)
        async with (
            proxying(backend, handler) as (proxy, _),
            openai.AsyncOpenAI(base_url=proxy.url_for("m") + "/v1", api_key="k") as client,
        ):
            for _at in ats:
                asked: dict[str, Any] = {"model": "m", "messages": [], "stream": True}
                parts = [
                    part.choices[0].delta.content or ""
                    async for part in await client.chat.completions.create(**asked)
                ]
                assert "".join(parts) == TEXT

    asyncio.run(run())
    assert {sha(exchange.body) for exchange in backend.exchanges} == {sha(stream)}
    assert {exchange.outcome for exchange in backend.exchanges} == {Outcome.COMPLETE}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_anthropic_sdk_reads_a_stream_through_the_proxy_wherever_it_is_cut(
    framing: str,
) -> None:
    anthropic = pytest.importorskip("anthropic")
    stream, backend = STREAMS[MESSAGES], MemoryBackend()
    ats = list(positions(stream))

    async def run() -> None:
        handler = splitting(backend, list(ats), framing=framing)
        async with (
            proxying(backend, handler) as (proxy, _),
            anthropic.AsyncAnthropic(base_url=proxy.url_for("m"), api_key="k") as client,
        ):
            for _at in ats:
                question = {"role": "user", "content": "?"}
                asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [question]}
                async with client.messages.stream(**asked) as answer:
                    assert await answer.get_final_text() == TEXT

    asyncio.run(run())
    assert {sha(exchange.body) for exchange in backend.exchanges} == {sha(stream)}


def test_a_stream_in_single_bytes_is_passed_byte_by_byte() -> None:
    stream, backend = STREAMS[CHAT], MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.begin()
        await talk.write(*(chunk(stream[at : at + 1]) for at in range(len(stream))))
        await talk.write(b"0\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            assert body_of(await ask(proxy, request(proxy, CHAT))) == stream

    asyncio.run(run())
    assert backend.only.chunks == [stream[at : at + 1] for at in range(len(stream))]


def test_each_piece_reaches_the_agent_before_the_next_is_sent() -> None:
    backend = MemoryBackend()
    seen = asyncio.Event()

    async def handler(talk: Talk) -> None:
        await talk.begin()
        await talk.chunk(b"first")
        await asyncio.wait_for(seen.wait(), 60)
        await talk.write(b"0\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy))
            assert (await asyncio.wait_for(reader.readuntil(b"first"), 60)).endswith(b"first")
            assert backend.only.outcome is None
            seen.set()
            await reader.read()
            await hang_up(writer)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("coding", "encode"),
    [(b"gzip", gzip.compress), (b"zstd", zstandard.ZstdCompressor().compress)],
)
def test_an_encoded_answer_stays_encoded(coding: bytes, encode: Any) -> None:
    backend, body = MemoryBackend(), encode(b'{"a": 1}' * 50)

    async def run() -> None:
        async def handler(talk: Talk) -> None:
            await talk.answer(body, b"200 OK", b"Content-Encoding: " + coding)

        async with proxying(backend, handler) as (proxy, _):
            raw = await ask(proxy, request(proxy))
            assert body_of(raw) == body
            assert b"Content-Encoding: " + coding in raw

    asyncio.run(run())
    assert backend.only.body == body
    assert ("content-encoding", coding.decode()) in backend.only.headers


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"429 Too Many Requests", b"503 Busy"])
def test_an_error_of_the_upstream_is_passed_on_and_complete(status: bytes) -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.answer(b'{"error": {}}', status, b"Retry-After: 7")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            raw = await ask(proxy, request(proxy))
            assert raw.startswith(b"HTTP/1.1 " + status + b"\r\n")
            assert b"Retry-After: 7" in raw

    asyncio.run(run())
    assert (backend.only.status, backend.only.outcome) == (int(status[:3]), Outcome.COMPLETE)


async def _cut(talk: Talk, *pieces: bytes) -> None:
    await talk.write(*pieces)
    await asyncio.sleep(0.02)
    raise ConnectionResetError  # the fake upstream closes


HALF = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(b"whole") + b"9\r\nhal"


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize(
    ("pieces", "body"),
    [
        ((HALF,), b"wholehal"),
        ((HALF[:-3],), b"whole"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal",), b"hal"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"hal"), b"hal"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n",), b""),
    ],
)
def test_an_answer_that_is_cut_is_cut_for_the_agent_too(
    pieces: tuple[bytes, ...], body: bytes, version: str
) -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, lambda talk: _cut(talk, *pieces)) as (proxy, upstream):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy, version=version))
            if version == "1.1":
                raw = await asyncio.wait_for(reader.read(), 60)
                head, _, rest = raw.partition(b"\r\n\r\n")
                assert body_of(raw) == body
                assert not rest.endswith(b"0\r\n\r\n"), "no end is made up"
                assert b"hunked" in head or b"Content-Length: 9" in head
            else:
                # The end of the connection would be the end of the body: it has to be an error.
                with pytest.raises(ConnectionResetError):
                    await asyncio.wait_for(reader.read(), 60)
            await hang_up(writer)
            assert upstream.n_connections == 1, "nothing is sent again"

    asyncio.run(run())
    exchange = backend.only
    assert (exchange.outcome, exchange.ends, exchange.body) == (Outcome.CUT, 1, body)
    assert exchange.status == 200
    assert exchange.message


def test_an_upstream_that_closes_without_an_answer_closes_for_the_agent() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, lambda talk: _cut(talk)) as (proxy, upstream):
            assert await ask(proxy, request(proxy)) == b""
            assert upstream.n_connections == 1

    asyncio.run(run())
    assert (backend.only.outcome, backend.only.status) == (Outcome.FAILED, 0)


def test_what_is_no_http_is_said_to_be_none() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        secret = b"SSH-2.0-sk-secret\r\n\r\n"
        async with proxying(backend, lambda talk: _cut(talk, secret)) as (proxy, _):
            raw = await ask(proxy, request(proxy))
            assert raw.startswith(b"HTTP/1.1 502 ")
            assert json.loads(body_of(raw))["error"]["code"] == "upstream_malformed"
            assert b"secret" not in raw

    asyncio.run(run())
    assert backend.only.outcome is Outcome.FAILED
    assert "secret" not in backend.only.message


def test_an_upstream_that_cannot_be_reached_is_said_to_be_so_by_us() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, lambda talk: talk.answer(b"")) as (proxy, _):
            proxy.add_upstreams({"m": "http://127.0.0.1:1/v1"})
            raw = await ask(proxy, request(proxy))
            assert raw.startswith(b"HTTP/1.1 502 ")
            error = json.loads(body_of(raw))["error"]
            assert error["type"] == "redrive_proxy"
            assert error["code"] == "upstream_unreachable"
            assert "redrive's recording proxy" in error["message"]
            assert "127.0.0.1:1" in error["message"]

    asyncio.run(run())
    assert (backend.only.outcome, backend.only.ends) == (Outcome.FAILED, 1)
    assert "127.0.0.1:1" in backend.only.message


@pytest.mark.parametrize("when", ["before the answer", "within the answer"])
def test_an_agent_that_hangs_up_takes_the_upstream_with_it(when: str) -> None:
    backend = MemoryBackend()
    gone = asyncio.Event()

    async def handler(talk: Talk) -> None:
        if when == "within the answer":
            await talk.begin()
            await talk.chunk(b"first")
        assert await talk.reader.read() == b"", "the proxy closed"
        gone.set()

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, upstream):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy, is_last=False))
            if when == "within the answer":
                await reader.readuntil(b"first")
            else:
                await until(lambda: upstream.talks)
            await hang_up(writer)
            await asyncio.wait_for(gone.wait(), 60)
            await until(lambda: backend.only.outcome)

    asyncio.run(run())
    assert (backend.only.outcome, backend.only.ends) == (Outcome.CANCELLED, 1)
    assert backend.only.body == (b"first" if when == "within the answer" else b"")


def test_an_agent_that_left_before_its_request_went_out_reaches_no_upstream() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, lambda talk: talk.answer(b"")) as (proxy, upstream):
            _, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy))
            writer.write_eof()
            await until(lambda: backend.exchanges and backend.only.outcome)
            await hang_up(writer)
            assert not upstream.talks

    asyncio.run(run())
    assert backend.only.outcome is Outcome.CANCELLED


def test_an_sdk_that_closes_its_stream_is_recorded_as_cancelled() -> None:
    openai = pytest.importorskip("openai")
    backend, stream = MemoryBackend(), STREAMS[CHAT]

    async def handler(talk: Talk) -> None:
        await talk.begin(b"Content-Type: text/event-stream")
        await talk.chunk(stream[: stream.index(b"\n\n") + 2])
        await talk.reader.read()

    async def run() -> None:
        async with (
            proxying(backend, handler) as (proxy, _),
            openai.AsyncOpenAI(base_url=proxy.url_for("m") + "/v1", api_key="k") as client,
        ):
            asked: dict[str, Any] = {"model": "m", "messages": [], "stream": True}
            answer = await client.chat.completions.create(**asked)
            async for part in answer:
                assert part.choices[0].delta.content == TEXT
                break
            await answer.close()
            await until(lambda: backend.only.outcome)

    asyncio.run(run())
    assert backend.only.outcome is Outcome.CANCELLED


def test_an_agent_that_reads_slowly_slows_the_upstream_down() -> None:
    backend, piece, pieces = MemoryBackend(), b"x" * 65536, 640  # 40 MiB
    written = 0

    async def handler(talk: Talk) -> None:
        nonlocal written
        await talk.begin()
        for _ in range(pieces):
            await talk.chunk(piece)
            written += len(piece)
        await talk.write(b"0\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            reader, writer = await asyncio.open_connection(*authority_of(proxy), limit=HIGH_BYTES)
            writer.write(request(proxy))
            await reader.readuntil(b"\r\n\r\n")
            moved = (-1, -1)
            while moved != (written, len(backend.only.body)):
                moved = written, len(backend.only.body)
                await asyncio.sleep(0.2)
            # What lies in the kernel's buffers on both ways, and a little here.
            assert written < pieces * len(piece) / 2
            while await reader.read(1 << 20):
                pass
            await hang_up(writer)

    asyncio.run(run())
    assert len(backend.only.body) == pieces * len(piece)
    assert backend.only.outcome is Outcome.COMPLETE


def test_many_requests_at_once_keep_their_own_answers() -> None:
    backend, n = MemoryBackend(), 60

    async def handler(talk: Talk) -> None:
        await talk.begin()
        for byte in talk.body:
            await talk.chunk(bytes([byte]))
            await asyncio.sleep(0)
        await talk.write(b"0\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            bodies = [f"request {number}".encode() for number in range(n)]
            answers = await asyncio.gather(
                *(ask(proxy, request(proxy, body=body)) for body in bodies)
            )
            assert [body_of(raw) for raw in answers] == bodies

    asyncio.run(run())
    assert len(backend.exchanges) == n
    for exchange in backend.exchanges:
        assert exchange.body == exchange.request.body
        assert exchange.outcome is Outcome.COMPLETE


async def _read_answer(reader: asyncio.StreamReader, n_body: int) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(n_body)


def test_connections_are_kept_on_both_sides() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, lambda talk: talk.answer(talk.body)) as (proxy, upstream):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            # Plain, chunked and HEAD-like exchanges take different ways through the proxy.
            for body in (b"one", b"two", b"six"):
                writer.write(request(proxy, body=body, is_last=False))
                assert (await _read_answer(reader, 3)).endswith(body)
            slow = b"POST %s/v1/x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % (
                proxy.path_for("m").encode(),
                authority_of(proxy)[1],
            )
            writer.write(slow + b"Transfer-Encoding: chunked\r\n\r\n3\r\nsix\r\n0\r\n\r\n")
            assert (await _read_answer(reader, 3)).endswith(b"six")
            writer.write(request(proxy, body=b"ten", is_last=False))
            assert (await _read_answer(reader, 3)).endswith(b"ten")
            await hang_up(writer)
            assert upstream.n_connections == 1
            assert upstream.talks[3].header(b"content-length") == b"3"

    asyncio.run(run())
    assert [e.request.body for e in backend.exchanges] == [b"one", b"two", b"six", b"six", b"ten"]


def test_requests_that_come_before_their_turn_are_answered_in_turn() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, lambda talk: talk.answer(talk.body)) as (proxy, _):
            bodies = (b"a" * 5, b"b" * 5, b"c" * 5)
            pipelined = b"".join(request(proxy, body=b, is_last=False) for b in bodies[:2])
            raw = await ask(proxy, pipelined + request(proxy, body=bodies[2]))
            assert [raw.index(body) for body in bodies] == sorted(raw.index(b) for b in bodies)

    asyncio.run(run())


def test_chunked_requests_that_come_before_their_turn_are_answered_in_turn() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        async with proxying(backend, lambda talk: talk.answer(talk.body)) as (proxy, _):
            head = request(proxy, body=b"", is_last=False)[:-2]
            chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"one") + b"0\r\n\r\n"
            raw = await ask(proxy, chunked * 2 + request(proxy, body=b"two"))
            assert raw.count(b"one") == 2
            assert raw.endswith(b"two")

    asyncio.run(run())


def test_a_connection_that_the_server_resets_is_a_cut() -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal")
        await until(lambda: backend.only.body)
        handle = talk.writer.get_extra_info("socket")
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        talk.writer.transport.abort()

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            assert body_of(await ask(proxy, request(proxy))) == b"hal"

    asyncio.run(run())
    assert backend.only.outcome is Outcome.CUT


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b"until the end"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 13\r\n\r\n", b"until the end"),
        (b"HTTP/1.1 200 OK\nContent-Length: 13\n\n", b"until the end"),
    ],
)
def test_an_answer_of_an_older_kind_is_passed_whole(head: bytes, body: bytes) -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.write(head, body)
        raise ConnectionResetError

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            assert body_of(await ask(proxy, request(proxy, is_last=True))) == body

    asyncio.run(run())
    assert (backend.only.body, backend.only.outcome) == (body, Outcome.COMPLETE)


def test_an_agent_of_http_1_0_gets_no_chunks() -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await talk.begin(b"Trailer: Note")
        await talk.chunk(b"body")
        await talk.write(b"0\r\nNote: x\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            raw = await ask(proxy, request(proxy, version="1.0"))
            assert raw.endswith(b"\r\n\r\nbody")
            assert b"chunked" not in raw
            assert b"103" not in raw

    asyncio.run(run())
    assert backend.only.outcome is Outcome.COMPLETE


@pytest.mark.parametrize("is_plain", [True, False])
def test_interim_answers_and_trailers_are_passed_on(is_plain: bool) -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await talk.begin(b"Trailer: Note")
        await talk.chunk(b"body")
        await talk.write(b"0\r\nNote: x\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            writer.write(request(proxy, is_last=not is_plain))
            early = await reader.readuntil(b"\r\n\r\n")
            assert early == b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
            rest = await asyncio.wait_for(reader.readuntil(b"Note: x\r\n\r\n"), 60)
            assert rest.endswith(b"4\r\nbody\r\n0\r\nNote: x\r\n\r\n")
            await hang_up(writer)

    asyncio.run(run())
    assert backend.only.body == b"body"
    assert backend.only.status == 200


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
@pytest.mark.parametrize("is_last", [True, False])
def test_an_answer_without_a_body_has_none(status: bytes, is_last: bool) -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 " + status + b"\r\nETag: x\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, upstream):
            reader, writer = await asyncio.open_connection(*authority_of(proxy))
            for _ in range(1 if is_last else 2):
                writer.write(request(proxy, method="GET", body=b"", is_last=is_last))
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
                assert head.startswith(b"HTTP/1.1 " + status)
                assert b"chunked" not in head
            await hang_up(writer)
            assert upstream.n_connections == 1

    asyncio.run(run())
    assert {exchange.outcome for exchange in backend.exchanges} == {Outcome.COMPLETE}


def test_a_head_request_has_the_length_and_no_body() -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            raw = await ask(proxy, request(proxy, method="HEAD", body=b""))
            assert b"Content-Length: 99" in raw
            assert raw.endswith(b"\r\n\r\n")

    asyncio.run(run())
    assert (backend.only.request.method, backend.only.body) == ("HEAD", b"")
    assert backend.only.outcome is Outcome.COMPLETE


def test_an_upgrade_that_nobody_asked_for_is_no_answer() -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, _):
            assert (await ask(proxy, request(proxy))).startswith(b"HTTP/1.1 502 ")

    asyncio.run(run())
    assert backend.only.outcome is Outcome.FAILED


def test_a_connection_that_says_more_than_its_answer_is_not_used_again() -> None:
    backend = MemoryBackend()

    async def handler(talk: Talk) -> None:
        await talk.answer(b"{}")
        await talk.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nno!")

    async def run() -> None:
        async with proxying(backend, handler) as (proxy, upstream):
            for _ in range(2):
                assert body_of(await ask(proxy, request(proxy))) == b"{}"
                await asyncio.sleep(0.02)
            assert upstream.n_connections == 2

    asyncio.run(run())
    assert [exchange.body for exchange in backend.exchanges] == [b"{}", b"{}"]


def test_the_answer_may_come_before_the_requests_end() -> None:
    backend = MemoryBackend()

    async def run() -> None:
        served = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\n{}")
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 20):
                    pass
            await hang_up(writer)
            served.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with proxying(backend, lambda talk: talk.answer(b"")) as (proxy, _):
            port = server.sockets[0].getsockname()[1]
            proxy.add_upstreams({"m": f"http://127.0.0.1:{port}"})
            raw = await ask(proxy, request(proxy, body=b"x" * (8 << 20)))
            assert raw.startswith(b"HTTP/1.1 413 Too Large")
        server.close()
        await asyncio.wait_for(served.wait(), 60)

    asyncio.run(run())
    assert backend.only.status == 413


class Faulty(Exchange):
    """An observer that fails where it is told to."""

    def received(self, data: bytes) -> None:
        raise ValueError("disk full")


def test_an_observer_that_fails_harms_no_answer() -> None:
    backend, faults = MemoryBackend(), []
    backend.serve = lambda asked: Faulty(asked)  # type: ignore[assignment,return-value]

    async def run() -> None:
        answer = proxying(backend, lambda talk: talk.answer(b"{}"), on_fault=faults.append)
        async with answer as (proxy, _):
            assert body_of(await ask(proxy, request(proxy))) == b"{}"

    asyncio.run(run())
    assert faults == ["an exchange is not recorded: ValueError: disk full"]
