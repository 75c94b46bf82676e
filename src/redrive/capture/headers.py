"""What of an exchange's head may be recorded: never a credential.

Knows header names and the parts of a URL. What is not on the list is not kept.
"""

from collections.abc import Mapping
from urllib.parse import urlsplit

from redrive.capture.ports import Headers

KEPT = frozenset({"content-type", "content-encoding", "retry-after", "request-id", "x-request-id"})


def keep_headers(headers: Headers) -> Mapping[str, str]:
    """Give the headers that say what the bytes mean or who served; values of one name joined."""
    kept: dict[str, str] = {}
    for name, value in headers:
        if name in KEPT:
            kept[name] = f"{kept[name]}, {value}" if name in kept else value
    return kept


def safe_url(url: str) -> str:
    """Give a URL without credentials, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
