"""Where our recording proxy is, for an agent that runs below `redrive record -- COMMAND`.

Knows URLs and the two environment variables that the proxy's side sets. Must not know HTTP.

Source: issue 4 §1, §2: what goes through both the proxy and a transport is recorded once.
"""

from collections.abc import Mapping

import msgspec

PROXY_VARIABLE = "REDRIVE_PROXY_URL"
UPSTREAMS_VARIABLE = "REDRIVE_UPSTREAMS"
RECORDER_VARIABLE = "REDRIVE_RECORDER"
"""Where a running recorder takes what MCP proxies and hooks see."""
HOOK_ROUTE = "claude-hook"
CONTROL = "redrive"
"""The name that stands where an upstream's would in the proxy's URLs, for routes of our own."""


class Route(msgspec.Struct, frozen=True):
    """Where our recording proxy is, and what stands behind it.

    Attributes:
        proxy_url: begins each URL that goes through the proxy; empty if there is none.
        upstreams: (URL prefix at the proxy, URL that it stands for).
    """

    proxy_url: str = ""
    upstreams: tuple[tuple[str, str], ...] = ()

    def is_proxied(self, url: str) -> bool:
        """Say whether a request to this URL goes through our proxy."""
        return bool(self.proxy_url) and _begins(url, self.proxy_url)

    def real_url(self, url: str) -> str:
        """Give the URL that a request reaches in the end; the longest prefix that fits decides.

        The proxy's own path holds its token, so it is left out even where no upstream is known.
        """
        if not self.is_proxied(url):
            return url
        for prefix, upstream in sorted(self.upstreams, key=lambda pair: -len(pair[0])):
            if _begins(url, prefix):
                return upstream.rstrip("/") + url[len(prefix.rstrip("/")) :]
        scheme, _, rest = self.proxy_url.partition("://")
        return f"{scheme}://{rest.partition('/')[0]}{url[len(self.proxy_url.rstrip('/')) :]}"


def _begins(url: str, prefix: str) -> bool:
    stem = prefix.rstrip("/")
    return url.startswith(stem) and url[len(stem) : len(stem) + 1] in ("", "/", "?", "#")


def parse_route(environ: Mapping[str, str]) -> Route:
    """Read the route that `redrive record` hands to the agent in its environment.

    An unreadable list of upstreams counts as none: the agent must run all the same.
    """
    try:
        upstreams = msgspec.json.decode(environ.get(UPSTREAMS_VARIABLE, "{}"), type=dict[str, str])
    except msgspec.DecodeError:
        upstreams = {}
    return Route(environ.get(PROXY_VARIABLE, ""), tuple(upstreams.items()))
