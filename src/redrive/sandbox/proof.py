"""Proves what a bubblewrap holds: the same attempts inside and outside, judged by a witness.

An attempt that fails inside counts only if it succeeds outside, from the same program with the same
arguments; else the proof says nothing and the sandbox is not proven.

Source: DESIGN.md §6 "A start-up self-test proves the level".
"""

import contextlib
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from redrive.errors import RedriveError
from redrive.sandbox.confinement import SYSTEM_FOLDERS, Bind, Confinement, Limits, lies_in
from redrive.sandbox.control_group import find_parent
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
        name: `bubblewrap` or `none`.
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


@cache
def prove(bubblewrap: str) -> SandboxLevel:
    """Run the self-test, once per process and bubblewrap; see `SandboxLevel`."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="redrive-proof-"))
        private = Path(folder, "private")
        private.write_text("private")
        # Ours to inherit by mistake: only the control is handed it on purpose.
        descriptor = os.open(private, os.O_RDONLY)
        stack.callback(os.close, descriptor)
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - its only argument
        try:
            inside = _attempt_inside(bubblewrap, folder)
            outside = _attempt_outside(folder, descriptor)
        except (RedriveError, OSError, ValueError, subprocess.SubprocessError) as error:
            return SandboxLevel("none", is_proven=False, reason=f"the self-test failed: {error}")
    return _judge(inside, outside, read_options(bubblewrap))


def _judge(inside: _Attempted, outside: _Attempted, known_options: str) -> SandboxLevel:
    proofs = tuple(
        Proof(what, is_contained=not getattr(inside, name), has_control=getattr(outside, name))
        for name, what in ATTEMPTS.items()
    )
    failed = [
        f"could {proof.what}" if not proof.is_contained else f"nothing could {proof.what} outside"
        for proof in proofs
        if not (proof.is_contained and proof.has_control)
    ]
    missing = []
    if dump_filter(platform.machine()) is None:
        missing.append(
            f"no filter of system calls is known for {platform.machine()}: kernel interfaces, and "
            "Unix sockets in folders that are shown, are open"
        )
    if "--disable-userns" not in known_options:
        missing.append("nested user namespaces are possible (bubblewrap before 0.8)")
    if "--size BYTES" not in known_options:
        missing.append("folders in memory have no size limit (old bubblewrap)")
    if os.geteuid() == 0 and find_parent() is None:
        missing.append("processes of root are counted, not held (no pids controller for it)")
    return SandboxLevel(
        name="none" if failed else "bubblewrap",
        is_proven=not failed,
        reason=f"the self-test inside the sandbox {'; '.join(failed)}" if failed else "",
        proofs=proofs,
        missing=tuple(missing),
    )


def _attempt_inside(bubblewrap: str, folder: str) -> _Attempted:
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
        done = launch(bubblewrap, witness.command(python), confinement, b"")
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
    """A file and a server outside, which tell whether an attempt had an effect."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = folder
        self._written = os.path.join(folder, name)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(0)

    def __enter__(self) -> "_Witness":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def command(self, python: str) -> tuple[str, ...]:
        """Give the command that makes every attempt, in a Python that loads nothing else."""
        port = str(self._server.getsockname()[1])
        private = os.path.join(self._folder, "private")
        source = _CHILD.read_text(encoding="utf-8")
        return (python, "-I", "-S", "-B", "-c", source, self._written, private, port)

    def judge(self, claims: bytes) -> _Attempted:
        """Join what the child says with what is seen here: either counts as done."""
        claimed = msgspec.json.decode(claims, type=_Attempted)
        return msgspec.structs.replace(
            claimed,
            write=claimed.write or os.path.exists(self._written),
            connect=claimed.connect or self._was_reached(),
        )

    def _was_reached(self) -> bool:
        try:
            self._server.accept()[0].close()
        except BlockingIOError:
            return False
        return True
