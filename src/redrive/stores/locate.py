"""Where the store lies: named, from the environment, nearest upwards, or the user's data folder.

Knows paths and environment variables as arguments. Must not open a store or read
`os.environ`.

Source: DESIGN.md §3 "Store".
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from redrive.errors import UsageError

ENV_NAME = "REDRIVE_STORE"
FOLDER_NAME = ".redrive"
FILE_NAME = "store.db"


def locate_store(
    explicit: str | None,
    env: Mapping[str, str],
    cwd: Path,
    home: Path,
    *,
    platform: str = sys.platform,
) -> Path:
    """Say where the store lies; it need not exist.

    Args:
        explicit: the value of `--store`; absent where it was not given.
        env: the environment; an empty `REDRIVE_STORE` counts as not set.
        cwd: where the search upwards begins; relative paths are taken from here.
        home: the user's home folder.
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
        return cwd / _expand(named, home)
    for folder in (cwd, *cwd.parents):
        candidate = folder / FOLDER_NAME / FILE_NAME
        if os.path.isfile(candidate):
            return candidate
    return _data_folder(env, home, platform) / "redrive" / FILE_NAME


def _expand(path: str, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else Path(path)


def _data_folder(env: Mapping[str, str], home: Path, platform: str) -> Path:
    """Give the folder in which this platform keeps a user's application data."""
    if platform == "darwin":
        return home / "Library" / "Application Support"
    if platform == "win32":
        return Path(env.get("LOCALAPPDATA") or home / "AppData" / "Local")
    named = Path(env.get("XDG_DATA_HOME") or "")
    return named if named.is_absolute() else home / ".local" / "share"
