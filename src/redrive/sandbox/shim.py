"""Stands inside the sandbox, between a command and the one descriptor that leads out.

Run as a script by an interpreter inside, with the standard library alone: its source is all that
it gets. It listens on the sandbox's own loopback, sends the descriptor of each accepted
connection through the channel that it inherited, and runs the command as its child. The command
gets its environment, its input and its outputs, and nothing else: connections to 127.0.0.1 are
answered from outside, and there is no other network.

The channel stays out of the command's reach: it is closed when the command is executed; this
process is not dumpable, so that no other may trace it, read its memory or take its descriptors;
the outside never sends anything, so that there would be nothing to receive.

Usage: shim.py SETUP COMMAND…, with SETUP a JSON object of `channel` (descriptor), `port`, and
`copy`: null, or `source`, `target` and `skipped` (paths below the source that are not copied).

What goes through the channel, one packet each: `connection` with one descriptor; `started` once,
when all is set up; or `failed: REASON` in its place. The exit status is that of the command, as a
shell gives it.

Source: DESIGN.md §6; unix(7) "SCM_RIGHTS"; prctl(2) "PR_SET_DUMPABLE".
"""

import ctypes
import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
from types import FrameType

CONNECTION, STARTED, FAILED = b"connection", b"started", b"failed: "
FORWARDED = (
    *(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH),
)
EXIT_FAILED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, FIRST_SIGNAL_CODE = 125, 126, 127, 128
_BACKLOG = 128
_PR_SET_DUMPABLE = 4
_REASON_CHARS = 500


def hide() -> None:
    """Keep every other process of this user out of this one.

    Raises:
        OSError: the kernel or the C library does not do it.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the shim cannot be hidden")


def is_copied(path: str) -> bool:
    """Say whether a path is a file, a folder or a link, and not a pipe, a socket or a device."""
    mode = os.lstat(path).st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def copy_folder(source: str, target: str, skipped: list[str]) -> None:
    """Copy what a folder holds into one that is there; links stay links, pipes are left out.

    Raises:
        OSError: something cannot be read, or does not fit.
    """

    def ignore(folder: str, names: list[str]) -> list[str]:
        paths = {name: os.path.join(folder, name) for name in names}
        return [n for n, path in paths.items() if path in skipped or not is_copied(path)]

    shutil.copytree(source, target, symlinks=True, ignore=ignore, dirs_exist_ok=True)


class Shim:
    """One listener, one channel, one child."""

    def __init__(self, channel: socket.socket, port: int) -> None:
        self._channel = channel
        self._listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        self._listener.settimeout(0)
        self._waiting: socket.socket | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []
        self._woken, self._waker = os.pipe()
        for descriptor in (self._woken, self._waker):
            os.set_blocking(descriptor, False)

    def run(self, command: list[str]) -> int:
        """Run the command to its end, and hand on connections meanwhile; give its exit status."""
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for forwarded in FORWARDED:
            signal.signal(forwarded, self._forward)
        # Before the command may end this process.
        self._channel.send(STARTED)
        self._channel.settimeout(0)
        try:
            self._child = subprocess.Popen(command, close_fds=True)
        except OSError as error:
            sys.stderr.write(f"{command[0]}: {error.strerror}\n")
            is_there = not isinstance(error, FileNotFoundError)
            return EXIT_NOT_EXECUTABLE if is_there else EXIT_NOT_FOUND
        for number in self._early:
            self._child.send_signal(number)
        while (code := self._child.poll()) is None:
            self._wait()
        return code if code >= 0 else FIRST_SIGNAL_CODE - code

    def _forward(self, number: int, _: FrameType | None) -> None:
        if self._child is None:
            self._early.append(number)
        else:
            self._child.send_signal(number)

    def _wait(self) -> None:
        """Wait until something happened; a connection that cannot be sent yet keeps others back."""
        listener = self._listener.fileno()
        if self._waiting is None:
            ready, _, _ = select.select([self._woken, listener], [], [])
        else:
            ready, _, _ = select.select([self._woken], [self._channel.fileno()], [])
        if self._woken in ready:
            os.read(self._woken, 4096)
        if listener in ready:
            try:
                self._waiting, _ = self._listener.accept()
            except OSError:
                return
        self._send()

    def _send(self) -> None:
        if self._waiting is None:
            return
        try:
            socket.send_fds(self._channel, [CONNECTION], [self._waiting.fileno()])
        except BlockingIOError:
            return
        except OSError:
            # Nobody is there any more: the command sees its connection end.
            pass
        self._waiting.close()
        self._waiting = None


def main(arguments: list[str]) -> int:
    """Set up, run the command, give the exit status; a failure before it is told outside."""
    setup = json.loads(arguments[0])
    channel = socket.socket(fileno=setup["channel"])
    channel.set_inheritable(False)
    try:
        hide()
        channel.shutdown(socket.SHUT_RD)
        shim = Shim(channel, setup["port"])
        if setup["copy"] is not None:
            copy_folder(**setup["copy"])
    except (OSError, AttributeError) as error:
        channel.send(FAILED + str(error)[:_REASON_CHARS].encode("utf-8", "replace"))
        return EXIT_FAILED
    return shim.run(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
