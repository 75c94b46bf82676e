"""Stands between an MCP client and a server on stdio, and lets an observer see each line.

Starts the real server as a child. What either side writes reaches the other byte for byte and in
order; stderr is the child's own. Lines are what the protocol frames messages by: a chunk that ends
one is passed on, in one write, once the observer has seen the line; what does not end a line yet
goes on at once. Must not know the protocol, nor who records.

Whichever side ends first, the other is told as if nobody stood between them: the end of the
client's input closes the child's, the child's end closes the client's, and its exit code is the
result. Signals reach the child.

Source: Model Context Protocol, "Transports", stdio.
"""

import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

from redrive.capture.mcp import Seen
from redrive.capture.mcp_notes import Side
from redrive.errors import RerunStopped, StoreError, UsageError

MAX_LINE_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_DRAIN_S = 0.05
_FORWARDED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
# Ctrl-C and Ctrl-\ reach every process in the terminal's foreground, the child too.
_FROM_TERMINAL = ("SIGINT", "SIGQUIT")


class LineObserver(Protocol):
    """Is shown each line before it is passed on; see `mcp.McpObserver`."""

    @property
    def is_serving(self) -> bool:
        """Whether the observer may answer lines of the client, which then go nowhere."""
        ...

    def from_client(self, data: bytes) -> Seen:
        """Take a line of the client."""
        ...

    def from_server(self, data: bytes) -> object:
        """Take a line of the server."""
        ...

    def skipped(self, side: str, n_bytes: int, reason: str) -> None:
        """Take that a line is passed on which is too long to be shown."""
        ...


class LineSplitter:
    """Puts chunks together to lines, and shows each to who is to see it.

    Args:
        show: takes a whole line, without its end.
        skip: takes the size of a line that is too long to be held.
        max_bytes: the longest line that is held.
    """

    def __init__(
        self, show: Callable[[bytes], object], skip: Callable[[int], None], max_bytes: int
    ) -> None:
        self._show = show
        self._skip = skip
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._n_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Take the next chunk; every line that ends in it has been shown on return."""
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            self._hold(end)
            self.end()
        self._hold(rest)

    def end(self) -> None:
        """Take the end of a line, or of the stream."""
        parts, n_bytes = self._parts, self._n_bytes
        self._parts, self._n_bytes = [], 0
        if n_bytes > self._max_bytes:
            self._skip(n_bytes)
        elif n_bytes:
            self._show(b"".join(parts))

    def _hold(self, part: bytes) -> None:
        self._n_bytes += len(part)
        if self._n_bytes > self._max_bytes:
            self._parts.clear()
        elif part:
            self._parts.append(part)


class _Pipe:
    """A descriptor that is written to, and closed once; of both threads, one at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Write, in one go unless the pipe is full."""
        with self._lock:
            _write_all(self._descriptor, data)

    def close(self) -> None:
        """Let the reader see the end."""
        with suppress(OSError):
            os.close(self._descriptor)


class _Relay(threading.Thread):
    """Passes one direction on until either end is gone.

    Args:
        source: descriptor that is read.
        target: where what is read goes.
        take: shows a chunk, and gives what of it is passed on now; at the end of the stream it is
            given the empty chunk.

    Attributes:
        is_at_rest: whether it waits for the next chunk, with nothing in its hands.
        error: why it stopped, where that was the observer's will.
    """

    def __init__(self, source: int, target: _Pipe, take: Callable[[bytes], bytes]) -> None:
        super().__init__(daemon=True)
        self.is_at_rest = False
        self.error: StoreError | RerunStopped | None = None
        self._source = source
        self._target = target
        self._take = take

    def run(self) -> None:
        """Relay; then close both ends, so that each side sees that the other is gone."""
        try:
            while chunk := self._read():
                self._target.write(self._take(chunk))
            self._target.write(self._take(b""))
        except (StoreError, RerunStopped) as error:  # this must not be passed on
            self.error = error
        except OSError:
            pass  # the reader is gone
        finally:
            with suppress(OSError):
                os.close(self._source)
            self._target.close()

    def _read(self) -> bytes:
        self.is_at_rest = True
        _wait_for(self._source, select.POLLIN)
        self.is_at_rest = False
        return os.read(self._source, _CHUNK_BYTES)

    def drain(self) -> None:
        """Wait until what is there has been passed on.

        The end of the stream is not waited for: a process that the server left behind may hold it.
        """
        while self.is_alive():
            self.join(_DRAIN_S)
            # In this order: with the pipe empty, a relay at rest has passed on all that was in it.
            if not _wait_for(self._source, select.POLLIN, 0) and self.is_at_rest:
                return


class _Showing:
    """Shows each line, and passes every chunk on as it is."""

    def __init__(self, lines: LineSplitter) -> None:
        self._lines = lines

    def take(self, chunk: bytes) -> bytes:
        """Show the lines that end in a chunk; all of it goes on."""
        if chunk:
            self._lines.feed(chunk)
        else:
            self._lines.end()
        return chunk


class _Serving:
    """Passes whole lines on, and answers those that the observer answers.

    Args:
        show: takes a line; what it answers goes back, and the line goes nowhere.
        back: where answers go.
        max_bytes: the longest line that is held; a longer one goes nowhere.
    """

    def __init__(
        self, show: Callable[[bytes], bytes | None], back: _Pipe | None, max_bytes: int
    ) -> None:
        self._show = show
        self._back = back
        self._passed: list[bytes] = []
        self._lines = LineSplitter(self._take_line, lambda _: None, max_bytes)

    def take(self, chunk: bytes) -> bytes:
        """Take a chunk; give the lines that go on, whole."""
        if chunk:
            self._lines.feed(chunk)
        else:
            self._lines.end()
        passed, self._passed = self._passed, []
        return b"".join(passed)

    def _take_line(self, line: bytes) -> None:
        answer = self._show(line)
        if answer is None:
            self._passed.append(line + b"\n")
        elif answer and self._back is not None:
            self._back.write(answer + b"\n")


def _write_all(target: int, chunk: bytes) -> None:
    """Write a chunk; one write, unless the pipe is full."""
    view = memoryview(chunk)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:  # a pipe that the client opened so
            _wait_for(target, select.POLLOUT)


def _wait_for(descriptor: int, event: int, timeout_ms: int | None = None) -> bool:
    """Wait until a descriptor can be read or written, or has come to its end."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(timeout_ms))


