"""Hold the sizes that STYLE sets for the source, and that a package's `__init__` only hands on.

Fails over 600 lines in a file or 60 in a function (docstring included); over 400 and 40 it prints
a warning. An `__init__.py` may hold a docstring, imports, `__version__` and an `__all__` that names
exactly what is imported. The order of `__all__` is held by ruff (RUF022). A folder of modules
without an `__init__.py` fails: coverage would not see it.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_LIMIT, FILE_WARNING = 600, 400
FUNCTION_LIMIT, FUNCTION_WARNING = 60, 40

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_size_problems(path: Path, source: str) -> Iterator[tuple[bool, str]]:
    """Yield (is_failure, message) for each file or function that is too long."""
    yield from _judge(f"{path}", "file", source.count("\n"), FILE_WARNING, FILE_LIMIT)
    for node in ast.walk(ast.parse(source, str(path))):
        if isinstance(node, _Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            where = f"{path}:{node.lineno}"
            yield from _judge(where, node.name, lines, FUNCTION_WARNING, FUNCTION_LIMIT)


def _judge(
    where: str, what: str, lines: int, warning: int, limit: int
) -> Iterator[tuple[bool, str]]:
    if lines > limit:
        yield True, f"{where}: {what} has {lines} lines; the limit is {limit}"
    elif lines > warning:
        yield False, f"{where}: {what} has {lines} lines; aim at {warning}"


def find_init_problems(path: Path, source: str) -> Iterator[str]:
    """Yield a message for each thing an `__init__.py` does beside handing names on."""
    imported: set[str] = set()
    exported: list[str] | None = None
    for node in ast.parse(source, str(path)).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {alias.asname or alias.name for alias in node.names}
        elif (names := _exported_names(node)) is not None:
            exported = names
        elif not (_is_docstring(node) or _is_version(node)):
            yield f"{path}:{node.lineno}: __init__ only hands names on"
    version = {"__version__"} if "__version__ =" in source else set()
    if imported and exported is None:
        yield f"{path}: hands names on without __all__"
    elif exported is not None and set(exported) - version != imported:
        difference = ", ".join(sorted((set(exported) - version) ^ imported))
        yield f"{path}: __all__ and the imports differ: {difference}"


def find_bare_folders(root: Path) -> list[Path]:
    """List the folders below `root` that hold modules but no `__init__.py`, sorted."""
    folders = {path.parent for path in root.rglob("*.py")}
    return sorted(folder for folder in folders if not (folder / "__init__.py").is_file())


def _exported_names(node: ast.stmt) -> list[str] | None:
    if isinstance(node, ast.Assign) and _target(node.targets[0]) == "__all__":
        value = ast.literal_eval(node.value)
        return [str(name) for name in value]
    return None


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_version(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and _target(node.targets[0]) == "__version__"


def _target(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def main() -> int:
    """Check every source file; give the exit status."""
    has_failed = False
    for folder in find_bare_folders(ROOT / "src"):
        has_failed = True
        print(f"{folder.relative_to(ROOT)}: no __init__.py")
    for path in sorted((ROOT / "src").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        name = path.relative_to(ROOT)
        for is_failure, message in find_size_problems(name, source):
            has_failed |= is_failure
            print(message if is_failure else f"warning: {message}")
        if path.name == "__init__.py":
            for message in find_init_problems(name, source):
                has_failed = True
                print(message)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
