"""What one SQL statement does to tables: drops, empties, fills, renames, or begins a transaction.

Knows statements as tokens. Must not keep anything from one statement to the next.

Source: the grammars of SQLite, PostgreSQL, MySQL; where they differ, the dialect decides.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from redrive.policies.sql_tokens import Kind, Token, end_of_part, find_word, scan, split_statements
from redrive.policies.sql_where import Reach, read_condition

_MAX_DEPTH = 4
# Changes read in one WITH; each looks for its own end, so their number bounds the cost.
_MAX_CHANGES = 64
_CHANGES = frozenset({"DELETE", "UPDATE", "INSERT", "REPLACE"})
_TEMPORARY = frozenset({"TEMP", "TEMPORARY"})
_DROPPED = frozenset(
    {
        *("TABLE", "DATABASE", "SCHEMA", "MEASUREMENT", "SERIES", "BUCKET", "KEYSPACE"),
        *("TABLESPACE", "COLLECTION", "STREAM"),
    }
)
_TAIL = frozenset({"RETURNING", "LIMIT", "ORDER", "GROUP", "OPTION", "OUTPUT"})
_TRANSACTION_WORDS = frozenset(
    {"TRANSACTION", "TRAN", "WORK", "DEFERRED", "IMMEDIATE", "EXCLUSIVE", "READ", "ISOLATION", ""}
)


class Act(StrEnum):
    """What is done; the last ones move through a transaction."""

    DROP = "drop_table"
    DROP_OTHER = "drop"
    DROP_COLUMN = "drop_column"
    TRUNCATE = "truncate"
    DELETE = "delete"
    UPDATE = "update"
    REPLACE = "replace_table"
    CREATE = "create"
    FILL = "fill"
    RENAME = "rename"
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    RELEASE = "release"


class Effect(msgspec.Struct, frozen=True):
    """One effect. `name` is the table, as `schema.table` where it is written so.

    `other` is the new name, the table that rows come from, the column, or the kind that is dropped.
    """

    act: Act
    name: str = ""
    other: str = ""
    reach: Reach = Reach.ALL
    is_conditional: bool = False
    is_temporary: bool = False


def read_effects(
    sql: str, tokens: Sequence[Token], dialect: str | None = None, depth: int = 0
) -> tuple[Effect, ...]:
    """Read what one statement does.

    Args:
        sql: the script that the tokens are of.
        tokens: of one statement.
        dialect: sqlglot's name of the dialect.
        depth: how deep the statement lies in others, as in `DO $$ … $$`.

    Returns:
        Its effects in order; none for a statement that loses and moves nothing.
    """
    start = 0
    while start < len(tokens) and (tokens[start].text == "(" or tokens[start].keyword == "GO"):
        start += 1
    tokens = tokens[start:]
    if not tokens or depth > _MAX_DEPTH:
        return ()
    reader = _READERS.get(tokens[0].keyword)
    return tuple(reader(_Statement(sql, tokens, dialect, depth))) if reader else ()


class _Statement:
    """A statement's tokens, with what is asked of them most."""

    def __init__(self, sql: str, tokens: Sequence[Token], dialect: str | None, depth: int) -> None:
        self.sql = sql
        self.tokens = tokens
        self.dialect = dialect
        self.depth = depth

    def word(self, number: int) -> str:
        return self.tokens[number].keyword if 0 <= number < len(self.tokens) else ""

    def text(self, number: int) -> str:
        return self.tokens[number].text if 0 <= number < len(self.tokens) else ""

    def inner(self, tokens: Sequence[Token]) -> tuple[Effect, ...]:
        return read_effects(self.sql, tokens, self.dialect, self.depth + 1)

    def name(self, number: int) -> tuple[str, int]:
        """Read a name such as `main.users` from a place on; give it and the place behind it."""
        parts: list[str] = []
        while number < len(self.tokens) and self.tokens[number].kind in {
            Kind.WORD,
            Kind.NAME,
            Kind.STRING,
        }:
            parts.append(self.tokens[number].text)
            number += 1
            if self.text(number) != ".":
                break
            number += 1
        return ".".join(parts), number

    def names(self, number: int) -> Iterator[str]:
        """Read names parted by commas."""
        while True:
            name, number = self.name(number)
            if name:
                yield name
            if not name or self.text(number) != ",":
                return
            number += 1

    def existence(self, number: int) -> tuple[bool, int]:
        """Step over IF EXISTS or IF NOT EXISTS; tell whether it was there."""
        if self.word(number) != "IF":
            return False, number
        return True, number + (3 if self.word(number + 1) == "NOT" else 2)


