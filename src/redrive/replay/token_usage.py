"""What a request may be answered with at most, and what its answer says it took: in tokens.

Knows the requests and answers of three APIs. Must not know prices, HTTP or who asked.

Source: the vendors' API references: "Chat", "Responses", "Messages", and their streaming events.
"""

from collections.abc import Mapping
from typing import Any

from redrive import canonical
from redrive.canonical import get_field
from redrive.replay.answers import DONE, count_tokens, decode_answer, is_stream, parse_sse
from redrive.replay.anthropic_answers import MESSAGES
from redrive.replay.body import replace_value
from redrive.replay.openai_answers import CHAT, RESPONSES
from redrive.replay.trial_values import Usage

BOUND_FIELDS: Mapping[str, tuple[str, ...]] = {
    CHAT: ("max_completion_tokens", "max_tokens"),
    RESPONSES: ("max_output_tokens",),
    MESSAGES: ("max_tokens",),
}
"""What bounds an answer, by API; every field that a request states counts, and the greatest."""

_ADDED: Mapping[str, str] = {
    CHAT: "max_tokens",
    RESPONSES: "max_output_tokens",
    MESSAGES: "max_tokens",
}
_COUNT = "n"
# Some servers take any case of a name, and llama.cpp's and vLLM's read these before the API's own.
_OTHER_BOUNDS = frozenset(("n_predict", "num_predict", "max_new_tokens", "best_of"))
_BOUNDING = _OTHER_BOUNDS.union((_COUNT,), *BOUND_FIELDS.values())
_MAX_COUNT = 10**9  # a larger number is no bound, nor a count of tokens
_ENDS = frozenset(("message_stop", "response.completed", "response.incomplete", "response.failed"))


def find_max_tokens(api: str, body: bytes) -> int | None:
    """Find how many tokens an answer may have at most, all its choices together.

    Args:
        api: `openai.chat`, `openai.responses` or `anthropic.messages`; any other has no bound.
        body: of the request.

    Returns:
        `None` where nothing holds: no field bounds it, or one is no positive integer (-1 means "no
        end" to some servers), or stands twice or under another name that some servers read.
    """
    try:
        members = canonical.split_object(body)
    except ValueError:
        return None
    fields: dict[str, list[bytes]] = {}
    for name, value in members:
        fields.setdefault(name, []).append(value)
    own = (*BOUND_FIELDS.get(api, ()), _COUNT)
    if any(name.casefold() in _BOUNDING and name not in own for name in fields):
        return None
    names = [name for name in BOUND_FIELDS.get(api, ()) if _is_stated(fields, name)]
    stated = [_read_count(fields[name]) for name in names]
    known = [count for count in stated if count is not None]
    choices = 1
    if api == CHAT and _is_stated(fields, _COUNT):
        choices = _read_count(fields[_COUNT]) or 0
    if not known or len(known) < len(stated) or not choices:
        return None
    return max(known) * choices


def _is_stated(fields: Mapping[str, list[bytes]], name: str) -> bool:
    return name in fields and fields[name] != [b"null"]


def _read_count(values: list[bytes]) -> int | None:
    """Read a positive integer that stands once."""
    value = canonical.decode_value(values[0]) if len(values) == 1 else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value <= _MAX_COUNT else None


def add_bound(api: str, body: bytes, max_tokens: int) -> tuple[bytes, tuple[str, ...]]:
    """Put a bound into a request that states none; every other byte stays.

    Returns:
        The body, and the names of what was added: none where a bound is stated, whatever it says,
        the API is another, or the body is not the text of one JSON object.
    """
    if api not in _ADDED:
        return body, ()
    try:
        text = body.decode()
        names = {name for name, value in canonical.split_object(body) if value != b"null"}
        if names & set(BOUND_FIELDS[api]):
            return body, ()
        return replace_value(text, _ADDED[api], max_tokens).encode(), (_ADDED[api],)
    except ValueError:
        return body, ()


def read_usage(data: bytes) -> Usage | None:
    """Read what a whole answer says that it took, streamed or not.

    Args:
        data: the body, content encodings undone; of any of the three APIs.

    Returns:
        `None` where it states no counts of both input and output, or is not whole: what a stream
        says before its end may be a part.
    """
    try:
        stated = _stream_usage(data) if is_stream(data) else decode_answer(data).get("usage")
    except ValueError:
        return None
    counts = count_tokens(stated)
    if any(not 0 <= count <= _MAX_COUNT for count in counts.values()):
        return None
    if "completion_tokens" in counts and "prompt_tokens" in counts:
        return Usage(
            counts["prompt_tokens"],
            counts["completion_tokens"],
            counts.get("prompt_tokens_details.cached_tokens", 0),
        )
    if "input_tokens" not in counts or "output_tokens" not in counts:
        return None
    read = counts.get("cache_read_input_tokens", 0)
    written = counts.get("cache_creation_input_tokens", 0)
    return Usage(
        # Anthropic counts the cached tokens beside the input, OpenAI within it.
        counts["input_tokens"] + read + written,
        counts["output_tokens"],
        read + counts.get("input_tokens_details.cached_tokens", 0),
        written,
    )


def read_served(data: bytes) -> str | None:
    """Name who answered, as far as the answer says: `MODEL`, or `MODEL@FINGERPRINT`.

    Half a surrogate pair in it becomes an escape: it is a name, and stands in the ledger as a text.
    """
    try:
        events = parse_sse(data) if is_stream(data) else iter((data.decode(),))
        for event in events:
            if event == DONE:
                break
            value = _innermost(decode_answer(event.encode()))
            model = get_field(value, "model", str)
            mark = get_field(value, "system_fingerprint", str)
            if model:
                return canonical.safe_text(f"{model}@{mark}" if mark else model)
    except ValueError:
        pass
    return None


def _innermost(value: dict[str, Any]) -> dict[str, Any]:
    """Give the answer that an event carries; an answer itself, or a chunk of one, carries none."""
    for name in ("message", "response"):
        inner = get_field(value, name, dict)
        if inner is not None:
            return inner
    return value


def _stream_usage(data: bytes) -> dict[str, Any] | None:
    """Give the counts that a stream ends with; later ones replace earlier ones, name by name."""
    usage: dict[str, Any] = {}
    is_whole = False
    for event in parse_sse(data):
        if event == DONE:
            is_whole = True
            break
        value = decode_answer(event.encode())
        usage |= get_field(_innermost(value), "usage", dict) or {}
        is_whole = is_whole or value.get("type") in _ENDS
    return usage if is_whole else None
