"""The OpenAI and Anthropic SDKs over our transports, against a server on loopback."""

import asyncio
import gc
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from redrive.capture.ports import Outcome, ServedAnswer
from redrive.capture.session import AgentSession
from tests.fake_backend import FakeBackend, SeenExchange
from tests.loopback_server import Answer, LoopbackServer
from tests.proxying import cancel_when

TEXT = "é😀 – 0.30000000000000004\n\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")
SSE = (("content-type", "text/event-stream; charset=utf-8"),)
RETRY = (("content-type", "application/json"), ("retry-after-ms", "1"))
ASK: Any = [{"role": "user", "content": "Wie geht’s? 😀"}]
KEY = "sk-live-9f8e7d6c5b4a"


def openai_body() -> bytes:
    message = {"role": "assistant", "content": TEXT}
    return json.dumps(
        {
            "id": "c1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        }
    ).encode()


def openai_events() -> bytes:
    """Text once as UTF-8 and once as JSON escapes, then `[DONE]`."""

    def chunk(delta: dict[str, Any], *, is_ascii: bool) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        return "data: " + json.dumps({**body, "choices": [choice]}, ensure_ascii=is_ascii) + "\n\n"

    events = [chunk({"content": TEXT}, is_ascii=is_ascii) for is_ascii in (False, True)]
    return ("".join(events) + "data: [DONE]\n\n").encode()


def anthropic_body() -> bytes:
    return json.dumps(
        {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": TEXT}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    ).encode()


def anthropic_events() -> bytes:
    start = json.loads(anthropic_body())
    block = {"type": "text", "text": ""}

    def delta(*, is_ascii: bool) -> tuple[dict[str, Any], bool]:
        text = {"type": "text_delta", "text": TEXT}
        return {"type": "content_block_delta", "index": 0, "delta": text}, is_ascii

    events: list[tuple[dict[str, Any], bool]] = [
        ({"type": "message_start", "message": {**start, "content": []}}, True),
        ({"type": "content_block_start", "index": 0, "content_block": block}, True),
        delta(is_ascii=False),
        delta(is_ascii=True),
        ({"type": "content_block_stop", "index": 0}, True),
        (
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 2},
            },
            True,
        ),
        ({"type": "message_stop"}, True),
    ]
    return "".join(
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=is_ascii)}\n\n"
        for event, is_ascii in events
    ).encode()


