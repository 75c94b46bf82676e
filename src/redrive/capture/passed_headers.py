"""What the recording proxy passes on of the headers of a request and of an answer.

Pure functions over raw header lists: names as they were written, in the order sent. Knows HTTP's
rules for intermediaries. Must not know sockets.

Source: RFC 9110 §7.6.1 (hop-by-hop fields), §12.5.3 (Accept-Encoding).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from redrive.capture.ports import Headers

RawHeaders = list[tuple[bytes, bytes]]
Fields = Mapping[bytes, bytes]
"""Headers by name in lower case; of a name that comes twice, the first."""

FLOW = b"x-redrive-flow"
RECORDED = b"x-redrive-recorded"
_OURS = b"x-redrive-"

# `Expect` is answered here, since the whole body is taken before it goes on.
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"te", b"upgrade", b"http2-settings")
)
_FRAMING = frozenset((b"content-length", b"transfer-encoding"))
_REQUEST_ONLY = frozenset((b"expect", b"trailer", b"proxy-authorization"))

DECODABLE = frozenset((b"identity", b"gzip", b"x-gzip", b"deflate", b"zstd"))
"""The content codings that redrive can decode; an answer in another would be no readable record."""


def request_headers(headers: RawHeaders, host: bytes, n_body: int) -> RawHeaders:
    """Give the headers that go to the upstream.

    Hop-by-hop fields and our own (`x-redrive-…`) are left out, `Host` names the upstream, codings
    that redrive cannot decode are taken out of `Accept-Encoding`, and the body's length stands
    where the client framed its body; it is absent where the client sent none.

    Args:
        headers: raw, as the client sent them.
        host: the upstream's authority.
        n_body: length of the body that is sent, in bytes.
    """
    named = _named_by_connection(headers)
    passed: RawHeaders = []
    is_framed = False
    for name, value in headers:
        lower = name.lower()
        if lower in _HOP_BY_HOP or lower in _REQUEST_ONLY or lower.startswith(_OURS):
            continue
        if lower == b"host":
            passed.append((name, host))
        elif lower in _FRAMING:
            if not is_framed:
                is_framed = True
                is_length = lower == b"content-length"
                passed.append((name if is_length else b"Content-Length", b"%d" % n_body))
        elif lower in named:
            continue
        elif lower == b"accept-encoding":
            passed.append((name, accepted_codings(value)))
        else:
            passed.append((name, value))
    return passed


def response_headers(headers: RawHeaders) -> RawHeaders:
    """Give the headers that go to the client: all but the hop-by-hop ones.

    A length beside chunks is left out as well: the chunks count, and the client gets chunks.
    """
    named = _named_by_connection(headers)
    is_chunked = any(name.lower() == b"transfer-encoding" for name, _ in headers)
    return [
        (name, value)
        for name, value in headers
        if (lower := name.lower()) not in _HOP_BY_HOP
        and lower != b"transfer-encoding"
        and not (is_chunked and lower == b"content-length")
        and (lower not in named or lower == b"content-length")
    ]


def accepted_codings(value: bytes) -> bytes:
    """Narrow an `Accept-Encoding` to what redrive can decode; untouched where it is already.

    `*` goes too, since it allows every coding. `identity` where nothing is left.
    """
    offers = [offer.strip() for offer in value.split(b",")]
    kept = [o for o in offers if o.split(b";")[0].strip().lower() in DECODABLE]
    if len(kept) == len(offers):
        return value
    return b", ".join(kept) or b"identity"


def replaced(headers: RawHeaders, given: Headers, dropped: frozenset[str]) -> RawHeaders:
    """Put given headers in the place of those of the same name, and leave some out.

    Args:
        headers: raw, in the order sent.
        given: these go last.
        dropped: names in lower case.
    """
    gone = dropped | {name.lower() for name, _ in given}
    kept = [item for item in headers if _word_of(item[0]) not in gone]
    return kept + [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given]


def moved_location(value: bytes, root: bytes, path: bytes, base: bytes) -> bytes:
    """Point a redirect that stays on the upstream at the proxy, so that the agent stays on it.

    Args:
        value: of `Location`.
        root: the upstream's URL without a last slash.
        path: the path in `root`; may be empty.
        base: the proxy's URL for this upstream, as the client knows it.
    """
    for start in (root, path) if not value.startswith(b"//") else (root,):
        rest = value[len(start) :]
        if value.startswith(start) and (rest[:1] in (b"/", b"?") or (start and not rest)):
            return base + rest
    return value


def lowered(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Give headers as the ports want them: names in lower case, in the order sent."""
    return tuple([(_word_of(name), value.decode("latin-1")) for name, value in headers])


def fields_of(headers: RawHeaders) -> Fields:
    """Index headers by name, for looking some up."""
    return {name.lower(): value for name, value in reversed(headers)}


def dump_lines(headers: RawHeaders) -> bytes:
    """Write headers as lines of a message; they were parsed, so none holds a line's end."""
    return b"".join([b"%s: %s\r\n" % item for item in headers])


@lru_cache(maxsize=512)
def _word_of(name: bytes) -> str:
    return name.lower().decode("latin-1")


def _named_by_connection(headers: RawHeaders) -> frozenset[bytes]:
    """Give the fields that `Connection` makes hop-by-hop."""
    values = [value for name, value in headers if name.lower() == b"connection"]
    if not values:
        return frozenset()
    return frozenset(part.strip().lower() for value in values for part in value.split(b","))
