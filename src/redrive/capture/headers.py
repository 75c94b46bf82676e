"""Which headers and which part of an address are recorded: never what opens a door.

Knows names of headers and of query parameters. Must not know who sends them. What is not listed is
left out: a gateway may call its credential anything.

Source: docs/redaction.md "What is never recorded".
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

__all__ = ["keep_headers", "safe_url"]

# They say what the bytes mean, which model and engine answered, and what the server allowed.
_KEPT = frozenset(
    {
        "accept",
        "accept-encoding",
        "age",
        "apim-request-id",
        "cf-cache-status",
        "cf-ray",
        "content-encoding",
        "content-length",
        "content-type",
        "date",
        "idempotency-key",
        "mcp-protocol-version",
        "request-id",
        "retry-after",
        "retry-after-ms",
        "server",
        "traceparent",
        "transfer-encoding",
        "user-agent",
        "via",
        "x-accel-buffering",
        "x-cache",
        "x-envoy-upstream-service-time",
        "x-ms-client-request-id",
        "x-ms-region",
        "x-ms-request-id",
        "x-request-id",
        "x-should-retry",
        "x-stainless-arch",
        "x-stainless-async",
        "x-stainless-helper-method",
        "x-stainless-lang",
        "x-stainless-os",
        "x-stainless-package-version",
        "x-stainless-read-timeout",
        "x-stainless-retry-count",
        "x-stainless-runtime",
        "x-stainless-runtime-version",
        "x-stainless-timeout",
    }
)
_KEPT_BEGINNINGS = ("anthropic-", "openai-")
_LIMITS = ("anthropic-ratelimit-", "x-ratelimit-")
# What a gateway may have put under one of these beginnings.
_DENIED = re.compile("key|token|secret|auth|cookie|passw|credential|session|signature")
# `Apache/2.4 (Unix) OpenSSL/3`, `Name/1.0 (comment)`: what stands in these fields is free text, and
# a client may put anything there.
_FREE_TEXT = frozenset({"user-agent", "server", "via"})
_PRODUCT = re.compile(r"[A-Za-z][\w.+-]{0,40}(?:/[\w.+-]{1,24})?")
_MAX_VALUE_CHARS = 400
# A value that names a version or an alternative representation, of a parameter that is public.
_KEPT_QUERY = {
    "api-version": re.compile(r"[0-9A-Za-z.-]{1,32}"),
    "alt": re.compile(r"[a-z]{1,16}"),
    "beta": re.compile(r"true|false"),
}
_QUERY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,40}(?:\[\])?")
_MASK = "…"


def keep_headers(headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give the headers of a request or an answer that are recorded.

    Args:
        headers: names in any case; a name may come twice in pairs.

    Returns:
        Names in lower case; values of a name that came twice are joined by `, `. Of `user-agent`,
        `server` and `via` only names and versions of products are kept. A value longer than 400
        characters is left out.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    kept: dict[str, str] = {}
    for name, value in pairs:
        low = name.strip().lower()
        if not _is_kept(low):
            continue
        shown = _products(value) if low in _FREE_TEXT else value.strip()
        if low in kept:
            shown = f"{kept[low]}, {shown}"
        if shown and len(shown) <= _MAX_VALUE_CHARS:
            kept[low] = shown
    return kept


def _is_kept(name: str) -> bool:
    if name in _KEPT or name.startswith(_LIMITS):
        return True
    return name.startswith(_KEPT_BEGINNINGS) and _DENIED.search(name) is None


def _products(value: str) -> str:
    """Give the products of a `User-Agent`, without comments and what has no form of one."""
    bare = re.sub(r"\([^()]*\)", " ", value)
    return " ".join(word for word in bare.split() if _PRODUCT.fullmatch(word))


def safe_url(url: str) -> str:
    """Give an address without what may open a door.

    User and password, the fragment and the values of the query are left out; names of query
    parameters stay (`?key=…`), and so do values that name an API's version.

    Returns:
        The address; where it cannot be read, what of it stands behind the last `@` and before the
        query.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return _behind_userinfo(url)
    if port and "@" in url and "@" not in parts.netloc:
        return _behind_userinfo(url)  # a password that holds a `/`, `?` or `#`
    host = f"[{host}]" if ":" in host else host
    begin = f"{parts.scheme}://{host}{port}" if parts.netloc else ""
    if parts.scheme and not parts.netloc:
        begin = f"{parts.scheme}:"
    query = "&".join(filter(None, map(_safe_parameter, parts.query.split("&"))))
    return begin + parts.path + (f"?{query}" if query else "")


def _behind_userinfo(url: str) -> str:
    return re.split("[?#]", url.rpartition("@")[2], maxsplit=1)[0]


def _safe_parameter(parameter: str) -> str:
    name, sign, value = parameter.partition("=")
    if not _QUERY_NAME.fullmatch(name):
        return _MASK if parameter else ""
    if not sign:
        return _MASK  # a value without a name
    allowed = _KEPT_QUERY.get(name.lower())
    is_public = allowed is not None and allowed.fullmatch(value) is not None
    return f"{name}={value if is_public else _MASK}"
