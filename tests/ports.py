"""A port of the loopback that nobody else is given while a test needs it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """Give a port on which nobody listens; only who asks for this very port can do so.

    A port that was merely found free may be taken before it is used, by any process that connects
    somewhere. Held so, connections to it are refused, until somebody listens there with
    `SO_REUSEADDR`, as `socket.create_server` does.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
