"""Runs a command and keeps what passes, byte for byte: `tap.py FILE COMMAND…`.

What was written to the command is in FILE.in, what it wrote in FILE.out.
"""

import os
import subprocess
import sys
import threading


def relay(source: int, target: int, path: str) -> None:
    with open(path, "wb", buffering=0) as kept:
        try:
            while chunk := os.read(source, 65536):
                kept.write(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(target, view) :]
        except OSError:
            pass
    os.close(target)


def main() -> None:
    path, *command = sys.argv[1:]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin is not None
    assert child.stdout is not None
    into = (0, os.dup(child.stdin.fileno()), f"{path}.in")
    child.stdin.close()
    threading.Thread(target=relay, args=into, daemon=True).start()
    relay(child.stdout.fileno(), 1, f"{path}.out")
    os._exit(child.wait())


main()
