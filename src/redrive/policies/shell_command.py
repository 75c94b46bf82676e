"""One command that a script runs, and how its options are read.

Knows option syntax: clusters, attached values, `--`, long options and their abbreviations. Must not
know what a program does.
"""

from collections.abc import Iterable, Sequence

import msgspec

from redrive.policies.shell_words import UNREAD, Stream


class Command(msgspec.Struct, frozen=True):
    """A simple command, its wrappers peeled off.

    `words` are unquoted, the first as written in the script. `cwd` is where it runs: a path
    relative to where the script began, or an absolute one. `files` are those it writes by a
    redirection, `walked` the paths that `find` hands it, `assigned` the variables set for it.
    `is_bomb`: it calls a function that doubles itself. `runs_download`: its code comes from the
    network.
    """

    words: tuple[str, ...]
    cwd: str = "."
    stdin: Stream = UNREAD
    files: tuple[str, ...] = ()
    walked: tuple[str, ...] = ()
    assigned: tuple[tuple[str, str], ...] = ()
    is_bomb: bool = False
    runs_download: bool = False

    @property
    def program(self) -> str:
        """The program's name without its folder."""
        return base_name(self.words[0]) if self.words else ""


class Options(msgspec.Struct, frozen=True):
    """Options as (name, value) in order, a cluster taken apart; operands in order."""

    pairs: tuple[tuple[str, str], ...]
    operands: tuple[str, ...]

    def has(self, *names: str) -> bool:
        """Tell whether one of the options is given."""
        return any(name in names for name, _ in self.pairs)

    def values(self, *names: str) -> list[str]:
        """List the values given to these options."""
        return [value for name, value in self.pairs if name in names]


def base_name(word: str) -> str:
    """Give a program's name without its folder."""
    return word.rstrip("/").rpartition("/")[2]


def read_options(
    words: Sequence[str], with_value: Iterable[str] = (), *, is_permuted: bool = True
) -> Options:
    """Tell a command's options from its operands.

    Args:
        words: what follows the program's name.
        with_value: options, with their dashes, that take a value.
        is_permuted: options may follow operands, as GNU programs allow.
    """
    valued = frozenset(with_value)
    pairs: list[tuple[str, str]] = []
    operands: list[str] = []
    number = 0
    while number < len(words):
        word = words[number]
        number += 1
        following = words[number] if number < len(words) else ""
        if word == "--":
            operands.extend(words[number:])
            break
        if not word.startswith("-") or word == "-":
            operands.append(word)
            if not is_permuted:
                operands.extend(words[number:])
                break
        elif word.startswith("--") or word in valued or _is_single_dash_long(word, valued):
            name, equals, value = word.partition("=")
            takes_next = name in valued and not equals
            pairs.append((name, following if takes_next else value))
            number += takes_next
        else:
            letters, value, takes_next = _cluster(word, valued, following)
            pairs.extend((letter, "") for letter in letters[:-1])
            pairs.append((letters[-1], value))
            number += takes_next
    return Options(tuple(pairs), tuple(operands))


def _is_single_dash_long(word: str, valued: frozenset[str]) -> bool:
    """Tell whether a word is of the form `-chdir=infra`, as terraform has it."""
    return "=" in word[2:] and word[:2] not in valued


def _cluster(word: str, valued: frozenset[str], following: str) -> tuple[list[str], str, bool]:
    letters: list[str] = []
    for place, letter in enumerate(word[1:], start=2):
        letters.append(f"-{letter}")
        if letters[-1] in valued:
            attached = word[place:]
            return letters, attached or following, not attached
    return letters, "", False


def complete_option(name: str, known: Iterable[str]) -> str | None:
    """Find the long option that `name` abbreviates; `None` if none or several do."""
    if name in (names := tuple(known)):
        return name
    matches = [option for option in names if option.startswith(name)]
    return matches[0] if len(matches) == 1 and len(name) > 2 else None
