"""Events: the immutable facts of a session, and what each kind carries.

Knows the envelope and the payload of every kind. Must not know how events form paths (that is
`trajectory`), where they lie (stores), or what a recorded format looks like (importers).

Absent means *not recorded*. A recorded `0`, `0.0`, `""`, `false`, `[]` is a value; `null` is a
value in results and arguments, and *not recorded* in sampling fields and read values.

Source: DESIGN.md §3.
"""

from enum import StrEnum
from typing import Any, assert_never, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical


class Kind(StrEnum):
    """The closed set of event kinds; its version is `SCHEMA_VERSION`."""

    SESSION_STARTED = "session.started"
    SESSION_ENDED = "session.ended"
    USER_MESSAGE = "user.message"
    MODEL_REQUEST = "model.request"
    MODEL_RESPONSE = "model.response"
    MODEL_ERROR = "model.error"
    TOOL_CALL = "tool.call"
    TOOL_PERMISSION = "tool.permission"
    TOOL_RESULT = "tool.result"
    CONTEXT_REPLACED = "context.replaced"
    CLOCK_READ = "clock.read"
    PRNG_READ = "prng.read"
    VALUE_DERIVED = "value.derived"
    STATE_INFERRED = "state.inferred"
    POLICY_ACTION = "policy.action"
    CUSTOM = "custom"
    NOTE = "note"
    DAMAGE = "damage"


MAIN_ACTOR = "main"
FLAG_INHERITED = "inherited"
FLAG_RECOVERED = "recovered"
FLAG_UNREPRESENTABLE = canonical.UNREPRESENTABLE
FLAG_MALFORMED = "malformed field"
FLAG_NO_ANSWER = "no answer recorded"
FLAG_WITHIN_CALL = "within a call"
FLAG_NO_FORM = "no JSON form"


