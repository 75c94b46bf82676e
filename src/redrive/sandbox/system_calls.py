"""The system calls that a confined process is refused, as a seccomp filter.

Knows call numbers and the filter's bytes. Namespaces hide files, network and processes; what they
do not hide is here: keyrings of the caller, interfaces of the kernel with a long record of faults,
and calls that only administer a machine. A refused call gives `EPERM`.

So are sockets that leave the network's namespace: those of a Unix domain reach a server by its path
wherever its file is shown, also read-only, and those of a virtual machine reach its host. Left are
IPv4, IPv6 and netlink, and pairs of Unix sockets that cannot be connected anew.

Source: DESIGN.md §6; seccomp(2); the kernel's tables of system calls.
"""

import errno
import struct
from collections.abc import Mapping
from typing import NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
# Of the arguments, the low half: the kernel reads an int. Both machines store it first.
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET, _FIRST_OFFSET, _SECOND_OFFSET = 0, 4, 16, 24
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
# On x86-64 the same kernel answers a second table of numbers, from here on.
_X32_START = 0x40000000


# The kernel's own numbers, which are the same on both machines.
_FAMILY_UNIX, _FAMILIES = 1, (2, 10, 16)
_TYPE_MASK, _TYPE_DATAGRAM = 0xF, 2


class _Table(NamedTuple):
    architecture: int
    socket: int
    socketpair: int
    numbers: tuple[int, ...]


# The same numbers everywhere: io_uring, the newer calls for mounts, descriptors of other processes.
_COMMON = (*range(425, 434), 438, 442)
# First line: keyrings, bpf, perf events, tracing and memory of other processes, page faults,
# mounts, namespaces, files by handle. Second line: other kernels and modules, quota, accounting,
# swap, reboot, setting the clock, the kernel's log.
_TABLES: Mapping[str, _Table] = {
    "x86_64": _Table(
        *(0xC000003E, 41, 53),
        (
            *(248, 249, 250, 321, 298, 101, 310, 311, 323, 312, 165, 166, 155, 308, 272, 304),
            *(246, 320, 175, 313, 176, 179, 163, 167, 168, 169, 164, 227, 103),
        ),
    ),
    "aarch64": _Table(
        *(0xC00000B7, 198, 199),
        (
            *(217, 218, 219, 280, 241, 117, 270, 271, 282, 272, 40, 39, 41, 268, 97, 265),
            *(104, 294, 105, 273, 106, 60, 89, 224, 225, 142, 170, 112, 116),
        ),
    ),
}


def dump_filter(machine: str) -> bytes | None:
    """Write the filter for a machine as `platform.machine()` names it; `None` if none is known."""
    table = _TABLES.get(machine)
    if table is None:
        return None
    numbers = sorted({*table.numbers, *_COMMON})
    n_socket, n_socketpair = len(_SOCKET), len(_SOCKETPAIR)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_EQUAL, 1, 0, table.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        (_EQUAL, 0, n_socket, table.socket),
        *_SOCKET,
        (_EQUAL, 0, n_socketpair, table.socketpair),
        *_SOCKETPAIR,
        (_AT_LEAST, len(numbers) + 1, 0, _X32_START),
        # A match jumps over the comparisons that are left, and over the permission.
        *((_EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in program)


_SOCKET = (
    (_LOAD, 0, 0, _FIRST_OFFSET),
    *((_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)),
    (_RETURN, 0, 0, _REFUSE),
    (_RETURN, 0, 0, _ALLOW),
)
# A pair of datagram sockets is connected, and could be connected to another.
_SOCKETPAIR = (
    (_LOAD, 0, 0, _FIRST_OFFSET),
    (_EQUAL, 0, 3, _FAMILY_UNIX),
    (_LOAD, 0, 0, _SECOND_OFFSET),
    (_AND, 0, 0, _TYPE_MASK),
    (_EQUAL, 0, 1, _TYPE_DATAGRAM),
    (_RETURN, 0, 0, _REFUSE),
    (_RETURN, 0, 0, _ALLOW),
)
