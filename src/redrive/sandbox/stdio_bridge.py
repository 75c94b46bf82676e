"""Stands inside the sandbox before a program that is spoken to over standard input and output.

Run as a script by an interpreter inside, with the standard library alone: its source is all that
it gets. It makes a pair of Unix streams, passes one end out through the channel that it inherited,
and runs the program with the other as its input and output: what a pipe could not be, as a
confined run's input is known when it starts.

The program does not get the channel. Where it is to have a loopback of its own, what is run is
`shim.py`, which takes the channel over.

Usage: stdio_bridge.py CHANNEL HANDS_ON COMMAND…, with CHANNEL a descriptor and HANDS_ON `1` where
the command takes the channel over, else `0`. The exit status is the program's, as a shell gives it.

Source: DESIGN.md §6; unix(7) "SCM_RIGHTS".
"""

import os
import socket
import subprocess
import sys

# As in shim.py: here is no module beside this text.
CONNECTION, STARTED, FAILED = b"connection", b"started", b"failed: "
_EXIT_FAILED, _EXIT_NOT_EXECUTABLE, _EXIT_NOT_FOUND = 125, 126, 127
_FIRST_SIGNAL_CODE = 128


def main(arguments: list[str]) -> int:
    """Connect, run the program to its end, give its exit status."""
    channel = socket.socket(fileno=int(arguments[0]))
    hands_on, command = arguments[1] == "1", arguments[2:]
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            socket.send_fds(channel, [CONNECTION], [theirs.fileno()])
    except OSError as error:
        with channel:
            channel.send(FAILED + str(error).encode("utf-8", "replace"))
        return _EXIT_FAILED
    if hands_on:
        for standard in (0, 1):
            os.dup2(ours.fileno(), standard)
        ours.close()
        os.execv(command[0], command)  # noqa: S606  # nosec B606 - no shell is wanted
    channel.set_inheritable(False)
    channel.send(STARTED)
    try:
        stream = ours.fileno()
        process = subprocess.Popen(command, stdin=stream, stdout=stream, close_fds=True)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        is_there = not isinstance(error, FileNotFoundError)
        return _EXIT_NOT_EXECUTABLE if is_there else _EXIT_NOT_FOUND
    ours.close()
    code = process.wait()
    return code if code >= 0 else _FIRST_SIGNAL_CODE - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
