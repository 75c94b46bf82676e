"""Which processes descend from one, as `/proc` tells; one that ends meanwhile is left out.

Source: proc(5) "/proc/pid/task/tid/children".
"""

import os
from collections.abc import Iterator
from contextlib import suppress


def list_descendants(root: int) -> Iterator[int]:
    """Yield the processes below one, without itself; whoever wants only some stops early."""
    open_pids = [root]
    while open_pids:
        children = _children(open_pids.pop())
        yield from children
        open_pids += children


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found
