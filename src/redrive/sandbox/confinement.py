"""What a confined process may see, use and spend, as values.

Knows bubblewrap's arguments; starts nothing. What is not named in a `Confinement` does not exist
for the process: no network, no file beyond the system's folders (read-only), no environment.

Source: DESIGN.md §6 "Three layers"; man page of bwrap(1).
"""

import os
from collections.abc import Iterator, Mapping

import msgspec

from redrive.errors import UsageError

MIB = 1024 * 1024
SCRATCH_HOME = "/scratch"
# Both lie inside, in memory; no other user of the host sees them.
SCRATCH = "/tmp"  # noqa: S108  # nosec B108
MAX_CPUS = 1024
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
# Where programs and their libraries lie; the stores are those of Nix and Guix.
SYSTEM_FOLDERS = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/nix/store", "/gnu/store"),
)
# What programs need to start, and nothing that names the machine's people or services.
SYSTEM_FILES = (
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ca-certificates"),
)
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # nosec B108
_RESERVED = ("/dev", "/proc", "/sys", *SYSTEM_FOLDERS)


class Bind(msgspec.Struct, frozen=True):
    """A file or folder of the host that the process sees.

    Args:
        source: absolute path on the host; it must exist.
        target: absolute path inside; empty for the same path.
    """

    source: str
    target: str = ""

    @property
    def inside(self) -> str:
        """The path inside."""
        return self.target or self.source


class Limits(msgspec.Struct, frozen=True):
    """What the process may spend.

    CPU time, address space, file size and open files hold for each process, `n_processes` (threads
    count where the kernel holds it) for all together: memory is bounded by the product, not by
    `address_space_bytes` alone. `scratch_bytes` bounds each of the folders in memory (home, `/tmp`,
    `/dev/shm`), `output_bytes` each of the two outputs: what exceeds it is read and dropped.
    `disk_bytes` bounds what all writable folders of the host take together, what was in them
    before included; it is measured again and again, so that a run overshoots a little before it is
    ended, and `None` leaves it unbounded.
    """

    cpu_s: int = 20
    address_space_bytes: int = 4096 * MIB
    n_processes: int = 128
    file_bytes: int = 64 * MIB
    n_open_files: int = 256
    scratch_bytes: int = 64 * MIB
    output_bytes: int = MIB
    wall_s: float = 60.0
    disk_bytes: int | None = None


class Confinement(msgspec.Struct, frozen=True):
    """Everything a confined process has.

    Args:
        readable: seen read-only.
        writable: seen and changed for real. A bind below another wins over it.
        home: path of the home folder inside; empty in memory, gone afterwards.
        home_folder: a folder of the host to serve as home instead, writable.
        cwd: working folder inside.
        environment: all variables the process gets; none is inherited.
        limits: see `Limits`.
        scratch: further folders in memory, empty at first; binds below one of them win over it.
        n_cpus: how many processors the process is shown (where glibc counts them) and, as far as
            this process may use as many, runs on; `None` for those of this process.
    """

    readable: tuple[Bind, ...] = ()
    writable: tuple[Bind, ...] = ()
    home: str = SCRATCH_HOME
    home_folder: str | None = None
    cwd: str = SCRATCH
    environment: Mapping[str, str] = {}
    limits: Limits = Limits()
    scratch: tuple[str, ...] = ()
    n_cpus: int | None = None


class ConfinedResult(msgspec.Struct, frozen=True):
    """How a confined process ended.

    Args:
        exit_code: as a shell gives it (128 + n after signal n); `None` if it was ended from here,
            or ended by itself after it was refused a process: such a code is no answer.
        signal: the number of the signal that ended it, as `exit_code` tells it.
        stdout: at most `output_bytes`.
        stderr: at most `output_bytes`.
        is_timeout: it was ended because `wall_s` had passed.
        is_process_flood: it had more than `n_processes`, or its control group refused it one more.
        is_output_cut: at least one output was longer than is kept.
        wall_s: how long it took.
        is_stopped: it was ended because whoever started it asked for that.
        is_disk_full: its writable folders took more than `disk_bytes`, or could not be measured.
    """

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    is_timeout: bool
    is_process_flood: bool
    is_output_cut: bool
    wall_s: float
    is_stopped: bool = False
    is_disk_full: bool = False


