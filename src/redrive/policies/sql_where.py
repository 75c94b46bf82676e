"""How many rows a condition lets through, as far as that does not depend on the rows.

Knows boolean logic on sqlglot's trees. Must not know statements. sqlglot is imported when the first
condition is read: it takes a third of a second, and most commands hold no SQL.
"""

from decimal import Decimal, InvalidOperation
from enum import IntEnum
from typing import Any

_MAX_CHARS = 16 * 1024


class Reach(IntEnum):
    """The rows that a condition is true for; in order, so that AND is `min` and OR is `max`."""

    NONE = 0
    SOME = 1
    LIKELY_ALL = 2
    ALL = 3


def read_condition(text: str, table: str, dialect: str | None = None) -> Reach:
    """Judge the text behind WHERE.

    Args:
        text: the condition; one that cannot be parsed lets some rows through.
        table: the table whose rows are meant, in small letters.
        dialect: sqlglot's name of the dialect.

    Returns:
        `LIKELY_ALL` where it holds for every row that a key makes sense for, such as
        `id IS NOT NULL` or `id > 0`.
    """
    if len(text) > _MAX_CHARS:
        return Reach.SOME
    from sqlglot import errors, exp, parse_one

    try:
        tree = parse_one(f"SELECT 1 WHERE {text}", read=dialect)
        where = tree.args.get("where") if isinstance(tree, exp.Select) else None
        return Reach.SOME if where is None else _Judge(exp, table).reach(where.this)
    except (errors.SqlglotError, RecursionError, ValueError):
        return Reach.SOME


class _Judge:
    """Walks one condition; `exp` is sqlglot's module of node types."""

    def __init__(self, exp: Any, table: str) -> None:
        self.exp = exp
        self.table = table

    def reach(self, node: Any) -> Reach:
        exp = self.exp
        if isinstance(node, exp.Paren):
            return self.reach(node.this)
        if isinstance(node, exp.And):
            return min(self.reach(part) for part in node.flatten())
        if isinstance(node, exp.Or):
            return max(self.reach(part) for part in node.flatten())
        if isinstance(node, exp.Not):
            return self._not(node.this)
        value = self.constant(node)
        if value is not None:
            return Reach.ALL if _is_true(value) else Reach.NONE
        if isinstance(node, exp.Null):
            return Reach.NONE
        return self._comparison(node)

    def _not(self, node: Any) -> Reach:
        exp = self.exp
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            if self.constant(node.this) is not None:
                return Reach.ALL
            return Reach.LIKELY_ALL if self._is_key(node.this) else Reach.SOME
        return {Reach.ALL: Reach.NONE, Reach.NONE: Reach.ALL}.get(self.reach(node), Reach.SOME)

    def _comparison(self, node: Any) -> Reach:
        exp = self.exp
        if isinstance(node, exp.Is):
            is_empty = isinstance(node.expression, exp.Null)
            is_null = is_empty and isinstance(node.this, exp.Null)
            return Reach.ALL if is_null else Reach.SOME
        if isinstance(node, exp.Like | exp.ILike):
            pattern = self.constant(node.expression)
            is_any = isinstance(pattern, str) and bool(pattern) and not pattern.strip("%")
            return Reach.LIKELY_ALL if is_any else Reach.SOME
        if isinstance(node, exp.In):
            return self._membership(node)
        if isinstance(node, exp.Exists):
            return Reach.SOME if node.this.args.get("from_") else Reach.ALL
        if isinstance(node, exp.Binary):
            return self._binary(node)
        return Reach.SOME

    def _binary(self, node: Any) -> Reach:
        exp = self.exp
        left, right = self.constant(node.this), self.constant(node.expression)
        if left is not None and right is not None and type(left) is type(right):
            result = self._compare(node, left, right)
            return Reach.SOME if result is None else Reach.ALL if result else Reach.NONE
        if isinstance(node, exp.EQ | exp.GTE | exp.LTE) and node.this == node.expression:
            return Reach.LIKELY_ALL if isinstance(node.this, exp.Column) else Reach.SOME
        is_low = isinstance(right, Decimal) and right <= 0
        if is_low and self._is_key(node.this) and isinstance(node, exp.GT | exp.GTE | exp.NEQ):
            return Reach.LIKELY_ALL
        return Reach.SOME

    def _compare(self, node: Any, left: Any, right: Any) -> bool | None:
        exp = self.exp
        for kind, result in (
            (exp.EQ, left == right),
            (exp.NEQ, left != right),
            (exp.GT, left > right),
            (exp.GTE, left >= right),
            (exp.LT, left < right),
            (exp.LTE, left <= right),
        ):
            if isinstance(node, kind):
                return bool(result)
        return None

    def _membership(self, node: Any) -> Reach:
        exp = self.exp
        value = self.constant(node.this)
        if value is not None:
            return Reach.ALL if value in map(self.constant, node.expressions) else Reach.SOME
        query = node.args.get("query")
        select = query.this if isinstance(query, exp.Subquery) else query
        if not isinstance(select, exp.Select) or not isinstance(node.this, exp.Column):
            return Reach.SOME
        source = select.args.get("from_")
        limits = [select.args.get(part) for part in ("where", "limit", "having", "joins", "offset")]
        if source is None or any(limits) or source.this.name.lower() != self.table:
            return Reach.SOME
        names = [column.name.lower() for column in select.expressions]
        return Reach.LIKELY_ALL if names == [node.this.name.lower()] else Reach.SOME

    def _is_key(self, node: Any) -> bool:
        if not isinstance(node, self.exp.Column):
            return False
        name = node.name.lower()
        keys = {"id", "rowid", "_rowid_", "oid", "uuid", "ctid", f"{self.table}_id"}
        return name in keys or name == f"{self.table.removesuffix('s')}_id"

    def constant(self, node: Any) -> str | Decimal | None:
        """Give the value of a literal, a boolean as a number; `None` for anything else."""
        exp = self.exp
        if isinstance(node, exp.Paren):
            return self.constant(node.this)
        if isinstance(node, exp.Boolean):
            return Decimal(int(node.this))
        if isinstance(node, exp.Neg):
            inner = self.constant(node.this)
            return -inner if isinstance(inner, Decimal) else None
        if isinstance(node, exp.Literal):
            return str(node.this) if node.is_string else _number(node.this)
        return None


def _number(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _is_true(value: str | Decimal) -> bool:
    if isinstance(value, Decimal):
        return value != 0
    number = _number(value)
    return number is not None and number != 0
