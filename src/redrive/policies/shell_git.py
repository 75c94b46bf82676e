"""Git commands that lose work or history.

Knows git's options. Must not know other programs.

Source: the manual pages of git-push, git-reset, git-clean, git-branch and their kin.
"""

from collections.abc import Callable, Iterator, Mapping

from redrive.policies.shell_command import Command, Options, read_options
from redrive.policies.shell_danger import Danger, Severity, make_danger
from redrive.policies.shell_paths import is_scratch
from redrive.policies.shell_words import is_known

_GLOBAL_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_BROAD = frozenset({".", "./", "*", ":/", ":/*", "/", "..", ":"})
_VALUES: Mapping[str, tuple[str, ...]] = {
    "push": ("-o", "--push-option", "--receive-pack", "--repo", "--exec"),
    "clean": ("-e", "--exclude"),
    "restore": ("-s", "--source"),
    "checkout": ("-b", "-B", "--orphan", "--conflict"),
    "update-ref": ("-m",),
    "switch": ("-c", "-C", "--orphan"),
}
_SHARED = frozenset(
    {
        *("main", "master", "trunk", "develop", "dev", "development", "next", "stable"),
        *("production", "prod", "staging", "gh-pages"),
    }
)
# Files without an ending; such as LICENSE are told by their capitals.
_FILE_NAMES = frozenset(
    {
        *("Makefile", "makefile", "Dockerfile", "Gemfile", "Rakefile", "Procfile", "Pipfile"),
        *("Jenkinsfile", "Vagrantfile", "Brewfile", "Justfile", "justfile", "Podfile"),
        *("gradlew", "mvnw"),
    }
)
_Judge = Callable[[Command, Options, str | None], Iterator[Danger]]


