"""Where the store lies: named, from the environment, nearest upwards, or the user's data folder.

Knows paths and environment variables as arguments. Must not open a store or read
`os.environ`.

Source: DESIGN.md §3 "Store".
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from redrive.errors import StoreError, UsageError

ENV_NAME = "REDRIVE_STORE"
FOLDER_NAME = ".redrive"
FILE_NAME = "store.db"
_HINT = "name the store with --store or REDRIVE_STORE"


def locate_store(
    explicit: str | None,
    env: Mapping[str, str],
    find_cwd: Callable[[], Path],
    find_home: Callable[[], Path],
    *,
    platform: str = sys.platform,
) -> Path:
    """Say where the store lies; it need not exist.

    Args:
        explicit: the value of `--store`; absent where it was not given.
        env: the environment; an empty `REDRIVE_STORE` counts as not set.
        find_cwd: gives the folder where the search upwards begins and relative paths are taken
            from; asked only where it is needed.
        find_home: gives the user's home folder; asked only where it is needed.
        platform: as `sys.platform` names it.

    Returns:
        `explicit`, else `$REDRIVE_STORE`, else the nearest existing `.redrive/store.db` in `cwd` or
        above it, else `redrive/store.db` in the user's data folder.

    Raises:
        UsageError: `explicit` is the empty text.
    """
    if explicit == "":
        raise UsageError("--store is empty: expected a path")
    named = explicit or env.get(ENV_NAME)
    if named:
        return _absolute(named, find_cwd, find_home)
    cwd = find_cwd()
    for folder in (cwd, *cwd.parents):
        candidate = folder / FOLDER_NAME / FILE_NAME
        if os.path.isfile(candidate):
            return candidate
    return _data_folder(env, find_home, platform) / "redrive" / FILE_NAME


def _absolute(path: str, find_cwd: Callable[[], Path], find_home: Callable[[], Path]) -> Path:
    if path.startswith("~/"):
        return find_home() / path[2:]
    return Path(path) if Path(path).is_absolute() else find_cwd() / path


def _data_folder(env: Mapping[str, str], find_home: Callable[[], Path], platform: str) -> Path:
    """Give the folder in which this platform keeps a user's application data."""
    if platform == "darwin":
        return find_home() / "Library" / "Application Support"
    if platform == "win32":
        local = env.get("LOCALAPPDATA")
        return Path(local) if local else find_home() / "AppData" / "Local"
    named = Path(env.get("XDG_DATA_HOME") or "")
    return named if named.is_absolute() else find_home() / ".local" / "share"


def find_cwd() -> Path:
    """Give the current folder.

    Raises:
        UsageError: it no longer exists.
    """
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("the current folder no longer exists", hint=_HINT) from error


def find_home() -> Path:
    """Give the user's home folder; an empty `HOME` is none.

    Raises:
        UsageError: the user has none.
    """
    try:
        home = Path.home()
    except (RuntimeError, KeyError) as error:
        raise UsageError("this user has no home folder", hint=_HINT) from error
    if os.environ.get("HOME") == "":
        raise UsageError("HOME is empty", hint=_HINT)
    return home


def store_exists(path: Path) -> bool:
    """Say whether a store lies there.

    Raises:
        StoreError: that cannot be looked up.
    """
    try:
        return path.exists()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}", hint="name another with --store") from error
