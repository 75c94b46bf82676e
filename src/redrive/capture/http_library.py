"""The HTTP/1.1 library of the recording proxy, or the hint that brings it.

`h11` belongs to the extra `proxy`. Only modules of the proxy import this one, and they are imported
when a proxy is wanted, so that every other verb starts without it.
"""

from redrive.errors import UsageError

try:
    import h11
except ImportError as error:
    raise UsageError(
        "the recording proxy needs h11, which is not installed",
        hint="pip install 'redrive[proxy]'",
    ) from error

__all__ = ["h11"]