def judge_git(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge a git command by its subcommand."""
    outer = read_options(command.words[1:], _GLOBAL_VALUES, is_permuted=False)
    if not outer.operands:
        return
    name, rest = outer.operands[0], outer.operands[1:]
    judge = _JUDGES.get(name)
    if judge is not None:
        yield from judge(command, read_options(rest, _VALUES.get(name, ())), root)


def _push(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    if options.has("-n", "--dry-run"):
        return
    refs = options.operands[1:]
    forced = [ref for ref in refs if ref.startswith("+")]
    branch = (forced or refs or ("",))[0]
    names = {name for name, _ in options.pairs}
    leased = _has_prefix(names, "--force-with-lease", 8)
    if options.has("-f", "--force", "--mirror") or (forced and not leased):
        yield make_danger("force_push", command, branch)
    elif leased:
        yield from _push_with_lease(command, options, refs)
    removed = [ref for ref in refs if ref.startswith(":") and len(ref) > 1]
    if options.has("-d", "--delete", "--prune") or any(
        "--delete".startswith(n) for n in names if len(n) > 3
    ):
        removed = [*refs] or [""]
    for ref in removed[:1]:
        target = ref.removeprefix(":")
        yield make_danger("remote_branch_delete", command, target, severity=Severity.ASK)


def _push_with_lease(command: Command, options: Options, refs: tuple[str, ...]) -> Iterator[Danger]:
    """Judge a push that git refuses where the remote holds what nobody here has seen.

    What it replaces was fetched, and stays in the reflog, so on a branch of one's own nothing is
    lost; on a branch that others build on, they lose their footing all the same.
    """
    shared = [ref for ref in refs if _is_shared(ref.rpartition(":")[2].removeprefix("+"))]
    if shared or options.has("--all"):
        target = shared[0] if shared else "every branch"
        yield make_danger("force_push", command, target, severity=Severity.ASK)


def _is_shared(branch: str) -> bool:
    name = branch.removeprefix("refs/heads/")
    return name in _SHARED or name.startswith(("release", "hotfix")) or "*" in name


def _has_prefix(names: set[str], option: str, least: int) -> bool:
    return any(len(name) > least and option.startswith(name) for name in names)


def _clean(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    if options.has("-n", "--dry-run") or not options.has("-f", "--force"):
        return
    folder = command.cwd
    targets = [t for t in options.operands if not is_scratch(t, folder=folder, root=root)]
    if options.operands and not targets:
        return
    is_mild = options.has("-X", "-i", "--interactive") or not options.has("-d", "-x")
    severity = Severity.ASK if is_mild else Severity.DENY
    target = targets[0] if targets else "."
    yield make_danger("discard_work", command, target, severity=severity)


def _reset(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    if any(len(name) > 3 and "--hard".startswith(name) for name, _ in options.pairs):
        target = options.operands[0] if options.operands else "HEAD"
        yield make_danger("discard_work", command, target, severity=Severity.ASK)


def _restore(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    is_staged_only = options.has("-S", "--staged") and not options.has("-W", "--worktree")
    for target in options.operands:
        if (target in _BROAD or target.endswith("/")) and not is_staged_only:
            yield make_danger("discard_work", command, target, severity=Severity.ASK)
            return


def _checkout(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    dangers = tuple(_restore(command, options, root))
    yield from dangers
    words = command.words
    paths = words[words.index("--") + 1 :] if "--" in words else ()
    folders = [path for path in paths if _may_be_folder(path)]
    if folders and not dangers and not options.has("-b", "-B", "--orphan"):
        yield make_danger("discard_work", command, folders[0], severity=Severity.ASK)
    if options.has("-f", "--force", "--discard-changes"):
        yield make_danger("discard_work", command, severity=Severity.ASK)


def _may_be_folder(path: str) -> bool:
    """Tell whether a path's name is a folder's, as far as a name shows."""
    name = path.rpartition("/")[2]
    return "." not in name and name not in _FILE_NAMES and not name.isupper() and is_known(name)


def _branch(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    deletes = options.has("-d", "--delete")
    if options.has("-D") or (deletes and options.has("-f", "--force")):
        target = options.operands[0] if options.operands else ""
        yield make_danger("branch_delete", command, target, severity=Severity.ASK)


def _stash(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    if options.operands[:1] in {("drop",), ("clear",)}:
        yield make_danger("branch_delete", command, "stash", severity=Severity.ASK)


def _reflog(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    if options.operands[:1] in {("expire",), ("delete",)} and not options.has("-n", "--dry-run"):
        yield make_danger("history_rewrite", command, "reflog")


def _collect(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    is_now = "now" in options.values("--prune", "--expire") or "all" in options.values("--prune")
    if is_now:
        yield make_danger("history_rewrite", command, severity=Severity.ASK)


def _filter(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    if options.pairs and not options.has("--analyze", "--help", "-h", "--dry-run"):
        yield make_danger("history_rewrite", command)


def _update_ref(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    del root
    if options.has("-d", "--delete"):
        target = options.operands[0] if options.operands else ""
        yield make_danger("branch_delete", command, target, severity=Severity.ASK)


def _remove(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    if options.has("--cached", "-n", "--dry-run") or not options.has("-r"):
        return
    for target in options.operands:
        if is_known(target) and not is_scratch(target, folder=command.cwd, root=root):
            yield make_danger("recursive_delete", command, target, severity=Severity.ASK)


def _worktree(command: Command, options: Options, root: str | None) -> Iterator[Danger]:
    if options.operands[:1] != ("remove",) or not options.has("-f", "--force"):
        return
    for target in options.operands[1:2]:
        if not is_scratch(target, folder=command.cwd, root=root):
            yield make_danger("discard_work", command, target, severity=Severity.ASK)


_JUDGES: Mapping[str, _Judge] = {
    "push": _push,
    "clean": _clean,
    "reset": _reset,
    "restore": _restore,
    "checkout": _checkout,
    "switch": _checkout,
    "branch": _branch,
    "stash": _stash,
    "reflog": _reflog,
    "gc": _collect,
    "prune": _collect,
    "filter-branch": _filter,
    "filter-repo": _filter,
    "update-ref": _update_ref,
    "rm": _remove,
    "worktree": _worktree,
}
