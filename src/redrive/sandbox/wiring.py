"""What connects a confined run, while it lasts, with whoever started it.

Knows streams and the one descriptor that a command may inherit. Starts nothing.

Source: DESIGN.md §6 "It holds one descriptor".
"""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event

import msgspec

from redrive.errors import UsageError


class Wiring(msgspec.Struct, frozen=True):
    """What connects a run, while it lasts, with whoever started it.

    Args:
        channel: one end of a connected pair of Unix sockets, inherited under its own number by the
            command alone. It belongs to the run: it is closed here once the command has it.
        on_stdout: called with each piece of the output as it comes, from the thread that runs;
            what it does takes the run's time, and an error of it ends the run.
        on_stderr: the same.
        passed_bytes: how much of each output is passed on at most; `None` for all of it.
        stop: the run is ended as soon as it is set.
    """

    channel: socket.socket | None = None
    on_stdout: Callable[[bytes], object] | None = None
    on_stderr: Callable[[bytes], object] | None = None
    passed_bytes: int | None = None
    stop: Event | None = None


UNWIRED = Wiring()


def take_channel(stack: ExitStack, channel: socket.socket | None) -> tuple[int, ...]:
    """Take over the one descriptor that a command may inherit; a file would be a way out."""
    if channel is None:
        return ()
    stack.callback(channel.close)
    try:
        is_pair = channel.family == socket.AF_UNIX and not channel.getpeername()
    except OSError:
        is_pair = False
    if not is_pair:
        raise UsageError("a sandbox is handed one end of a connected pair of Unix sockets only")
    return (channel.fileno(),)


class Kept:
    """The first bytes of a stream, up to a limit; another limit holds for what is passed on."""

    def __init__(
        self,
        limit_bytes: int,
        pass_on: Callable[[bytes], object] | None = None,
        passed_bytes: int | None = None,
    ) -> None:
        self.data = bytearray()
        self.is_cut = False
        self._limit_bytes = limit_bytes
        self._pass_on = pass_on
        self._to_pass_bytes = passed_bytes

    def take(self, chunk: bytes) -> None:
        """Keep and pass on the next piece, each as far as its limit goes."""
        room = self._limit_bytes - len(self.data)
        self.data += chunk[:room]
        self.is_cut = self.is_cut or len(chunk) > room
        if self._to_pass_bytes is not None:
            chunk = chunk[: self._to_pass_bytes]
            self._to_pass_bytes -= len(chunk)
        if chunk and self._pass_on is not None:
            self._pass_on(chunk)
