"""The door to the sandbox: a command at the best level that is proven here, or not at all.

Knows the levels and their order. A level is tried only when the one before it cannot be had: the
first call takes a second or two, later ones nothing.

Source: DESIGN.md §6 "Three layers", "Without a provable level nothing runs".
"""

from collections.abc import Sequence

from redrive.errors import ContainmentError, UsageError
from redrive.sandbox import bubblewrap
from redrive.sandbox.confinement import ConfinedResult, Confinement
from redrive.sandbox.landlock import launch_landlock
from redrive.sandbox.proof import SandboxLevel, prove_landlock
from redrive.sandbox.wiring import UNWIRED, Wiring

BUBBLEWRAP, LANDLOCK, NONE = "bubblewrap", "landlock", "none"
LEVELS = (BUBBLEWRAP, LANDLOCK)
"""Names of the levels, the strongest first."""
NO_LEVEL_HINT = (
    f"{bubblewrap.INSTALL_HINT}, or use Linux 6.2 or newer with Landlock; redrive doctor shows more"
)


def find_levels() -> dict[str, SandboxLevel]:
    """Prove each level by itself; name as in `LEVELS` → what it is worth here."""
    return {BUBBLEWRAP: bubblewrap.probe(), LANDLOCK: prove_landlock()}


def find_level() -> SandboxLevel:
    """Find the best level that is proven here.

    Returns:
        That level; where there is none, a level named `none` with the reasons of all.
    """
    found = bubblewrap.probe()
    if found.is_proven:
        return found
    other = prove_landlock()
    if other.is_proven:
        return other
    reason = f"bubblewrap: {found.reason}; Landlock: {other.reason}"
    return SandboxLevel(NONE, is_proven=False, reason=reason)


def run_at(
    level: str,
    argv: Sequence[str],
    confinement: Confinement,
    stdin: bytes = b"",
    wiring: Wiring = UNWIRED,
) -> ConfinedResult:
    """Run a command at one level.

    Args:
        level: `bubblewrap` or `landlock`; `none`, as `find_level` may give it, runs nothing.
        argv: the command and its arguments, looked up inside.
        confinement: what it has.
        stdin: what it reads; then its input is closed.
        wiring: what connects it with this process while it runs, see `Wiring`.

    Raises:
        ContainmentError: that level is not proven here, or failed; nothing ran outside it.
        UsageError: there is no such level, or it cannot give what the confinement asks for.
    """
    if level == BUBBLEWRAP:
        return bubblewrap.run_confined(argv, confinement, stdin, wiring)
    if level == LANDLOCK:
        proven = prove_landlock()
        if not proven.is_proven:
            raise ContainmentError(f"nothing is run: {proven.reason}", hint=NO_LEVEL_HINT)
        return launch_landlock(argv, confinement, stdin, wiring)
    if level == NONE:
        raise ContainmentError(f"nothing is run: {find_level().reason}", hint=NO_LEVEL_HINT)
    raise UsageError(f"there is no sandbox level {level!r}", hint=f"one of {', '.join(LEVELS)}")


def run_confined(
    argv: Sequence[str], confinement: Confinement, stdin: bytes = b"", wiring: Wiring = UNWIRED
) -> ConfinedResult:
    """Run a command at the best level that is proven here; see `run_at`."""
    return run_at(find_level().name, argv, confinement, stdin, wiring)