def _drop(statement: _Statement) -> Iterator[Effect]:
    number = 1
    is_temporary = statement.word(number) in _TEMPORARY
    while statement.word(number) in _TEMPORARY | {"FOREIGN", "EXTERNAL"}:
        number += 1
    kind = statement.word(number)
    if kind == "OWNED" or (kind == "RETENTION" and statement.word(number + 1) == "POLICY"):
        name, _ = statement.name(number + 2)
        yield Effect(Act.DROP_OTHER, name, kind.lower())
        return
    if kind not in _DROPPED:
        return
    is_conditional, number = statement.existence(number + 1)
    if kind == "SERIES" and statement.word(number) == "FROM":
        number += 1
    act = Act.DROP if kind == "TABLE" else Act.DROP_OTHER
    for name in statement.names(number):
        yield Effect(
            act, name, kind.lower(), is_conditional=is_conditional, is_temporary=is_temporary
        )


def _truncate(statement: _Statement) -> Iterator[Effect]:
    number = 1
    while statement.word(number) in {"TABLE", "ONLY"}:
        number += 1
    is_conditional, number = statement.existence(number)
    for name in statement.names(number):
        yield Effect(Act.TRUNCATE, name, is_conditional=is_conditional)


def _alter(statement: _Statement) -> Iterator[Effect]:
    if statement.word(1) != "TABLE":
        return
    _, number = statement.existence(2)
    number += statement.word(number) == "ONLY"
    name, number = statement.name(number)
    if statement.word(number) == "RENAME" and statement.word(number + 1) in {"TO", "AS"}:
        new, _ = statement.name(number + 2)
        yield Effect(Act.RENAME, name, new)
        return
    for place in range(number, len(statement.tokens)):
        if statement.word(place) == "DROP" and statement.word(place + 1) not in _HARMLESS_PARTS:
            column = place + 1 + (statement.word(place + 1) in {"COLUMN", "PARTITION"})
            is_conditional, column = statement.existence(column)
            yield Effect(
                Act.DROP_COLUMN, name, statement.text(column), is_conditional=is_conditional
            )


_HARMLESS_PARTS = frozenset(
    {
        *("CONSTRAINT", "INDEX", "KEY", "PRIMARY", "FOREIGN", "DEFAULT", "NOT", "CHECK"),
        *("IDENTITY", "EXPRESSION", "PROJECTION", "TTL", ""),
    }
)


def _create(statement: _Statement) -> Iterator[Effect]:
    number = 1
    replaces = statement.word(1) == "OR" and statement.word(2) == "REPLACE"
    number += 2 * replaces
    is_temporary = False
    while statement.word(number) in _TEMPORARY | {"GLOBAL", "LOCAL", "UNLOGGED", "TRANSIENT"}:
        is_temporary = is_temporary or statement.word(number) in _TEMPORARY
        number += 1
    if statement.word(number) != "TABLE":
        return
    is_conditional, number = statement.existence(number + 1)
    name, number = statement.name(number)
    if replaces:
        yield Effect(Act.REPLACE, name)
    yield Effect(Act.CREATE, name, is_conditional=is_conditional, is_temporary=is_temporary)
    if statement.word(number) == "AS":
        source, reach = _source(statement, number + 1)
        yield Effect(Act.FILL, name, source, reach, is_temporary=is_temporary)


def _insert(statement: _Statement) -> Iterator[Effect]:
    number = find_word(statement.tokens, {"INTO", "OVERWRITE"})
    if number is None:
        return
    if statement.word(number) == "OVERWRITE":
        name, _ = statement.name(number + 1 + (statement.word(number + 1) in {"TABLE", "INTO"}))
        yield Effect(Act.REPLACE, name)
    name, behind = statement.name(number + 1 + (statement.word(number + 1) == "TABLE"))
    source, reach = _source(statement, behind)
    yield Effect(Act.FILL, name, source, reach)


def _source(statement: _Statement, number: int) -> tuple[str, Reach]:
    """Find which table rows are selected from; no table if they are written out."""
    start = find_word(statement.tokens, {"FROM"}, number)
    if start is None:
        return "", Reach.ALL
    name, _ = statement.name(start + 1)
    return name, _where(statement, start, len(statement.tokens), name)


def _delete(statement: _Statement, start: int = 0) -> Iterator[Effect]:
    tokens = statement.tokens
    end = end_of_part(tokens, start)
    number = find_word(tokens, {"FROM"}, start)
    if number is None:
        return
    number += 1 + (statement.word(number + 1) == "ONLY")
    name, _ = statement.name(number)
    if name:
        reach = _where(statement, number, end, name)
        yield Effect(Act.DELETE, name, reach=reach)


