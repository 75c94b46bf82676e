"""The sandbox of DESIGN.md §6 on Linux: a command under bubblewrap, proven first or not at all.

For what needs namespaces; `door` is for what may run at any level. `run_confined` runs nothing
until `probe` has shown, on this machine and with a control outside, that writes, connections,
secrets, files and descriptors do not cross.
"""

import shutil
import sys
from collections.abc import Sequence

from redrive.errors import ContainmentError
from redrive.sandbox.confinement import ConfinedResult, Confinement
from redrive.sandbox.launch import launch
from redrive.sandbox.proof import SandboxLevel, prove_bubblewrap
from redrive.sandbox.wiring import UNWIRED, Wiring

INSTALL_HINT = (
    "install bubblewrap (the program bwrap) from your distribution, and allow user namespaces"
)


def find_bubblewrap() -> str | None:
    """Find bubblewrap on the path of this process; `None` where there is none or no Linux."""
    return shutil.which("bwrap") if sys.platform == "linux" else None


def probe() -> SandboxLevel:
    """Prove what the sandbox holds here; the first call takes a second, later ones nothing."""
    return _level(find_bubblewrap())


def run_confined(
    argv: Sequence[str], confinement: Confinement, stdin: bytes = b"", wiring: Wiring = UNWIRED
) -> ConfinedResult:
    """Run a command that can change nothing and reach nobody, but for what is named.

    Args:
        argv: the command and its arguments, looked up inside.
        confinement: what it has.
        stdin: what it reads; then its input is closed.
        wiring: what connects it with this process while it runs, see `Wiring`.

    Raises:
        ContainmentError: the sandbox is not proven here, or failed; nothing ran outside it.
        UsageError: the confinement or the command cannot be written down.
    """
    found = find_bubblewrap()
    level = _level(found)
    if found is None or not level.is_proven:
        raise ContainmentError(f"nothing is run: {level.reason}", hint=INSTALL_HINT)
    return launch(found, argv, confinement, stdin, wiring)


def _level(found: str | None) -> SandboxLevel:
    if found is None:
        return SandboxLevel(name="none", is_proven=False, reason="there is no bubblewrap here")
    return prove_bubblewrap(found)
