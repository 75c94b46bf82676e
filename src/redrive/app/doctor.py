"""Examines the installation: Python, store, plug-ins, the local model; changes nothing."""

import os
import platform
import sqlite3
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import msgspec

from redrive import plugins
from redrive.errors import RedriveError
from redrive.models.local import INSTALL_HINT, is_installed
from redrive.reports.counts import counted
from redrive.sandbox.door import NONE, find_level, find_levels
from redrive.sandbox.proof import SandboxLevel
from redrive.stores.locate import find_cwd, find_home, locate_store, store_exists
from redrive.stores.sqlite import open_store
from redrive.version import __version__

_OPTIONAL_PACKAGES = (
    ("httpx2", "pip install 'redrive[http]'"),
    ("sqlglot", "pip install 'redrive[policies]'"),
    ("h11", "pip install 'redrive[proxy]'"),
    ("starlette", "pip install 'redrive[ui]'"),
)


class Examination(msgspec.Struct, frozen=True):
    """One thing looked at; where an optional one is missing, the detail says how to add it."""

    what: str
    is_ok: bool
    detail: str
    is_optional: bool = False


def examine(explicit_store: str | None) -> list[Examination]:
    """Look at everything a verb may need, and say what is broken or missing."""
    found = [
        Examination("redrive", is_ok=True, detail=__version__),
        Examination("python", is_ok=sys.version_info >= (3, 11), detail=platform.python_version()),
        Examination("sqlite", is_ok=True, detail=sqlite3.sqlite_version),
        _store(explicit_store),
    ]
    found += [
        Examination(
            f"{state.group} {state.name}", is_ok=state.fault is None, detail=state.fault or "loads"
        )
        for state in plugins.survey()
    ]
    found += [_package(name, hint) for name, hint in _OPTIONAL_PACKAGES]
    found += _sandbox()
    has_engine = is_installed()
    found.append(
        Examination(
            "local model",
            is_ok=has_engine,
            detail="engine and weights are installed" if has_engine else INSTALL_HINT,
            is_optional=True,
        )
    )
    return found


class SandboxState(msgspec.Struct, frozen=True):
    """What the sandbox of this machine is worth.

    Attributes:
        level: the best level that is proven here; `none` where nothing is run.
        levels: by name, each with its proofs and what it does not hold.
    """

    level: str
    levels: dict[str, SandboxLevel]


def examine_sandbox() -> SandboxState:
    """Prove every level of the sandbox; the first call takes a second or two."""
    return SandboxState(find_level().name, find_levels())


def _sandbox() -> Iterator[Examination]:
    state = examine_sandbox()
    yield Examination(
        "sandbox",
        is_ok=state.level != NONE,
        detail=f"{state.level} is used"
        if state.level != NONE
        else "no level is proven: trials, reruns of commands and foreign hooks are refused",
        is_optional=True,
    )
    for name, level in state.levels.items():
        yield Examination(
            f"sandbox {name}", is_ok=level.is_proven, detail=_worth(level), is_optional=True
        )


def _worth(level: SandboxLevel) -> str:
    if not level.is_proven:
        return level.reason
    attempts = ", ".join(proof.what for proof in level.proofs)
    contained = f"{counted(len(level.proofs), 'attempt')} contained ({attempts})"
    return "; it lacks: ".join((contained, *filter(None, ["; ".join(level.missing)])))


def _store(explicit: str | None) -> Examination:
    try:
        path = locate_store(explicit, os.environ, find_cwd, find_home)
        if not store_exists(path):
            return Examination("store", is_ok=True, detail=f"{path}: not made yet")
        store = open_store(path, create=False, read_only=True)
        n_sessions = sum(1 for _ in store.sessions())
        store.close()
    except RedriveError as error:
        return Examination("store", is_ok=False, detail=error.message)
    return Examination("store", is_ok=True, detail=f"{path}: {counted(n_sessions, 'session')}")


def _package(name: str, hint: str) -> Examination:
    try:
        return Examination(name, is_ok=True, detail=version(name), is_optional=True)
    except PackageNotFoundError:
        return Examination(name, is_ok=False, detail=f"not installed: {hint}", is_optional=True)
