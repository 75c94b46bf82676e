"""Who holds the write lock of a SQLite file, as far as the system tells.

Knows `/proc/locks` of Linux and SQLite's lock bytes. Must not open the store's own files: closing
one would drop this process's locks on it.
"""

from pathlib import Path

_WAL_WRITE_LOCK_BYTE = 120  # SQLite "WAL-mode File Format", section 2.3.1
_PROC_LOCKS = Path("/proc/locks")


def find_lock_holder(path: Path, table: Path = _PROC_LOCKS) -> str | None:
    """Name the process that writes to this store, such as `pid 4711, python`.

    Args:
        path: the store.
        table: the system's table of locks.

    Returns:
        `None` where the system has no such table or does not tell.
    """
    try:
        inode = path.with_name(path.name + "-shm").stat().st_ino
        lines = table.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    for line in lines:
        pid = _writer_pid(line.split(), inode)
        if pid is not None:
            return f"pid {pid}{_name_of(pid)}"
    return None


def _writer_pid(fields: list[str], inode: int) -> int | None:
    """Read `1: POSIX ADVISORY WRITE 4711 08:01:1234 120 120`; `None` for any other lock."""
    if len(fields) < 8 or fields[1] != "POSIX" or fields[3] != "WRITE":
        return None
    if fields[5].rpartition(":")[2] != str(inode):
        return None
    numbers = (fields[4], fields[6], fields[7])
    if not all(number.isdigit() for number in numbers):
        return None
    pid, first, last = map(int, numbers)
    return pid if pid > 0 and first <= _WAL_WRITE_LOCK_BYTE <= last else None


def _name_of(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""
    return f", {name}"
