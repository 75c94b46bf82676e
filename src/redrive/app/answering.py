"""Lets a model of this process answer a request in the bytes of the API that it was sent to.

Knows how a request becomes a question to a model, and a reply an answer. Must not know who asks,
nor what a rerun or a trial makes of it.
"""

from typing import Any

from redrive import canonical
from redrive.canonical import get_field
from redrive.capture.exchanges import find_api
from redrive.capture.ports import SentRequest, ServedAnswer
from redrive.replay.answer_writing import write_answer
from redrive.replay.answers import objects_in
from redrive.replay.ports import Model, ModelQuery, ModelReply


def ask_model(model: Model, request: SentRequest, number: int) -> ModelReply:
    """Ask a model what a request asks; `number` counts the run's questions from 1.

    Raises:
        ModelError: the model refused, failed, or gave half an answer.
        UsageError: the model cannot answer such a request.
        PluginError: it raised, or gave no reply.
        ValueError: the body is no UTF-8 text.
    """
    body = request.body.decode()
    fields = read_fields(body)
    return model.decide(
        ModelQuery(
            decision=number,
            api=find_api(request.method, request.url) or "",
            body=body,
            prompt=None if model.apis else body,
            messages=objects_in(fields.get("messages") or fields.get("input")),
        )
    )


def serve_reply(request: SentRequest, reply: ModelReply, number: int) -> ServedAnswer:
    """Write a reply as the answer to a request.

    Raises:
        UsageError: the request is for none of the three APIs.
    """
    fields = read_fields(request.body.decode())
    written = write_answer(
        find_api(request.method, request.url) or "",
        reply,
        number=number,
        requested=get_field(fields, "model", str) or "",
        is_streamed=fields.get("stream") is True,
    )
    return ServedAnswer(200, (("content-type", written.content_type),), written.body)


def read_fields(body: str) -> dict[str, Any]:
    """Read the fields of a request's body; none where it is no JSON object."""
    try:
        value = canonical.decode_value(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