def _update(statement: _Statement, start: int = 0) -> Iterator[Effect]:
    tokens = statement.tokens
    end = end_of_part(tokens, start)
    number = start + 1
    if statement.word(number) == "OR":
        number += 2
    name, number = statement.name(number + (statement.word(number) == "ONLY"))
    if name and find_word(tokens, {"SET"}, number) is not None:
        yield Effect(Act.UPDATE, name, reach=_where(statement, number, end, name))


def _where(statement: _Statement, start: int, end: int, name: str) -> Reach:
    tokens = statement.tokens[:end]
    if find_word(tokens, {"LIMIT", "TOP", "FETCH"}, start) is not None:
        return Reach.SOME
    begin = find_word(tokens, {"WHERE"}, start)
    if begin is None:
        return Reach.ALL
    stop = find_word(tokens, _TAIL, begin + 1)
    inside = tokens[begin + 1 : stop if stop is not None else end]
    if not inside:
        return Reach.SOME
    text = statement.sql[inside[0].start : inside[-1].end]
    return read_condition(text, name.rpartition(".")[2].lower(), statement.dialect)


def _with(statement: _Statement) -> Iterator[Effect]:
    """Read what the parts of a WITH do, and what comes behind them."""
    words = [statement.word(number) for number in range(len(statement.tokens))]
    places = [number for number, word in enumerate(words) if word in _CHANGES]
    for number in places[:_MAX_CHANGES]:
        match statement.word(number), statement.word(number + 1):
            case "DELETE", "FROM":
                yield from _delete(statement, number)
            case "UPDATE", following if following != "SET" and statement.word(number - 1) != "DO":
                yield from _update(statement, number)
            case (("INSERT" | "REPLACE"), "INTO"):
                yield from statement.inner(statement.tokens[number:])
            case _:
                pass


def _explain(statement: _Statement) -> Iterator[Effect]:
    """EXPLAIN runs nothing, except with ANALYZE where that runs the statement."""
    if statement.dialect in {"sqlite", "mysql"}:
        return
    number = next((n for n in range(1, 8) if statement.word(n) in _RUNNABLE), None)
    words = {statement.word(n) for n in range(1, number or 1)}
    if number is not None and words & {"ANALYZE", "ANALYSE"}:
        yield from statement.inner(statement.tokens[number:])


_RUNNABLE = frozenset({"DELETE", "UPDATE", "INSERT", "WITH", "CREATE", "TRUNCATE", "DROP"})


def _begin(statement: _Statement) -> Iterator[Effect]:
    if statement.word(1) in _TRANSACTION_WORDS and len(statement.tokens) < 8:
        yield Effect(Act.BEGIN)
    elif statement.word(0) == "BEGIN":
        yield from statement.inner(statement.tokens[1:])


def _commit(statement: _Statement) -> Iterator[Effect]:
    if statement.word(1) in _TRANSACTION_WORDS | {"AND"}:
        yield Effect(Act.COMMIT)


def _rollback(statement: _Statement) -> Iterator[Effect]:
    target = find_word(statement.tokens, {"TO"})
    if target is None:
        yield Effect(Act.ROLLBACK)
    else:
        target += 1 + (statement.word(target + 1) == "SAVEPOINT")
        yield Effect(Act.ROLLBACK, statement.text(target).lower())


def _savepoint(statement: _Statement) -> Iterator[Effect]:
    if statement.word(0) == "SAVEPOINT":
        yield Effect(Act.SAVEPOINT, statement.text(1).lower())
    else:
        number = 1 + (statement.word(1) == "SAVEPOINT")
        yield Effect(Act.RELEASE, statement.text(number).lower())


def _nested(statement: _Statement) -> Iterator[Effect]:
    """Read the script that `DO`, `EXECUTE IMMEDIATE` or `EXEC(…)` holds as a text."""
    for token in statement.tokens[1:6]:
        if token.kind is Kind.STRING:
            for inner in split_statements(scan(token.text, statement.dialect)):
                yield from read_effects(token.text, inner, statement.dialect, statement.depth + 1)
            return


_READERS: Mapping[str, Callable[[_Statement], Iterator[Effect]]] = {
    "DROP": _drop,
    "TRUNCATE": _truncate,
    "ALTER": _alter,
    "CREATE": _create,
    "INSERT": _insert,
    "REPLACE": _insert,
    "DELETE": _delete,
    "UPDATE": _update,
    "WITH": _with,
    "EXPLAIN": _explain,
    "BEGIN": _begin,
    "START": _begin,
    "COMMIT": _commit,
    "END": _commit,
    "ROLLBACK": _rollback,
    "ABORT": _rollback,
    "SAVEPOINT": _savepoint,
    "RELEASE": _savepoint,
    "DO": _nested,
    "EXECUTE": _nested,
    "EXEC": _nested,
}
