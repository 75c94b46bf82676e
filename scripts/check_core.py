"""Hold that the functional core calls no builtin that reaches the world or differs per process.

Imports are held by the import contracts; these builtins need none.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE = ("record", "audit", "replay", "compare", "canonical.py", "errors.py")
BANNED = {
    "__import__": "names code to import",
    "breakpoint": "reaches the terminal",
    "compile": "runs text as code",
    "eval": "runs text as code",
    "exec": "runs text as code",
    "hash": "differs per process for texts; use redrive.canonical.digest",
    "id": "differs per process",
    "input": "reaches the terminal",
    "open": "reaches the file system",
    "print": "reaches the terminal",
}


def find_banned_calls(name: str, source: str) -> Iterator[str]:
    """Yield a message per call of a banned builtin."""
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = node.func.id
            if called in BANNED:
                yield f"{name}:{node.lineno}: {called}() in the core: {BANNED[called]}"


def main() -> int:
    """Check every file of the core; give the exit status."""
    roots = [ROOT / "src" / "redrive" / name for name in CORE]
    files = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*.py"))]
    has_failed = False
    for path in sorted(files):
        name = str(path.relative_to(ROOT))
        for message in find_banned_calls(name, path.read_text(encoding="utf-8")):
            has_failed = True
            print(message)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
