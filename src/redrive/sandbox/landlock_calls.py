"""The filter of system calls for a process that has no namespaces of its own.

Knows call numbers and conditions on arguments. Landlock holds files, TCP, abstract sockets and
signals; what it does not hold is refused here: every socket but pairs of Unix streams, changes of
modes, owners, times and attributes (Landlock asks for no right there), shared memory and queues of
the host, watching its folders, other processes' limits and priorities, namespaces. A call that is
newer than the table gives `ENOSYS`, as on a kernel that does not know it.

Source: landlock(7) "Limitations"; seccomp(2); the kernel's tables of system calls, up to 6.17.
"""

import errno
import platform
from collections.abc import Iterable, Iterator

from redrive.sandbox.system_calls import (
    ALLOW,
    AND,
    ARCHITECTURE_OFFSET,
    AT_LEAST,
    EQUAL,
    FAMILY_UNIX,
    KILL,
    LOAD,
    NUMBER_OFFSET,
    REFUSE,
    RETURN,
    TYPE_MASK,
    X32_START,
    Line,
    dump_lines,
    find_table,
)

_UNKNOWN = 0x00050000 | errno.ENOSYS
_FIRST_UNKNOWN = 470
_ARGUMENTS_OFFSET, _ARGUMENT_BYTES, _HALF_BYTES = 16, 8, 4
_TYPE_STREAM = 1
# The kernel's own numbers, which are the same on both machines.
_NEW_NAMESPACES = 0x7E020000
_FILE_KIND_MASK, _KIND_CHARACTER, _KIND_BLOCK = 0xF000, 0x2000, 0x6000
_SET_DEATH_SIGNAL = 1
# Owner of a descriptor's signals and which one, leases, notices of a folder's changes.
_SIGNALLING = (8, 10, 15, 1024, 1026)
# What a pipe or terminal is asked: TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO, and whether a
# descriptor is inherited. Others change files that can only be read, or the caller's terminal.
_IOCTLS = (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)

# Name, then the number on x86-64 and on aarch64; `None` where a machine has no such call.
_REFUSED: tuple[tuple[str, int | None, int | None], ...] = (
    *(("chmod", 90, None), ("fchmod", 91, 52), ("fchmodat", 268, 53), ("fchmodat2", 452, 452)),
    *(("chown", 92, None), ("fchown", 93, 55), ("lchown", 94, None), ("fchownat", 260, 54)),
    *(("utime", 132, None), ("utimes", 235, None), ("futimesat", 261, None)),
    *(("utimensat", 280, 88), ("setxattr", 188, 5), ("lsetxattr", 189, 6), ("fsetxattr", 190, 7)),
    *(("removexattr", 197, 14), ("lremovexattr", 198, 15), ("fremovexattr", 199, 16)),
    *(("setxattrat", 463, 463), ("removexattrat", 466, 466), ("file_setattr", 469, 469)),
    *(("socket", 41, 198), ("connect", 42, 203), ("accept", 43, 202), ("accept4", 288, 242)),
    *(("bind", 49, 200), ("listen", 50, 201)),
    *(("shmget", 29, 194), ("shmat", 30, 196), ("shmctl", 31, 195), ("shmdt", 67, 197)),
    *(("semget", 64, 190), ("semop", 65, 193), ("semtimedop", 220, 192), ("semctl", 66, 191)),
    *(("msgget", 68, 186), ("msgsnd", 69, 189), ("msgrcv", 70, 188), ("msgctl", 71, 187)),
    *(("mq_open", 240, 180), ("mq_unlink", 241, 181)),
    *(("inotify_init", 253, None), ("inotify_init1", 294, 26), ("inotify_add_watch", 254, 27)),
    *(("fanotify_init", 300, 262), ("fanotify_mark", 301, 263)),
    *(("rt_sigqueueinfo", 129, 138), ("rt_tgsigqueueinfo", 297, 240)),
    *(("pidfd_send_signal", 424, 424), ("pidfd_open", 434, 434), ("kcmp", 312, 272)),
    *(("process_madvise", 440, 440), ("process_mrelease", 448, 448)),
    *(("migrate_pages", 256, 238), ("move_pages", 279, 239), ("ioprio_set", 251, 30)),
    *(("chroot", 161, 51), ("personality", 135, 92), ("modify_ldt", 154, None)),
    *(("setuid", 105, 146), ("setgid", 106, 144), ("setreuid", 113, 145), ("setregid", 114, 143)),
    *(("setgroups", 116, 159), ("setresuid", 117, 147), ("setresgid", 119, 149)),
    *(("setfsuid", 122, 151), ("setfsgid", 123, 152)),
    *(("uselib", 134, None), ("sysfs", 139, None), ("_sysctl", 156, None), ("vhangup", 153, 58)),
    *(("iopl", 172, None), ("ioperm", 173, None), ("nfsservctl", 180, 42)),
    *(("sethostname", 170, 161), ("setdomainname", 171, 162)),
    *(("adjtimex", 159, 171), ("clock_adjtime", 305, 266), ("lookup_dcookie", 212, 18)),
    *(("quotactl_fd", 443, 443), ("statmount", 457, 457), ("listmount", 458, 458)),
    *(("lsm_set_self_attr", 460, 460), ("open_tree_attr", 467, 467)),
)
_SIGNALS: tuple[tuple[str, int | None, int | None], ...] = (
    *(("kill", 62, 129), ("tkill", 200, 130), ("tgkill", 234, 131)),
)
_CLONE3 = 435


