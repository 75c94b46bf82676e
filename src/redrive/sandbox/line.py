"""The inside of the one descriptor, for a process that speaks through it itself.

Where there is no network inside, a connection is a pair of Unix streams, one end of which is
passed out: `loopback.serve_loopback(..., takes_pairs=True)` serves it. The standard library alone,
so that a confined process needs nothing else for it.

Source: DESIGN.md §6 "It holds one descriptor"; unix(7) "SCM_RIGHTS".
"""

import socket

from redrive.sandbox.shim import CONNECTION, FAILED, STARTED

_REASON_CHARS = 500


def open_stream(channel: socket.socket) -> socket.socket:
    """Make a connection to whoever serves the channel; any thread may, each its own.

    Returns:
        The connected end to keep, a blocking Unix stream. It reads an end at once where the other
        side takes no more connections.

    Raises:
        OSError: nobody serves the channel any more, or there is no descriptor left.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with theirs:
            socket.send_fds(channel, [CONNECTION], [theirs.fileno()])
    except BaseException:
        ours.close()
        raise
    return ours


def tell_started(channel: socket.socket) -> None:
    """Tell outside that all is set up: what comes of the run is from here on its own doing.

    Raises:
        OSError: nobody serves the channel any more.
    """
    channel.send(STARTED)


def tell_failed(channel: socket.socket, reason: str) -> None:
    """Tell outside why it could not be set up; believed only before `tell_started`.

    Raises:
        OSError: nobody serves the channel any more.
    """
    channel.send(FAILED + reason[:_REASON_CHARS].encode("utf-8", "replace"))
