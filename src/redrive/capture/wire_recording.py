"""Records exchanges with models and other servers: what was sent, and what came back.

Knows when an exchange begins and ends. What its bytes mean is in `exchanges`, which flow it belongs
to in `flows`. Not locked: `recording` holds one lock around each call.

An exchange is one node: the request is written when it is sent, so that a recorder that is killed
has recorded that it was; the answer follows in the same node. A result that no seam saw is taken
from the request that carries it.

Source: DESIGN.md §3; issue "The recorder".
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from redrive.capture.conversation import (
    Conversation,
    find_results,
    find_user_texts,
    read_conversation,
)
from redrive.capture.event_log import HERE, EventLog, Fact
from redrive.capture.exchanges import (
    MAX_ANSWER_BYTES,
    answer_facts,
    encodings_of,
    find_api,
    request_payload,
)
from redrive.capture.flows import Flow, FlowTracker
from redrive.capture.headers import keep_headers, safe_url
from redrive.capture.ports import Headers, Outcome, SentRequest
from redrive.capture.tool_recording import AskedCalls, flags_of
from redrive.record.event import (
    Custom,
    Kind,
    ModelResponse,
    Source,
    ToolResult,
    UserMessage,
    Wire,
    raw_of,
)

HTTP_EXCHANGE = "http.exchange"


@dataclass(eq=False, slots=True)
class Exchange:
    """One exchange on its way.

    Attributes:
        request: what was sent.
        flow: its flow; absent where its beginning could not be recorded.
        name: its id and node.
        api: the model's API; absent for another server.
        attempt: see `Wire.attempt`.
        data: the answer's body so far, at most `MAX_ANSWER_BYTES`.
        size: of all of the body.
    """

    request: SentRequest
    flow: Flow | None = None
    name: str = ""
    api: str | None = None
    attempt: int | None = None
    status: int | None = None
    headers: Headers = ()
    first_byte_ns: int | None = None
    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    flags: tuple[str, ...] = ()

    def take(self, data: bytes) -> None:
        """Take the next bytes of the answer."""
        self.size += len(data)
        self.data += data[: MAX_ANSWER_BYTES - len(self.data)]


@dataclass(eq=False, slots=True)
class _Told:
    """What the requests of one flow said so far."""

    body_digest: str = ""
    has_failed: bool = False
    attempt: int = 1
    tails: dict[str, str] = field(default_factory=dict)


class WireRecording:
    """Writes exchanges to a log.

    Args:
        log: where to.
        tracker: tells the flow of a request.
        asked: the calls that models made; it learns of new ones here.
        decisions: `tool_calls` or `json_content`.
        engine: fingerprint of the engine, where who records started it.
        can_rewind: whether a request that repeats an earlier one's words goes back to it. Where
            contexts tell flows, the order in them is the history.
    """

    def __init__(
        self,
        log: EventLog,
        tracker: FlowTracker,
        asked: AskedCalls,
        *,
        decisions: str,
        engine: str | None,
        can_rewind: bool,
    ) -> None:
        self._log = log
        self._tracker = tracker
        self._asked = asked
        self._decisions = decisions
        self._engine = engine
        self._can_rewind = can_rewind
        self._told: dict[Flow, _Told] = {}

    def begin(self, exchange: Exchange) -> None:
        """Write that a request was sent."""
        request = exchange.request
        exchange.api = find_api(request.method, request.url)
        exchange.flags = flags_of(self._tracker)
        conversation = Conversation() if exchange.api is None else read_conversation(request.body)
        if exchange.api is None:
            self._begin_other(exchange)
            return
        flow = self._tracker.of_request(conversation, request.flow)
        told = self._told.setdefault(flow, _Told())
        digest = hashlib.sha256(request.body).hexdigest()
        is_again = told.has_failed and told.body_digest == digest
        told.attempt = told.attempt + 1 if is_again else 1
        self._tell_context(flow, self._find_base(flow, told, conversation), exchange)
        name = self._log.next("x")
        wire = Wire(
            exchange=name,
            endpoint=f"{request.method} {safe_url(request.url)}",
            headers=dict(keep_headers(request.headers)),
            attempt=told.attempt,
            started_ns=request.at_ns,
            sha256=digest,
            size=len(request.body),
            added=request.added,
        )
        payload = request_payload(exchange.api, request.body, wire)
        if payload is None:  # no UTF-8: nothing that a model's API would read
            exchange.api = None
            self._begin_other(exchange)
            return
        told.body_digest, told.has_failed = digest, False
        fact = Fact(Kind.MODEL_REQUEST, payload, flags=exchange.flags)
        self._log.add(flow, name, fact, at_ns=request.at_ns)
        flow.in_flight += 1
        flow.conversations.append((conversation, name))
        exchange.flow, exchange.name, exchange.attempt = flow, name, told.attempt

    def _begin_other(self, exchange: Exchange) -> None:
        exchange.flow, exchange.name = self._tracker.current(), self._log.next("h")

    def _find_base(self, flow: Flow, told: _Told, conversation: Conversation) -> int | None:
        """Find how many messages of a request the flow knows; `None` where it begins anew.

        A request that repeats an earlier one's words and not the newest one's goes back to it: what
        follows then hangs off the end of that earlier exchange.
        """
        if not flow.conversations:
            return 0
        newest, name = flow.conversations[-1]
        if flow.last_node is not None:
            told.tails[name] = flow.last_node
        if conversation.continues(newest):
            return len(newest.messages)
        if not self._can_rewind or conversation.messages == newest.messages:
            return None
        for known, earlier in reversed(flow.conversations[:-1]):
            if conversation.continues(known):
                flow.last_node = told.tails[earlier]
                return len(known.messages)
        return None

    def _tell_context(self, flow: Flow, n_known: int | None, exchange: Exchange) -> None:
        """Write what a request shows for the first time: results of calls, and user messages."""
        body, flags = exchange.request.body, exchange.flags
        for seen in find_results(body, n_known or 0) if self._asked.is_waiting(flow) else ():
            asked = self._asked.take(flow, seen.call_id)
            if asked is not None:
                result = ToolResult(
                    status="error" if seen.is_error else "ok",
                    result=seen.result,
                    tool=asked.tool,
                    seam="request",
                )
                fact = Fact(Kind.TOOL_RESULT, result, asked.call_id, flags=flags)
                self._log.add(flow, self._log.next("r"), fact)
        for text in () if n_known is None else find_user_texts(body, n_known):
            said = Fact(Kind.USER_MESSAGE, UserMessage(text), flags=flags)
            self._log.add(flow, self._log.next("u"), said)

    def finish(self, exchange: Exchange, outcome: Outcome, at_ns: int, message: str) -> None:
        """Write what came back, and how it ended."""
        flow, data = exchange.flow, bytes(exchange.data)
        if flow is None:
            return
        digest = hashlib.sha256(data).hexdigest()
        wire = Wire(
            exchange=exchange.name,
            headers=dict(keep_headers(exchange.headers)),
            status=exchange.status,
            attempt=exchange.attempt,
            first_byte_ns=exchange.first_byte_ns,
            ended_ns=at_ns,
            sha256=digest,
            size=exchange.size,
            outcome=outcome.value,
            encoding=encodings_of(exchange.headers),
        )
        # No bytes are no artefact; a source that names one would be a hole in the store.
        source = Source(digest, 0, len(data)) if data else HERE
        if exchange.api is None:
            self._add_other(flow, exchange, wire, source, data)
            return
        flow.in_flight -= 1
        facts = answer_facts(
            exchange.api,
            data,
            wire,
            decisions=self._decisions,
            engine=self._engine,
            message=message,
        )
        if isinstance(facts[0].payload, ModelResponse) and exchange.size > len(data):
            cut = replace(facts[0].payload, truncated=True)
            facts = [facts[0]._replace(payload=cut), *facts[1:]]
        self._told[flow].has_failed = facts[0].kind is Kind.MODEL_ERROR
        self._asked.learn(flow, facts)
        self._log.add_to(flow, exchange.name, facts, at_ns=at_ns, source=source, artefact=data)

    def _add_other(
        self, flow: Flow, exchange: Exchange, wire: Wire, source: Source, data: bytes
    ) -> None:
        """Write an exchange with no model: a list of models, an embedding, a file."""
        request = exchange.request
        fields: dict[str, Any] = {
            "exchange": exchange.name,
            "method": request.method,
            "url": safe_url(request.url),
            "headers": keep_headers(request.headers),
            "request_sha256": hashlib.sha256(request.body).hexdigest(),
            "request_size": len(request.body),
            "started_ns": request.at_ns,
            "wire": wire,
        }
        kept: Sequence[bytes] = [body for body in (request.body, data) if body]
        custom = Custom(name=HTTP_EXCHANGE, data=raw_of(fields))
        fact = Fact(Kind.CUSTOM, custom, flags=exchange.flags)
        self._log.add(flow, exchange.name, fact, artefacts=kept, source=source)
