"""The words of an SQL script, and where its statements end.

Knows quotes, comments and dollar quotes of the usual dialects. Must not know what a statement does.
A scanner of its own, since sqlglot's hands on whatever follows a word like `DO` or `CALL` as one
text, and takes `[x]` for an array where the dialect is not known. One pass: O(n), never an error.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

_COMMENT = r"--[^\n]*|/\*(?:(?!\*/)[\s\S])*(?:\*/)?"
_DOLLAR = r"(?P<dollar>\$(?P<tag>[A-Za-z_]\w*|)\$[\s\S]*?\$(?P=tag)\$)"
_NAME = r"(?P<name>`(?:[^`]|``)*`?|\[[^\]\n]*\]|\"(?:[^\"]|\"\")*\"?)"
_PLAIN = r"(?P<string>[NEXBnexb]?'(?:[^']|'')*'?)"
_ESCAPED = r"(?P<string>[NEXBRnexbr]?'(?:[^'\\]|\\[\s\S]|'')*'?|\"(?:[^\"\\]|\\[\s\S]|\"\")*\"?)"
_BACKQUOTED = r"(?P<name>`(?:[^`]|``)*`?)"
_REST = r"(?P<word>[^\W\d]\w*)|(?P<number>\d[\w.]*)|(?P<sign>\S)"
_SCANNER = re.compile(f"{_COMMENT}|{_PLAIN}|{_DOLLAR}|{_NAME}|{_REST}")
_HASH_SCANNER = re.compile(f"{_COMMENT}|#[^\n]*|{_ESCAPED}|{_BACKQUOTED}|{_REST}")
_HASH_DIALECTS = frozenset({"mysql", "mariadb", "bigquery", "hive", "spark", "clickhouse"})
_ROUTINES = frozenset({"TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE"})
_MAX_ROUTINE_WORD = 8


class Kind(StrEnum):
    """What a token is; only a word can be a keyword."""

    WORD = "word"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    SIGN = "sign"


class Token(msgspec.Struct, frozen=True):
    """A token: its text without quotes, and where it stands in the script."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The word in capitals; empty unless it is one."""
        return self.text.upper() if self.kind is Kind.WORD else ""


def scan(sql: str, dialect: str | None = None) -> Iterator[Token]:
    """Yield the tokens of a script; comments are left out."""
    scanner = _HASH_SCANNER if dialect in _HASH_DIALECTS else _SCANNER
    for match in scanner.finditer(sql):
        group = match.lastgroup
        if group is None:
            continue
        text = match[0]
        if group in {"dollar", "tag"}:
            tag = text[: text.index("$", 1) + 1]
            yield Token(Kind.STRING, text[len(tag) : -len(tag)], match.start(), match.end())
        elif group == "string":
            inner = text[text.index(text[-1]) + 1 : -1] if text[-1:] in "'\"" else text
            quote = text[-1:]
            yield Token(Kind.STRING, inner.replace(quote * 2, quote), match.start(), match.end())
        elif group == "name":
            yield Token(Kind.NAME, _unquoted(text), match.start(), match.end())
        else:
            yield Token(Kind(group), text, match.start(), match.end())


def _unquoted(text: str) -> str:
    closer = "]" if text[0] == "[" else text[0]
    inner = text[1:].removesuffix(closer)
    return inner.replace(closer * 2, closer)


def split_statements(tokens: Iterator[Token]) -> Iterator[tuple[Token, ...]]:
    """Part tokens into statements at `;`; the body of a trigger or a routine stays whole."""
    current: list[Token] = []
    is_routine = False
    level = 0
    for token in tokens:
        word = token.keyword
        if token.text == ";" and token.kind is Kind.SIGN and level <= 0:
            if current:
                yield tuple(current)
            current, is_routine, level = [], False, 0
            continue
        before = current[-1].keyword if current else ""
        current.append(token)
        if word in _ROUTINES and len(current) <= _MAX_ROUTINE_WORD:
            is_routine = is_routine or current[0].keyword in {"CREATE", "ALTER"}
        if is_routine:
            level += _level_change(word, before)
    if current:
        yield tuple(current)


def _level_change(word: str, before: str) -> int:
    if word == "END":
        return -1
    return int(word in {"BEGIN", "CASE"} and before != "END")


def find_word(
    tokens: Sequence[Token], words: frozenset[str] | set[str], start: int = 0
) -> int | None:
    """Find the first of the words outside brackets, from `start` to where its own bracket ends."""
    level = 0
    for number in range(start, len(tokens)):
        token = tokens[number]
        if token.kind is Kind.SIGN:
            level += {"(": 1, ")": -1}.get(token.text, 0)
            if level < 0:
                return None
        elif level == 0 and token.keyword in words:
            return number
    return None


def end_of_part(tokens: Sequence[Token], start: int) -> int:
    """Find where the bracket that holds `start` closes; the end if none does."""
    level = 0
    for number in range(start, len(tokens)):
        if tokens[number].kind is Kind.SIGN:
            level += {"(": 1, ")": -1}.get(tokens[number].text, 0)
            if level < 0:
                return number
    return len(tokens)
