"""Keeps the key that redaction marks are made with: 32 random bytes in a file of the user's own.

Knows where the file lies, and makes it. Must not know what is redacted, nor read `os.environ`. The
key lies outside every store and is never exported: who holds it could test guesses of a secret.

Source: DESIGN.md §10 "Redaction marks".
"""

import contextlib
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from redrive.errors import StoreError, UsageError

__all__ = ["ENV_NAME", "KEY_BYTES", "RedactionKey", "load_key", "locate_key"]

ENV_NAME = "REDRIVE_REDACTION_KEY_FILE"
KEY_BYTES = 32
_FILE_NAME = "redaction.key"


class RedactionKey(msgspec.Struct, frozen=True):
    """A key, and why it serves this process alone; `problem` is empty where it was stored."""

    key: bytes
    problem: str = ""


def load_key(
    env: Mapping[str, str], find_home: Callable[[], Path], *, platform: str = sys.platform
) -> RedactionKey:
    """Read the key; make it on first use.

    Args:
        env: the environment; an empty `REDRIVE_REDACTION_KEY_FILE` counts as not set.
        find_home: gives the user's home folder; asked only where it is needed.
        platform: as `sys.platform` names it.

    Returns:
        The stored key; where none can be stored, a random one for this process, with the reason.

    Raises:
        StoreError: the file is no key, cannot be read, or others may read it.
    """
    try:
        path = locate_key(env, find_home, platform)
    except UsageError as error:  # this user has no home folder
        return RedactionKey(secrets.token_bytes(KEY_BYTES), error.message)
    try:
        return RedactionKey(_read(path, platform))
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}", hint=_hint(path)) from error
    try:
        _make(path)
    except OSError as error:
        return RedactionKey(secrets.token_bytes(KEY_BYTES), f"{path}: {error.strerror}")
    return RedactionKey(_read(path, platform))


def locate_key(env: Mapping[str, str], find_home: Callable[[], Path], platform: str) -> Path:
    """Say where the key lies; it need not exist."""
    named = env.get(ENV_NAME)
    if named:
        return Path(named)
    return _config_folder(env, find_home, platform) / "redrive" / _FILE_NAME


def _config_folder(env: Mapping[str, str], find_home: Callable[[], Path], platform: str) -> Path:
    """Give the folder in which this platform keeps a user's settings."""
    if platform == "darwin":
        return find_home() / "Library" / "Application Support"
    if platform == "win32":
        roaming = env.get("APPDATA")
        return Path(roaming) if roaming else find_home() / "AppData" / "Roaming"
    named = Path(env.get("XDG_CONFIG_HOME") or "")
    return named if named.is_absolute() else find_home() / ".config"


def _read(path: Path, platform: str) -> bytes:
    with path.open("rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        key = file.read(KEY_BYTES + 1)
    if platform != "win32" and mode & 0o077:
        raise StoreError(
            f"{path}: mode {mode:04o}, so others may read the redaction key; expected 0600",
            hint=f"chmod 600 {path}",
        )
    if len(key) != KEY_BYTES:
        found = f"{len(key)} bytes" if len(key) <= KEY_BYTES else f"more than {KEY_BYTES} bytes"
        raise StoreError(f"{path}: {found}, expected a key of {KEY_BYTES}", hint=_hint(path))
    return key


def _make(path: Path) -> None:
    """Write a new key, whole or not at all; one that another process made first is kept."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)


def _hint(path: Path) -> str:
    return f"remove {path} for a new key (older marks then match no newer ones), or set {ENV_NAME}"