class Source(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where an event's bytes lie: artefact (sha256, hex), byte offset, length in bytes."""

    artefact: str
    offset: int
    length: int


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One immutable fact of a session.

    Attributes:
        id: unique in the session; the source's own id, `/2`, `/3` … where one record gives several.
        session_id: the session it belongs to.
        seq: order in the source, dense from 0.
        kind: see `Kind`.
        node_id: the DAG node; several events of one record share it.
        source: where the bytes lie.
        payload: the JSON of this kind's payload struct; read it with `payload_of`.
        parent_id: the parent *node*; absent at a root and in sessions without parent links.
        actor: the flow of execution: `main` or a sub-agent's id.
        ts_ns: UTC nanoseconds since 1970; absent when the source has none.
        call_id: on `tool.call`, `tool.result` and `tool.permission`: the pair's key.
        group: on `model.request`, `model.response`, `tool.call`: the provider's response id.
            Nodes of one actor that share it are one decision, stored in pieces.
        supersedes: id of an earlier event of this session that this one replaces.
        flags: `inherited` (copied from a parent session), `recovered` (found behind damage),
            `unrepresentable number`, `malformed field` (one that is there, and not of the type or
            word that the format documents), `no answer recorded` (on a response that the record
            does not hold: its empty text was not said), `within a call` (it happened while a tool
            ran, in the tool's own code: a rerun that serves the tool's result never comes there),
            `no JSON form` (the agent was given a value that is not recorded).
    """

    id: str
    session_id: str
    seq: int
    kind: Kind
    node_id: str
    source: Source
    payload: Raw
    parent_id: str | None = None
    actor: str = MAIN_ACTOR
    ts_ns: int | None = None
    call_id: str | None = None
    group: str | None = None
    supersedes: str | None = None
    flags: tuple[str, ...] = ()


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of every payload; unknown keys of a newer writer are ignored."""


class Redaction(Payload, frozen=True):
    """The recorder, or a later `redact`, masked the value at `path` by `rule`.

    `path` begins with a field of the payload; `source` is the answer's bytes as they were sent.
    """

    path: str
    rule: str | None = None


class SessionStarted(Payload, frozen=True):
    """What is known of the whole session.

    `captures` maps an input class (context, tool_results, sampling, clock, prng, environment) to
    captured, not_captured or unknown, with `basis` intercepted, vouched or unknown. `decisions` is
    `tool_calls` or `json_content`. `parent_session` is the session this one was forked from, or
    resumes; `thread` groups sessions that are one conversation.
    """

    task: str | None = None
    format_id: str | None = None
    tools: dict[str, str] = {}
    captures: dict[str, str] = {}
    basis: str = "unknown"
    renderer: str | None = None
    environment: Raw | UnsetType = UNSET
    decisions: str = "tool_calls"
    agent: str | None = None
    agent_version: str | None = None
    cwd: str | None = None
    git: str | None = None
    parent_session: str | None = None
    thread: str | None = None
    redactions: tuple[Redaction, ...] = ()


class SessionEnded(Payload, frozen=True):
    """How the run ended: `success`, `failure`, or another word of the source."""

    status: str | None = None


class UserMessage(Payload, frozen=True):
    """What a user, or a harness in a user's place, said; `content` is kept where it is no text."""

    text: str = ""
    content: Raw | UnsetType = UNSET
    role: str = "user"
    redactions: tuple[Redaction, ...] = ()


class Sampling(Payload, frozen=True):
    """Sampling parameters; an absent one was not recorded. `extra` holds further ones by name."""

    temperature: float | int | None = None
    top_p: float | int | None = None
    top_k: int | None = None
    seed: int | None = None
    max_tokens: int | None = None
    extra: dict[str, Any] = {}


class Wire(Payload, frozen=True):
    """How our recorder saw one exchange on the wire.

    Attributes:
        exchange: its id in the session; request, answer and error of one exchange share it.
        endpoint: method and URL, without credentials, query values or our own path token.
        headers: those that say what the bytes mean or who served; lower case, no credential.
        status: HTTP status of the answer.
        attempt: 1-based, among requests of one flow that repeat the same bytes after an error.
        started_ns, first_byte_ns, ended_ns: UTC nanoseconds.
        sha256: of the body's bytes as they were passed on, hex.
        size: of the body, in bytes.
        outcome: `complete`, `cancelled` (by the agent), `cut` (the server ended too early) or
            `failed` (no answer came).
        added: fields that the recorder itself put into the request.
        encoding: content encodings of the bytes, first applied first.
    """

    exchange: str
    endpoint: str | None = None
    headers: dict[str, str] = {}
    status: int | None = None
    attempt: int | None = None
    started_ns: int | None = None
    first_byte_ns: int | None = None
    ended_ns: int | None = None
    sha256: str | None = None
    size: int | None = None
    outcome: str | None = None
    added: tuple[str, ...] = ()
    encoding: tuple[str, ...] = ()


class ModelRequest(Payload, frozen=True):
    """What was sent to a model.

    `body` is the exact string sent to the API named by `api` (`openai.chat`, `openai.responses`,
    `anthropic.messages`); `context` the exact text that entered the model; `parts` a message list
    that was normalised on the way and is *not* what was sent. `truncated` says that the recorder
    cut one of them. `by_reference` names inputs that the request only points at.
    """

    model: str | None = None
    api: str | None = None
    body: str | None = None
    context: str | None = None
    parts: Raw | UnsetType = UNSET
    sampling: Sampling | None = None
    truncated: bool = False
    redactions: tuple[Redaction, ...] = ()
    by_reference: tuple[str, ...] = ()
    step: int | None = None
    wire: Wire | None = None


class Usage(Payload, frozen=True):
    """Tokens and cost of one response; `cost_usd` is an exact decimal string."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_tokens: int | None = None
    cost_usd: str | None = None


class ModelResponse(Payload, frozen=True):
    """What a model answered, without its tool calls (each is a `tool.call` event of the node).

    `model` is the model that served; `chosen_tokens` are the sampled token ids; `logits` says that
    the full logit vector is stored. `content` keeps a multi-part answer that is no plain text.
    """

    text: str = ""
    reasoning: str | None = None
    model: str | None = None
    fingerprint: str | None = None
    stop_reason: str | None = None
    usage: Usage | None = None
    chosen_tokens: tuple[int, ...] | None = None
    has_logits: bool = False
    redactions: tuple[Redaction, ...] = ()
    truncated: bool = False
    step: int | None = None
    content: Raw | UnsetType = UNSET
    wire: Wire | None = None


class ModelError(Payload, frozen=True):
    """A model call that failed: HTTP status, 1-based attempt, delay before the next in seconds."""

    status: int | None = None
    attempt: int | None = None
    delay_s: float | None = None
    message: str | None = None
    step: int | None = None
    wire: Wire | None = None
    redactions: tuple[Redaction, ...] = ()


class ToolCall(Payload, frozen=True):
    """A tool use. Arguments are recorded as JSON (`arguments`) or as text (`arguments_text`).

    Both absent: no arguments were recorded, which matching treats as `{}` unless `not_recorded`
    says that the writer left them out. `is_provider_side`: the provider ran it, no result follows.
    """

    tool: str
    arguments: Raw | UnsetType = UNSET
    arguments_text: str | None = None
    is_not_recorded: bool = False
    is_provider_side: bool = False
    truncated: bool = False
    redactions: tuple[Redaction, ...] = ()


class ToolPermission(Payload, frozen=True):
    """A permission decision on a call: `asked`, `allowed` or `denied`, and by whom."""

    decision: str
    by: str | None = None
    tool: str | None = None
    reason: str | None = None


class ToolResult(Payload, frozen=True):
    """A tool's answer. An absent `result` was not recorded; `null` is a value.

    `truncated`: the *recorder* cut it (an ellipsis written by the tool is none);
    `original_chars`: its length before the cut. `is_external`: its call lies before the record.
    `seam` is where our recorder saw it: `tool` (the function itself), `mcp` (a server on stdio),
    `mcp_http`, `hook` or `request` (in what the agent sent next); a rerun can serve it at the first
    two. `executed` holds the arguments that the tool was run with, where they are not those of the
    call.
    """

    status: str = "ok"
    result: Raw | UnsetType = UNSET
    tool: str | None = None
    truncated: bool = False
    original_chars: int | None = None
    redactions: tuple[Redaction, ...] = ()
    is_external: bool = False
    exit_code: int | None = None
    seam: str | None = None
    executed: Raw | UnsetType = UNSET


class ContextReplaced(Payload, frozen=True):
    """A compaction: `before` gave way to `after` in the model's context (texts, where recorded)."""

    before: Raw | UnsetType = UNSET
    after: Raw | UnsetType = UNSET
    trigger: str | None = None
    redactions: tuple[Redaction, ...] = ()


class Read(Payload, frozen=True):
    """A clock or PRNG read that reached control flow. An absent or null `value` is a gap."""

    name: str
    value: Raw | UnsetType = UNSET
    step: int | None = None
    redactions: tuple[Redaction, ...] = ()


class Derived(Payload, frozen=True):
    """A value computed by the harness: `function`, `version` and its ordered `inputs`."""

    name: str
    function: str | None = None
    version: str | None = None
    inputs: Raw | UnsetType = UNSET
    value: Raw | UnsetType = UNSET
    step: int | None = None
    redactions: tuple[Redaction, ...] = ()


class StateInferred(Payload, frozen=True):
    """An L2 inference, with the model and version that made it."""

    name: str
    value: Raw | UnsetType = UNSET
    model: str | None = None
    version: str | None = None
    redactions: tuple[Redaction, ...] = ()


class PolicyAction(Payload, frozen=True):
    """What a policy did at run time."""

    policy: str
    action: str
    version: str | None = None


class Custom(Payload, frozen=True):
    """Another framework's own kind under its `name`; `data` holds its fields."""

    name: str
    data: Raw | UnsetType = UNSET
    redactions: tuple[Redaction, ...] = ()


class Note(Payload, frozen=True):
    """A record that no rule understands; its bytes stay in the source. `label` is its own type."""

    label: str
    text: str | None = None
    data: Raw | UnsetType = UNSET


class Damage(Payload, frozen=True):
    """Bytes that could not be read: 1-based line (0 = none), offset and size in bytes, and why."""

    line: int
    offset: int
    bytes: int
    reason: str


def payload_type(kind: Kind) -> type[Payload]:  # noqa: C901 - one arm per kind, closed
    """Give the payload struct of a kind."""
    match kind:
        case Kind.SESSION_STARTED:
            return SessionStarted
        case Kind.SESSION_ENDED:
            return SessionEnded
        case Kind.USER_MESSAGE:
            return UserMessage
        case Kind.MODEL_REQUEST:
            return ModelRequest
        case Kind.MODEL_RESPONSE:
            return ModelResponse
        case Kind.MODEL_ERROR:
            return ModelError
        case Kind.TOOL_CALL:
            return ToolCall
        case Kind.TOOL_PERMISSION:
            return ToolPermission
        case Kind.TOOL_RESULT:
            return ToolResult
        case Kind.CONTEXT_REPLACED:
            return ContextReplaced
        case Kind.CLOCK_READ | Kind.PRNG_READ:
            return Read
        case Kind.VALUE_DERIVED:
            return Derived
        case Kind.STATE_INFERRED:
            return StateInferred
        case Kind.POLICY_ACTION:
            return PolicyAction
        case Kind.CUSTOM:
            return Custom
        case Kind.NOTE:
            return Note
        case Kind.DAMAGE:
            return Damage
        case _ as never:
            assert_never(never)


PAYLOAD_DECODERS = {kind: msgspec.json.Decoder(payload_type(kind)) for kind in Kind}


def payload_of(event: Event) -> Any:
    """Decode an event's payload to the struct of its kind.

    Raises:
        ValueError: the stored payload does not have the shape of its kind.
    """
    raw = bytes(event.payload)
    if raw[:1] == b'"':
        return _decode_text_payload(raw, payload_type(event.kind))
    return PAYLOAD_DECODERS[event.kind].decode(raw)


def _decode_text_payload(raw: bytes, kind: type[Payload]) -> Payload:
    """Decode a payload that had to be stored as text, since it holds a lone surrogate."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for name, value in canonical.split_object(msgspec.json.decode(raw, type=str).encode()):
        is_raw = Raw in get_args(hints.get(name))
        fields[name] = Raw(value) if is_raw else canonical.decode_value(value)
    return msgspec.convert(fields, kind)


def dump_payload(payload: Payload) -> Raw:
    """Write a payload as an event holds it.

    A payload with a lone surrogate is stored as a JSON *string* of its text, because strict
    decoders refuse the escape; `payload_of` undoes it.
    """
    data = canonical.encode(payload)
    if b"\\" in data and _may_be_lone(data) and not canonical.is_strict(data):
        return Raw(msgspec.json.encode(data.decode()))
    return Raw(data)


def _may_be_lone(data: bytes) -> bool:
    """Say whether an escape is half of a surrogate pair; raw JSON may write it in either case."""
    return b"\\ud" in data or b"\\uD" in data


def raw_value(value: Raw | UnsetType) -> Any:
    """Decode a recorded JSON value; `UNSET` stays `UNSET` (not recorded)."""
    if isinstance(value, UnsetType):
        return UNSET
    return canonical.decode_value(bytes(value))


def raw_of(value: object) -> Raw:
    """Keep a decoded JSON value in a payload."""
    return Raw(canonical.encode(value))