class Sdk:
    """One SDK, sync and async, behind one face: give the text of an answer."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.options: dict[str, Any] = {
            "api_key": KEY,
            "base_url": f"{url}/v1" if name == "openai" else url,
            "max_retries": 2,
        }
        self.body = openai_body() if name == "openai" else anthropic_body()
        self.events = openai_events() if name == "openai" else anthropic_events()

    def client(self, session: AgentSession) -> Any:
        kind = openai.OpenAI if self.name == "openai" else anthropic.Anthropic
        return kind(http_client=session.http_client(), **self.options)

    def async_client(self, session: AgentSession) -> Any:
        kind = openai.AsyncOpenAI if self.name == "openai" else anthropic.AsyncAnthropic
        return kind(http_client=session.async_http_client(), **self.options)

    def create(self, client: Any, **more: Any) -> Any:
        if self.name == "openai":
            return client.chat.completions.create(model="m", messages=ASK, seed=7, **more)
        return client.messages.create(model="m", messages=ASK, max_tokens=9, **more)

    def text(self, answer: Any) -> str:
        if self.name == "openai":
            return str(answer.choices[0].message.content)
        return str(answer.content[0].text)

    def delta(self, event: Any) -> str:
        if self.name == "openai":
            return event.choices[0].delta.content or ""
        return event.delta.text if event.type == "content_block_delta" else ""

    def ask(self, session: AgentSession) -> str:
        with self.client(session) as client:
            return self.text(self.create(client))

    async def ask_async(self, session: AgentSession) -> str:
        async with self.async_client(session) as client:
            return self.text(await self.create(client))

    def stream(self, session: AgentSession) -> str:
        with self.client(session) as client:
            return "".join(map(self.delta, self.create(client, stream=True)))

    async def stream_async(self, session: AgentSession) -> str:
        async with self.async_client(session) as client:
            events = await self.create(client, stream=True)
            return "".join([self.delta(event) async for event in events])


@pytest.fixture(params=["openai", "anthropic"])
def sdk(request: pytest.FixtureRequest, loopback: LoopbackServer) -> Sdk:
    return Sdk(request.param, loopback.url)


def positions_within(body: bytes) -> Iterator[int]:
    r"""Give each place inside a character of several bytes, or inside a `\n` or `\uXXXX`."""
    for index in range(1, len(body)):
        is_inside_character = 0x80 <= body[index] < 0xC0
        escape = body.rfind(b"\\", max(0, index - 5), index)
        length = 0 if escape < 0 else (6 if body[escape + 1 : escape + 2] == b"u" else 2)
        if is_inside_character or (escape >= 0 and escape < index < escape + length):
            yield index


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def as_served(seen: SeenExchange) -> ServedAnswer:
    return ServedAnswer(seen.status or 0, seen.headers, seen.body, seen.outcome, seen.message)


def test_an_answer_is_recorded_exactly_and_served_without_network(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, sdk: Sdk
) -> None:
    loopback.answers = [Answer((sdk.body,))] * 2
    assert sdk.ask(session) == asyncio.run(sdk.ask_async(session)) == TEXT
    for seen, received in zip(backend.exchanges, loopback.received, strict=True):
        assert seen.request.body == received.body
        assert seen.request.url == f"{loopback.url}{received.path}"
        assert (seen.body, seen.ends) == (sdk.body, [(Outcome.COMPLETE, "")])
    backend.is_serving = True
    backend.answers = [as_served(seen) for seen in backend.exchanges]
    assert sdk.ask(session) == asyncio.run(sdk.ask_async(session)) == TEXT
    assert len(loopback.received) == 2
    assert [one.body for one in backend.asked] == [one.body for one in loopback.received]


def test_a_streamed_answer_is_recorded_exactly_and_served_without_network(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, sdk: Sdk
) -> None:
    events = tuple(line + b"\n\n" for line in sdk.events.split(b"\n\n")[:-1])
    loopback.answers = [Answer(events, headers=SSE)] * 2
    assert sdk.stream(session) == asyncio.run(sdk.stream_async(session)) == TEXT * 2
    for seen in backend.exchanges:
        assert (seen.body, seen.ends) == (sdk.events, [(Outcome.COMPLETE, "")])
    backend.is_serving = True
    backend.answers = [as_served(seen) for seen in backend.exchanges]
    assert sdk.stream(session) == asyncio.run(sdk.stream_async(session)) == TEXT * 2
    assert len(loopback.received) == 2


def test_sse_is_recorded_byte_for_byte_when_a_chunk_ends_inside_a_character_or_an_escape(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, sdk: Sdk
) -> None:
    positions = list(positions_within(sdk.events))
    assert len(positions) > 40
    loopback.answers = [
        Answer((sdk.events[:position], sdk.events[position:]), headers=SSE)
        for position in positions
    ]
    with sdk.client(session) as client:
        for position in positions:
            assert "".join(map(sdk.delta, sdk.create(client, stream=True))) == TEXT * 2
            seen = backend.exchanges[-1]
            assert sha256(seen.body) == sha256(sdk.events), position
            assert seen.outcome is Outcome.COMPLETE


def test_one_byte_per_chunk_is_recorded_byte_for_byte(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, sdk: Sdk
) -> None:
    singles = tuple(bytes([byte]) for byte in sdk.events)
    loopback.answers = [Answer(singles, headers=SSE)]
    assert asyncio.run(sdk.stream_async(session)) == TEXT * 2
    assert sha256(backend.exchanges[0].body) == sha256(sdk.events)


def test_a_retry_of_the_sdk_is_an_exchange_of_its_own(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, sdk: Sdk
) -> None:
    bad = Answer((b'{"error":{"type":"overloaded","message":"later"}}',), 500, RETRY)
    loopback.answers = [bad, Answer((sdk.body,)), bad, Answer((sdk.body,))]
    assert sdk.ask(session) == asyncio.run(sdk.ask_async(session)) == TEXT
    assert [one.status for one in backend.exchanges] == [500, 200, 500, 200]
    first, second = (one.request for one in backend.exchanges[:2])
    assert first.body == second.body
    backend.is_serving = True
    backend.answers = [as_served(seen) for seen in backend.exchanges]
    assert sdk.ask(session) == asyncio.run(sdk.ask_async(session)) == TEXT


def test_a_lost_connection_is_recorded_retried_and_lost_again_in_a_rerun(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, sdk: Sdk
) -> None:
    loopback.answers = [Answer((b'{"half":',), is_cut=True), Answer((sdk.body,))]
    assert sdk.ask(session) == TEXT
    assert [one.ends for one in backend.exchanges] == [
        [(Outcome.CUT, "RemoteProtocolError")],
        [(Outcome.COMPLETE, "")],
    ]
    backend.is_serving = True
    backend.answers = [as_served(seen) for seen in backend.exchanges]
    assert sdk.ask(session) == TEXT
    assert len(loopback.received) == 2


def test_no_connection_fails_in_a_rerun_as_it_did(
    session: AgentSession, backend: FakeBackend
) -> None:
    sdk = Sdk("openai", "http://127.0.0.1:1")
    sdk.options["max_retries"] = 0
    with pytest.raises(openai.APIConnectionError) as live:
        sdk.ask(session)
    assert backend.exchanges[0].ends == [(Outcome.FAILED, "ConnectError")]
    backend.is_serving = True
    backend.answers = [as_served(seen) for seen in backend.exchanges]
    with pytest.raises(openai.APIConnectionError) as served:
        sdk.ask(session)
    assert str(served.value) == str(live.value)


def test_a_cancelled_stream_is_recorded_as_cancelled(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, sdk: Sdk
) -> None:
    # Two events of text, then the server waits, and the agent has had enough.
    head = sdk.events[: sdk.events.rindex(b"\n\n", 0, -2) + 2]
    parts = tuple(line + b"\n\n" for line in head.split(b"\n\n")[:-1])
    loopback.answers = [Answer((*parts, b"never"), headers=SSE, n_before=len(parts))] * 2

    def ask() -> str:
        with sdk.client(session) as client, sdk.create(client, stream=True) as events:
            for event in events:
                if text := sdk.delta(event):
                    return text
        return ""

    async def ask_async() -> None:
        async with sdk.async_client(session) as client:
            async for _ in await sdk.create(client, stream=True):
                pass

    assert ask() == TEXT

    def has_come() -> bool:
        return len(backend.exchanges) == 2 and backend.exchanges[1].body == head

    asyncio.run(cancel_when(has_come, ask_async()))
    closed, cancelled = backend.exchanges
    assert closed.ends == [(Outcome.CANCELLED, "")]
    assert head.startswith(closed.body)
    assert cancelled.body == head
    assert cancelled.ends == [(Outcome.CANCELLED, "CancelledError")]
    backend.is_serving = True
    backend.answers = [as_served(closed), as_served(cancelled)]
    assert ask() == TEXT
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(ask_async(), 0.2))
    # The SDK's stream refers to itself; where it is collected while `httpx` is being imported, its
    # end asks that module for what is not there yet.
    gc.collect()


def test_threads_and_tasks_at_once_tell_each_their_own_flow(
    session: AgentSession, backend: FakeBackend, loopback: LoopbackServer, sdk: Sdk
) -> None:
    loopback.answers = [Answer((sdk.body,))] * 6

    async def task(client: Any, name: str) -> str:
        async with session.flow(name):
            return sdk.text(await sdk.create(client))

    def thread(name: str) -> str:
        with session.flow(name):
            return sdk.ask(session)

    async def main() -> list[str]:
        async with sdk.async_client(session) as client:
            tasks = [task(client, f"task-{n}") for n in range(3)]
            threads = [asyncio.to_thread(thread, f"thread-{n}") for n in range(3)]
            return list(await asyncio.gather(*tasks, *threads))

    assert asyncio.run(main()) == [TEXT] * 6
    assert {one.flow for one in backend.exchanges} == {
        f"{kind}-{n}" for kind in ("task", "thread") for n in range(3)
    }
