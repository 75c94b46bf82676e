"""The tree of a shell script: words and their parts, simple and compound commands.

Knows shapes only. Must not know text or programs.
"""

from typing import TypeAlias

import msgspec

MAX_NESTING = 40


class TooDeepError(Exception):
    """A text is nested deeper than `MAX_NESTING`; no shell script that a person reads is."""


class Literal(msgspec.Struct, frozen=True):
    """Text as written; quotes and backslashes are already taken off."""

    text: str
    is_quoted: bool


class Parameter(msgspec.Struct, frozen=True):
    """`$NAME` or `${NAME…}`; `operation` is what follows the name, such as `:-` with its word."""

    name: str
    operation: str
    word: "Word"
    is_quoted: bool


class Substitution(msgspec.Struct, frozen=True):
    """A script whose output (`$(…)`) or whose file name (`<(…)`, `>(…)`) stands in the word."""

    opener: str
    script: "Script"
    is_quoted: bool


class Arithmetic(msgspec.Struct, frozen=True):
    """`$((…))`; its value is not computed, but what it substitutes is run."""

    parts: tuple["Part", ...]


Part: TypeAlias = Literal | Parameter | Substitution | Arithmetic


class Word(msgspec.Struct, frozen=True):
    """One word of the source: its parts in order; no parts is the empty word."""

    parts: tuple[Part, ...] = ()


class Assignment(msgspec.Struct, frozen=True):
    """`NAME=value`, `NAME+=value`, or `NAME=(…)`, whose value is a tuple of words."""

    name: str
    value: Word | tuple[Word, ...]
    is_appended: bool


class Redirect(msgspec.Struct):
    """`operator`, such as `2>`, with its target; a here-document's text comes at its line's end."""

    operator: str
    target: Word
    body: Word | None = None


class Simple(msgspec.Struct, frozen=True):
    """A simple command."""

    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


class Pipeline(msgspec.Struct, frozen=True):
    """Two or more stages; each reads what the one before it writes."""

    stages: tuple["Node", ...]


class Script(msgspec.Struct, frozen=True):
    """Commands in order; whether `;`, `&`, `&&` or `||` joins them is not kept."""

    items: tuple["Node", ...]


class Group(msgspec.Struct, frozen=True):
    """The scripts of `{…}`, `(…)`, `if` or `case` in order, each taken as run."""

    scripts: tuple[Script, ...]
    is_subshell: bool
    redirects: tuple[Redirect, ...]


class Loop(msgspec.Struct, frozen=True):
    """`for`, `select`, `while` and `until`; the latter two have no variable, but a condition."""

    variable: str
    values: tuple[Word, ...]
    condition: Script
    body: Script
    redirects: tuple[Redirect, ...]


class Function(msgspec.Struct, frozen=True):
    """A function's definition; it runs where it is called."""

    name: str
    body: "Node"


Node: TypeAlias = Simple | Pipeline | Script | Group | Loop | Function
