"""Names in a syntax tree: what a scope binds, and what an expression starts from.

Knows Python's scopes. Must not judge; `scan.py` does.
"""

import ast
from collections.abc import Iterator, Sequence

_SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def find_bound_names(
    body: Sequence[ast.AST], arguments: ast.arguments | None = None
) -> frozenset[str]:
    """List what a scope binds itself; imports are not counted, nor names declared `global`."""
    names: set[str] = set()
    free: set[str] = set()
    for node in _own_nodes(body):
        if isinstance(node, ast.Global):
            free |= set(node.names)
        else:
            names.add(_bound_name(node) or "")
    if arguments is not None:
        names |= {inner.arg for inner in ast.walk(arguments) if isinstance(inner, ast.arg)}
    return frozenset(names - free - {""})


def _bound_name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.ExceptHandler(name=found) | ast.MatchAs(name=found) | ast.MatchStar(name=found):
            return found
        case ast.MatchMapping(rest=found):
            return found
        case _:
            return None


def _own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a scope without those of the scopes inside it."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES):
            waiting.extend(ast.iter_child_nodes(node))


def find_chain(node: ast.AST) -> tuple[str, ...]:
    """Split `a.b.c` into its names; empty if it does not start with a name."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ()
    return (node.id, *reversed(words))


def find_root(node: ast.AST) -> str | None:
    """Find the name that `a.b[c].d` starts from; `None` if it starts from no name."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def is_type_checking(test: ast.expr) -> bool:
    """Tell whether the test of an `if` is `TYPE_CHECKING`, whose body never runs."""
    chain = find_chain(test)
    return bool(chain) and chain[-1] == "TYPE_CHECKING"
