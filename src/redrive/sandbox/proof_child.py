"""Tries to cross the sandbox, and prints as JSON what it believes to have done.

Run by `proof` as a script, inside and outside: its argument is a JSON object that names what each
attempt aims at on the host. It imports nothing of redrive. The variables it expects are `LANG`,
`PWD`, which bubblewrap sets, and the private folder of the Landlock level.

Source: DESIGN.md §6 "A start-up self-test proves the level".
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

EXPECTED = {b"LANG", b"PWD", b"LC_CTYPE", b"HOME", b"TMPDIR", b""}
N_DESCRIPTORS = 1024


def try_write(path: str) -> None:
    """Write a file of the host."""
    Path(path).write_text("written", encoding="utf-8")


def try_read(path: str) -> None:
    """Read a file that only its owner may read."""
    Path(path).read_bytes()


def try_connect(port: int) -> None:
    """Connect to a server on the host's loopback."""
    socket.create_connection(("127.0.0.1", port), timeout=2).close()


def try_datagram(port: int) -> None:
    """Send a datagram to a server on the host's loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"sent", ("127.0.0.1", port))


def try_path_socket(path: str) -> None:
    """Connect to a Unix socket by its path."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)


def try_abstract_socket(name: str) -> None:
    """Connect to a Unix socket by a name that is no path."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("\0" + name)


def try_kill(process: int) -> None:
    """End a process of the host."""
    os.kill(process, signal.SIGKILL)


def try_mode(path: str) -> None:
    """Change the mode of a file of the host."""
    os.chmod(path, 0o644)


def finds_environ() -> bool:
    """Look for a variable that was not given, in every process that can be seen."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pairs = (process / "environ").read_bytes().split(b"\0")
            if any(pair.partition(b"=")[0] not in EXPECTED for pair in pairs):
                return True
    return False


def finds_descriptor() -> bool:
    """Look for an open descriptor beyond input and outputs."""
    for number in range(3, N_DESCRIPTORS):
        with suppress(OSError):
            os.fstat(number)
            return True
    return False


ATTEMPTS: dict[str, Callable[[Any], None]] = {
    "write": try_write,
    "read": try_read,
    "connect": try_connect,
    "datagram": try_datagram,
    "path_socket": try_path_socket,
    "abstract_socket": try_abstract_socket,
    "kill": try_kill,
    "mode": try_mode,
}


def is_done(attempt: Callable[[Any], None], aim: object) -> bool:
    """Make one attempt, and say whether it seemed to work."""
    with suppress(OSError):
        attempt(aim)
        return True
    return False


if __name__ == "__main__":
    aims = json.loads(sys.argv[1])
    done = {name: is_done(attempt, aims[name]) for name, attempt in ATTEMPTS.items()}
    # Looked for last: the attempts leave nothing open.
    done |= {"environ": finds_environ(), "descriptor": finds_descriptor()}
    sys.stdout.write(json.dumps(done))