def dump_arguments(confinement: Confinement, known_options: str) -> tuple[str, ...]:
    """Write a confinement as bubblewrap's arguments, without the command.

    Args:
        confinement: what is wanted.
        known_options: the help text of the bubblewrap at hand; newer options are left out where it
            does not name them.

    Raises:
        UsageError: a path that is not absolute, does not exist or covers the system's own; a NUL;
            no processor.
    """
    if confinement.n_cpus is not None and not 1 <= confinement.n_cpus <= MAX_CPUS:
        raise UsageError(f"a sandbox has 1 to {MAX_CPUS} processors, not {confinement.n_cpus}")
    sizes = _sized(confinement.limits.scratch_bytes, known_options)
    arguments = (
        *("--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"),
        *(("--disable-userns",) if "--disable-userns" in known_options else ()),
        *("--cap-drop", "ALL", "--clearenv", "--hostname", "redrive"),
        *_system(),
        *("--proc", "/proc", "--dev", "/dev"),
        *(*sizes, "--tmpfs", _SHARED_MEMORY, *sizes, "--tmpfs", SCRATCH),
        *_home(confinement, sizes),
        *_mounts(confinement, sizes),
        # Last: what was made above for mount points lies on the root, which is memory as well. A
        # superuser without rights still owns the host's settings in /proc/sys.
        *("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", confinement.cwd),
        *(word for pair in confinement.environment.items() for word in ("--setenv", *pair)),
    )
    if any("\0" in argument for argument in arguments):
        raise UsageError("a path or variable for the sandbox holds a NUL character")
    return arguments


def lies_in(path: str, folder: str) -> bool:
    """Say whether a path is a folder or lies in it; both are absolute, neither is looked up."""
    return os.path.commonpath((path, folder)) == folder


def _sized(size_bytes: int, known_options: str) -> tuple[str, ...]:
    return ("--size", str(size_bytes)) if "--size BYTES" in known_options else ()


def _system() -> Iterator[str]:
    for folder in SYSTEM_FOLDERS:
        if os.path.islink(folder):
            yield from ("--symlink", os.readlink(folder), folder)
        elif os.path.isdir(folder):
            yield from ("--ro-bind", folder, folder)
    for file in SYSTEM_FILES:
        yield from ("--ro-bind-try", file, file)


def _home(confinement: Confinement, sizes: tuple[str, ...]) -> tuple[str, ...]:
    _check_target(confinement.home)
    if confinement.home_folder is None:
        return (*sizes, "--tmpfs", confinement.home)
    _check_source(confinement.home_folder)
    return ("--bind", confinement.home_folder, confinement.home)


def _mounts(confinement: Confinement, sizes: tuple[str, ...]) -> Iterator[str]:
    mounts = [(path, (*sizes, "--tmpfs", path)) for path in confinement.scratch]
    for option, binds in (("--ro-bind", confinement.readable), ("--bind", confinement.writable)):
        for bind in binds:
            _check_source(bind.source)
            mounts.append((bind.inside, (option, bind.source, bind.inside)))
    # Outer before inner, so that a mount does not hide one that lies below it.
    for path, words in sorted(mounts, key=lambda pair: pair[0].count("/")):
        _check_target(path)
        yield from words


def _check_source(path: str) -> None:
    if not os.path.isabs(path) or not os.path.exists(path):
        raise UsageError(f"no such file or folder to show to the sandbox: {path!r}")


def _check_target(path: str) -> None:
    normal = os.path.normpath(path)
    if not os.path.isabs(path) or normal == "/" or any(lies_in(normal, r) for r in _RESERVED):
        raise UsageError(
            f"the sandbox cannot show a file or folder at {path!r}",
            hint="an absolute path outside /, /dev, /proc, /sys and the system's folders",
        )
