"""What a danger is, and the rules that can name one.

Knows the rules' names, words and severities. Must not know how a command is judged.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from redrive.policies.shell_command import Command
from redrive.policies.shell_words import show_word

RULES_VERSION = 3
MAX_WORDS = 64


class Severity(StrEnum):
    """What a guard should do: `deny` where nothing brings the loss back, else `ask`."""

    DENY = "deny"
    ASK = "ask"


class Danger(msgspec.Struct, frozen=True):
    """One command that would lose something.

    `rule` is one of `RULES`; `what` a sentence fragment for a person; `program` and `words` the
    command, unquoted and without its wrappers, `…` where a value is not in the script, at most
    `MAX_WORDS`; `target` what is lost, empty if the command does not name it.
    """

    rule: str
    severity: Severity
    what: str
    program: str
    words: tuple[str, ...]
    target: str = ""


# Rule → what a command under it does, in general.
RULES: Mapping[str, str] = {
    "recursive_delete": "deletes a folder and all in it",
    "mass_delete": "deletes every file that a search finds",
    "discard_work": "throws away work that is not committed",
    "force_push": "overwrites the history of a remote branch",
    "remote_branch_delete": "deletes a branch or tag of a remote repository",
    "branch_delete": "deletes a branch or a stash, merged or not",
    "history_rewrite": "rewrites or drops the history of a repository",
    "disk_overwrite": "overwrites or formats a disk",
    "file_overwrite": "empties or overwrites a data file",
    "permission_blowup": "changes rights or owners of a whole tree",
    "sql_data_loss": "loses the data of a database",
    "database_reset": "drops or empties a database",
    "cluster_delete": "deletes resources of a cluster",
    "cluster_stop": "stops what a cluster runs",
    "store_delete": "deletes what a service stores",
    "cloud_delete": "deletes resources of a cloud account",
    "container_data_loss": "deletes containers, their volumes or images",
    "package_unpublish": "takes back a published package",
    "repository_delete": "deletes a hosted repository or a release",
    "remote_code": "runs code straight from the network",
    "fork_bomb": "starts processes without end",
    "system_stop": "stops the machine or all its processes",
    "account_loss": "deletes a user or a schedule",
    "firewall_flush": "takes all rules off a firewall",
    "unread_command": "is too long or too deeply nested to be read to its end",
}


def make_danger(
    rule: str, command: Command, target: str = "", *, severity: Severity = Severity.DENY
) -> Danger:
    """Make a danger of a command, with the rule's own words."""
    words = tuple(show_word(word) for word in command.words[:MAX_WORDS])
    return Danger(rule, severity, RULES[rule], command.program, words, show_word(target))
