"""What the words of a shell command become: quotes, variables, braces and field splitting.

Knows the parts of words. Must not know programs. A value that is not in the script is `UNKNOWN`
(or `DOWNLOADED`, if it came from the network) and stays so inside the word it is part of; both
are private-use characters, which no argument that matters here holds.

Source: the bash manual, "Shell Expansions".
"""

from itertools import pairwise
from typing import Protocol, TypeAlias

import msgspec

from redrive.policies.shell_tree import Arithmetic, Literal, Parameter, Substitution, Word

UNKNOWN = "\ue000"
DOWNLOADED = "\ue001"
MAX_VALUE_CHARS = 16 * 1024
MAX_BRACES = 64
_MAX_BRACE_CHARS = 4096
_EMPTY = "\ue0ff"
_SHIFT = 0xE100
# Signs that mean something unquoted; a quoted one is shifted out of the way until the end.
_SIGNS = "{},~ \t\n"
_HIDE = {ord(sign): chr(_SHIFT + ord(sign)) for sign in _SIGNS}
_HIDE_UNSPLIT = {code: shifted for code, shifted in _HIDE.items() if chr(code) not in " \t\n"}
_SHOW = {ord(shifted): chr(code) for code, shifted in _HIDE.items()} | {ord(_EMPTY): ""}
Value: TypeAlias = str | tuple[str, ...]


class Stream(msgspec.Struct, frozen=True):
    """What a command writes: its text where known, the paths that it lists, where it came from."""

    text: str | None = None
    is_download: bool = False
    paths: tuple[str, ...] = ()

    def as_value(self) -> str:
        """Give what `$(…)` makes of it."""
        if self.text is not None:
            return self.text.rstrip("\n")
        if self.paths and not self.is_download:
            return "\n".join(self.paths)
        return DOWNLOADED if self.is_download else UNKNOWN


SILENT = Stream(text="")
UNREAD = Stream()


class Environment(Protocol):
    """What expansion asks of whoever runs the script."""

    def look_up(self, name: str) -> Value | None:
        """Give a variable's value; `None` if the script does not set it."""

    def assign(self, name: str, value: Value) -> None:
        """Set a variable."""

    def substitute(self, part: Substitution) -> str:
        """Run a substitution; give its output, or the name of its pipe."""


def join_streams(streams: list[Stream]) -> Stream:
    """Give what commands write one after the other."""
    paths = tuple(path for stream in streams for path in stream.paths)
    texts = [stream.text for stream in streams if stream.text is not None]
    is_download = any(stream.is_download for stream in streams)
    is_known = len(texts) == len(streams) and not is_download
    return Stream("".join(texts) if is_known else None, is_download, paths)


def is_known(text: str) -> bool:
    """Tell whether a word's whole text stands in the script."""
    return UNKNOWN not in text and DOWNLOADED not in text


def show_word(text: str) -> str:
    """Write a word for a person; what is unknown is `…`."""
    return text.replace(UNKNOWN, "…").replace(DOWNLOADED, "…")


def expand_text(word: Word, environment: Environment) -> str:
    """Expand a word without splitting it, as in an assignment or a here-document."""
    return _raw(word, environment).translate(_SHOW)


def expand_fields(word: Word, environment: Environment) -> list[str]:
    """Expand a word to the arguments that it becomes: none, one or more."""
    fields: list[str] = []
    for text in _expand_braces(_raw(word, environment)):
        fields.extend(field.translate(_SHOW) for field in text.split())
    return fields


def _raw(word: Word, environment: Environment) -> str:
    return "".join(_part_text(part, environment) for part in word.parts)


def _part_text(part: object, environment: Environment) -> str:
    match part:
        case Literal(text, is_quoted):
            return _EMPTY + text.translate(_HIDE) if is_quoted else text
        case Parameter():
            return _hide(_parameter(part, environment), is_quoted=part.is_quoted)
        case Substitution():
            return _hide(environment.substitute(part), is_quoted=part.is_quoted)
        case Arithmetic(parts):
            for inner in parts:
                _part_text(inner, environment)
            text = "".join(inner.text for inner in parts if isinstance(inner, Literal))
            return text.strip() if text.strip().isdigit() else UNKNOWN
        case _:
            return UNKNOWN


def _hide(value: Value, *, is_quoted: bool) -> str:
    table = _HIDE if is_quoted else _HIDE_UNSPLIT
    if isinstance(value, tuple):
        return " ".join(_EMPTY + item.translate(_HIDE) for item in value)
    text = value[:MAX_VALUE_CHARS].translate(table)
    return _EMPTY + text if is_quoted else text


def _parameter(part: Parameter, environment: Environment) -> Value:
    value = environment.look_up(part.name)
    word = expand_text(part.word, environment)
    match part.operation:
        case "":
            return UNKNOWN if value is None else value
        case ":-" | "-" | ":=" | "=":
            if value is None or value == "":
                if "=" in part.operation:
                    environment.assign(part.name, word)
                return word
            return value
        case ":+" | "+":
            return UNKNOWN if value is None else word
        case ":?" | "?":
            return UNKNOWN if value is None else value
        case operation:
            return _cut(value, operation, word) if isinstance(value, str) else UNKNOWN


def _cut(value: str, operation: str, word: str) -> str:
    """Take a literal end, start or slice off a value; patterns are not computed."""
    if any(sign in word for sign in "*?["):
        return UNKNOWN
    match operation:
        case "%" | "%%":
            return value.removesuffix(word)
        case "#" | "##":
            return value.removeprefix(word)
        case "/" | "//":
            old, _, new = word.partition("/")
            return value.replace(old, new, -1 if operation == "//" else 1) if old else value
        case ":":
            numbers = word.split(":")
            if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
                return UNKNOWN
            start = int(numbers[0][:6])
            return value[start : start + int(numbers[1][:6])] if numbers[1:] else value[start:]
        case _:
            return UNKNOWN


def _expand_braces(text: str) -> list[str]:
    """Expand `{a,b}`; a text that would become more than `MAX_BRACES` words stays as it is."""
    if "{" not in text or len(text) > _MAX_BRACE_CHARS:
        return [text]
    done: list[str] = []
    waiting = [text]
    while waiting:
        current = waiting.pop()
        choice = _first_choice(current)
        if choice is None:
            done.append(current)
        else:
            start, options, end = choice
            waiting.extend(current[:start] + o + current[end:] for o in reversed(options))
        if len(done) + len(waiting) > MAX_BRACES:
            return [text]
    return done


def _first_choice(text: str) -> tuple[int, list[str], int] | None:
    """Find the first brace pair with a comma at its own level: (start, options, end)."""
    opened: list[tuple[int, list[int]]] = []
    found: list[tuple[int, list[int], int]] = []
    for at, sign in enumerate(text):
        if sign == "{" and text[at - 1 : at] != "$":
            opened.append((at, []))
        elif sign == "," and opened:
            opened[-1][1].append(at)
        elif sign == "}" and opened:
            start, commas = opened.pop()
            if commas:
                found.append((start, commas, at))
    if not found:
        return None
    start, commas, end = min(found)
    edges = [start, *commas, end]
    return start, [text[a + 1 : b] for a, b in pairwise(edges)], end + 1
