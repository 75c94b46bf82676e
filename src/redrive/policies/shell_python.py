"""What a piece of Python code deletes or starts, as far as literal arguments show it.

Knows the calls of the standard library that delete or run. Must not run or import the code. A
modest check: names that are bound to one literal are followed, anything computed is unknown.

Source: the documentation of `os`, `shutil` and `subprocess`.
"""

import ast
import warnings
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from redrive.policies.shell_paths import MADE_TEMPORARY
from redrive.policies.shell_words import UNKNOWN, is_known

Action: TypeAlias = str | tuple[str, ...]
_MAX_CHARS = 64 * 1024
_MAX_ATTRIBUTES = 20
_SQL_METHODS = frozenset({"execute", "executescript"})
_SHELL_CALLS = frozenset(
    {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
)
_ARGUMENT_CALLS = frozenset(
    f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")
)
_SINGLE_REMOVALS = frozenset({"os.remove", "os.unlink"})
_HOME_CALLS = frozenset({"Path.home", "pathlib.Path.home", "os.path.expanduser"})
_TEMPORARY_CALLS = frozenset({"tempfile.mkdtemp", "mkdtemp", "tempfile.gettempdir"})


class PythonReading(msgspec.Struct, frozen=True):
    """What code does; `is_complete` is false if it is too long or too deep to be read."""

    actions: tuple[Action, ...] = ()
    is_complete: bool = True


def find_python_actions(code: str) -> tuple[Action, ...]:
    """Find what code deletes and starts, as `read_python` does."""
    return read_python(code).actions


def read_python(code: str) -> PythonReading:
    """Read what code deletes and starts.

    Args:
        code: Python source; empty, too long or no valid Python gives nothing.

    Returns:
        In source order: a text is a shell command line, a tuple is a program's words. A recursive
        removal is `("shutil.rmtree", path)`; last, the SQL that it executes as a client would
        get it: `("sqlite3", path, script)`, or `("sql.execute", script)`.
    """
    if not code or len(code) > _MAX_CHARS:
        return PythonReading(is_complete=not code)
    try:
        tree = _parse(code)
        values, names = _literal_values(tree), _imported_names(tree)
        found = tuple(a for node in ast.walk(tree) for a in _actions(node, values, names))
        return PythonReading((*found, *_sql_actions(tree, values, names)))
    except (RecursionError, MemoryError):
        return PythonReading(is_complete=False)
    except (SyntaxError, ValueError):
        return PythonReading()


def _parse(code: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape is the code's business, not the reader's
        return ast.parse(code)


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """Map each imported name to its full one, such as `run` to `subprocess.run`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({item.asname or item.name: item.name for item in node.names})
        elif isinstance(node, ast.ImportFrom):
            for item in node.names:
                names[item.asname or item.name] = f"{node.module}.{item.name}"
    return names


def _full_name(node: ast.expr, names: dict[str, str]) -> str:
    ends: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute) and len(ends) < _MAX_ATTRIBUTES:
        ends.insert(0, inner.attr)
        inner = inner.value
    match inner:  # a module that is imported where it is used
        case ast.Call(ast.Name("__import__") | ast.Attribute(attr="import_module"), [named, *_]):
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                return ".".join((named.value, *ends))
        case _:
            pass
    if not isinstance(node, ast.Name | ast.Attribute):
        return ""
    first, dot, rest = ast.unparse(node).partition(".")
    return names.get(first, first) + dot + rest


def _literal_values(tree: ast.AST) -> dict[str, ast.expr]:
    """Map each name that is bound once to what it is bound to."""
    found: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            found[name] = ast.Constant(None) if name in found else node.value
    return found


def _actions(node: ast.AST, values: dict[str, ast.expr], names: dict[str, str]) -> Iterator[Action]:
    if isinstance(node, ast.For):
        yield from _walk_removals(node, values, names)
    if not isinstance(node, ast.Call):
        return
    name = _full_name(node.func, names)
    first = node.args[0] if node.args else None
    first = next((key.value for key in node.keywords if key.arg in {"path", "args"}), first)
    if first is None:
        return
    if name == "shutil.rmtree":
        yield name, _path(first, values)
    elif name in _SHELL_CALLS:
        yield _path(first, values)
    elif name in _ARGUMENT_CALLS:
        yield from _started(first, values)


def _sql_actions(
    tree: ast.AST, values: dict[str, ast.expr], names: dict[str, str]
) -> Iterator[Action]:
    """Give the literal SQL that code executes, as one script: what it makes, it may drop."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    texts: list[tuple[int, int, str]] = []
    databases: set[str] = set()
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SQL_METHODS:
            text = _path(call.args[0], values)
            texts.append((call.end_lineno or 0, call.end_col_offset or 0, text))
        elif _full_name(call.func, names) == "sqlite3.connect":
            databases.add(_path(call.args[0], values))
    script = ";\n".join(text for _, _, text in sorted(texts) if is_known(text))
    if script:
        one = databases.pop() if len(databases) == 1 else UNKNOWN if databases else ""
        yield ("sqlite3", one, script) if one else ("sql.execute", script)


def _started(first: ast.expr, values: dict[str, ast.expr]) -> Iterator[Action]:
    if isinstance(first, ast.Name):
        first = values.get(first.id, first)
    if isinstance(first, ast.List | ast.Tuple):
        yield tuple(_path(item, values) for item in first.elts)
    elif (text := _path(first, values)) != UNKNOWN:
        yield text


def _walk_removals(
    node: ast.For, values: dict[str, ast.expr], names: dict[str, str]
) -> Iterator[Action]:
    """Find `os.remove` in a loop over `os.walk`: a recursive removal of what is walked."""
    if not isinstance(node.iter, ast.Call) or not node.iter.args:
        return
    if _full_name(node.iter.func, names) != "os.walk":
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and _full_name(inner.func, names) in _SINGLE_REMOVALS:
            yield "shutil.rmtree", _path(node.iter.args[0], values)
            return


def _path(node: ast.expr, values: dict[str, ast.expr], depth: int = 0) -> str:
    """Give the text of an expression; parts that are not literal are `UNKNOWN`."""
    if depth > 20:
        return UNKNOWN
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(parts):
            return "".join(_path(part, values, depth + 1) for part in parts)
        case ast.Name(name) if name in values:
            return _path(values[name], values, depth + 1)
        case ast.BinOp(left, operator, right) if isinstance(operator, ast.Div | ast.Add):
            sign = "/" if isinstance(operator, ast.Div) else ""
            return _path(left, values, depth + 1) + sign + _path(right, values, depth + 1)
        case ast.Call(func, args):
            return _called(ast.unparse(func), args, values, depth + 1)
        case _:
            return UNKNOWN


def _called(name: str, args: list[ast.expr], values: dict[str, ast.expr], depth: int) -> str:
    if name in _TEMPORARY_CALLS:
        return MADE_TEMPORARY
    if name in _HOME_CALLS:
        return _path(args[0], values, depth) if args else "~"
    if name.endswith(("Path", "str", "os.path.abspath", "os.path.realpath")) and args:
        return "/".join(_path(item, values, depth) for item in args)
    if name == "os.path.join":
        return "/".join(_path(item, values, depth) for item in args)
    return UNKNOWN
