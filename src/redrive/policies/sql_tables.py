"""What becomes of tables while a script runs in SQLite.

Knows which tables are there and whether they hold rows. Must not open a database.

Source: the SQLite documentation, "SQL As Understood By SQLite".
"""

from collections.abc import Sequence
from enum import StrEnum

from redrive.policies.sql_effects import Act, Effect
from redrive.policies.sql_tokens import Token
from redrive.policies.sql_where import Reach

_STATEMENTS = frozenset(
    {
        *("ALTER", "ANALYZE", "ATTACH", "BEGIN", "COMMIT", "CREATE", "DELETE", "DETACH", "DROP"),
        *("END", "EXPLAIN", "INSERT", "PRAGMA", "REINDEX", "RELEASE", "REPLACE", "ROLLBACK"),
        *("SAVEPOINT", "SELECT", "UPDATE", "VACUUM", "VALUES", "WITH"),
    }
)


_DROPPABLE = frozenset({"TABLE", "VIEW", "INDEX", "TRIGGER"})
_MIN_DROP_TOKENS = 2


class State(StrEnum):
    """A table's state."""

    ROWS = "rows"
    EMPTY = "empty"
    MISSING = "missing"


class Tables:
    """The tables of one connection; a table that the script has not touched holds rows."""

    def __init__(self, table: str) -> None:
        """Begin with `table`, which holds rows."""
        self.table = _plain(table)
        self.states: dict[str, State] = {self.table: State.ROWS}
        self.marks: list[tuple[str, dict[str, State]]] = []

    def is_empty(self) -> bool:
        """Tell whether the table is missing or without rows now."""
        return self.states[self.table] is not State.ROWS

    def run(self, tokens: Sequence[Token], effects: Sequence[Effect]) -> bool:
        """Run one statement; false if SQLite would stop with an error there."""
        word = tokens[0].keyword
        if word not in _STATEMENTS or (word == "DELETE" and tokens[1:2] != () and not effects):
            return False
        if word == "DROP" and not self._can_drop(tokens, effects):
            return False
        return all(self._apply(effect) for effect in effects)

    def _can_drop(self, tokens: Sequence[Token], effects: Sequence[Effect]) -> bool:
        if len(effects) > 1 or any(effect.act is Act.DROP_OTHER for effect in effects):
            return False
        if any(effect.is_temporary for effect in effects):
            return False
        if not effects:
            return len(tokens) > _MIN_DROP_TOKENS and tokens[1].keyword in _DROPPABLE
        return tokens[-1].keyword not in {"CASCADE", "RESTRICT"}

    def _apply(self, effect: Effect) -> bool:
        if effect.act in {Act.BEGIN, Act.COMMIT, Act.ROLLBACK, Act.SAVEPOINT, Act.RELEASE}:
            return self._move(effect)
        name = self._find(effect.name, is_temporary=effect.is_temporary)
        state = self.states.get(name)
        if effect.act is Act.CREATE:
            return self._create(name, state, is_conditional=effect.is_conditional)
        if state is State.MISSING:
            return effect.is_conditional
        match effect.act:
            case Act.DROP:
                self.states[name] = State.MISSING
            case Act.DELETE if effect.reach > Reach.SOME:
                self.states[name] = State.EMPTY
            case Act.FILL if self._gives_rows(effect):
                self.states[name] = State.ROWS
            case Act.RENAME:
                return self._rename(name, effect.other, state or State.ROWS)
            case _:
                pass
        return True

    def _create(self, name: str, state: State | None, *, is_conditional: bool) -> bool:
        if state in {State.ROWS, State.EMPTY}:
            return is_conditional
        self.states[name] = State.EMPTY
        return True

    def _rename(self, name: str, new: str, state: State) -> bool:
        target = _plain(new)
        if self.states.get(target, State.MISSING) is not State.MISSING:
            return False
        self.states[name] = State.MISSING
        self.states[target] = state
        return True

    def _gives_rows(self, effect: Effect) -> bool:
        if effect.reach is Reach.NONE:
            return False
        if not effect.other:
            return True
        source = self.states.get(self._find(effect.other), State.ROWS)
        return source is State.ROWS

    def _find(self, name: str, *, is_temporary: bool = False) -> str:
        """Give a table's key: a temporary one hides the main database's."""
        plain = _plain(name)
        temporary = f"temp.{plain}"
        if is_temporary:
            return temporary
        is_hidden = self.states.get(temporary, State.MISSING) is not State.MISSING
        return temporary if is_hidden and "." not in name else plain

    def _move(self, effect: Effect) -> bool:
        match effect.act:
            case Act.BEGIN:
                is_first = not self.marks
                self.marks.append(("", dict(self.states)))
                return is_first
            case Act.SAVEPOINT:
                self.marks.append((effect.name, dict(self.states)))
                return True
            case Act.COMMIT:
                was_open = bool(self.marks)
                self.marks.clear()
                return was_open
            case Act.ROLLBACK if not effect.name:
                if self.marks:
                    self.states = self.marks[0][1]
                    self.marks.clear()
                    return True
                return False
            case _:
                return self._to_savepoint(effect)

    def _to_savepoint(self, effect: Effect) -> bool:
        names = [name for name, _ in self.marks]
        if effect.name not in names:
            return False
        place = len(names) - 1 - names[::-1].index(effect.name)
        if effect.act is Act.ROLLBACK:
            self.states = dict(self.marks[place][1])
            del self.marks[place + 1 :]
        else:
            del self.marks[place:]
        return True


def _plain(name: str) -> str:
    """Give a name as SQLite compares it; the main database's needs no prefix."""
    return name.lower().removeprefix("main.")
