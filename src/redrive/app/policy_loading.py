"""Finds the code of a policy: a file, a git revision of one, or an entry point; nothing is run.

Knows specs, files and git. Must not know how policies are run.

Source: DESIGN.md §8 "Specs".
"""

import ast
import re
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from msgspec.structs import replace

from redrive import canonical, plugins
from redrive.app.hook_running import HOOK_PREFIX, SETTINGS_PREFIX, find_hooks
from redrive.app.policy_listing import declared_lane
from redrive.app.policy_messages import PolicyCode
from redrive.audit.tools import TOOLS_VERSION
from redrive.audit.verification import CHECKS_VERSION
from redrive.errors import PluginError, UsageError, quote
from redrive.sandbox.loading import PolicySource, read_policy_file, read_policy_module
from redrive.sandbox.modules import (
    declared_libraries,
    find_neighbours,
    is_importable,
    parse_policy,
)
from redrive.sandbox.scan import scan_source
from redrive.sandbox.scan_names import find_bound_names

_FILE_SPEC = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)(?:@(?P<revision>.+))?")
_GIT_TIMEOUT_S = 30
SPEC_HINT = "a policy's name, PATH.py:NAME, or PATH.py:NAME@GIT-REVISION"


def find_policies(specs: Sequence[str]) -> list[PolicyCode]:
    """Read the code of each policy named, in order; a settings file may name several hooks.

    Raises:
        UsageError: a policy is named twice; else as `find_policy`.
    """
    codes: list[PolicyCode] = []
    for spec in specs:
        is_hook = spec.startswith((HOOK_PREFIX, SETTINGS_PREFIX))
        codes += find_hooks(spec) if is_hook else [scan_policy(find_policy(spec))]
    seen: set[str] = set()
    for code in codes:
        if code.spec in seen:
            raise UsageError(f"policy {code.spec} is named twice", hint="name each once")
        seen.add(code.spec)
    return codes


def find_policy(spec: str) -> PolicyCode:
    """Read the code of a policy, not scanned yet.

    Raises:
        UsageError: there is no such policy, file, name or revision.
        PluginError: its code cannot be read.
    """
    match = _FILE_SPEC.fullmatch(spec)
    if match is None:
        return _find_plugin(spec)
    path, name, revision = Path(match["path"]), match["name"], match["revision"]
    source = read_policy_file(path) if revision is None else _read_revision(path, revision)
    _check_name(source, name)
    tail = "" if revision is None else f"@{revision}"
    plain = _without_folders(source)
    return _make(spec, f"{path.name}{tail}", name, plain)


def scan_policy(policy: PolicyCode) -> PolicyCode:
    """Scan a policy's code; with findings it is not loaded."""
    code = policy.code
    if code is None:
        return policy
    found = scan_source(code.text, code.file, code.find_sibling, package=code.package)
    return replace(policy, findings=found)


def _check_name(source: PolicySource, name: str) -> None:
    """Hold that a file has the name; where that cannot be read from its text, loading will tell."""
    tree = parse_policy(source.text)
    body = tree.body
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    imported = {a.asname or a.name for node in imports for a in node.names if not _is_ours(node)}
    if not body or {name, "*"} & imported or name in find_bound_names(body):
        return
    classes = ", ".join(node.name for node in body if isinstance(node, ast.ClassDef)) or "no class"
    raise UsageError(f"no {name} in the file", where=source.file, hint=f"it has {classes}")


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "redrive.policy"


def _find_plugin(spec: str) -> PolicyCode:
    target = next((t for n, t in plugins.targets(plugins.POLICIES) if n == spec), None)
    if target is None:
        known = ", ".join(plugins.names(plugins.POLICIES)) or "none"
        raise UsageError(f"no policy named {quote(spec)}", hint=f"known: {known}; or PATH.py:NAME")
    module, _, attribute = target.partition(":")
    source = read_policy_module(module)
    return _make(spec, spec, attribute, _without_folders(source))


def _make(
    spec: str,
    source: str,
    attribute: str,
    code: PolicySource,
) -> PolicyCode:
    texts = {name: text for name, (_, text) in code.siblings.items()}
    libraries = tuple(declared_libraries(code.text))
    parts = {
        "code": code.text,
        "name": attribute,
        "beside": texts,
        "libraries": {name: _version_of(name) for name in libraries},
        "facts": [TOOLS_VERSION, CHECKS_VERSION],
    }
    return PolicyCode(
        spec=spec,
        source=source,
        attribute=attribute,
        code=code,
        libraries=libraries,
        digest=canonical.value_digest(parts),
        lane=declared_lane(code.text, attribute),
    )


def _version_of(library: str) -> str:
    top = library.partition(".")[0]
    try:
        return version(top)  # most packages bear their module's name; the list of all is slow
    except PackageNotFoundError:
        owners = packages_distributions().get(top, ())
    return version(owners[0]) if owners else "not installed"


def _without_folders(source: PolicySource) -> PolicySource:
    """Name files without their folders: a report must not depend on where a policy lies."""
    beside = {name: (Path(file).name, text) for name, (file, text) in source.siblings.items()}
    return PolicySource(Path(source.file).name, source.text, beside, source.package)


def _read_revision(path: Path, revision: str) -> PolicySource:
    """Read a file, and what it imports beside it, as they were at a git revision."""
    text = _git_show(path, revision)
    if text is None:
        raise UsageError(
            f"git has no {path.name} at {quote(revision)}",
            where=str(path),
            hint="git log -- FILE lists its revisions",
        )
    siblings: dict[str, tuple[str, str]] = {}
    waiting = [text]
    while waiting:
        for name in find_neighbours(waiting.pop()):
            beside = path.parent / f"{name}.py"
            if name in siblings or is_importable(name, ()):
                continue
            found = _git_show(beside, revision)
            if found is not None:
                siblings[name] = (str(beside), found)
                waiting.append(found)
    return PolicySource(str(path), text, siblings)


def _git_show(path: Path, revision: str) -> str | None:
    if revision.startswith("-"):
        raise UsageError(f"no git revision {quote(revision)}", hint=SPEC_HINT)
    folder = path.parent if path.parent.is_dir() else Path()
    command = ["git", "show", f"{revision}:./{path.name}"]
    try:
        shown = subprocess.run(
            command, cwd=folder, capture_output=True, check=False, timeout=_GIT_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PluginError(f"git cannot be run: {error}", hint="install git") from error
    if shown.returncode:
        return None
    return shown.stdout.decode("utf-8", "replace")
