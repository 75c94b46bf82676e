"""Resource limits of a worker process, so that a policy cannot hurt the machine.

Knows the limits of the operating system. Must not know what runs under them.

Source: DESIGN.md §7 "Purity".
"""

import fcntl
import os
import resource
import signal
from pathlib import Path
from typing import Final

# Above what is mapped when the limit is set: a fold of the largest sessions fits many times over.
DEFAULT_ADDRESS_SPACE_BYTES: Final = 3 * 2**29
_STATM: Final = Path("/proc/self/statm")


def set_limits(
    address_space_bytes: int = DEFAULT_ADDRESS_SPACE_BYTES,
    *,
    cpu_s: int | None = None,
    processes: int | None = None,
    file_bytes: int | None = None,
) -> tuple[str, ...]:
    """Limit this process for good; to be called before the seal, as it reads what is mapped.

    A policy that asks for more memory gets `MemoryError`. No core file is written.

    Args:
        address_space_bytes: what may be mapped beside what is mapped now.
        cpu_s: processor time of the whole process; at its end the system sends SIGXCPU, then
            SIGKILL a second later.
        processes: of this user, by which a system refuses to start more; root is not held by it.
        file_bytes: the greatest size of a written file; 0 forbids writing any, also to C code.

    Returns:
        The limits that this platform could not set, such as `RLIMIT_AS: …`; empty if all are set.
    """
    mapped_bytes = _mapped_bytes()
    wanted = (
        ("RLIMIT_CORE", 0, 0),
        ("RLIMIT_AS", None if mapped_bytes is None else mapped_bytes + address_space_bytes, 0),
        ("RLIMIT_CPU", cpu_s, 1),
        ("RLIMIT_NPROC", processes, 0),
        ("RLIMIT_FSIZE", file_bytes, 0),
    )
    problems = [_limit(name, limit, grace) for name, limit, grace in wanted if limit is not None]
    if mapped_bytes is None:
        problems.append("RLIMIT_AS: this platform does not say what is mapped")
    return tuple(problem for problem in problems if problem)


def end_with(descriptor: int) -> None:
    """Let the system end this process when the other end of a pipe is closed, whatever it is at.

    Args:
        descriptor: the reading end of a pipe into which nothing is ever written, and whose other
            end one process alone holds: so this one does not outlive it, even in an endless loop.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # which is to end
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)


def _mapped_bytes() -> int | None:
    """Say how much address space is mapped; `None` where the platform does not tell."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pages * resource.getpagesize()


def _limit(name: str, limit: int, grace: int) -> str:
    kind = getattr(resource, name, None)
    if kind is None:
        return f"{name}: not on this platform"
    _, hard = resource.getrlimit(kind)
    most = limit + grace
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    try:
        resource.setrlimit(kind, (min(limit, most), most))
    except (OSError, ValueError) as error:
        return f"{name}: {error}"
    return ""
