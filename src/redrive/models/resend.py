"""What the re-sending models share: the query's body, its `model` value, and the reply's parts.

Knows `ModelQuery` and `ModelReply`. Must not know one vendor's answer from another's.

Source: DESIGN.md §5 "Run", "Decisions".
"""

import time
from collections.abc import Callable

import msgspec

from redrive import canonical
from redrive.canonical import get_field
from redrive.errors import UsageError
from redrive.models.http import HttpClient
from redrive.record.decisions import JSON_CONTENT, parse_json_decision
from redrive.replay.answers import Answer
from redrive.replay.body import replace_value
from redrive.replay.ports import CallAsked, ModelFingerprint, ModelQuery, ModelReply, Override


class Request(msgspec.Struct, frozen=True):
    """A body that is ready to be sent, the model it asks for, and what was changed in it."""

    api: str
    body: str
    requested: str | None = None
    overrides: tuple[Override, ...] = ()


def prepare(query: ModelQuery, apis: tuple[str, ...], name: str) -> Request:
    """Take the body of a query; its bytes stay, but for `model` where another name is asked for.

    Args:
        query: the question.
        apis: what the model can send.
        name: the model to ask for; empty means the recorded one.

    Raises:
        UsageError: the decision has no body, or one of another API.
    """
    if query.body is None or query.api is None:
        raise UsageError(
            "no recorded request to send again",
            where=f"decision {query.decision}",
            hint="record `request` {api, body}, or use a model that reads text, or a script",
        )
    if query.api not in apis:
        raise UsageError(
            f"a recorded request for {query.api}, and this model sends {' or '.join(apis)}",
            where=f"decision {query.decision}",
        )
    requested = _recorded_name(query)
    if not name or name == requested:
        return Request(query.api, query.body, requested)
    return Request(
        query.api, replace_value(query.body, "model", name), name, (Override("model", name),)
    )


def _recorded_name(query: ModelQuery) -> str | None:
    try:
        fields = canonical.decode_value(query.body or "")
    except ValueError as error:
        raise UsageError(
            "the recorded request is not JSON", where=f"decision {query.decision}"
        ) from error
    return get_field(fields, "model", str) if isinstance(fields, dict) else None


def ask(
    client: HttpClient,
    url: str,
    request: Request,
    parse: Callable[[bytes], Answer],
    *,
    decisions: str,
) -> ModelReply:
    """Send a request and make the reply of what came back.

    Raises:
        ModelError: refused, failed, malformed or half an answer.
        UsageError: the request cannot be sent.
    """
    started = time.monotonic()
    data = client.post(url, request.body)
    latency_s = time.monotonic() - started
    try:
        answer = parse(data)
    except ValueError as error:
        raise client.quoting_error(f"a malformed answer, or half of one: {error}", url) from error
    calls = answer.calls or json_calls(answer.text, decisions)
    return ModelReply(
        text=answer.text,
        calls=calls,
        is_final=not calls,
        model=ModelFingerprint(request.requested, answer.served, answer.fingerprint),
        usage=answer.usage,
        latency_s=latency_s,
        overrides=request.overrides,
    )


def json_calls(text: str, decisions: str) -> tuple[CallAsked, ...]:
    """Read the call that an answer text holds, where decisions travel as JSON content."""
    decided = parse_json_decision(text) if decisions == JSON_CONTENT else None
    return () if decided is None else (CallAsked(decided.tool, decided.arguments),)
