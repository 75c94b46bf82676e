"""Runs every case without a sandbox, as the control, and at each level; gives what was seen.

A process of its own, once as each user: `python -m tests.sandbox_cases.matrix` prints JSON.
"""

import ctypes
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from redrive.sandbox.confinement import MIB, SYSTEM_FOLDERS, Bind, Confinement, Limits, lies_in
from redrive.sandbox.disk import remove_tree
from redrive.sandbox.door import LEVELS, find_levels, run_at
from tests.sandbox_cases.payloads import CASES
from tests.sandbox_cases.witness import Witness

OFF = "off"
PAYLOADS = Path(__file__).with_name("payloads.py")
# Each of these ends its sandbox, or needs one with other limits.
ALONE = ("process_bomb", "disk_bomb", "output_flood", "endless")
METADATA = "cloud_metadata"
TOGETHER = tuple(name for name in CASES if name not in (*ALONE, METADATA))
_OUTPUT_BYTES = 100_000
_OFF_S = 60
_LIMITS: dict[str, Limits] = {
    "": Limits(cpu_s=1, address_space_bytes=512 * MIB, wall_s=60, n_processes=200),
    "process_bomb": Limits(n_processes=30, wall_s=60),
    "disk_bomb": Limits(disk_bytes=4 * MIB, wall_s=60),
    "output_flood": Limits(output_bytes=_OUTPUT_BYTES, wall_s=60),
    "endless": Limits(wall_s=0.6),
    METADATA: Limits(wall_s=60),
}


class Seen(dict[str, Any]):
    """What one level let one case do: `tried`, `seen`, and what it ended with, `said`."""


def run_cases(level: str, names: Iterable[str], setuid: str | None = None) -> dict[str, Seen]:
    """Run cases together, once, and judge each.

    Args:
        level: as `redrive.sandbox.door` names it, or `off`.
        names: of cases.
        setuid: a copy of `touch` that root owns and that has the setuid bit.
    """
    wanted = tuple(names)
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="redrive-cases-")))
    try:
        with ExitStack() as stack:
            witness = Witness(base, stack, setuid, is_small=len(wanted) == 1)
            aims = {"names": wanted, **witness.aims()}
            ended = _run(level, wanted, aims, witness)
            found = {}
            for name in wanted:
                found[name] = Seen(
                    tried=witness.tried(name),
                    seen=_judge_end(name, ended, witness),
                    said=witness.error_of(name),
                )
            return found
    finally:
        remove_tree(str(base))


def _run(level: str, names: tuple[str, ...], aims: dict[str, Any], witness: Witness) -> Any:
    python = os.path.realpath(sys.executable)
    argv = (python, "-I", "-S", "-B", "-W", "ignore", str(PAYLOADS), json.dumps(aims))
    if level == OFF:
        return subprocess.run(
            argv,
            env={"REDRIVE_SECRET": witness.token, "LANG": "C.UTF-8"},
            cwd=witness.work,
            pass_fds=(witness.descriptor,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_OFF_S,
            check=False,
        )
    homes = {os.path.dirname(os.path.dirname(python)), os.path.realpath(sys.base_prefix)}
    readable = [*homes, str(witness.shown), str(PAYLOADS), os.path.dirname(aims["setuid"])]
    confinement = Confinement(
        readable=tuple(Bind(p) for p in readable if not any(lies_in(p, s) for s in SYSTEM_FOLDERS)),
        writable=(Bind(str(witness.work)),),
        cwd=str(witness.work),
        environment={"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        limits=_LIMITS[names[0] if len(names) == 1 and names[0] in _LIMITS else ""],
    )
    os.environ["REDRIVE_SECRET"] = witness.token
    return run_at(level, argv, confinement)


def _judge_end(name: str, ended: Any, witness: Witness) -> bool:
    """Judge a case; those that spend also by how the run ended: it must be marked."""
    if name == "output_flood":
        return len(ended.stdout) > _OUTPUT_BYTES
    marks: dict[str, Callable[[], bool]] = {
        "process_bomb": lambda: ended.is_process_flood,
        "disk_bomb": lambda: ended.is_disk_full,
        "endless": lambda: ended.is_timeout,
    }
    is_off = isinstance(ended, subprocess.CompletedProcess)
    if name in marks and not is_off:
        return not marks[name]()
    return witness.saw(name)


# --- an address that no host answers elsewhere ---------------------------------------------------
def serve_metadata() -> socket.socket:
    """Enter a network of its own in which the clouds' metadata address is served.

    Raises:
        OSError: this user may not.
    """
    library = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if library.unshare(0x40000000 | (0x10000000 if user else 0)) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for device, address in ((b"lo", "127.0.0.1"), (b"lo:1", "169.254.169.254")):
            place = struct.pack("=16sHH4s8x", device, socket.AF_INET, 0, socket.inet_aton(address))
            fcntl.ioctl(one, 0x8916, place)
            fcntl.ioctl(one, 0x8914, struct.pack("=16sH14x", device, 0x41))
    return socket.create_server(("169.254.169.254", 80))


def run_metadata(levels: Iterable[str]) -> dict[str, Seen]:
    """Run the case of the metadata address at each level; level → what was seen."""
    server = serve_metadata()
    server.settimeout(0)
    found = {}
    for level in levels:
        seen = run_cases(level, (METADATA,))[METADATA]
        try:
            server.accept()[0].close()
            seen["seen"] = True
        except BlockingIOError:
            seen["seen"] = False
        found[level] = seen
    return found


def run_matrix(setuid: str | None) -> dict[str, dict[str, Seen]]:
    """Run all cases at all levels that are proven here, for this user; level → case → seen."""
    proven = [name for name, level in find_levels().items() if level.is_proven]
    found: dict[str, dict[str, Seen]] = {}
    for level in (OFF, *(name for name in LEVELS if name in proven)):
        # Only who is not root has something to gain from root's program.
        names = (name for name in TOGETHER if setuid or name != "setuid_binary")
        found[level] = run_cases(level, names, setuid)
        for name in ALONE:
            found[level] |= run_cases(level, (name,))
    # In the end, as it leaves this process in another network.
    try:
        for level, seen in run_metadata(found).items():
            found[level][METADATA] = seen
    except OSError as error:
        for level in found:
            found[level][METADATA] = Seen(tried=True, seen=False, said=f"no control: {error}")
    return found


if __name__ == "__main__":
    started_s = time.monotonic()
    json.dump(run_matrix(sys.argv[1] if len(sys.argv) > 1 else None), sys.stdout)
    sys.stderr.write(f"{time.monotonic() - started_s:.1f} s\n")
