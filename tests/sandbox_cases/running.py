"""Runs the cases as root and as an ordinary user, each in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ordinary_user import find_command, run_as_ordinary_user

ROOT, ORDINARY = "root", "an ordinary user"
_TIMEOUT_S = 240.0
_REPOSITORY = Path(__file__).resolve().parents[2]
# Where the effect cannot happen without a sandbox either, and why.
_NEEDS_ROOT = "needs root's rights"
_NO_CONTROL: dict[str, dict[str, str]] = {
    ROOT: {},
    ORDINARY: dict.fromkeys(
        ("make_device", "make_device_outside", "raw_socket", "mount", "chroot"), _NEEDS_ROOT
    ),
}


def users() -> tuple[str, ...]:
    """List as whom the cases can be run here."""
    if os.geteuid() != 0:
        return (ORDINARY,)
    return (ROOT,) if find_command() is None else (ROOT, ORDINARY)


def missing_control(name: str, user: str) -> str:
    """Say why a case has no effect for a user without a sandbox either; empty if it should."""
    return _NO_CONTROL[user].get(name, _of_this_machine(name))


def _of_this_machine(name: str) -> str:
    pattern = Path("/proc/sys/kernel/core_pattern")
    if name == "core_dump" and (not pattern.exists() or pattern.read_text()[:1] in "|/"):
        return "cores go elsewhere here"
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    traced = ("ptrace", "process_vm_writev", "memory_file_of_another")
    if name in traced and scope.exists() and scope.read_text().strip() != "0":
        return "tracing is restricted here"
    return ""


@contextmanager
def _setuid_touch() -> Iterator[str]:
    """Make a copy of `touch` with which whoever runs it acts as root; only root can."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="redrive-setuid-")))
    try:
        folder.chmod(0o755)
        shutil.copyfile("/bin/touch", folder / "touch")
        (folder / "touch").chmod(0o4755)
        yield str(folder / "touch")
    finally:
        shutil.rmtree(folder)


def run_as(user: str) -> dict[str, dict[str, Any]]:
    """Run every case as a user; level → case → what was seen."""
    if user == ORDINARY and os.geteuid() == 0:
        with _setuid_touch() as setuid:
            return _run(user, "matrix", setuid)
    return _run(user, "matrix")


def run_workflows_as(user: str) -> dict[str, dict[str, Any]]:
    """Run the hostile workflow as a user; level → what came of it."""
    return _run(user, "workflow_matrix")


def _run(user: str, module: str, *words: str) -> dict[str, dict[str, Any]]:
    command = ("-W", "ignore", "-m", f"tests.sandbox_cases.{module}", *words)
    if user == ORDINARY and os.geteuid() == 0:
        text = run_as_ordinary_user(command, _TIMEOUT_S)
    else:
        text = subprocess.run(
            (sys.executable, *command),
            cwd=_REPOSITORY,
            stdout=subprocess.PIPE,
            timeout=_TIMEOUT_S,
            check=True,
        ).stdout
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found
