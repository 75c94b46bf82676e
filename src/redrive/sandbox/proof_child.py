"""Tries to cross the sandbox, and prints as JSON what it believes to have done.

Run by `proof.prove` as a script, inside and outside: arguments are a file to write, a file to read
and a port of the host. It imports nothing of redrive. The variables it expects are `LANG`, and
`PWD`, which bubblewrap sets.

Source: DESIGN.md §6 "A start-up self-test proves the level".
"""

import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

EXPECTED = {b"LANG", b"PWD", b"LC_CTYPE", b""}


def try_write(path: str) -> bool:
    """Write a file of the host."""
    with suppress(OSError):
        Path(path).write_text("written", encoding="utf-8")
        return True
    return False


def try_read(path: str) -> bool:
    """Read a file that only its owner may read."""
    with suppress(OSError):
        return bool(Path(path).read_bytes())
    return False


def try_connect(port: int) -> bool:
    """Connect to a server on the host's loopback."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2):
        return True
    return False


def try_environ() -> bool:
    """Look for a variable that was not given, in every process that can be seen."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            pairs = (process / "environ").read_bytes().split(b"\0")
            if any(pair.partition(b"=")[0] not in EXPECTED for pair in pairs):
                return True
    return False


def try_descriptor() -> bool:
    """Look for an open descriptor beyond input, outputs, and the one that looks."""
    return any(
        os.path.exists(f"/proc/self/fd/{name}") and int(name) > 2
        for name in os.listdir("/proc/self/fd")
    )


if __name__ == "__main__":
    attempted = {
        "write": try_write(sys.argv[1]),
        "read": try_read(sys.argv[2]),
        "connect": try_connect(int(sys.argv[3])),
        "environ": try_environ(),
        "descriptor": try_descriptor(),
    }
    sys.stdout.write(json.dumps(attempted))
