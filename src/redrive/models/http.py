"""Sends a request body to a model's API exactly as it was recorded, and reads the whole answer.

Knows HTTP and how to keep credentials out of every message. Must not know what
an answer means (that is `replay.answers`), and must not retry: each attempt is a decision
of its own, and a provider's error is something the report must show.

`httpx2` is imported on first use, so that commands without a model start without it.
"""

import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from redrive.errors import ModelError, UsageError
from redrive.replay.answers import error_reason

MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_REASON_CHARS = 200
_USER_AGENT = "redrive"
_MASK = "[redacted]"
_KEY_LIKE = re.compile(r"(?<![A-Za-z])(?:sk|key)-\w|\*{3}")
_OVERLAP_CHARS = 4


class Endpoint(msgspec.Struct, frozen=True):
    """Where a model is: the spec's NAME (may be empty), and its base URL without a last slash."""

    name: str
    url: str


def parse_endpoint(kind: str, argument: str) -> Endpoint:
    """Parse `NAME@URL`; NAME may be empty: the recorded model is then asked for.

    Raises:
        UsageError: no http(s) URL, or one that carries credentials, a query or a fragment.
    """
    name, separator, url = argument.rpartition("@http")
    hint = f"{kind}:NAME@URL, such as {kind}:my-model@http://127.0.0.1:8080/v1"
    if not separator:
        raise UsageError(f"{kind}: no NAME@URL in the model spec", hint=hint)
    parts = urlsplit("http" + url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{kind}: the model spec names no http or https host", hint=hint)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError(
            f"{kind}: the URL carries credentials, a query or a fragment",
            hint="keys are read from the environment; a spec stands in reports",
        )
    return Endpoint(name, f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}")


def body_bytes(body: str) -> bytes:
    """Encode a body to the bytes that go over the wire.

    Raises:
        UsageError: the body holds a lone surrogate, which no UTF-8 request can carry.
    """
    try:
        return body.encode()
    except UnicodeEncodeError as error:
        code = ord(body[error.start])
        raise UsageError(
            f"the request body holds the lone surrogate U+{code:04X} at character {error.start}, "
            "which cannot be sent as it was recorded",
            hint="no re-send of this step is possible; a script can still be replayed",
        ) from error


class HttpClient:
    """Posts bodies to one API: no proxy from the environment, no redirects, no retries.

    Args:
        headers: sent with each request.
        secret: the credential among them, which never reaches a message; empty if there is none.
        timeout_s: for one answer as a whole.
    """

    def __init__(self, headers: Mapping[str, str], secret: str, timeout_s: float) -> None:
        self._headers = {"content-type": "application/json", "user-agent": _USER_AGENT, **headers}
        self._secret = secret
        self._timeout_s = timeout_s
        self._client: Any = None

    def post(self, url: str, body: str) -> bytes:
        """Post one body and read the whole answer, streamed or not.

        Returns:
            The bytes of an answer with status 200, decompressed.

        Raises:
            ModelError: no connection, no answer in time, another status, or half an answer.
            UsageError: `httpx2` is missing, or the body cannot be sent.
        """
        content = body_bytes(body)
        httpx = import_httpx()
        if self._client is None:
            # A kept connection may be closed by the server just when it is used again, and without
            # a retry that would look like half an answer: each request gets its own.
            self._client = httpx.Client(
                trust_env=False,
                follow_redirects=False,
                timeout=self._timeout_s,
                limits=httpx.Limits(max_keepalive_connections=0),
            )
        try:
            return self._send(self._client, url, content)
        except httpx.TimeoutException as error:
            raise ModelError(f"no whole answer within {self._timeout_s:g} s", where=url) from error
        except httpx.ConnectError as error:
            raise ModelError(
                f"no connection to the model: {self._redact(str(error))}",
                where=url,
                hint="is the server running, and the URL right?",
            ) from error
        except httpx.HTTPError as error:
            raise ModelError(
                f"half an answer, or none: {self._redact(str(error))}", where=url
            ) from error

    def _send(self, client: Any, url: str, content: bytes) -> bytes:
        deadline = time.monotonic() + self._timeout_s
        chunks: list[bytes] = []
        size = 0
        with client.stream("POST", url, content=content, headers=self._headers) as response:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    raise ModelError(f"an answer of more than {MAX_ANSWER_BYTES} bytes", where=url)
                if time.monotonic() > deadline:
                    raise ModelError(f"no whole answer within {self._timeout_s:g} s", where=url)
            data = b"".join(chunks)
            if response.status_code != 200:
                raise ModelError(
                    self._status_message(response.status_code, data),
                    where=url,
                    hint=_STATUS_HINTS.get(response.status_code, ""),
                )
        return data

    def _status_message(self, status: int, data: bytes) -> str:
        reason = self._redact(error_reason(data))
        return f"the model answered {status}" + (f": {reason}" if reason else "")

    def _redact(self, text: str) -> str:
        return redact(text, self._secret)

    def quoting_error(self, message: str, url: str) -> ModelError:
        """Make a `ModelError` whose message may quote the provider."""
        return ModelError(self._redact(message), where=url)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None


_STATUS_HINTS = {
    401: "set the provider's API key in the environment",
    403: "the API key may not use this model",
    404: "check the model name and the URL",
    429: "wait for the provider's rate limit, then run again",
}


def import_httpx() -> Any:
    """Import the HTTP library.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import httpx2
    except ImportError as error:
        raise UsageError(
            "sending to a model needs httpx2, which is not installed",
            hint="pip install 'redrive[http]'",
        ) from error
    return httpx2


def redact(text: str, secret: str) -> str:
    """Make a provider's text fit for one line: no secret nor half of one, no control characters.

    A provider echoes a refused key in part, so each word that shares its beginning or end with the
    secret, or that looks like a key, is masked as a whole.
    """
    words = [_mask(word, secret) for word in text.split()]
    line = "".join(char if char.isprintable() else "?" for char in " ".join(words))
    return line if len(line) <= MAX_REASON_CHARS else line[: MAX_REASON_CHARS - 1] + "…"


def _mask(word: str, secret: str) -> str:
    ends = (secret[:_OVERLAP_CHARS], secret[-_OVERLAP_CHARS:]) if secret else ()
    is_secret = _KEY_LIKE.search(word) is not None or any(end in word for end in ends)
    return _MASK if is_secret else word
