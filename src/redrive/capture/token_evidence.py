"""Asks a model's endpoint for the evidence that closes sampling: log-probabilities, token ids.

Pure functions over request bodies: every byte but the added members stays. A change is only made
where it is allowed (`--token-evidence`), and it is recorded by name as what it is.

Source: DESIGN.md §4 condition 3; `replay.body`.
"""

from collections.abc import Iterable

from redrive.replay.body import has_member, replace_value
from redrive.replay.openai_answers import CHAT

CHAT_EVIDENCE = ("logprobs",)
"""Members of a chat body that are set to `true` where they are absent."""

_DIGESTS = frozenset(
    ("content-digest", "content-encoding", "content-md5", "digest", "repr-digest", "signature")
)


def ask_for_tokens(
    body: bytes, api: str | None, names: Iterable[str], members: Iterable[str] = CHAT_EVIDENCE
) -> tuple[bytes, tuple[str, ...]]:
    """Add members to a chat request that ask for evidence of its tokens.

    A member that is there, whatever its value, is the agent's own choice and stays. A body that is
    compressed, or that a header of the request signs, stays as it is, and so does one that is no
    JSON object in UTF-8.

    Args:
        body: of the request.
        api: the API that it speaks; only `openai.chat` has these members.
        names: of the request's headers, in lower case.
        members: what to ask for; engines know others, such as `return_token_ids`.

    Returns:
        The body, and the names of what was added, in order.
    """
    if api != CHAT or any(name in _DIGESTS or name.startswith("x-amz-") for name in names):
        return body, ()
    try:
        text = body.decode()
        absent = tuple(name for name in members if not has_member(text, name))
        for name in absent:
            text = replace_value(text, name, value=True)
    except ValueError:
        return body, ()
    return text.encode(), absent
