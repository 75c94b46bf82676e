"""Proves what a level holds: the same attempts inside and outside, judged by a witness.

An attempt that fails inside counts only if it succeeds outside, from the same program with the same
arguments; else the proof says nothing and the sandbox is not proven.

Source: DESIGN.md §6 "A start-up self-test proves the level".
"""

import contextlib
import os
import platform
import secrets
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from redrive.errors import RedriveError
from redrive.sandbox.confinement import (
    SYSTEM_FOLDERS,
    Bind,
    ConfinedResult,
    Confinement,
    Limits,
    lies_in,
)
from redrive.sandbox.control_group import find_parent
from redrive.sandbox.landlock import find_missing, find_obstacle, launch_landlock
from redrive.sandbox.launch import launch, read_options
from redrive.sandbox.system_calls import dump_filter

_CHILD = Path(__file__).with_name("proof_child.py")
_TIMEOUT_S = 20.0
_CANARY = "CANARY"
# The self-test's own names for what it tries, and what the report calls them.
ATTEMPTS: Mapping[str, str] = {
    "write": "write a file of the host",
    "read": "read a private file of the host",
    "connect": "connect to a server of the host",
    "environ": "read the environment of the caller",
    "descriptor": "use an inherited descriptor",
    "datagram": "send a datagram to a server of the host",
    "path_socket": "connect to a Unix socket of the host by its path",
    "abstract_socket": "connect to an abstract socket of the host",
    "kill": "end a process of the host",
    "mode": "change the mode of a file of the host",
}


class Proof(msgspec.Struct, frozen=True):
    """One attempt: it is proven if it is contained inside and happens outside.

    Args:
        what: what was tried.
        is_contained: it did not happen inside.
        has_control: it did happen outside.
    """

    what: str
    is_contained: bool
    has_control: bool


class SandboxLevel(msgspec.Struct, frozen=True):
    """What the sandbox of this machine is worth.

    Args:
        name: `bubblewrap`, `landlock` or `none`.
        is_proven: every proof holds; nothing is run otherwise.
        reason: why it is not proven; empty if it is.
        proofs: in the order of `ATTEMPTS`; empty if the self-test could not run.
        missing: what this level does not hold, for the report.
    """

    name: str
    is_proven: bool
    reason: str = ""
    proofs: tuple[Proof, ...] = ()
    missing: tuple[str, ...] = ()


class _Attempted(msgspec.Struct, frozen=True):
    write: bool
    read: bool
    connect: bool
    environ: bool
    descriptor: bool
    datagram: bool
    path_socket: bool
    abstract_socket: bool
    kill: bool
    mode: bool


_Launch = Callable[[Sequence[str], Confinement], ConfinedResult]


@cache
def prove_bubblewrap(bubblewrap: str) -> SandboxLevel:
    """Run the self-test under bubblewrap, once per process and program; see `SandboxLevel`."""
    options = read_options(bubblewrap)
    return _prove(
        "bubblewrap",
        lambda argv, confinement: launch(bubblewrap, argv, confinement, b""),
        tuple(_missing_of_bubblewrap(options)),
    )


@cache
def prove_landlock() -> SandboxLevel:
    """Run the self-test under Landlock, once per process; see `SandboxLevel`."""
    obstacle = find_obstacle()
    if obstacle:
        return SandboxLevel("none", is_proven=False, reason=obstacle)
    return _prove("landlock", launch_landlock, (*find_missing(), *_missing_of_root()))


