"""The environment manifest: what an agent ran in, as a JSON object in `session.started`.

Knows the interpreter, installed packages, the agent's own files and the endpoints that it was
given. Must not know sessions, nor compare (that is `redrive.audit.environment`).

Never in it: arguments of the command line, values of environment variables, names of users or
hosts, absolute paths, credentials in URLs. Its cost is bounded: what was cut says so, under `cut`.

Source: DESIGN.md §3 "Provenance manifest", §4 "environment".
"""

import hashlib
import importlib.metadata
import os
import platform
import re
import sys
import sysconfig
import time
import urllib.parse
import zoneinfo
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec

from redrive import canonical
from redrive.capture.agent_code import AgentCode
from redrive.capture.worktree import describe_worktree
from redrive.errors import UsageError


class Bounds(msgspec.Struct, frozen=True):
    """How much of the agent's code is read: files, and bytes of all together."""

    n_files: int = 1000
    n_bytes: int = 32 * 1024 * 1024


_DEFAULT_BOUNDS: Final = Bounds()
_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
_ZONE_FOLDER: Final = "/zoneinfo/"
_ZONE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")


def build_manifest(
    root: Path,
    *,
    endpoints: Iterable[str] = (),
    engine: Mapping[str, Any] | None = None,
    bounds: Bounds = _DEFAULT_BOUNDS,
) -> dict[str, Any]:
    """Describe the environment of this process.

    Args:
        root: the folder of the agent's own code, see `agent_code.find_root`.
        endpoints: URLs of models and services; credentials, queries and fragments are left out.
        engine: properties of the serving engine that the caller knows: a JSON object.
        bounds: of the agent's code; `worktree` has its own for git.

    Returns:
        JSON: `python`, `platform`, `packages`, `git`, `code`, `endpoints`, `engine`, `time_zone`,
        `cpu_count`. Equal environments give equal objects.

    Raises:
        UsageError: `engine` is not JSON.
    """
    return {
        "python": _describe_python(),
        "platform": {
            "system": platform.system(),
            "machine": platform.machine(),
            "libc": " ".join(platform.libc_ver()).strip(),
        },
        "packages": list_packages(sys.modules),
        "git": describe_worktree(root),
        "code": digest_code(root, bounds),
        "endpoints": sorted({bare_url(url) for url in endpoints}),
        "engine": _plain_engine(engine or {}),
        "time_zone": name_time_zone(),
        "cpu_count": count_cpus(),
    }


def _describe_python() -> dict[str, str]:
    is_set = "PYTHONHASHSEED" in os.environ and not sys.flags.ignore_environment
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "build": sysconfig.get_platform(),
        # The value stays out, as every value of the environment does.
        "hash_seed": "set" if is_set and os.environ["PYTHONHASHSEED"] != "random" else "not_set",
    }


def _plain_engine(engine: Mapping[str, Any]) -> Any:
    try:
        return canonical.decode_value(canonical.encode(dict(engine)))
    except (TypeError, ValueError) as error:
        raise UsageError(f"the engine's properties are not JSON: {error}") from error


def list_packages(modules: Mapping[str, object]) -> dict[str, str]:
    """Give the versions of the installed packages that modules were imported from, by name.

    Cost: reads the metadata of every installed package once, some milliseconds per hundred.
    """
    tops = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    owners = importlib.metadata.packages_distributions()
    # Another version of the recorder is no other environment of the agent.
    names = {owner for top in tops for owner in owners.get(top, ())} - {"redrive"}
    return {name: _version_of(name) for name in sorted(names, key=str.lower)}


def _version_of(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def digest_code(root: Path, bounds: Bounds = _DEFAULT_BOUNDS) -> dict[str, Any]:
    """Hash the agent's own Python files.

    Args:
        root: their folder; it stands in no name.
        bounds: files of modules that are loaded come first, the others follow by name.

    Returns:
        `files`: path below the root → sha256; `digest`: sha256 of `files` in canonical form;
        `cut`: what is missing for the bounds, only where something is. A file that cannot be read
        has the digest `unreadable`.
    """
    root = Path(os.path.realpath(root))
    files: dict[str, str] = {}
    n_bytes, n_cut = 0, 0
    paths, cut = _order_files(root)
    for path in paths:
        if len(files) >= bounds.n_files or n_bytes + _size_of(path) > bounds.n_bytes:
            n_cut += 1
            continue
        n_bytes += _size_of(path)
        name = path.relative_to(root).as_posix()
        files[canonical.escape_surrogates(name)] = _digest_file(path)
    files = dict(sorted(files.items()))
    found: dict[str, Any] = {"digest": canonical.value_digest(files), "files": files}
    cut += [f"{n_cut} files"] if n_cut else []
    return found | ({"cut": cut} if cut else {})


def _order_files(root: Path) -> tuple[list[Path], list[str]]:
    """List the agent's files, each once, those of loaded modules first; and what was not seen."""
    cut: list[str] = []
    is_own = AgentCode([root])
    loaded = (_file_of(module) for module in list(sys.modules.values()))
    own = {Path(os.path.realpath(file)) for file in loaded if file and is_own(file)}
    first = sorted(path for path in own if path.is_relative_to(root))
    rest = (path for path in _walk(root, cut) if is_own(str(path)))
    return list(dict.fromkeys([*first, *rest])), cut


def _file_of(module: object) -> str | None:
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return file if isinstance(file, str) else None


_MAX_WALKED: Final = 100_000


def _walk(root: Path, cut: list[str]) -> Iterator[Path]:
    """Yield Python files below a folder by name; no hidden folder, no link to a folder."""
    n_seen = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(n for n in folders if n not in _SKIPPED_FOLDERS and n[0] != ".")
        n_seen += len(names) + 1
        if n_seen > _MAX_WALKED:
            cut.append("folders")
            return
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".py"))


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _digest_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return "unreadable"


def bare_url(url: str) -> str:
    """Give scheme, host, port and path of a URL: no user, password, query or fragment."""
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "unreadable"
    if not parts.scheme or not host:
        # Without them, a password may stand anywhere.
        return "unreadable"
    shown = f"[{host}]" if ":" in host else host
    return urllib.parse.urlunsplit((parts.scheme, shown + port, parts.path.rstrip("/"), "", ""))


def name_time_zone() -> str:
    """Name the local time zone: `Europe/Berlin` where it is known, else its offset, `UTC-03:00`."""
    named = os.environ.get("TZ")
    if named is None:
        _, folder, zone = os.path.realpath("/etc/localtime").partition(_ZONE_FOLDER)
        named = zone if folder else ""
    if _is_zone(named):
        return named
    hours, minutes = divmod(abs(time.timezone) // 60, 60)
    return f"UTC{'-' if time.timezone > 0 else '+'}{hours:02}:{minutes:02}"


def _is_zone(name: str) -> bool:
    """Say whether a name is one of the public database, so that no other text is recorded."""
    if not _ZONE_NAME.fullmatch(name):
        return False
    try:
        zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return False
    return True


def count_cpus() -> int:
    """Count the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
