"""What an SQL script would lose, and whether it leaves a table empty.

Knows transactions, and which tables a script makes itself. Must not open a database.

What it cannot see: triggers, cascades, views, routines that are called, and rows.
"""

import msgspec

from redrive.policies.sql_effects import Act, Effect, read_effects
from redrive.policies.sql_tables import Tables
from redrive.policies.sql_tokens import Kind, Token, scan, split_statements
from redrive.policies.sql_where import Reach

MAX_CHARS = 256 * 1024
# A statement on a table's shape ends the transaction that it stands in.
_COMMITTING_DIALECTS = frozenset({"mysql", "mariadb", "oracle", "bigquery", "hive"})
_SHAPE = frozenset({Act.DROP, Act.DROP_OTHER, Act.DROP_COLUMN, Act.TRUNCATE, Act.CREATE})
_LOSING = frozenset(
    {
        *(Act.DROP, Act.DROP_OTHER, Act.DROP_COLUMN, Act.TRUNCATE),
        *(Act.DELETE, Act.UPDATE, Act.REPLACE),
    }
)


class TableLoss(msgspec.Struct, frozen=True):
    """A statement that loses what a table or a database holds.

    `statement_no` counts from 1; `table` is the name as written, `schema.table` where it is; `how`
    is one of `drop_table drop_column truncate delete_all update_all replace_table`, or `drop_KIND`,
    such as `drop_database`. `is_conditional`: IF EXISTS, so a loss only where it is there.
    `is_certain`: the condition is empty or always true; else it holds for any usual key, or a quote
    in the script does not end.
    """

    statement_no: int
    table: str
    how: str
    is_conditional: bool = False
    is_certain: bool = True

    @property
    def is_mild(self) -> bool:
        """Tell whether only values are lost, and not rows."""
        return self.how in {"update_all", "drop_column"}


def find_losses(sql: str, dialect: str | None = None) -> tuple[TableLoss, ...]:
    """Find the statements of a script that lose data.

    Args:
        sql: any number of statements; the first 256 KiB are read. Text that is no SQL gives
            nothing.
        dialect: sqlglot's name of the dialect; without one, the rules that most share.

    Returns:
        In order. What a script rolls back is not lost, nor what it made itself; strings, comments,
        EXPLAIN and bodies of triggers and routines lose nothing.

    Raises:
        ModuleNotFoundError: sqlglot (extra `policies`) is not installed and a condition has to be
            read.

    Cost: O(n).
    """
    losses: list[TableLoss] = []
    marks: list[tuple[str, int]] = []
    made: set[str] = set()
    statements = _statements(sql, dialect)
    whole = len(statements) + (not _has_open_quote(sql, statements))
    for number, effects in enumerate(_effects(sql, statements, dialect), start=1):
        for effect in effects:
            if effect.act in _SHAPE and dialect in _COMMITTING_DIALECTS:
                marks.clear()
            _move(effect, marks, losses)
            if effect.act is Act.CREATE and (effect.is_temporary or not effect.is_conditional):
                made.add(effect.name.lower())
            elif _loses(effect) and effect.name.lower() not in made:
                losses.append(_loss(number, effect, is_whole=number < whole))
    return tuple(losses)


def empties_table(sql: str, table: str) -> bool:
    """Tell whether a script, run in SQLite, leaves `table` missing or without rows.

    Args:
        sql: any number of statements. As in SQLite, a statement that is not its SQL ends the
            script, and what was done before it stays done.
        table: a table of the main database that holds rows before.

    Returns:
        False also where the answer depends on the rows themselves, such as `WHERE id = 1`.
    """
    tables = Tables(table)
    statements = _statements(sql, "sqlite")
    for tokens, effects in zip(statements, _effects(sql, statements, "sqlite"), strict=True):
        if not tables.run(tokens, effects):
            break
    return tables.is_empty()


def _statements(sql: str, dialect: str | None) -> list[tuple[Token, ...]]:
    return list(split_statements(scan(sql[:MAX_CHARS], dialect)))


def _effects(
    sql: str, statements: list[tuple[Token, ...]], dialect: str | None
) -> list[tuple[Effect, ...]]:
    return [read_effects(sql, tokens, dialect) for tokens in statements]


def _has_open_quote(sql: str, statements: list[tuple[Token, ...]]) -> bool:
    """Tell whether the last token is a quote that does not end."""
    if not statements or statements[-1][-1].kind not in {Kind.STRING, Kind.NAME}:
        return False
    last = statements[-1][-1]
    text = sql[last.start : last.end]
    return len(text) == 1 or text[-1] not in "'\"`]$"


def _loses(effect: Effect) -> bool:
    return effect.act in _LOSING and effect.reach > Reach.SOME


def _loss(number: int, effect: Effect, *, is_whole: bool) -> TableLoss:
    how = effect.act.value
    if effect.act is Act.DROP_OTHER:
        how = f"drop_{effect.other}"
    elif effect.act in {Act.DELETE, Act.UPDATE}:
        how = f"{effect.act.value}_all"
    is_certain = effect.reach is Reach.ALL and is_whole
    return TableLoss(number, effect.name, how, effect.is_conditional, is_certain)


def _move(effect: Effect, marks: list[tuple[str, int]], losses: list[TableLoss]) -> None:
    """Follow a transaction: each mark says how many losses there were when it was set."""
    match effect.act:
        case Act.BEGIN if not marks:
            marks.append(("", len(losses)))
        case Act.SAVEPOINT:
            marks.append((effect.name, len(losses)))
        case Act.COMMIT:
            marks.clear()
        case Act.ROLLBACK if (place := _find_mark(marks, effect.name)) is not None:
            del losses[marks[place][1] :]
            del marks[place + bool(effect.name) :]
        case Act.ROLLBACK if marks and not effect.name:
            del losses[marks[0][1] :]
            marks.clear()
        case Act.RELEASE if (place := _find_mark(marks, effect.name)) is not None:
            del marks[place:]
        case _:
            pass


def _find_mark(marks: list[tuple[str, int]], name: str) -> int | None:
    """Find the place of the last mark with this name."""
    return next((n for n in reversed(range(len(marks))) if marks[n][0] == name), None)
