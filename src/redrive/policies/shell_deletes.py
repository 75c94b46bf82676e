"""Commands that delete files: `rm`, `find`, `rsync`, `shred` and their like.

Knows their options and which targets are scratch. Must not know git, databases or clouds.

Source: GNU coreutils, findutils; an option that GNU `rm` does not know makes it delete nothing.
"""

from collections.abc import Callable, Iterator, Mapping

from redrive.policies.shell_command import Command, Options, complete_option, read_options
from redrive.policies.shell_danger import Danger, Severity, make_danger
from redrive.policies.shell_find import read_searches
from redrive.policies.shell_paths import (
    is_backup,
    is_broad,
    is_device,
    is_plain_file,
    is_scratch,
    is_temporary_root,
    join_path,
)
from redrive.policies.shell_words import DOWNLOADED, UNKNOWN, is_known

_RM_LETTERS = frozenset("rRfiIvdPWx")
_RM_LONG = (
    *("--recursive", "--force", "--interactive", "--verbose", "--dir", "--one-file-system"),
    *("--preserve-root", "--no-preserve-root", "--help", "--version"),
)
_DATA_FILES = (".db", ".sqlite", ".sqlite3", ".db3", ".mdb", ".frm", ".ibd", ".rdb", ".aof", ".sql")
Judge = Callable[[Command, str | None], Iterator[Danger]]