def _prove(name: str, launch_level: _Launch, missing: tuple[str, ...]) -> SandboxLevel:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-proof-"))
        private = Path(folder, "private")
        private.write_text("private")
        # Ours to inherit by mistake: only the control is handed it on purpose.
        descriptor = os.open(private, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - its only argument
        try:
            inside = _attempt_inside(launch_level, folder)
            outside = _attempt_outside(folder, descriptor)
        except (RedriveError, OSError, ValueError, subprocess.SubprocessError) as error:
            return SandboxLevel("none", is_proven=False, reason=f"the self-test failed: {error}")
    proofs = tuple(
        Proof(what, is_contained=not getattr(inside, key), has_control=getattr(outside, key))
        for key, what in ATTEMPTS.items()
    )
    failed = [
        f"could {proof.what}" if not proof.is_contained else f"nothing could {proof.what} outside"
        for proof in proofs
        if not (proof.is_contained and proof.has_control)
    ]
    return SandboxLevel(
        name="none" if failed else name,
        is_proven=not failed,
        reason=f"the self-test inside the sandbox {'; '.join(failed)}" if failed else "",
        proofs=proofs,
        missing=missing,
    )


def _missing_of_bubblewrap(known_options: str) -> Iterator[str]:
    if dump_filter(platform.machine()) is None:
        yield (
            f"no filter of system calls is known for {platform.machine()}: kernel interfaces, and "
            "Unix sockets in folders that are shown, are open"
        )
    if "--disable-userns" not in known_options:
        yield "nested user namespaces are possible (bubblewrap before 0.8)"
    if "--size BYTES" not in known_options:
        yield "folders in memory have no size limit (old bubblewrap)"
    yield from _missing_of_root()


def _missing_of_root() -> Iterator[str]:
    if os.geteuid() == 0 and find_parent() is None:
        yield "processes of root are counted, not held (no pids controller for it)"


def _attempt_inside(launch_level: _Launch, folder: str) -> _Attempted:
    python = os.path.realpath(sys.executable)
    homes = {os.path.dirname(os.path.dirname(python)), os.path.realpath(sys.base_prefix)}
    confinement = Confinement(
        readable=tuple(
            Bind(home)
            for home in sorted(homes)
            if not any(lies_in(home, system) for system in SYSTEM_FOLDERS)
        ),
        environment={"LANG": "C.UTF-8"},
        limits=Limits(wall_s=_TIMEOUT_S),
    )
    with _Witness(folder, "inside") as witness:
        done = launch_level(witness.command(python), confinement)
        if done.exit_code != 0:
            words = " ".join(done.stderr.decode("utf-8", "replace").split())
            raise ValueError(f"exit {done.exit_code}: {words}")
        return witness.judge(done.stdout)


def _attempt_outside(folder: str, descriptor: int) -> _Attempted:
    with _Witness(folder, "outside") as witness:
        done = subprocess.run(
            witness.command(sys.executable),
            env={"LANG": "C.UTF-8", _CANARY: "seen"},
            pass_fds=(descriptor,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
        return witness.judge(done.stdout)


class _Witness:
    """Files, servers and a process outside, which tell whether an attempt had an effect."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = folder
        self._written = os.path.join(folder, name)
        self._path = os.path.join(folder, f"{name}.socket")
        self._moded = Path(folder, f"{name}.mode")
        self._abstract = f"redrive-proof-{os.getpid()}-{secrets.token_hex(8)}"

    def __enter__(self) -> "_Witness":
        with contextlib.ExitStack() as stack:
            self._stream = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            self._datagram = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            self._datagram.bind(("127.0.0.1", 0))
            self._by_path = stack.enter_context(socket.socket(socket.AF_UNIX))
            self._by_path.bind(self._path)
            self._by_name = stack.enter_context(socket.socket(socket.AF_UNIX))
            self._by_name.bind("\0" + self._abstract)
            for server in (self._by_path, self._by_name):
                server.listen()
            for server in (self._stream, self._datagram, self._by_path, self._by_name):
                server.settimeout(0)
            self._moded.touch(mode=0o600)
            # It waits for input that never comes, and needs no other program.
            self._victim = stack.enter_context(
                subprocess.Popen(("/bin/sh", "-c", "read line"), stdin=subprocess.PIPE)
            )
            stack.callback(self._victim.kill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def command(self, python: str) -> tuple[str, ...]:
        """Give the command that makes every attempt, in a Python that loads nothing else."""
        told = {
            "write": self._written,
            "read": os.path.join(self._folder, "private"),
            "connect": self._stream.getsockname()[1],
            "datagram": self._datagram.getsockname()[1],
            "path_socket": self._path,
            "abstract_socket": self._abstract,
            "kill": self._victim.pid,
            "mode": str(self._moded),
        }
        source = _CHILD.read_text(encoding="utf-8")
        return (python, "-I", "-S", "-B", "-c", source, msgspec.json.encode(told).decode())

    def judge(self, claims: bytes) -> _Attempted:
        """Join what the child says with what is seen here: either counts as done."""
        claimed = msgspec.json.decode(claims, type=_Attempted)
        return msgspec.structs.replace(
            claimed,
            write=claimed.write or os.path.exists(self._written),
            connect=claimed.connect or _was_reached(self._stream),
            # A sender does not learn whether it came: only the receiver counts.
            datagram=_was_told(self._datagram),
            path_socket=claimed.path_socket or _was_reached(self._by_path),
            abstract_socket=claimed.abstract_socket or _was_reached(self._by_name),
            kill=claimed.kill or self._victim.poll() == -signal.SIGKILL,
            mode=stat.S_IMODE(self._moded.stat().st_mode) != 0o600,
        )


def _was_reached(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _was_told(server: socket.socket) -> bool:
    try:
        return bool(server.recv(100))
    except BlockingIOError:
        return False
