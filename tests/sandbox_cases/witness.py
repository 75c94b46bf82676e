"""Sees from outside what hostile code has done: files, servers and processes it may aim at.

A witness is made for one run of the cases and judges it; it believes nothing that is said inside.
"""

import ctypes
import fcntl
import os
import resource
import secrets
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

KEPT = (
    *("truncate", "open_and_truncate", "remove", "hardlink", "rename_exchange", "mmap_write"),
    *("change_mode", "change_mode_by_descriptor", "change_times", "change_attributes"),
    *("change_flags", "evidence_store"),
)
FOUND = (
    *("read_what_is_not_shown", "inherited_descriptor", "secrets_in_the_environment"),
    *("secret_in_its_own_environment", "nested_namespaces", "nested_namespaces_by_clone"),
    *("chroot", "memory_bomb", "cpu_bomb", "process_bomb", "disk_bomb", "endless"),
)
_HELD = ("traced", "written", "by_file")
_SHM_SIZE, _CREATE, _REMOVE = 4096, 0o1600, 0
_OLD_S = 1_000_000_000
_GET_FLAGS = 0x80086601
# Holds eight bytes at an address that it tells, and gives them back when asked.
_HOLDER = """
import ctypes, sys
held = ctypes.create_string_buffer(b"kept", 64)
print(ctypes.addressof(held), flush=True)
sys.stdin.readline()
print(held.value.decode(), flush=True)
"""


class Holder:
    """A process with memory to be changed."""

    def __init__(self, stack: ExitStack) -> None:
        command = (sys.executable, "-I", "-S", "-c", _HOLDER)
        self._process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        stack.callback(self._process.kill)
        assert self._process.stdout is not None
        self.aim = (self._process.pid, int(self._process.stdout.readline()))

    def was_changed(self) -> bool:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
        return self._process.stdout.readline() != b"kept\n"