def _conditions(at: int) -> Iterator[tuple[int | None, tuple[Line, ...]]]:
    """Yield calls that depend on an argument, with what judges them; `at` picks the machine."""
    yield (
        (53, 199)[at],
        (
            *_refuse_unless(0, (FAMILY_UNIX,), is_last=False),
            *_refuse_unless(1, (_TYPE_STREAM,), mask=TYPE_MASK),
        ),
    )
    # The address: null, in both halves.
    yield (
        (44, 206)[at],
        (
            *_refuse_unless(4, (0,), is_last=False),
            *_refuse_unless(4, (0,), half=1),
        ),
    )
    yield (56, 220)[at], _refuse_unless(0, (0,), mask=_NEW_NAMESPACES)
    yield (16, 29)[at], _refuse_unless(1, _IOCTLS)
    yield (72, 25)[at], _refuse_if(1, _SIGNALLING)
    yield (157, 167)[at], _refuse_if(0, (_SET_DEATH_SIGNAL,))
    devices = (_KIND_CHARACTER, _KIND_BLOCK)
    yield (133, None)[at], _refuse_if(1, devices, mask=_FILE_KIND_MASK)
    yield (259, 33)[at], _refuse_if(2, devices, mask=_FILE_KIND_MASK)
    # Of this process: which, then whose priority; whose limits, processors and schedule.
    yield (
        (141, 140)[at],
        (
            *_refuse_unless(0, (0,), is_last=False),
            *_refuse_unless(1, (0,)),
        ),
    )
    for number in (
        *((302, 261)[at], (203, 122)[at], (142, 118)[at], (144, 119)[at], (314, 274)[at]),
    ):
        yield number, _refuse_unless(0, (0,))


def dump_strict_filter(machine: str, *, refuses_signals: bool) -> bytes | None:
    """Write the filter for a machine as `platform.machine()` names it; `None` if none is known.

    Args:
        machine: which.
        refuses_signals: also to itself and its children, where Landlock does not hold signals.
    """
    table = find_table(machine)
    if table is None:
        return None
    at = 0 if machine == "x86_64" else 1
    named = (*_REFUSED, *(_SIGNALS if refuses_signals else ()))
    numbers = {*table.numbers, *((x86, arm)[at] for _, x86, arm in named)} - {None}
    lines: list[Line] = [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        (EQUAL, 1, 0, table.architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_OFFSET),
    ]
    for number, judge in _conditions(at):
        if number is not None:
            lines += ((EQUAL, 0, len(judge), number), *judge)
    lines += (
        *((AT_LEAST, 0, 1, X32_START), (RETURN, 0, 0, REFUSE)),
        *((AT_LEAST, 0, 1, _FIRST_UNKNOWN), (RETURN, 0, 0, _UNKNOWN)),
        # Its flags lie in memory, where they cannot be judged; libraries then use `clone`.
        *((EQUAL, 0, 1, _CLONE3), (RETURN, 0, 0, _UNKNOWN)),
        *_one_of(sorted(number for number in numbers if number is not None)),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, REFUSE),
    )
    return dump_lines(lines)


def find_strict_filter(*, refuses_signals: bool) -> bytes | None:
    """Write the filter for this machine; see `dump_strict_filter`."""
    return dump_strict_filter(platform.machine(), refuses_signals=refuses_signals)


def _one_of(numbers: list[int]) -> Iterator[Line]:
    """Compare with each; a match jumps over the comparisons left and the line after them."""
    for place, number in enumerate(numbers):
        yield EQUAL, len(numbers) - place, 0, number


def _argument(index: int, mask: int | None, half: int) -> Iterator[Line]:
    # The low half comes first on both machines.
    yield LOAD, 0, 0, _ARGUMENTS_OFFSET + index * _ARGUMENT_BYTES + half * _HALF_BYTES
    if mask is not None:
        yield AND, 0, 0, mask


def _refuse_unless(
    index: int,
    values: Iterable[int],
    *,
    mask: int | None = None,
    half: int = 0,
    is_last: bool = True,
) -> tuple[Line, ...]:
    """Refuse a call whose argument is none of these; else allow it, or go on to the next lines."""
    wanted = tuple(values)
    tests = ((EQUAL, len(wanted) - place, 0, value) for place, value in enumerate(wanted))
    allowed: tuple[Line, ...] = ((RETURN, 0, 0, ALLOW),) if is_last else ()
    return (*_argument(index, mask, half), *tests, (RETURN, 0, 0, REFUSE), *allowed)


def _refuse_if(index: int, values: Iterable[int], *, mask: int | None = None) -> tuple[Line, ...]:
    """Refuse a call whose argument is one of these; else allow it."""
    refused = tuple(values)
    tests = ((EQUAL, len(refused) - place, 0, value) for place, value in enumerate(refused))
    return (*_argument(index, mask, 0), *tests, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE))
