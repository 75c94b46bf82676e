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
from collections.abc import Iterable, Mapping
from typing import NamedTuple

LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
# Of the arguments, the low half: the kernel reads an int. Both machines store it first.
NUMBER_OFFSET, ARCHITECTURE_OFFSET, _FIRST_OFFSET, _SECOND_OFFSET = 0, 4, 16, 24
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
# On x86-64 the same kernel answers a second table of numbers, from here on.
X32_START = 0x40000000


Line = tuple[int, int, int, int]
"""One instruction: code, how many to skip if true, and if false, and its operand."""

# The kernel's own numbers, which are the same on both machines.
FAMILY_UNIX, _FAMILIES = 1, (2, 10, 16)
TYPE_MASK, _TYPE_DATAGRAM = 0xF, 2


class Table(NamedTuple):
    """The numbers of one machine's calls: which are judged, and which refused."""

    architecture: int
    socket: int
    socketpair: int
    numbers: tuple[int, ...]


# The same numbers everywhere: io_uring, the newer calls for mounts, descriptors of other processes.
_COMMON = (*range(425, 434), 438, 442)
# First line: keyrings, bpf, perf events, tracing and memory of other processes, page faults,
# mounts, namespaces, files by handle. Second line: other kernels and modules, quota, accounting,
# swap, reboot, setting the clock, the kernel's log.
_TABLES: Mapping[str, Table] = {
    "x86_64": Table(
        *(0xC000003E, 41, 53),
        (
            *(248, 249, 250, 321, 298, 101, 310, 311, 323, 312, 165, 166, 155, 308, 272, 304),
            *(246, 320, 175, 313, 176, 179, 163, 167, 168, 169, 164, 227, 103),
        ),
    ),
    "aarch64": Table(
        *(0xC00000B7, 198, 199),
        (
            *(217, 218, 219, 280, 241, 117, 270, 271, 282, 272, 40, 39, 41, 268, 97, 265),
            *(104, 294, 105, 273, 106, 60, 89, 224, 225, 142, 170, 112, 116),
        ),
    ),
}


def find_table(machine: str) -> Table | None:
    """Find a machine's numbers, those included that are refused everywhere."""
    table = _TABLES.get(machine)
    return table and table._replace(numbers=(*table.numbers, *_COMMON))


def dump_lines(lines: Iterable[Line]) -> bytes:
    """Write instructions as the kernel reads them."""
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def dump_filter(machine: str) -> bytes | None:
    """Write the filter for a machine as `platform.machine()` names it; `None` if none is known."""
    table = find_table(machine)
    if table is None:
        return None
    numbers = sorted(set(table.numbers))
    n_socket, n_socketpair = len(_SOCKET), len(_SOCKETPAIR)
    program: list[Line] = [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        (EQUAL, 1, 0, table.architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_OFFSET),
        (EQUAL, 0, n_socket, table.socket),
        *_SOCKET,
        (EQUAL, 0, n_socketpair, table.socketpair),
        *_SOCKETPAIR,
        (AT_LEAST, len(numbers) + 1, 0, X32_START),
        # A match jumps over the comparisons that are left, and over the permission.
        *((EQUAL, len(numbers) - at, 0, number) for at, number in enumerate(numbers)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    ]
    return dump_lines(program)


_SOCKET = (
    (LOAD, 0, 0, _FIRST_OFFSET),
    *((EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)),
    (RETURN, 0, 0, REFUSE),
    (RETURN, 0, 0, ALLOW),
)
# A pair of datagram sockets is connected, and could be connected to another.
_SOCKETPAIR = (
    (LOAD, 0, 0, _FIRST_OFFSET),
    (EQUAL, 0, 3, FAMILY_UNIX),
    (LOAD, 0, 0, _SECOND_OFFSET),
    (AND, 0, 0, TYPE_MASK),
    (EQUAL, 0, 1, _TYPE_DATAGRAM),
    (RETURN, 0, 0, REFUSE),
    (RETURN, 0, 0, ALLOW),
)