class Witness:
    """Everything of one run: its folders, what is aimed at, and what became of it."""

    def __init__(
        self, base: Path, stack: ExitStack, setuid: str | None = None, *, is_small: bool = False
    ) -> None:
        """Open everything; a small one has no processes whose memory could be changed."""
        self.token = secrets.token_hex(12)
        self.work, self.shown, self.hidden = (base / n for n in ("work", "shown", "hidden"))
        for folder in (
            *(self.work, self.hidden, self.shown / "repository/.git/hooks"),
            *(self.shown / "site-packages", self.shown / "cache", self.shown / "mounted"),
        ):
            folder.mkdir(parents=True)
        (self.hidden / "secret").write_text(self.token)
        for name in KEPT:
            kept = self.shown / f"kept-{name}"
            kept.write_text("kept")
            kept.chmod(0o600)
            os.utime(kept, (_OLD_S, _OLD_S))
        self._before = {name: self._state_of(name) for name in KEPT}
        self.descriptor = os.open(self.hidden / "secret", os.O_RDONLY)
        stack.callback(os.close, self.descriptor)
        os.set_inheritable(self.descriptor, True)
        self._stack = stack
        self._holders = {} if is_small else {name: Holder(stack) for name in _HELD}
        self._victims = {
            name: self._victim() for name in ("killed", "killed_by_descriptor", "limited")
        }
        limited = self._victims["limited"].pid
        self._limits = (resource.prlimit(limited, resource.RLIMIT_NOFILE), self._priority())
        self._servers = self._open_servers()
        self._key = secrets.randbelow(2**30) + 1
        self._segment, self._memory = self._share_memory()
        self._setuid = setuid
        stack.callback(self._tidy)

    def aims(self) -> dict[str, Any]:
        """Tell hostile code where everything is."""
        ports = {name: one.getsockname()[1] for name, one in self._servers.items() if _is_ip(one)}
        return {
            "work": str(self.work),
            "shown": str(self.shown),
            "hidden": str(self.hidden),
            "token": self.token,
            "abstract": self.token,
            "shm_key": self._key,
            "setuid": self._setuid or "/bin/touch",
            "killed": self._victims["killed"].pid,
            "killed_by_descriptor": self._victims["killed_by_descriptor"].pid,
            "limited": self._victims["limited"].pid,
            "many_processes": 60,
            "endless_s": 2,
            **ports,
            **{name: holder.aim for name, holder in self._holders.items()},
        }

    def tried(self, name: str) -> bool:
        """Say whether a case got as far as its canary."""
        return (self.work / f"canary-{name}").exists()

    def error_of(self, name: str) -> str:
        """Tell what a case ended with; it is said inside, and so only of use to a reader."""
        path = self.work / f"error-{name}"
        return path.read_text() if path.exists() else ""

    def saw(self, name: str) -> bool:
        """Say whether a case had its effect."""
        judge = self._judges().get(name)
        if judge is not None:
            return judge()
        if name in KEPT:
            return self._state_of(name) != self._before[name]
        if name in FOUND:
            path = self.work / f"found-{name}"
            return path.exists() and self.token in path.read_text()
        return os.path.lexists(self.shown / name)

    def _judges(self) -> dict[str, Callable[[], bool]]:
        return {
            "outliving_the_run": self._still_grows,
            "write_to_what_is_not_shown": lambda: len(os.listdir(self.hidden)) > 1,
            "make_device": lambda: _is_device(self.work / "device-make_device"),
            "make_device_outside": lambda: _is_device(self.shown / "make_device_outside"),
            "shared_memory_folder": (
                lambda: os.path.exists(f"/dev/shm/{self.token}-shared_memory_folder")
            ),
            "shared_memory_of_the_host": lambda: ctypes.string_at(self._memory, 4) != b"kept",
            "git_hook": lambda: bool(os.listdir(self.shown / "repository/.git/hooks")),
            "pth_file": (self.shown / "site-packages/planted.pth").exists,
            "sitecustomize": (self.shown / "site-packages/sitecustomize.py").exists,
            "evidence_cache": (self.shown / "cache/answer").exists,
            "tcp": lambda: self._was_reached("tcp"),
            "udp": lambda: self._was_told("udp"),
            "dns": lambda: self._was_told("dns"),
            "raw_socket": lambda: self._was_told("raw"),
            "unix_path_socket": lambda: self._was_reached("path"),
            "unix_abstract_socket": lambda: self._was_reached("abstract"),
            "unix_datagram": lambda: self._was_told("datagrams"),
            "ptrace": lambda: self._holders["traced"].was_changed(),
            "process_vm_writev": lambda: self._holders["written"].was_changed(),
            "memory_file_of_another": lambda: self._holders["by_file"].was_changed(),
            "kill_a_host_process": lambda: self._was_killed("killed"),
            "kill_by_a_descriptor": lambda: self._was_killed("killed_by_descriptor"),
            "limits_of_a_host_process": self._was_limited,
            "priority_of_a_host_process": lambda: self._priority() != self._limits[1],
            "mount": lambda: os.path.ismount(self.shown / "mounted"),
            "setuid_binary": lambda: _owner(self.work / "made-setuid_binary") == 0,
            "core_dump": lambda: any((self.work / "dumped").glob("core*")),
        }

    # --- what is aimed at ---------------------------------------------------------------------
    def _victim(self) -> "subprocess.Popen[bytes]":
        process = self._stack.enter_context(
            subprocess.Popen(("/bin/sh", "-c", "read line"), stdin=subprocess.PIPE)
        )
        self._stack.callback(process.kill)
        return process

    def _open_servers(self) -> dict[str, socket.socket]:
        stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
        wanted: tuple[tuple[str, int, int, Any], ...] = (
            ("tcp", socket.AF_INET, stream, ("127.0.0.1", 0)),
            *((name, socket.AF_INET, datagram, ("127.0.0.1", 0)) for name in ("udp", "dns", "raw")),
            ("path", socket.AF_UNIX, stream, str(self.shown / "socket")),
            ("datagrams", socket.AF_UNIX, datagram, str(self.shown / "datagrams")),
            ("abstract", socket.AF_UNIX, stream, "\0" + self.token),
        )
        servers = {}
        for name, family, kind, address in wanted:
            server = self._stack.enter_context(socket.socket(family, kind))
            server.bind(address)
            if kind == stream:
                server.listen()
            servers[name] = server
        return servers

    def _share_memory(self) -> tuple[int, int]:
        library = ctypes.CDLL(None, use_errno=True)
        library.shmat.restype = ctypes.c_void_p
        segment = library.shmget(self._key, _SHM_SIZE, _CREATE)
        address = library.shmat(segment, None, 0)
        assert segment >= 0
        ctypes.memmove(address, b"kept", 4)
        return segment, address

    def _tidy(self) -> None:
        library = ctypes.CDLL(None)
        library.shmdt(ctypes.c_void_p(self._memory))
        library.shmctl(self._segment, _REMOVE, None)
        while os.path.ismount(self.shown / "mounted"):
            if library.umount2(str(self.shown / "mounted").encode(), 2) != 0:
                break
        with suppress(OSError):
            (self.work / "over").touch()
        with suppress(FileNotFoundError):
            os.unlink(f"/dev/shm/{self.token}-shared_memory_folder")

    # --- what became of it --------------------------------------------------------------------
    def _state_of(self, name: str) -> tuple[Any, ...]:
        path = self.shown / f"kept-{name}"
        if not path.is_file():
            return ()
        about = path.stat()
        attributes: list[str] = []
        with suppress(OSError):
            attributes = os.listxattr(path)
        flags = b""
        with suppress(OSError), open(path, "rb") as file:
            flags = fcntl.ioctl(file.fileno(), _GET_FLAGS, bytes(8))
        times = (about.st_mtime, about.st_mode, about.st_uid)
        return (path.read_bytes(), *times, attributes, flags)

    def _still_grows(self) -> bool:
        path = self.work / "found-outliving_the_run"
        size = path.stat().st_size if path.exists() else 0
        time.sleep(0.4)
        return path.exists() and path.stat().st_size > size

    def _is_readable(self, name: str) -> bool:
        return bool(select.select([self._servers[name]], [], [], 0)[0])

    def _was_reached(self, name: str) -> bool:
        return self._is_readable(name)

    def _was_told(self, name: str) -> bool:
        return self._is_readable(name)

    def _was_killed(self, name: str) -> bool:
        try:
            return self._victims[name].wait(0.2) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False

    def _was_limited(self) -> bool:
        process = self._victims["limited"].pid
        return resource.prlimit(process, resource.RLIMIT_NOFILE) != self._limits[0]

    def _priority(self) -> int:
        return os.getpriority(os.PRIO_PROCESS, self._victims["limited"].pid)


def _is_ip(server: socket.socket) -> bool:
    return server.family == socket.AF_INET


def _is_device(path: Path) -> bool:
    return os.path.lexists(path) and stat.S_ISCHR(path.lstat().st_mode)


def _owner(path: Path) -> int | None:
    return path.stat().st_uid if path.exists() else None
