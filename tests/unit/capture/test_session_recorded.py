"""An agent on the OpenAI SDK, recorded through its session by the recording backend."""

import json
from typing import Any

import openai
import pytest
from msgspec import UNSET

from redrive.capture.session import AgentSession
from redrive.record.event import Event, payload_of, raw_value
from tests.loopback_server import Answer, LoopbackServer
from tests.recorded import Recorded, asks, chat_answer

RETRY = (("content-type", "application/json"), ("retry-after-ms", "1"))


def events_of(answer: bytes) -> bytes:
    """Give a whole answer as the stream of its only choice."""
    body = json.loads(answer)
    message = body["choices"][0]["message"]
    for index, call in enumerate(message.get("tool_calls", ())):
        call["index"] = index
    parts: list[tuple[dict[str, Any], str | None]] = [(message, None), ({}, "stop")]
    chunks = [
        body
        | {"object": "chat.completion.chunk", "created": 1}
        | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in parts
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def run_agent(session: AgentSession, url: str, *, is_streaming: bool) -> str:
    """Ask, run the tools that are asked for, summarise, ask again, until there is no call."""

    @session.tool(effect="read_only")
    def weather(city: str, unit: str = "C") -> dict[str, Any]:
        return {"city": city, "t": 0.30000000000000004, "unit": unit}

    messages: list[Any] = [{"role": "user", "content": "Oslo?"}]
    with openai.OpenAI(
        api_key="k", base_url=f"{url}/v1", http_client=session.http_client()
    ) as client:
        while True:
            options: dict[str, Any] = {"model": "m", "messages": messages, "seed": 7}
            if is_streaming:
                with client.chat.completions.stream(temperature=0, **options) as stream:
                    message = stream.get_final_completion().choices[0].message
            else:
                message = (
                    client.chat.completions.create(temperature=0, **options).choices[0].message
                )
            if not message.tool_calls:
                return message.content or ""
            messages.append(message.to_dict())
            for call in message.tool_calls:
                result = weather(**json.loads(call.function.arguments))
                text = session.derive(json.dumps, [result], name="summary")
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


@pytest.mark.parametrize("is_streaming", [False, True])
def test_an_agent_recorded_through_its_session_is_closed(
    loopback: LoopbackServer, *, is_streaming: bool
) -> None:
    recorded = Recorded()
    session = AgentSession(recorded.backend, on_end=recorded.backend.end)
    answers = [chat_answer("", asks("c1", "weather", '{"city":"Oslo"}')), chat_answer("Cold.")]
    if is_streaming:
        sent = [(events_of(answer),) for answer in answers]
        shape: dict[str, Any] = {"headers": (("content-type", "text/event-stream"),)}
    else:
        sent, shape = [(answer,) for answer in answers], {}
    busy = Answer((b'{"error":{"message":"busy"}}',), 500, RETRY)
    loopback.answers = [busy, *(Answer(chunks, **shape) for chunks in sent)]
    assert run_agent(session, loopback.url, is_streaming=is_streaming) == "Cold."
    session.end("success")
    assert recorded.faults == []
    kinds = [event.kind.value for event in recorded.sink.events]
    assert kinds == [
        "session.started",
        "user.message",
        "model.request",
        "model.error",
        "model.request",
        "model.response",
        "tool.call",
        "tool.result",
        "value.derived",
        "model.request",
        "model.response",
        "session.ended",
    ]
    assert [event.actor for event in recorded.sink.events] == ["main"] * len(kinds)
    result = payload_of(only(recorded, "tool.result"))
    assert (result.seam, result.executed) == ("tool", UNSET)
    assert raw_value(result.result) == {"city": "Oslo", "t": 0.30000000000000004, "unit": "C"}
    assert sent[0][0] in recorded.sink.artefacts
    report = recorded.sink.audit(recorded.started)
    assert [step.missing for step in report.steps] == [(), ()]
    assert report.is_closed


def test_a_derived_value_without_a_json_form_is_absent_and_no_fault() -> None:
    recorded = Recorded()
    pair = (1, 2)
    assert AgentSession(recorded.backend).derive(lambda: pair, []) is pair
    assert recorded.faults == []
    assert payload_of(only(recorded, "value.derived")).value is UNSET


def test_what_a_tool_returned_without_a_json_form_is_named_in_the_record() -> None:
    recorded = Recorded()
    tool = AgentSession(recorded.backend).tool(effect="pure", name="pair")(lambda: (1, 2))
    assert tool() == (1, 2)
    assert recorded.faults == []
    data = raw_value(payload_of(recorded.sink.of_kind("custom")[-1]).data)
    assert data["unrepresentable"] == "tuple"


def only(recorded: Recorded, kind: str) -> Event:
    (event,) = recorded.sink.of_kind(kind)
    return event