def judge_rm(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge `rm`: only real recursion counts, wherever its option stands."""
    options = _rm_options(command)
    if options is None:
        return
    names = [name for name, _ in options.pairs]
    is_recursive = options.has("-r", "-R", "--recursive")
    severity = Severity.DENY
    if _is_asking(names):
        if command.stdin.text == "":
            return
        severity = Severity.ASK
    if is_recursive:
        yield from judge_targets(command, options.operands, root, severity)
    elif command.walked:
        walked = [p for p in command.walked if not is_backup(p, folder=command.cwd, root=root)]
        yield from _judge_walked(command, tuple(walked), root)


def judge_targets(
    command: Command,
    targets: tuple[str, ...],
    root: str | None,
    severity: Severity = Severity.DENY,
) -> Iterator[Danger]:
    """Name each target whose recursive deletion would be a loss."""
    for target in targets:
        if not target or is_plain_file(target):
            continue
        if not is_scratch(target, folder=command.cwd, root=root):
            worst = severity if _may_be_grave(target) else Severity.ASK
            yield make_danger("recursive_delete", command, target, severity=worst)


def _may_be_grave(target: str) -> bool:
    """Tell whether a target is named, or becomes a broad one where its unknown part is empty."""
    rest = target.replace(UNKNOWN, "").replace(DOWNLOADED, "")
    if rest == target:
        return True
    return bool(rest) and is_broad(rest) and not is_temporary_root(rest)


def _rm_options(command: Command) -> Options | None:
    """Read the options of `rm`; `None` if it would delete nothing."""
    options = read_options(command.words[1:])
    pairs: list[tuple[str, str]] = []
    for name, value in options.pairs:
        if name.startswith("--"):
            long = complete_option(name, _RM_LONG)
            if long in {None, "--help", "--version"}:
                return None
            pairs.append((long or name, value))
        elif not is_known(name):
            continue
        elif name[1:] not in _RM_LETTERS:
            return None
        else:
            pairs.append((name, value))
    return Options(tuple(pairs), options.operands)


def _is_asking(names: list[str]) -> bool:
    """Tell whether `rm` asks before it deletes: the last of `-f`, `-i`, `-I` counts."""
    wanted = [name for name in names if name in {"-f", "--force", "-i", "-I", "--interactive"}]
    return bool(wanted) and wanted[-1] not in {"-f", "--force"}


def _judge_walked(
    command: Command, paths: tuple[str, ...], root: str | None, *, is_filtered: bool = True
) -> Iterator[Danger]:
    """Judge the deletion of what `find` lists: a search by one exact name is no mass delete."""
    for path in paths:
        if is_scratch(path, folder=command.cwd, root=root):
            continue
        name = path.rpartition("/")[2]
        is_pattern = any(sign in name for sign in "*?[")
        is_all = name in {"", ".", "..", "*"} or "/" not in path or not is_known(name)
        if is_pattern or is_all:
            severity = Severity.ASK if is_filtered and not is_all else Severity.DENY
            yield make_danger("mass_delete", command, path, severity=severity)


def judge_find(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge `find … -delete`; what it executes is judged as a command of its own."""
    if "-empty" in command.words:
        return
    for search in read_searches(command.words[1:]):
        if search.deletes and search.is_named:
            yield from _judge_walked(command, search.paths, root)
        elif search.deletes:
            severity = Severity.ASK if search.is_filtered else Severity.DENY
            for folder in search.paths:
                place = join_path(command.cwd, folder)
                if search.is_filtered and is_temporary_root(place) and not _holds(place, root):
                    continue
                if not is_scratch(folder, folder=command.cwd, root=root):
                    yield make_danger("mass_delete", command, folder, severity=severity)


def _holds(folder: str, root: str | None) -> bool:
    """Tell whether the working tree lies in a folder, as far as it is known."""
    return root is not None and f"{root}/".startswith(f"{folder}/")


def judge_rmtree(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge a recursive removal that Python code makes."""
    yield from judge_targets(command, command.words[1:], root)


def judge_remove_item(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge PowerShell's `Remove-Item -Recurse`; its options are words, in any case, cut short."""
    words = command.words[1:]
    options = [word.lower() for word in words if word.startswith("-")]
    if not any(len(word) > 1 and "-recurse".startswith(word) for word in options):
        return
    if "-whatif" not in options:
        targets = tuple(word for word in words if not word.startswith("-")) or (UNKNOWN,)
        yield from judge_targets(command, targets, root)


def judge_rsync(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge `rsync --delete`: into a broad target, or from an empty folder."""
    options = read_options(command.words[1:], ("-e", "-f", "--exclude", "--include", "--rsh"))
    deletes = any(name.startswith("--del") for name, _ in options.pairs)
    if not deletes or options.has("-n", "--dry-run") or len(options.operands) < 2:
        return
    source, target = options.operands[0], options.operands[-1]
    is_emptying = source.rstrip("/").rpartition("/")[2].startswith(("empty", "made-by-the-script"))
    local = target.rpartition(":")[2]
    if is_emptying and not is_scratch(local, folder=command.cwd, root=root):
        yield make_danger("recursive_delete", command, target)
    elif is_broad(local or "~", folder=command.cwd):
        yield make_danger("recursive_delete", command, target, severity=Severity.ASK)


def judge_copy(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge `dd`, `tee` and `cp`, where they write to a disk."""
    del root
    if command.program == "dd":
        targets = [word[3:] for word in command.words[1:] if word.startswith("of=")]
    else:
        targets = list(read_options(command.words[1:]).operands[-1:])
    for target in targets:
        if is_device(target):
            yield make_danger("disk_overwrite", command, target)


def judge_shred(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge `shred`: nothing brings back what it writes over."""
    for target in read_options(command.words[1:], ("-s", "--size", "-n", "--iterations")).operands:
        rule = "disk_overwrite" if is_device(target) else "file_overwrite"
        if not is_scratch(target, folder=command.cwd, root=root):
            yield make_danger(rule, command, target)


def judge_truncate(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge `truncate -s 0` on a database's file."""
    options = read_options(command.words[1:], ("-s", "--size", "-r", "--reference"))
    if "0" in options.values("-s", "--size"):
        for target in options.operands:
            if is_data_file(target) and not is_scratch(target, folder=command.cwd, root=root):
                yield make_danger("file_overwrite", command, target)


def judge_files(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge the files that a command's redirections write."""
    for written in command.files:
        target = written.rpartition("\0")[2]
        is_emptied = command.program in {"", ":", "true"} and is_data_file(target)
        if is_device(target):
            yield make_danger("disk_overwrite", command, target)
        elif is_emptied and not is_scratch(target, folder=command.cwd, root=root):
            yield make_danger("file_overwrite", command, target)


def is_data_file(path: str) -> bool:
    """Tell whether a path's ending is a database's."""
    return path.endswith(_DATA_FILES)


def judge_rights(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge recursive `chmod`, `chown` and `chgrp`: on everything, or rights for everyone."""
    options = read_options(command.words[1:], ("--reference", "--from"))
    if not options.has("-R", "--recursive") or not options.operands:
        return
    mode, targets = options.operands[0], options.operands[1:]
    opens = command.program == "chmod" and mode.lstrip("0") in _OPEN_MODES
    for target in targets:
        if is_scratch(target, folder=command.cwd, root=root):
            continue
        is_tree = not target.startswith("/") and not target.strip("./*")
        if is_broad(target) and not is_tree and _may_be_grave(target):
            yield make_danger("permission_blowup", command, target)
        elif opens:
            yield make_danger("permission_blowup", command, target, severity=Severity.ASK)


_OPEN_MODES = frozenset({"777", "666", "a+rwx", "ugo+rwx", "+rwx", "a=rwx", "a+w", "o+w", ""})
DELETE_JUDGES: Mapping[str, Judge] = {
    "rm": judge_rm,
    "grm": judge_rm,
    "find": judge_find,
    "gfind": judge_find,
    "shutil.rmtree": judge_rmtree,
    "rimraf": judge_rmtree,
    "Remove-Item": judge_remove_item,
    "rsync": judge_rsync,
    **dict.fromkeys(("dd", "tee", "cp"), judge_copy),
    "shred": judge_shred,
    "truncate": judge_truncate,
    **dict.fromkeys(("chmod", "chown", "chgrp"), judge_rights),
}
