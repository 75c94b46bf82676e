"""The strict filter, run by a small interpreter of its own: what it refuses, allows and kills."""

import errno
import re
import struct
from pathlib import Path

import pytest

from redrive.sandbox.landlock_calls import _REFUSED, _SIGNALS, dump_strict_filter

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x50000 | errno.EPERM, 0x80000000
UNKNOWN = 0x50000 | errno.ENOSYS
X86, ARM = ("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)
HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h")


def judged(machine: tuple[str, int], number: int, *words: int, signals: bool = False) -> int:
    """Run the filter on one call as the kernel does: load, compare, jump, return."""
    lines = dump_strict_filter(machine[0], refuses_signals=signals)
    program = list(struct.iter_unpack("=HBBI", lines or b""))
    data = {0: number, 4: machine[1]}
    for index in range(6):
        word = words[index] if index < len(words) else 0
        data |= {16 + 8 * index: word & 0xFFFFFFFF, 20 + 8 * index: word >> 32}
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
    ("machine", "number", "verdict"),
    [
        # read, write, openat, execve, exit_group, memfd_create, execveat, close_range, kill
        *((X86, number, ALLOW) for number in (0, 1, 257, 59, 231, 319, 322, 436, 62, 234)),
        *((ARM, number, ALLOW) for number in (63, 64, 56, 221, 94, 279, 281, 436, 129, 131)),
        # socket, connect, bind, chmod, setxattr, shmget, ptrace, keyctl, mount, io_uring_setup
        *((X86, number, REFUSE) for number in (41, 42, 49, 90, 188, 29, 101, 250, 165, 425)),
        *((ARM, number, REFUSE) for number in (198, 203, 200, 53, 5, 194, 117, 219, 40, 425)),
        # the first and the last of the list; what no table knows; a library asks for this first
        *((X86, number, REFUSE) for number in (29, 469)),
        *((machine, number, UNKNOWN) for machine in (X86, ARM) for number in (435, 470, 9999)),
        # the second table of x86-64
        (X86, 0x40000000 + 1, REFUSE),
        # programs of another architecture
        (("x86_64", 0x40000003), 1, KILL),
        (("aarch64", X86[1]), 1, KILL),
    ],
)
def test_a_call_is_judged(machine, number, verdict):
    assert judged(machine, number) == verdict


@pytest.mark.parametrize(("machine", "at"), [(X86, 0), (ARM, 1)])
def test_what_is_named_is_refused_on_each_machine(machine, at):
    for name, *numbers in _REFUSED:
        number = numbers[at]
        assert number is None or judged(machine, number) == REFUSE, name


@pytest.mark.parametrize(("header", "at"), [(HEADERS[0], 0), (HEADERS[1], 1)])
def test_the_numbers_are_those_of_the_kernel(header, at):
    if not Path(header).exists():
        pytest.skip(f"there is no {header}")
    text = Path(header).read_text()
    real = {n: int(v) for n, v in re.findall(r"#define __NR3?264_?(\w+) (\d+)", text)}
    real |= {n: int(v) for n, v in re.findall(r"#define __NR_(\w+) (\d+)", text)}
    named = {name: numbers[at] for name, *numbers in (*_REFUSED, *_SIGNALS)}
    known = {name: number for name, number in named.items() if name in real}
    assert len(known) > 60
    assert known == {name: real[name] for name in known}


@pytest.mark.parametrize(("machine", "numbers"), [(X86, (62, 200, 234)), (ARM, (129, 130, 131))])
def test_signals_are_refused_where_landlock_does_not_hold_them(machine, numbers):
    for number in numbers:
        assert judged(machine, number) == ALLOW
        assert judged(machine, number, signals=True) == REFUSE


STREAM, DATAGRAM, PACKETS, CLOEXEC = 1, 2, 5, 0x80000
ADDRESS = 0x7FFF_0000_0000
CONDITIONS = {
    # socketpair: of Unix streams alone
    (53, 199): [
        ((1, STREAM), ALLOW),
        ((1, STREAM | CLOEXEC), ALLOW),
        ((1, DATAGRAM), REFUSE),
        ((1, PACKETS), REFUSE),
        ((2, STREAM), REFUSE),
    ],
    # sendto: without an address, also one whose lower half is null
    (44, 206): [
        ((3, 9, 1, 0, 0, 0), ALLOW),
        ((3, 9, 1, 0, ADDRESS), REFUSE),
        ((3, 9, 1, 0, 8), REFUSE),
    ],
    # clone: a process, a thread; a user namespace, a network
    (56, 220): [
        ((17,), ALLOW),
        ((0x3D0F00,), ALLOW),
        ((0x10000011,), REFUSE),
        ((0x40000000,), REFUSE),
    ],
    # ioctl: is it a terminal; TIOCSTI, also with a high half; the flags of a file
    (16, 29): [
        ((0, 0x5401), ALLOW),
        ((0, 0x5412), REFUSE),
        ((0, 0x1_0000_5412), REFUSE),
        ((0, 0x40086602), REFUSE),
    ],
    # fcntl: flags, locks; the owner of signals, leases
    (72, 25): [((0, 4), ALLOW), ((0, 6), ALLOW), ((0, 8), REFUSE), ((0, 1024), REFUSE)],
    # prctl: a name; the signal at the parent's death
    (157, 167): [((15,), ALLOW), ((1,), REFUSE)],
    # mknodat: a pipe, a file; devices
    (259, 33): [
        ((0, 0, 0o010644), ALLOW),
        ((0, 0, 0o100644), ALLOW),
        ((0, 0, 0o020644), REFUSE),
        ((0, 0, 0o060644), REFUSE),
    ],
    # setpriority: of this process; of another; of a user's
    (141, 140): [((0, 0, 5), ALLOW), ((0, 99, 5), REFUSE), ((2, 0, 5), REFUSE)],
    # prlimit64, sched_setaffinity: of this process; of another
    (302, 261): [((0,), ALLOW), ((99,), REFUSE)],
    (203, 122): [((0,), ALLOW), ((99,), REFUSE)],
}


@pytest.mark.parametrize(("machine", "at"), [(X86, 0), (ARM, 1)])
@pytest.mark.parametrize("numbers", CONDITIONS)
def test_an_argument_decides(machine, at, numbers):
    for words, verdict in CONDITIONS[numbers]:
        assert judged(machine, numbers[at], *words) == verdict, words


def test_an_unknown_machine_has_no_filter():
    assert dump_strict_filter("riscv64", refuses_signals=False) is None
