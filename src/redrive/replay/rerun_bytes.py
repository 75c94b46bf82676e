"""How what an agent sends is compared: digests of bodies and values, and the place of a URL.

Knows JSON and URLs as texts. Must not know events.

Source: DESIGN.md §3 "Evidence is bytes", §5.
"""

from collections.abc import Iterable
from hashlib import sha256

from msgspec import Raw, UnsetType

from redrive import canonical
from redrive.record.signature import NOT_RECORDED, canonical_bytes
from redrive.replay.body import remove_values


def body_digest(body: bytes, added: Iterable[str] = ()) -> bytes:
    """Hash a request's body, less what a recorder added to it: 32 bytes."""
    return sha256(without_added(body, added)).digest()


def without_added(body: bytes, added: Iterable[str]) -> bytes:
    """Give a request's body as the agent wrote it; one that is no JSON object had nothing added."""
    names = tuple(added)
    if not names:
        return body
    try:
        return canonical.text_bytes(remove_values(body.decode("utf-8", "surrogatepass"), names))
    except ValueError:
        return body


def value_digest(value: Raw | UnsetType) -> bytes:
    """Hash a JSON value in its canonical form, one without such a form as it is written."""
    if isinstance(value, UnsetType):
        return NOT_RECORDED
    written = canonical_bytes(bytes(value))
    return sha256(bytes(value) if written is None else written).digest()


def split_endpoint(endpoint: str) -> tuple[str, str]:
    """Give method and path of `METHOD URL`."""
    method, _, url = endpoint.partition(" ")
    return method, path_of(url)


def path_of(url: str) -> str:
    """Give the path of a URL, without query and fragment; at least `/`."""
    rest = url.partition("://")[2] or url
    path = rest[rest.find("/") :] if "/" in rest else "/"
    return path.partition("?")[0].partition("#")[0]
