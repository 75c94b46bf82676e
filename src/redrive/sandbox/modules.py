"""Which modules a policy may import, and what it declares; all read from the syntax tree.

Must not import what it reads about.

Source: DESIGN.md §7 "Purity".
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from typing import Final, TypeGuard

POLICY_API: Final = ("redrive.policy", "redrive.policies")


def parse_policy(source: str, filename: str = "<policy>") -> ast.Module:
    """Parse source; a text that is no Python gives an empty tree, whose import then says why."""
    try:
        return ast.parse(source, filename)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def find_neighbours(source: str, package: str = "") -> tuple[str, ...]:
    """List the names under which a text may mean a module beside it, sorted, once each.

    Args:
        source: one that is no Python has none.
        package: the dotted package that the text is part of; empty for a lone file.
    """
    names = {
        neighbour
        for node in ast.walk(parse_policy(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for neighbour in neighbours_of(node, package)
    }
    return tuple(sorted(names))


def neighbours_of(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """Yield the same of one import; whether there is such a module beside it, the caller sees."""
    for alias in node.names:
        if isinstance(node, ast.Import):
            name = alias.name
        elif node.level > 1:
            continue
        elif node.level == 1:
            name = ".".join(filter(None, (package, node.module or alias.name)))
        elif node.module == package:
            name = f"{package}.{alias.name}"
        else:
            name = node.module or ""
        if not package:
            yield name.partition(".")[0]
        elif name.startswith(f"{package}."):
            yield name.removeprefix(f"{package}.").partition(".")[0]


def is_importable(name: str, libraries: Sequence[str]) -> bool:
    """Tell whether a module is of the standard library, of redrive's policy API, or declared."""
    top = name.partition(".")[0]
    if top == "redrive":
        return name == "redrive" or is_declared(name, POLICY_API)
    return top in sys.stdlib_module_names or is_declared(name, libraries)


def is_declared(name: str, libraries: Sequence[str]) -> bool:
    """Tell whether a module or a package above it is declared."""
    return any(name == library or name.startswith(f"{library}.") for library in libraries)


def declared_libraries(source: str) -> tuple[str, ...]:
    """Read the third-party modules that a policy declares, in order, once each.

    Either `LIBRARIES = ("sqlglot",)` in the module or `libraries = (…)` in a class; a literal tuple
    or list of texts. Anything else declares nothing.
    """
    names: dict[str, None] = {}
    for statement in _declaring(parse_policy(source)):
        if isinstance(statement.value, ast.Tuple | ast.List):
            for element in statement.value.elts:
                if isinstance(element, ast.Constant) and isinstance(element.value, str):
                    names[element.value] = None
    return tuple(names)


def _declaring(tree: ast.Module) -> Iterator[ast.Assign | ast.AnnAssign]:
    for statement in tree.body:
        if _assigns(statement, "LIBRARIES"):
            yield statement
        elif isinstance(statement, ast.ClassDef):
            yield from (inner for inner in statement.body if _assigns(inner, "libraries"))


def _assigns(statement: ast.stmt, name: str) -> TypeGuard[ast.Assign | ast.AnnAssign]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    else:
        return False
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