@contextmanager
def forwarded_signals(child: "subprocess.Popen[bytes]") -> Iterator[None]:
    """Send the signals that this process gets on to a child; in the main thread alone."""

    def forward(number: int, _: FrameType | None) -> None:
        if signal.Signals(number).name not in _FROM_TERMINAL or not _in_foreground():
            child.send_signal(number)

    before = {number: signal.getsignal(number) for number in _forwarded()}
    for number in before:
        signal.signal(number, forward)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _forwarded() -> list[int]:
    """List the signals to forward: those that are not ignored, nor handled outside of Python."""
    numbers = [getattr(signal, name) for name in _FORWARDED]
    return [n for n in numbers if signal.getsignal(n) not in (None, signal.SIG_IGN)]


def _in_foreground() -> bool:
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def relay_stdio(
    command: Sequence[str],
    observer: LineObserver,
    *,
    client_in: int,
    client_out: int,
    environment: Mapping[str, str],
    max_line_bytes: int = MAX_LINE_BYTES,
) -> int:
    """Run a server between a client and an observer, until the server ends.

    Must be called in the main thread, whose signal handlers it replaces meanwhile.

    Args:
        command: the server and its arguments.
        observer: is shown each line; a `StoreError` of it ends the connection.
        client_in: descriptor that the client writes to; closed on return.
        client_out: descriptor that the client reads from; closed on return.
        environment: of the server.
        max_line_bytes: a longer line is passed on and not shown.

    Returns:
        The server's exit code; negative where a signal ended it.

    Raises:
        UsageError: the server cannot be started.
        StoreError, RerunStopped: the observer's, before the server has begun or after it has ended.
    """
    to_client = _Pipe(client_out)
    from_client, from_server = _takers(observer, to_client, max_line_bytes)
    child = _start(command, environment)
    assert child.stdin is not None and child.stdout is not None  # noqa: S101, PT018 - pipes
    up = _Relay(client_in, _Pipe(os.dup(child.stdin.fileno())), from_client)
    down = _Relay(os.dup(child.stdout.fileno()), to_client, from_server)
    child.stdin.close()
    child.stdout.close()
    with forwarded_signals(child):
        up.start()
        down.start()
        code = child.wait()
        down.drain()
    for relay in (up, down):
        if relay.error is not None:
            raise relay.error
    return code


def _start(command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, bufsize=0
        )
    except OSError as error:
        raise UsageError(f"{command[0]}: {error.strerror}", hint="-- COMMAND…") from error


_Take = Callable[[bytes], bytes]


def _takers(observer: LineObserver, to_client: _Pipe, max_bytes: int) -> tuple[_Take, _Take]:
    """Give what takes the chunks of the client, and of the server."""
    if observer.is_serving:
        serving = _Serving(lambda line: observer.from_client(line).answer, to_client, max_bytes)
        passing = _Serving(lambda line: _see(observer, line), None, max_bytes)
        return serving.take, passing.take
    up = _splitter(observer.from_client, observer, Side.CLIENT, max_bytes)
    down = _splitter(observer.from_server, observer, Side.SERVER, max_bytes)
    return _Showing(up).take, _Showing(down).take


def _see(observer: LineObserver, line: bytes) -> None:
    observer.from_server(line)


def _splitter(
    show: Callable[[bytes], object], observer: LineObserver, side: Side, max_bytes: int
) -> LineSplitter:
    def skip(n_bytes: int) -> None:
        observer.skipped(side, n_bytes, f"a line of more than {max_bytes} bytes")

    return LineSplitter(show, skip, max_bytes)


def end_like(code: int) -> int:
    """End as a server ended that a signal killed; give the exit code where none did."""
    if code >= 0:
        return code
    with suppress(OSError, ValueError):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code
