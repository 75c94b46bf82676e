"""Which paths can be deleted without a loss: what is rebuilt, or lies in a temporary folder.

Knows paths as text, relative to where a script began. Must not touch a disk.
"""

import fnmatch
import posixpath

from redrive.policies.shell_words import DOWNLOADED, UNKNOWN, is_known

# Folders that a tool makes again, or that hold its caches.
REBUILT = frozenset(
    {
        *("node_modules", "bower_components", "dist", "build", "target", "out", "_build"),
        *(".venv", "venv", "virtualenv", "__pycache__", ".pytest_cache", ".mypy_cache"),
        *(".ruff_cache", ".hypothesis", ".tox", ".nox", ".eggs", ".ipynb_checkpoints"),
        *("coverage", "htmlcov", ".coverage", ".nyc_output", "lcov-report", "test-results"),
        *("playwright-report", ".next", ".nuxt", ".output", ".svelte-kit", ".astro", ".turbo"),
        *(".parcel-cache", ".vite", ".angular", ".expo", ".docusaurus", "storybook-static"),
        *(".cache", ".npm", ".yarn-cache", ".pnpm-store", ".gradle", "DerivedData", "Pods"),
        *(".terragrunt-cache", ".serverless", ".aws-sam", ".dart_tool", ".stack-work"),
        *("cmake-build-debug", "cmake-build-release", "CMakeFiles", ".zig-cache", "zig-out"),
        *(".wrangler", ".vercel", ".netlify", ".bundle", "elm-stuff", ".ccls-cache"),
    }
)
# Temporary by name; after a root that is not known, such a name may be the system's own.
TEMPORARY = frozenset({"tmp", "temp", ".tmp", ".temp", "scratch", ".scratch"})
PATTERNS = (
    *("*.egg-info", "*.pyc", "*.pyo", "*.tmp", "tmp.*", "__pycache__*"),
    *("bazel-*", "*.tsbuildinfo"),
)
# Files that are left behind: a copy, or what a merge could not place.
_BACKUPS = ("*.orig", "*.bak", "*.rej", "*.swp", "*.swo", "*~", "*.pyc", "*.tmp")
# Endings of plain files: deleting one, or a lock that is made again, is no recursion. A folder may
# be called `next.js` or `data.v2`, so the table is short; a database's file is not in it.
_FILE_ENDINGS = (
    *(".json", ".lock", ".lockb", "-lock.yaml", ".txt", ".md", ".log", ".py", ".yml", ".yaml"),
    *(".toml", ".csv", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".mp4", ".zip", ".gz", ".tgz"),
    *(".tar", ".pdf", ".html", ".css", ".xml", ".sh", ".whl", ".deb", ".jar", ".class", ".o"),
)
# Paths to judge; none is ever opened.
TEMPORARY_ROOT = "/tmp"  # noqa: S108  # nosec B108
MADE_TEMPORARY = f"{TEMPORARY_ROOT}/made-by-the-script"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # nosec B108
_TEMPORARY_ROOTS = (
    TEMPORARY_ROOT,
    f"/private{TEMPORARY_ROOT}",
    f"/var{TEMPORARY_ROOT}",
    "/var/folders",
    _SHARED_MEMORY,
)
# Rebuilt in a project; near the top of a disk or a home such a name may be anything.
_GENERIC = frozenset({"build", "dist", "target", "out", "_build", "coverage", "test-results"})
_MIN_GENERIC_DEPTH = 2
_GLOB = frozenset("*?[")


def join_path(folder: str, path: str) -> str:
    """Give the normal form of `path` as seen from `folder`; `..` is taken as text."""
    is_placed = path.startswith(("/", "~", UNKNOWN, DOWNLOADED))
    joined = path if is_placed else f"{folder}/{path}"
    normal = posixpath.normpath(joined) if joined else "."
    return "/" + normal.lstrip("/") if normal.startswith("//") else normal


def is_scratch(path: str, *, folder: str = ".", root: str | None = None) -> bool:
    """Tell whether deleting `path` loses nothing that matters.

    Args:
        path: as a command names it; may hold globs.
        folder: where the command runs.
        root: the working tree where it is known: what lies in it is judged by its own name, even
            when the tree itself lies in a temporary folder.
    """
    whole = join_path(folder, path)
    if root is not None and whole.startswith("/"):
        tree = posixpath.normpath(root)
        if whole == tree or tree.startswith(whole.rstrip("/") + "/"):
            return False
        if whole.startswith(tree.rstrip("/") + "/"):
            whole = whole[len(tree.rstrip("/")) + 1 :]
    return _is_below_temporary(whole) or _has_rebuilt_part(whole)


def is_broad(path: str, *, folder: str = ".") -> bool:
    """Tell whether a path is everything: `/`, a top folder, a home, the tree, or unknown alone."""
    whole = join_path(folder, path)
    parts = [part for part in whole.split("/") if part]
    while parts and parts[-1] in {"*", "**", ".*", ".[!.]*"}:
        parts.pop()
    if whole.startswith("/"):
        return len(parts) <= 1 or (parts[0] in {"home", "Users"} and len(parts) <= 2)
    if not parts or set(parts) <= {".", ".."}:
        return True
    return len(parts) == 1 and (parts[0].startswith("~") or not is_known(parts[0]))


def is_plain_file(path: str) -> bool:
    """Tell whether a path's ending is a plain file's."""
    return path.endswith(_FILE_ENDINGS)


def is_temporary_root(path: str) -> bool:
    """Tell whether a path is a temporary folder itself."""
    return join_path(".", path) in _TEMPORARY_ROOTS


def is_backup(path: str, *, folder: str = ".", root: str | None = None) -> bool:
    """Tell whether a path is what editors and merges leave behind, below the working tree."""
    whole = join_path(folder, path)
    if root is not None:
        whole = whole.removeprefix(posixpath.normpath(root).rstrip("/") + "/")
    is_elsewhere = whole.startswith(("/", "~", "..", UNKNOWN, DOWNLOADED))
    name = whole.rpartition("/")[2]
    return not is_elsewhere and any(_is_like(name, pattern) for pattern in _BACKUPS)


def is_device(path: str) -> bool:
    """Tell whether a path names a disk or a partition."""
    name = path.removeprefix("/dev/")
    disks = ("sd", "hd", "vd", "xvd", "nvme", "mmcblk", "disk", "rdisk", "md", "dm-", "mapper/")
    return path.startswith("/dev/") and name.startswith(disks)


def _is_below_temporary(path: str) -> bool:
    for root in _TEMPORARY_ROOTS:
        rest = path.removeprefix(root + "/")
        if rest != path:
            first = rest.split("/")[0]
            return bool(set(first) - _GLOB) and first != UNKNOWN
    return False


def _has_rebuilt_part(path: str) -> bool:
    parts = [part for part in path.split("/") if part not in {"", "."}]
    is_placed = path.startswith(("/", "~"))
    is_rooted = is_placed or not is_known(parts[0] if parts else "")
    for depth, part in enumerate(parts):
        if part in TEMPORARY and not (is_rooted and depth <= 1):
            return True
        if is_placed and (depth == 0 or (part in _GENERIC and depth < _MIN_GENERIC_DEPTH)):
            continue
        if part in REBUILT or any(_is_like(part, pattern) for pattern in PATTERNS):
            return True
    return False


def _is_like(part: str, pattern: str) -> bool:
    """Match a part that may hold globs itself: `*.pyc` is like `*.pyc`, `*` is not."""
    return part == pattern or fnmatch.fnmatchcase(part.replace("*", "x"), pattern)
