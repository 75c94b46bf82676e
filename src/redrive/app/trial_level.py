"""The one door through which parts of a trial start a confined process, at a named level."""

from collections.abc import Sequence

from redrive.errors import ContainmentError
from redrive.sandbox.bubblewrap import INSTALL_HINT, probe, run_confined
from redrive.sandbox.confinement import ConfinedResult, Confinement
from redrive.sandbox.wiring import UNWIRED, Wiring


def find_level() -> str:
    """Name the level that is proven here: `none` where nothing may run."""
    return probe().name


def run_at(
    level: str,
    argv: Sequence[str],
    confinement: Confinement,
    stdin: bytes = b"",
    wiring: Wiring = UNWIRED,
) -> ConfinedResult:
    """Run a command at a level.

    Raises:
        ContainmentError: it is not proven here; nothing ran.
    """
    if level != "bubblewrap":
        raise ContainmentError(f"nothing is run: no sandbox at level {level}", hint=INSTALL_HINT)
    return run_confined(argv, confinement, stdin, wiring)
