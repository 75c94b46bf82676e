"""The filter, run by a small interpreter of its own: what it refuses, allows and kills."""

import errno
import platform
import struct

import pytest

from redrive.sandbox.system_calls import dump_filter

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x50000 | errno.EPERM, 0x80000000
X86, ARM = 0xC000003E, 0xC00000B7


def judged(machine: str, architecture: int, number: int, first: int = 2, second: int = 0) -> int:
    """Run the filter on one call as the kernel does: load, compare, jump, return."""
    program = list(struct.iter_unpack("=HBBI", dump_filter(machine) or b""))
    data = {0: number, 4: architecture, 16: first, 24: second}
    value, at = 0, 0
    while True:
        code, if_true, if_false, operand = program[at]
        at += 1
        match code:
            case 0x20:
                value = data[operand]
            case 0x06:
                return operand
            case 0x54:
                value &= operand
            case 0x15:
                at += if_true if value == operand else if_false
            case 0x35:
                at += if_true if value >= operand else if_false


@pytest.mark.parametrize(
    ("machine", "architecture", "number", "verdict"),
    [
        # read, write, openat, execve, clone, socket, exit_group, the highest that is known
        *(("x86_64", X86, number, ALLOW) for number in (0, 1, 257, 59, 56, 41, 231, 467)),
        *(("aarch64", ARM, number, ALLOW) for number in (63, 64, 56, 221, 220, 198, 94)),
        # the first and last of the table, keyctl, bpf, ptrace, mount, io_uring_setup
        *(("x86_64", X86, number, REFUSE) for number in (101, 442, 250, 321, 165, 425)),
        *(("aarch64", ARM, number, REFUSE) for number in (39, 442, 219, 280, 117, 40, 425)),
        # the second table of x86-64, and programs of another architecture
        ("x86_64", X86, 0x40000000 + 1, REFUSE),
        ("x86_64", 0x40000003, 1, KILL),
        ("aarch64", X86, 1, KILL),
    ],
)
def test_a_call_is_judged(machine, architecture, number, verdict):
    assert judged(machine, architecture, number) == verdict


UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK = 1, 2, 10, 16, 17, 38, 40
STREAM, DATAGRAM, PACKETS, CLOEXEC = 1, 2, 5, 0x80000


@pytest.mark.parametrize(
    ("machine", "architecture", "call"), [("x86_64", X86, 41), ("aarch64", ARM, 198)]
)
@pytest.mark.parametrize(
    ("family", "verdict"),
    [
        *((family, ALLOW) for family in (INET, INET6, NETLINK)),
        *((family, REFUSE) for family in (0, UNIX, PACKET, ALG, VSOCK, 2**32 - 1)),
    ],
)
def test_a_socket_is_judged_by_its_family(machine, architecture, call, family, verdict):
    assert judged(machine, architecture, call, family, STREAM) == verdict
    assert judged(machine, architecture, call, family, STREAM | CLOEXEC) == verdict


@pytest.mark.parametrize(
    ("machine", "architecture", "call"), [("x86_64", X86, 53), ("aarch64", ARM, 199)]
)
@pytest.mark.parametrize(
    ("family", "kind", "verdict"),
    [
        (UNIX, STREAM, ALLOW),
        (UNIX, STREAM | CLOEXEC, ALLOW),
        (UNIX, PACKETS, ALLOW),
        (UNIX, DATAGRAM, REFUSE),
        (UNIX, DATAGRAM | CLOEXEC, REFUSE),
        (30, STREAM, REFUSE),
    ],
)
def test_a_pair_of_sockets_is_judged_by_its_kind(
    machine, architecture, call, family, kind, verdict
):
    assert judged(machine, architecture, call, family, kind) == verdict


def test_a_machine_that_is_not_known_has_no_filter():
    assert dump_filter("riscv64") is None


def test_this_machine_is_named_as_the_table_names_it():
    if platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip(f"no filter is known for {platform.machine()}")
    assert dump_filter(platform.machine())
