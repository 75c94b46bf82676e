"""What a shell command line would lose: the one question that a guard asks.

Knows which judge looks at which command. Must not run anything, nor read a file.

What it cannot see: a program's own code and files (`make clean`, `./deploy.sh`), aliases and
functions that are not in the command, values that only the machine holds. It is a guard rail, not a
wall.
"""

from collections.abc import Iterator
from itertools import chain

from redrive.policies.shell_code import judge_code
from redrive.policies.shell_command import Command
from redrive.policies.shell_danger import Danger, Severity, make_danger
from redrive.policies.shell_deletes import DELETE_JUDGES, judge_files
from redrive.policies.shell_git import judge_git
from redrive.policies.shell_services import judge_service
from redrive.policies.shell_sql import judge_sql
from redrive.policies.shell_walk import walk_script

MAX_DANGERS = 100


def find_dangers(command: str, *, cwd: str | None = None) -> tuple[Danger, ...]:
    """Find what a command line would lose if it were run.

    Args:
        command: what a shell would be given; its first 64 KiB are read.
        cwd: the working tree in which it would run, as an absolute path, where that is known:
            what lies in it is judged by its name even in a temporary folder.

    Returns:
        Each danger once, in the order in which a shell would meet them, every branch taken; at most
        `MAX_DANGERS`. A command that is too long or too deep to be read to its end adds one of the
        rule `unread_command`. Never an error, whatever the text.

    Cost: O(n), no regular expression over the whole text.
    """
    walk = walk_script(command, cwd)
    found: dict[Danger, None] = {}
    for danger in chain.from_iterable(_judge(item, cwd) for item in walk.commands):
        found[danger] = None
        if len(found) == MAX_DANGERS:
            break
    dangers = list(found)
    if not walk.is_complete:
        unread = Command((command[:40].strip(),))
        dangers.append(make_danger("unread_command", unread, severity=Severity.ASK))
    return tuple(dangers)


def list_programs(command: str) -> tuple[str, ...]:
    """Name the programs that a command line would run, in order, wrappers left out."""
    return tuple(item.program for item in walk_script(command).commands if item.words)


def _judge(command: Command, root: str | None) -> Iterator[Danger]:
    yield from judge_files(command, root)
    if command.is_bomb:
        yield make_danger("fork_bomb", command)
    if command.runs_download:
        yield make_danger("remote_code", command, severity=Severity.ASK)
    if not command.words:
        return
    judge = DELETE_JUDGES.get(command.program)
    if judge is not None:
        yield from judge(command, root)
    elif command.program == "git":
        yield from judge_git(command, root)
    else:
        yield from judge_service(command, root)
        yield from judge_sql(command, root)
        yield from judge_code(command, root)
