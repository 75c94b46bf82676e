"""One door for plug-ins: entry points. Built-ins come in by the same door.

Knows entry-point groups and how to load a name from them. A plug-in that fails to load stops only
who asks for it; `redrive doctor` names it. A recording never names code to import: names come from
the command line or from what is registered.

Source: DESIGN.md §2, STYLE.md "One door for plug-ins".
"""

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from redrive.errors import PluginError, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

IMPORTERS = "redrive.importers"
RENDERERS = "redrive.renderers"
MODELS = "redrive.models"
POLICIES = "redrive.policies"
GRADERS = "redrive.graders"
WORKFLOWS = "redrive.workflows"
# `survey` imports every plug-in of these. Workflows are imported in a sandbox alone.
GROUPS = (IMPORTERS, RENDERERS, MODELS, POLICIES, GRADERS)


class PluginState(msgspec.Struct, frozen=True):
    """One plug-in as found: its group, name, target, and why it does not load (absent: it does)."""

    group: str
    name: str
    target: str
    fault: str | None = None


@cache
def _points(group: str) -> "tuple[EntryPoint, ...]":
    from importlib.metadata import entry_points  # late: it costs as much as the rest of a start

    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def names(group: str) -> tuple[str, ...]:
    """List what is registered in a group, in alphabetical order; nothing is imported."""
    return tuple(point.name for point in _points(group))


def targets(group: str) -> tuple[tuple[str, str], ...]:
    """List (name, MODULE:ATTRIBUTE) of a group, in alphabetical order; nothing is imported."""
    return tuple((point.name, point.value) for point in _points(group))


def require(group: str, name: str) -> None:
    """Check that a name is registered; nothing is imported. Raises as `load` does."""
    if name not in names(group):
        kind = group.rpartition(".")[2].rstrip("s")
        known = ", ".join(names(group)) or "none; is redrive installed?"
        raise UsageError(f"no {kind} named {name!r}", hint=f"known: {known}")


def load(group: str, name: str) -> Any:
    """Import one plug-in.

    Raises:
        UsageError: nothing of that name is registered; the hint lists what is.
        PluginError: it is registered and does not load.
    """
    require(group, name)
    return _load(next(point for point in _points(group) if point.name == name))


def _load(point: "EntryPoint") -> Any:
    try:
        return point.load()
    except Exception as error:
        raise PluginError(
            f"plug-in {point.name!r} ({point.value}) does not load: {error}",
            hint="redrive doctor lists every plug-in",
        ) from error


def load_all(group: str) -> dict[str, Any]:
    """Import every plug-in of a group that loads; those that fail are left to `doctor`."""
    loaded = {}
    for point in _points(group):
        try:
            loaded[point.name] = _load(point)
        except PluginError:
            continue
    return loaded


def survey() -> list[PluginState]:
    """Try every plug-in and say which do not load."""
    states = []
    for group in GROUPS:
        for point in _points(group):
            try:
                _load(point)
            except PluginError as error:
                states.append(PluginState(group, point.name, point.value, error.message))
            else:
                states.append(PluginState(group, point.name, point.value))
    return states
